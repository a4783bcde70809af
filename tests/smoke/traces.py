"""Checks the spans and log records of a collector's files: all requests are there, and their spans are one tree each.

    traces.py TRACES.json LOGS.json REQUESTS
"""

import json
import sys
from collections import defaultdict

traces_file, logs_file, requests = sys.argv[1], sys.argv[2], int(sys.argv[3])


def items(file, outer, scopes, inner):
    for line in open(file):
        for of_resource in json.loads(line)[outer]:
            service = attributes(of_resource["resource"])["service.name"]
            for scope in of_resource[scopes]:
                assert scope["scope"]["name"] == "blitz", scope["scope"]
                for item in scope[inner]:
                    yield service, item


def attributes(item):
    return {pair["key"]: next(iter(pair["value"].values())) for pair in item["attributes"]}


traces = defaultdict(list)
for service, span in items(traces_file, "resourceSpans", "scopeSpans", "spans"):
    if attributes(span).get("url.path") != "/closed":
        traces[span["traceId"]].append((service, span))
assert len(traces) == requests, f"{len(traces)} traces, not {requests}"
for spans in traces.values():
    # From the client to the upstream.
    names = [(service, span["kind"]) for service, span in spans]
    wanted = [("outer", 2), ("outer", 3), ("inner", 2), ("inner", 3)]
    assert sorted(names) == sorted(wanted), names
    by_name = {name: span for name, (_, span) in zip(names, spans)}
    parent = ""
    for name in wanted:
        span = by_name[name]
        assert span["parentSpanId"] == parent, (name, span)
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]), span
        assert span.get("status", {}) == {}, span
        found = attributes(span)
        assert found["http.request.method"] == "GET", found
        assert int(found["http.response.status_code"]) == 200, found
        parent = span["spanId"]
    found = attributes(by_name["outer", 2])
    assert found["url.query"] == "token=***", found
    assert found["url.path"] == "/hello", found
    assert found["http.route"] == "/", found

records = defaultdict(int)
for service, record in items(logs_file, "resourceLogs", "scopeLogs", "logRecords"):
    if attributes(record)["path"] == "/closed":
        assert record["severityText"] == "WARN", record
        continue
    assert record["severityText"] == "INFO", record
    assert record["traceId"] in traces, record
    assert record["body"]["stringValue"] == "GET /hello 200", record
    assert attributes(record)["path"] == "/hello?token=***", record
    records[service] += 1
assert records == {"outer": requests, "inner": requests}, dict(records)
