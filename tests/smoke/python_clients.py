#!/usr/bin/env python3
"""Python's own clients: http.client with keep-alive and chunked bodies, urllib with one connection per request."""

import http.client
import json
import os
import sys
import urllib.error
import urllib.parse
import urllib.request


def main(base):
    host = urllib.parse.urlsplit(base).netloc
    keep_alive(host)
    chunked_upload(host)
    with_urllib(base)


def keep_alive(host):
    """Many requests on one connection, which the server must not close."""
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.connect()
    socket = connection.sock
    for _ in range(50):
        connection.request("GET", "/hello")
        response = connection.getresponse()
        assert (response.status, response.read()) == (200, b"Hello, World!")
    connection.request("HEAD", "/hello")
    response = connection.getresponse()
    assert (response.status, response.read()) == (200, b"")
    assert response.headers["Content-Length"] == "13", response.headers
    connection.request("GET", "/data?size=300000")
    assert len(connection.getresponse().read()) == 300_000
    assert connection.sock is socket, "the server closed the connection"
    connection.close()


def chunked_upload(host):
    """An iterable body has no length: http.client sends it in chunks."""
    parts = [os.urandom(size) for size in (1, 1023, 1024, 65_536, 300_000)]
    connection = http.client.HTTPConnection(host, timeout=10)
    connection.request("POST", "/echo/", body=iter(parts), encode_chunked=True,
                       headers={"Transfer-Encoding": "chunked"})
    assert connection.getresponse().read() == b"".join(parts)
    connection.close()


def with_urllib(base):
    """urllib closes after each request and raises on an error status."""
    with urllib.request.urlopen(f"{base}/json", timeout=10) as response:
        assert json.load(response)
    with urllib.request.urlopen(f"{base}/echo/", data=b"a=1", timeout=10) as response:
        assert response.read() == b"a=1"
    try:
        urllib.request.urlopen(f"{base}/nothing/here", timeout=10)
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
    else:
        raise AssertionError("an unknown path was found")


main(sys.argv[1])
