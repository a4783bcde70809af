"""Usage: tombi.py TOMBI FOLDER: compares the diagnostics of `tombi lint` with those that are expected."""

import json
import pathlib
import re
import subprocess
import sys

tombi, folder = sys.argv[1], pathlib.Path(sys.argv[2])
EXAMPLES = "crates/cli/tests/examples.md"

# Each line with a mistake ends with a comment: the column of the mistake, and a part of what is said of it.
MISTAKES = """
listen = ":80" # 10 Array
config_version = 2 # 18 const value
defaults.timeout.response = "30" # 29 pattern
defaults.tls = "maybe" # 16 pattern
server.coress = 2 # 8 "coress"
log = { level = "loud" } # 17 "loud"
limits.head_max = 100 # 19 String
control.sockett = "/run/x.sock" # 9 "sockett"
certificates = [{ cert = "a.pem", keyy = "a.key" }] # 35 "keyy"

[site."a.example"]
too = "http://h:1" # 1 key must match
to = "http://h:1"
body_max = 100 # 12 Integer
listen_tls = [":443"] # 1 key must match
headers = { X-A = "a", X-B = { defaultt = "a" } } # 32 "defaultt"
errors = { 404 = "404.html", 9xx = "a.html" } # 30 key must match
"/x".host = 3 # 13 Integer
"/y" = { to = "http://h:1", methodz = ["GET"] } # 29 "methodz"
"/z" = { to = "http://h:1", methods = ["GET", "GETT"] } # 47 "GETT"
"/v" = { respond = { status = 204, statuss = 204 } } # 36 "statuss"
"/w" = { to = "http://h:1", timeout.responses = "1s" } # 37 "responses"

[site."a.example"."/long"]
bodymax = "1k" # 1 "bodymax"
redirect = "999 /x" # 12 pattern

[upstream.u]
servers = ["http://h:1"]
hash = "x" # 8 pattern
queues = 5 # 1 "queues"
"""


def lint(names):
    """The diagnostics of these files: (file, line, column, message), in order."""
    output = folder / "diagnostics"
    output.unlink(missing_ok=True)
    command = [tombi, "lint", "--offline", "--diagnostics-format", "json-lines", "--diagnostics-file", output.name]
    done = subprocess.run(command + names, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode not in (0, 1):
        sys.exit(f"tombi: {done.stdout}{done.stderr}")
    lines = output.read_text().splitlines() if output.exists() else []
    found = set()
    for line in map(json.loads, lines):
        start = line["range"]["start"]
        found.add((line["path"], start["line"], start["column"], line["message"]))
    return sorted(found)


def write(name, text):
    (folder / name).write_text(text)
    return name


blocks = re.findall(r"^```toml\n(.*?)^```\n(?:```certificate\n.*?^```\n)?```(\w+)$", pathlib.Path(EXAMPLES).read_text(), re.S | re.M)
valid = [text for text, kind in blocks if kind == "requests"]
if len(valid) < 10:
    sys.exit(f"{EXAMPLES} has {len(valid)} examples")
names = [write(f"valid{at}.blitz.toml", text) for at, text in enumerate(valid)]
complaints = lint(names)
if complaints:
    sys.exit("\n".join(map(str, complaints)))

expected = {}
for number, line in enumerate(MISTAKES.splitlines(), 1):
    if " # " in line:
        column, part = line.rsplit(" # ", 1)[1].split(" ", 1)
        expected[number] = (int(column), part)
is_wrong = False
found = lint([write("mistakes.blitz.toml", MISTAKES)])
for _, line, column, message in found:
    wanted = expected.get(line)
    if wanted is None or wanted[0] != column:
        is_wrong = True
        print(f"{line}:{column}: not expected: {message}")
for line, (column, part) in expected.items():
    if not any(at == line and part in message for _, at, _, message in found):
        is_wrong = True
        print(f"{line}:{column}: nothing with {part!r} is said")
if is_wrong:
    sys.exit("\n".join(f"found {line}:{column}: {message}" for _, line, column, message in found))
print(f"tombi: {len(valid)} examples are fine, {len(expected)} mistakes are marked")
