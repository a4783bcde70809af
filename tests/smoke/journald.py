"""Requests that try to forge entries of the journal, and the check of the entries.

journald.py send PORT             sends them, and prints how many
journald.py check COUNT PID       reads entries of journalctl as JSON
"""

import json
import socket
import sys

# An entry of the native protocol: with line breaks, or with a length in binary.
FORGED = [
    b"PRIORITY=0",
    b"x\nPRIORITY=0\nMESSAGE=forged",
    b"x\r\nPRIORITY=0\r\nMESSAGE=forged",
    b"x\x00MESSAGE=forged",
    b"\"},{\"status\":999,\"forged\":\"",
    b"\\\"\\n\\u000aMESSAGE=forged",
    "\u2028MESSAGE=forged\u2029\u0085\u202e".encode(),
    b"MESSAGE\x06\x00\x00\x00\x00\x00\x00\x00forged",
    b"\xff\xfe\x80MESSAGE=forged",
    b"\x1b[31mforged\x1b[0m\x07\x08\x7f",
    b"x" * 7000,
    b"\xc3" * 3000,
]


def send(port):
    sent = 0
    for text in FORGED:
        encoded = b"".join(b"%%%02X" % byte for byte in text[:500])
        for target, field in [(b"/hello?" + encoded, b"plain"), (b"/" + encoded, text), (b"/hello", text), (b"/" + text, text)]:
            head = b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nUser-Agent: " + field
            head += b"\r\nReferer: " + field + b"\r\nConnection: close\r\n\r\n"
            with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
                client.sendall(head)
                answer = b""
                try:
                    while piece := client.recv(65536):
                        answer += piece
                except ConnectionResetError:
                    # Behind a refusal a part of the request was not read.
                    pass
            assert answer.startswith(b"HTTP/1.1 "), (head, answer)
            sent += 1
    print(sent)


def check(count, process):
    entries = [json.loads(line) for line in sys.stdin]
    assert len(entries) == count, f"{len(entries)} entries, not {count}"
    for entry in entries:
        of_client = {name for name in entry if not name.startswith("_")}
        assert of_client == {"MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER"}, entry
        assert entry["PRIORITY"] == "6" and entry["SYSLOG_IDENTIFIER"] == "blitz", entry
        assert entry["_PID"] == str(process) and entry["_TRANSPORT"] == "journal", entry
        # journalctl writes bytes as a list, if some are not printable.
        assert isinstance(entry["MESSAGE"], str), entry
        line = json.loads(entry["MESSAGE"])
        assert line["ended"] in ("complete", "refused", "rejected"), line
        assert line["status"] < 600 and "forged" not in line, line
        assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in entry["MESSAGE"]), line


if __name__ == "__main__":
    if sys.argv[1] == "send":
        send(int(sys.argv[2]))
    else:
        check(int(sys.argv[2]), int(sys.argv[3]))
