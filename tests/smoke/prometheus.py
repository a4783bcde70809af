#!/usr/bin/env python3
"""Checks by the HTTP API of Prometheus, for prometheus.sh.

    prometheus.py rules RULES TESTS           each alert has a test, and a remedy that exists
    prometheus.py counts URL KIND ROUNDS VERSION/STATUS=N...
                                              the histograms of this kind have the requests of all rounds
    prometheus.py dashboard URL FILE          each query of the dashboard returns data
    prometheus.py alerts URL STATE=ALERT...   the rules work, and the alerts have the states
"""

import json
import math
import pathlib
import re
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

# Prometheus reads each second.
RATE_INTERVAL = "30s"
WITHIN_SECONDS = 20
SERVER = "http_server_request_duration_seconds"


class Prometheus:
    def __init__(self, url):
        self.url = url

    def get(self, path, **parameters):
        query = urllib.parse.urlencode(parameters, doseq=True)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=20) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            sys.exit(f"{path} {parameters}: {error.read().decode()}")

    def values(self, query, is_instant=True):
        """The last values of a query, by their labels."""
        now = time.time()
        if is_instant:
            result = self.get("query", query=query, time=now)["result"]
            return [(one["metric"], float(one["value"][1])) for one in result]
        result = self.get("query_range", query=query, start=now - 15, end=now, step=3)["result"]
        return [(one["metric"], float(value)) for one in result for _, value in one["values"]]


def rules(file, tests):
    text, tested = pathlib.Path(file).read_text(), pathlib.Path(tests).read_text()
    alerts = re.findall(r"alert: (\w+)", text)
    untested = [alert for alert in alerts if not re.search(rf'alertname(: |="){alert}\b', tested)]
    if untested or not alerts:
        sys.exit(f"alerts without a test in {tests}: {untested}")
    remedies = re.findall(r"remedy: (\S+)#(\S+)", text)
    if len(remedies) != len(alerts):
        sys.exit("an alert has no remedy")
    for page, anchor in sorted(set(remedies)):
        headings = re.findall(r"^#+ (.+)$", pathlib.Path(page).read_text(), re.MULTILINE)
        if anchor not in [heading.lower().replace(" ", "-") for heading in headings]:
            sys.exit(f"{page} has no section #{anchor}")
        for alert in alerts:
            if f"`{alert}`" not in pathlib.Path(page).read_text():
                sys.exit(f"{page} has no line about {alert}")


def counts(prometheus, kind, rounds, expected):
    wanted = {name: int(count) * rounds for name, count in (one.split("=") for one in expected)}
    for _ in range(WITHIN_SECONDS):
        # A histogram is one or the other.
        query = (f"sum by (version, status) ({SERVER}_count) "
                 f"or sum by (version, status) (histogram_count({SERVER}))")
        counted = prometheus.values(query)
        found = {f"{labels['version']}/{labels['status']}": int(value) for labels, value in counted}
        if found == wanted:
            break
        time.sleep(1)
    else:
        sys.exit(f"requests in Prometheus: {found}, sent: {wanted}")
    by_version = {labels["version"]: value for labels, value in prometheus.values("blitz_http_requests_total")}
    for version, value in by_version.items():
        # Refused requests have no service.
        of_version = sum(count for name, count in wanted.items() if name.startswith(f"{version}/"))
        if not of_version - 5 * rounds <= value <= of_version:
            sys.exit(f"requests over HTTP/{version}: {value}, sent: {of_version}")
    series = {"classic": f"count({SERVER}_bucket)", "native": f"count({SERVER})"}
    kinds = {name for name, query in series.items() if prometheus.values(query)}
    if kinds != {kind}:
        sys.exit(f"histograms are {kinds}, not {kind}")
    print(f"{sum(wanted.values())} requests, as many in {kind} histograms of Prometheus")


def queries(dashboard):
    for annotation in dashboard["annotations"]["list"]:
        yield annotation["name"], annotation["expr"], False
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"], target.get("instant", False)


def replaced(query, chosen):
    """With the values of variables, escaped as Grafana does."""
    for name, values in chosen.items():
        escaped = [re.sub(r"([\\^$.*+?()\[\]{}|])", r"\\\\\1", value) for value in values]
        query = query.replace(f"${name}", f"({'|'.join(escaped)})" if escaped else ".*")
    return query.replace("$__rate_interval", RATE_INTERVAL)


def options(prometheus, variable, chosen):
    """The values that Grafana offers."""
    query = replaced(variable["query"]["query"], chosen)
    selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", query).groups()
    values = prometheus.get(f"label/{label}/values", **{"match[]": selector})
    if not variable["regex"]:
        return values
    found = [re.search(variable["regex"].strip("/"), value) for value in values]
    return sorted({match.group(1) for match in found if match})


def dashboard(prometheus, file):
    content = json.loads(pathlib.Path(file).read_text())
    variables = {one["name"]: one for one in content["templating"]["list"] if one["type"] == "query"}
    everything = {name: [] for name in variables}
    offered = {name: options(prometheus, variable, everything) for name, variable in variables.items()}
    expected = {"job": ["blitz"], "site": ["app.example", "shop.example"]}
    for name, values in expected.items():
        if offered[name] != values:
            sys.exit(f"values of ${name}: {offered[name]} instead of {values}")
    shop = everything | {"site": ["shop.example"]}
    routes = options(prometheus, variables["route"], shop)
    if routes != ["shop.example/"] or len(offered["route"]) < 6:
        sys.exit(f"routes: {offered['route']}, of one site: {routes}")
    asked = [(title, replaced(query, everything), is_instant) for title, query, is_instant in queries(content)]
    empty = asked
    # A query with steps of 10 s needs two of them.
    for _ in range(WITHIN_SECONDS):
        empty = [(title, query, is_instant) for title, query, is_instant in empty
                 if not any(math.isfinite(value) for _, value in prometheus.values(query, is_instant))]
        if not empty:
            break
        time.sleep(1)
    else:
        sys.exit("\n".join(["without data:", *(f"{title}: {query}" for title, query, _ in empty)]))
    title, query, _ = next(one for one in queries(content) if one[0] == "Requests by status")
    for chosen, statuses in [(everything | {"instance": offered["instance"]}, {"2xx", "4xx", "5xx"}),
                             (shop, {"2xx"}), (everything | {"route": ["app.example/broken"]}, {"5xx"}),
                             (shop | {"route": ["app.example/"]}, set())]:
        found = {labels["status"] for labels, _ in prometheus.values(replaced(query, chosen), False)}
        if found != statuses:
            sys.exit(f"{title} of {chosen}: {found} instead of {statuses}")
    print(f"{len(asked)} queries of the dashboard return data")


def alerts(prometheus, expected):
    wanted = {alert: state for state, alert in (one.split("=") for one in expected)}
    for _ in range(WITHIN_SECONDS):
        groups = prometheus.get("rules")["groups"]
        all_rules = [rule for group in groups for rule in group["rules"]]
        unwell = [(rule["name"], rule["lastError"]) for rule in all_rules if rule["health"] == "err"]
        if unwell:
            sys.exit(f"rules fail: {unwell}")
        states = {rule["name"]: rule["state"] for rule in all_rules if rule["type"] == "alerting"}
        if all(states.get(alert) == state for alert, state in wanted.items()):
            break
        time.sleep(1)
    else:
        sys.exit(f"alerts: {states}, expected: {wanted}")
    print(f"{len(all_rules)} rules work; {', '.join(f'{alert} is {state}' for alert, state in wanted.items())}")


def main():
    match sys.argv[1:]:
        case ["rules", file, tests]:
            rules(file, tests)
        case ["counts", url, kind, rounds, *expected]:
            counts(Prometheus(url), kind, int(rounds), expected)
        case ["dashboard", url, file]:
            dashboard(Prometheus(url), file)
        case ["alerts", url, *expected]:
            alerts(Prometheus(url), expected)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
