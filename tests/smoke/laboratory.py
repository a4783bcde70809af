"""Checks of the laboratory: reports are complete, and generators agree."""

import gzip
import json
import pathlib
import re
import subprocess
import sys

CONNECTIONS = 20
# Other programs may disturb one run of a pair.
ATTEMPTS = 5
TOLERANCE = 0.05


def reports(folder):
    """Each report exists in its three forms and has figures of every system that was run."""
    names = []
    for file in sorted(pathlib.Path(folder).glob("*.json.gz")):
        report = json.loads(gzip.decompress(file.read_bytes()))
        assert report["version"] == 2 and report["conclusions"], file
        name = file.name.removesuffix(".json.gz")
        measured = [
            result
            for section in report["sections"]
            for measure in section["measures"]
            for result in measure["results"]
        ]
        assert measured, f"{file} has no figures"
        assert all(value > 0 for result in measured for value in result["repetitions"]), file
        page = file.with_name(f"{name}.html").read_text()
        links = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page)
        assert not links, f"{file}: the page needs the network: {links}"
        assert report["title"] in file.with_name(f"{name}.md").read_text()
        names.append(name)
    assert len(names) == 2, names
    print("reports:", ", ".join(names))


def rate_of_blitz(binary, url, version, streams):
    command = [binary, "load", "--json", "-", "--quiet", "-t", "1", "-d", "2s", "--http", version]
    command += ["-c", str(CONNECTIONS // streams), "-m", str(streams), url]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 75), result.stderr
    result = json.loads(result.stdout)
    return result["counts"]["completed"] / result["duration_s"]


def rate_of_wrk(url):
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", "-d2s", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"Requests/sec: *([\d.]+)", text)[1])


def rate_of_h2load(url, streams):
    command = ["h2load", "-t1", f"-c{CONNECTIONS // streams}", f"-m{streams}", "-D2", url]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return float(re.search(r"finished in .*, ([\d.]+) req/s", text)[1])


def agree(name, measure, ours):
    pairs = []
    for _ in range(ATTEMPTS):
        pairs.append((measure(), ours()))
        other, own = pairs[-1]
        if abs(own / other - 1) <= TOLERANCE:
            print(f"{name}: {other:.0f} requests/s, blitz load: {own:.0f}")
            return
    sys.exit(f"{name} and blitz load measure different rates: {pairs}")


def agreement(binary, url):
    agree("wrk", lambda: rate_of_wrk(url), lambda: rate_of_blitz(binary, url, "1.1", 1))
    agree(
        "h2load",
        lambda: rate_of_h2load(url, 10),
        lambda: rate_of_blitz(binary, url, "2", 10),
    )


def refused(binary, url, log):
    """Requests that the server refuses are sent again, and each is processed once."""
    count = 4000
    command = [binary, "load", "--json", "-", "--quiet", "-t", "1", "--http", "2", "-c", "4", "-m", "16"]
    command += ["-n", str(count), "-H", "x-id: {{n}}", url]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 75), result.stderr
    counts = json.loads(result.stdout)["counts"]
    assert counts["completed"] == count and not counts["failed"], counts
    assert counts["repeated"] > 0, "nginx has refused nothing"
    processed = sorted(pathlib.Path(log).read_text().split("\n")[:-1])
    first_requests = 2
    expected = sorted(f"200 {number}" for number in range(count + first_requests))
    assert processed == expected, "requests were lost or sent twice"
    print(f"nginx has refused {counts['repeated']} requests, and processed each once")


if __name__ == "__main__":
    {"reports": reports, "agreement": agreement, "refused": refused}[sys.argv[1]](*sys.argv[2:])
