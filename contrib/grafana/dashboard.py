#!/usr/bin/env python3
"""Writes blitz.json, the dashboard of Blitz for Grafana.

    contrib/grafana/dashboard.py            writes the file
    contrib/grafana/dashboard.py --check    fails if the file is another one

Histograms are classic or native, depending on the scrape: the second side of `or` is for native ones.
"""

import argparse
import json
import pathlib
import sys

FILE = pathlib.Path(__file__).with_name("blitz.json")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}

# Matchers of all metrics, and those of metrics with a route: "a.example/api", "GET a.example=/health".
CHOSEN = 'job=~"$job",instance=~"$instance"'
OF_SITE = 'route=~"(.+ )?($site)([/=~].*)?"'
ROUTED = f'{CHOSEN},{OF_SITE},route=~"$route"'

SERVER = "http_server_request_duration_seconds"
CLIENT = "http_client_request_duration_seconds"
FAILED = ',status="5xx"'
# A tunnel lasts until its end.
NO_TUNNELS = ',status!="1xx"'
PERCENTILES = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (0.999, "p99.9")]

# Counters of limits and defences; docs/metrics.md has their meanings.
LIMITS = """
    connections_evicted streams_shed heads_refused memory_held_back head_timeouts settings_timeouts idle_timeouts
    request_content_timeouts send_stalls tunnel_timeouts retries_over_budget requests_shed upstream_limit_waits upstream_queue_full
    upstream_queue_timeouts upstream_connections_silent upstream_surplus_responses upstream_rests requests_rejected
    requests_refused tls_failures tls_clear_text tls_record_timeouts quic_handshakes_failed quic_handshake_timeouts
    quic_handshakes_replaced quic_ignored quic_refused quic_evicted quic_invalid quic_violations quic_moves_refused
    quic_too_long quic_unanswered reactor_accept_paused reactor_no_buffers reactor_shed reactor_lingering_cut
    reactor_mailbox_overflows metrics_merged_requests log_lines_dropped access_log_lines_dropped
    access_log_handshakes_omitted""".split()

COLOURS = {"1xx": "purple", "2xx": "green", "3xx": "blue", "4xx": "yellow", "5xx": "red", "none": "text"}


# Queries

def by(labels):
    return f"sum by ({labels})" if labels else "sum"


def rate(name, labels="", matchers=CHOSEN):
    """How often a counter counts in a second."""
    return f"{by(labels)} (rate({name}_total{{{matchers}}}[$__rate_interval]))"


def rate_or_zero(name):
    """The same by instance, also for a counter that is not exposed since it has counted nothing."""
    return f"{rate(name, 'instance')} or {gauge('0 * blitz_cores', 'instance')}"


def gauge(name, labels=""):
    return f"{by(labels)} ({name}{{{CHOSEN}}})"


def requests(histogram, labels="", more=""):
    """Requests in a second, from the counts of a histogram."""
    matchers = ROUTED + more
    return (f"{by(labels)} (rate({histogram}_count{{{matchers}}}[$__rate_interval])) "
            f"or {by(labels)} (histogram_count(rate({histogram}{{{matchers}}}[$__rate_interval])))")


def quantile(share, histogram, labels="", more=""):
    matchers, classic = ROUTED + more, f"{labels}, le" if labels else "le"
    return (f"histogram_quantile({share}, {by(classic)} (rate({histogram}_bucket{{{matchers}}}[$__rate_interval]))) "
            f"or histogram_quantile({share}, {by(labels)} (rate({histogram}{{{matchers}}}[$__rate_interval])))")


def named_limits():
    """The counters of limits, with their names as a label."""
    counters = f'{{__name__=~"blitz_({"|".join(LIMITS)})_total",{CHOSEN}}}'
    return f'label_replace({counters}, "counter", "$1", "__name__", "blitz_(.+)_total")'


# Panels

class Panels:
    """Panels from left to right, in rows of 24 columns."""

    def __init__(self):
        self.all, self.column, self.line, self.height = [], 0, 0, 0

    def add(self, kind, title, width, height, **parts):
        if self.column + width > 24:
            self.break_line()
        place = {"x": self.column, "y": self.line, "w": width, "h": height}
        panel = {"id": len(self.all) + 1, "type": kind, "title": title, "gridPos": place, **parts}
        self.all.append({key: value for key, value in panel.items() if value is not None})
        self.column += width
        self.height = max(self.height, height)

    def break_line(self):
        self.line += self.height
        self.column, self.height = 0, 0

    def row(self, title):
        if self.column:
            self.break_line()
        self.add("row", title, 24, 1, collapsed=False, panels=[])
        self.break_line()

    def stat(self, title, query, unit, description=None, steps=None, graph=True, **defaults):
        steps = steps or [("text", None)]
        defaults |= {"unit": unit, "thresholds": {"mode": "absolute", "steps": [
            {"color": colour, "value": value} for colour, value in steps]}}
        self.add("stat", title, 3, 4, description=description, datasource=SOURCE, targets=targets([(query, "")]),
                 fieldConfig={"defaults": defaults, "overrides": []},
                 options={"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                          "colorMode": "value", "graphMode": "area" if graph else "none"})

    def graph(self, title, unit, *queries, description=None, stacked=False, width=8, coloured=False):
        custom = {"drawStyle": "line", "lineWidth": 1, "fillOpacity": 25 if stacked else 5, "showPoints": "never",
                  "stacking": {"mode": "normal" if stacked else "none", "group": "A"}}
        overrides = [{"matcher": {"id": "byName", "options": status}, "properties": [
            {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
            for status, colour in COLOURS.items() if coloured]
        self.add("timeseries", title, width, 8, description=description, datasource=SOURCE, targets=targets(queries),
                 fieldConfig={"defaults": {"unit": unit, "min": 0, "custom": custom}, "overrides": overrides},
                 options={"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                          "tooltip": {"mode": "multi", "sort": "desc"}})

    def table(self, title, unit, query, description=None):
        hidden = {name: True for name in ("Time", "__name__", "job")}
        self.add("table", title, 8, 8, description=description, datasource=SOURCE,
                 targets=targets([(query, "")], instant=True),
                 fieldConfig={"defaults": {"unit": unit}, "overrides": []},
                 transformations=[{"id": "organize", "options": {"excludeByName": hidden}}],
                 options={"showHeader": True})


def targets(queries, instant=False):
    kind = {"instant": True, "range": False, "format": "table"} if instant else {"instant": False, "range": True}
    return [{"refId": "ABCDEFGH"[index], "expr": query, "legendFormat": legend, **kind}
            for index, (query, legend) in enumerate(queries)]


def now(panels):
    panels.row("Now")
    panels.stat("Instances", f"count(blitz_build_info{{{CHOSEN}}})", "short", graph=False)
    panels.stat("Requests", requests(SERVER), "reqps")
    panels.stat("Share of 5xx", f"({requests(SERVER, more=FAILED)} or vector(0)) / ({requests(SERVER)})", "percentunit",
                steps=[("green", None), ("yellow", 0.001), ("red", 0.01)])
    panels.stat("99th percentile", quantile(0.99, SERVER, more=NO_TUNNELS), "s",
                "Of the times of all requests, without tunnels.")
    panels.stat("In flight", gauge("blitz_requests_in_flight"), "short")
    panels.stat("Connections", gauge("blitz_connections"), "short")
    panels.stat("Next certificate expires in",
                f"min(blitz_certificate_expiry_timestamp_seconds{{{CHOSEN}}}) - time()", "s", graph=False,
                steps=[("red", None), ("yellow", 3 * 86400), ("green", 14 * 86400)])
    panels.stat("Last reload", f"min(blitz_configuration_last_reload_successful{{{CHOSEN}}})", "short", graph=False,
                steps=[("red", None), ("green", 1)], noValue="none yet", mappings=[{"type": "value", "options": {
                    "0": {"text": "failed", "index": 0}, "1": {"text": "successful", "index": 1}}}])


def of_requests(panels):
    panels.row("Requests")
    panels.graph("Requests by status", "reqps", (requests(SERVER, "status"), "{{status}}"), stacked=True, coloured=True,
                 description="none: without a response, mostly since the client left.")
    panels.graph("Requests by version", "reqps", (requests(SERVER, "version"), "HTTP/{{version}}"), stacked=True)
    panels.graph("Busiest routes", "reqps", (f"topk(10, {requests(SERVER, 'route')})", "{{route}}"))
    panels.graph("Content", "Bps", (rate("blitz_request_content_bytes", matchers=ROUTED), "from clients"),
                 (rate("blitz_response_content_bytes", matchers=ROUTED), "to clients"))
    panels.graph("Requests in flight", "short", (gauge("blitz_requests_in_flight", "instance"), "{{instance}}"))
    panels.graph("Requests by instance", "reqps", (rate("blitz_http_requests", "instance"), "{{instance}}"))
    panels.row("Latency")
    times = [(quantile(share, SERVER, more=NO_TUNNELS), name) for share, name in PERCENTILES]
    panels.graph("Time of requests", "s", *times, description="From the start to the end, without tunnels.")
    times = [(quantile(share, CLIENT), name) for share, name in PERCENTILES]
    panels.graph("Time of upstreams", "s", *times,
                 description="From the connection of the last attempt to the head of the response, or to the failure.")
    slowest = quantile(0.99, SERVER, "route", NO_TUNNELS)
    panels.graph("99th percentile of the slowest routes", "s", (f"topk(10, {slowest})", "{{route}}"))


def of_errors(panels):
    panels.row("Errors")
    share = f"({requests(SERVER, 'route', FAILED)}) / ({requests(SERVER, 'route')})"
    panels.graph("Share of 5xx by route", "percentunit", (f"topk(10, {share})", "{{route}}"))
    panels.graph("Failures of upstreams by cause", "reqps", (rate("blitz_upstream_failures", "cause"), "{{cause}}"),
                 stacked=True)
    panels.graph("Rejected and refused requests", "reqps",
                 (rate("blitz_requests_rejected", "rule"), "rejected: {{rule}}"),
                 (rate("blitz_requests_refused", "rule"), "refused: {{rule}}"), stacked=True,
                 description="Rejected by the gateway, or refused by the server before a site saw them.")
    without = requests(SERVER, more=',status="none"')
    panels.graph("Requests without a response", "reqps", (f"{without} or vector(0)", "mostly: the client left"))
    panels.graph("Incomplete messages", "reqps",
                 (rate_or_zero("blitz_responses_cut_off"), "{{instance}}: responses cut off"),
                 (rate_or_zero("blitz_request_content_failures"), "{{instance}}: content of requests"),
                 (rate_or_zero("blitz_exchanges_cancelled"), "{{instance}}: cancelled"))
    panels.graph("Failures of TLS", "cps", (rate("blitz_tls_failures", "rule"), "clients: {{rule}}"),
                 (rate("blitz_upstream_tls_failures", "rule"), "upstreams: {{rule}}"))


def of_upstreams(panels):
    panels.row("Upstreams")
    panels.graph("Requests by upstream", "reqps", (requests(CLIENT, "upstream"), "{{upstream}}"))
    panels.graph("99th percentile by upstream", "s", (quantile(0.99, CLIENT, "upstream"), "{{upstream}}"))
    panels.graph("Requests without a complete response", "reqps",
                 (requests(CLIENT, "upstream, error_type", ',error_type!=""'), "{{upstream}}: {{error_type}}"),
                 description="abandoned: the client left, or its content failed.")
    panels.graph("Avoided addresses", "short", (gauge("blitz_upstream_addresses_avoided", "upstream"), "{{upstream}}"),
                 description="Addresses to which no connection could be made, summed over cores and instances.")
    panels.graph("Checks of servers", "short", (gauge("blitz_upstream_up", "upstream"), "{{upstream}}"),
                 description="1 for a server that is up by its checks, 0 for one that is down, summed over instances.")
    panels.graph("Connections by upstream", "short",
                 (gauge("blitz_upstream_connections", "upstream, state"), "{{upstream}}: {{state}}"))
    panels.graph("Responses by status", "reqps", (rate("blitz_upstream_responses", "status"), "{{status}}"),
                 stacked=True, coloured=True)
    panels.graph("Use of connections", "cps", (rate("blitz_upstream_connects"), "opened"),
                 (rate("blitz_upstream_connections_reused"), "reused"),
                 (rate("blitz_upstream_connection_attempts_failed"), "failed"))
    panels.graph("Retries", "reqps", (rate_or_zero("blitz_retries"), "{{instance}}"),
                 (rate_or_zero("blitz_retries_over_budget"), "{{instance}}: over the budget"))
    panels.graph("Waits for a connection", "reqps",
                 (rate_or_zero("blitz_upstream_limit_waits"), "{{instance}}: waited"),
                 (rate_or_zero("blitz_upstream_queue_full"), "{{instance}}: queue full"),
                 (rate_or_zero("blitz_upstream_queue_timeouts"), "{{instance}}: waited too long"))


def of_clients(panels):
    panels.row("Connections of clients")
    panels.graph("Connections", "short", (gauge("blitz_connections", "instance"), "{{instance}}"))
    panels.graph("New connections", "cps", (rate("blitz_connections_accepted"), "TCP"),
                 (rate("blitz_quic_accepted"), "QUIC"))
    panels.graph("Handshakes", "cps", (rate("blitz_tls_handshakes", "version"), "TLS {{version}}"),
                 (rate_or_zero("blitz_tls_handshakes_resumed"), "{{instance}}: TLS, resumed"),
                 (rate("blitz_quic_handshakes"), "QUIC"))
    panels.row("Limits and defences")
    panels.graph("Within five minutes", "short",
                 (f"sum by (counter) (increase({named_limits()}[5m:10s]))", "{{counter}}"), width=16,
                 description="How often limits were reached and defences acted. docs/metrics.md has the meanings.")
    panels.table("Since the start", "short", f"sort_desc(sum by (counter, instance) ({named_limits()}))",
                 "The same counters. A graph does not show the first count of each.")
    panels.graph("Dropped lines of logs", "short",
                 (rate_or_zero("blitz_access_log_lines_dropped"), "{{instance}}: access log"),
                 (rate_or_zero("blitz_log_lines_dropped"), "{{instance}}: log"))
    panels.graph("Exports over OTLP", "cps",
                 *[(f"{rate(f'blitz_{items}_{result}')} or vector(0)", f"{items.replace('_', ' ')} {result}")
                   for items in ("trace_spans", "log_records") for result in ("exported", "dropped")])
    sockets = f"{gauge('blitz_sockets_open', 'instance, core')} / on (instance) group_left () "
    panels.graph("Sockets and descriptors in use", "percentunit",
                 (sockets + gauge("blitz_sockets_max", "instance"), "{{instance}}: sockets of core {{core}}"),
                 (f"process_open_fds{{{CHOSEN}}} / process_max_fds{{{CHOSEN}}}", "{{instance}}: descriptors"))
    panels.graph("Lines of the metrics of requests", "short",
                 (gauge("blitz_metrics_series", "instance"), "{{instance}}"),
                 (gauge("blitz_metrics_series_max", "instance"), "{{instance}}: the most"))


def of_process(panels):
    panels.row("Process")
    panels.graph("Processors in use", "short", (rate("process_cpu_seconds", "instance"), "{{instance}}"),
                 (gauge("blitz_cores", "instance"), "{{instance}}: cores"))
    panels.graph("Memory", "bytes", (gauge("process_resident_memory_bytes", "instance"), "{{instance}}"),
                 (gauge("blitz_memory_available_bytes", "instance"), "{{instance}}: left for receiving"))
    calls = f"{rate('blitz_reactor_enters', 'instance')} / {rate('blitz_http_requests', 'instance')}"
    panels.graph("System calls per request", "short", (calls, "{{instance}}"),
                 description="Those that submit operations or wait.")
    panels.graph("Bytes over TCP", "Bps", (rate("blitz_reactor_received_bytes"), "received"),
                 (rate("blitz_reactor_sent_bytes"), "sent"))
    panels.graph("Datagrams", "pps", (rate("blitz_reactor_datagrams_received"), "received"),
                 (rate("blitz_reactor_datagrams_sent"), "sent"),
                 (f"{rate('blitz_reactor_datagrams_dropped')} or vector(0)", "dropped"))
    panels.graph("Cores without an answer", "short", (gauge("blitz_cores_absent", "instance"), "{{instance}}"))
    driver = f"on (job, instance) group_left (driver) blitz_io_driver_info{{{CHOSEN}}}"
    panels.table("Versions and drivers", "short", f"blitz_build_info{{{CHOSEN}}} * {driver}")
    panels.table("Uptime", "s", f"time() - process_start_time_seconds{{{CHOSEN}}}")
    panels.graph("Ready", "short", (gauge("blitz_ready", "instance"), "{{instance}}"), description="0: it drains.")
    panels.row("Configuration and certificates")
    panels.graph("Configurations since the start", "short",
                 (gauge("blitz_configuration_generation", "instance"), "{{instance}}"))
    panels.graph("Configurations in memory", "short",
                 (f"max by (instance) (blitz_configurations_in_memory{{{CHOSEN}}})", "{{instance}}"),
                 description="Of the core with the most: older ones stay while requests use them.")
    panels.table("Certificates expire in", "s",
                 f"sort(min by (name) (blitz_certificate_expiry_timestamp_seconds{{{CHOSEN}}}) - time())")


# The dashboard

def variable(name, label, query, regex=""):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query,
            "query": {"query": query, "refId": f"variable-{name}"}, "regex": regex, "refresh": 2, "sort": 1,
            "multi": True, "includeAll": True, "allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}}


def variables():
    routes = f'label_values({{__name__=~"{SERVER}(_count)?",{CHOSEN}%s}}, route)'
    return [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        variable("job", "Job", "label_values(blitz_build_info, job)"),
        variable("instance", "Instance", 'label_values(blitz_build_info{job=~"$job"}, instance)'),
        variable("site", "Site", routes % "", r"/^(?:\S+ )?([^\/=~ ]+)[\/=~]/"),
        variable("route", "Route", routes % f",{OF_SITE}"),
    ]


def dashboard():
    panels = Panels()
    for part in (now, of_requests, of_errors, of_upstreams, of_clients, of_process):
        part(panels)
    reloads = {"name": "Reloads", "datasource": SOURCE, "enable": True, "iconColor": "blue", "useValueForTime": True,
               "expr": f"blitz_configuration_last_reload_timestamp_seconds{{{CHOSEN}}} * 1000",
               "titleFormat": "The configuration was read again", "textFormat": "{{instance}}"}
    return {
        "uid": "blitz", "title": "Blitz", "tags": ["blitz"], "schemaVersion": 42, "editable": True,
        "description": "Requests, latencies, upstreams, limits and state of Blitz: docs/prometheus.md.",
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "graphTooltip": 1,
        "annotations": {"list": [reloads]}, "templating": {"list": variables()}, "panels": panels.all,
    }


def text(value, depth=0):
    """JSON with a line for each query, variable and property of a panel."""
    flat = json.dumps(value, ensure_ascii=False)
    is_split = depth < 3 or isinstance(value, list) and any("expr" in item for item in value)
    if not value or not isinstance(value, (dict, list)) or not is_split:
        return flat
    pad = "\n" + "  " * (depth + 1)
    end = "\n" + "  " * depth
    if isinstance(value, list):
        return "[" + ",".join(pad + text(item, depth + 1) for item in value) + end + "]"
    return "{" + ",".join(f"{pad}{json.dumps(key)}: {text(item, depth + 1)}" for key, item in value.items()) + end + "}"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    made = text(dashboard()) + "\n"
    if not arguments.parse_args().check:
        FILE.write_text(made)
    elif FILE.read_text() != made:
        sys.exit(f"{FILE.name} is not what dashboard.py writes: change dashboard.py and run it")


if __name__ == "__main__":
    main()
