#!/usr/bin/env python3
"""curl over HTTP/3, as PyPI's pycurl brings it with ngtcp2.

h3_curl.py requests URL CA              the built-in endpoints
h3_curl.py discover URL CA CACHE        a request with a cache of Alt-Svc; prints the version of HTTP
"""

import ctypes
import glob
import hashlib
import io
import os
import sys
import time

import pycurl

HTTP_3 = 30
HTTP_3_ONLY = 31
VERSIONS = {2: "1.1", 3: "2", HTTP_3: "3"}
MIB = 1 << 20


def digest(content):
    return hashlib.sha256(content).hexdigest()


class Peer:
    """Transfers over HTTP/3 and nothing else."""

    def __init__(self, base, authority):
        self.base, self.authority = base, authority

    def transfer(self, path, **options):
        """A transfer that has not begun, with `answer` and `fields`."""
        transfer = pycurl.Curl()
        transfer.answer, transfer.fields = io.BytesIO(), io.BytesIO()
        settings = {
            "URL": self.base + path, "HTTP_VERSION": HTTP_3_ONLY, "CAINFO": self.authority, "TIMEOUT": 30,
            "IPRESOLVE": pycurl.IPRESOLVE_V4, "WRITEFUNCTION": transfer.answer.write,
            "HEADERFUNCTION": transfer.fields.write,
        } | options
        for name, value in settings.items():
            transfer.setopt(getattr(pycurl, name), value)
        return transfer

    def request(self, path, wanted=200, transfer=None, **options):
        """Returns content and fields of a response, which has to have the wanted status."""
        transfer = transfer or self.transfer(path, **options)
        try:
            transfer.perform()
        except pycurl.error as error:
            raise AssertionError(f"{path}: {error}") from error
        check(path, transfer, wanted)
        return transfer.answer.getvalue(), transfer.fields.getvalue().decode().lower()


def check(path, transfer, wanted=200):
    status, version = transfer.getinfo(pycurl.RESPONSE_CODE), transfer.getinfo(pycurl.INFO_HTTP_VERSION)
    assert (status, version) == (wanted, HTTP_3), f"{path}: {status} over {VERSIONS.get(version, version)}"


def small(peer):
    content, fields = peer.request("/hello")
    assert content == b"Hello, World!", content
    assert fields.startswith("http/3 200") and "content-length: 13" in fields, fields
    content, fields = peer.request("/hello", NOBODY=True)
    assert content == b"" and "content-length: 13" in fields, (content, fields)
    peer.request("/nothing", 404)
    peer.request("/hello", 405, CUSTOMREQUEST="DELETE")
    start = time.monotonic()
    peer.request("/delay?ms=300")
    assert 0.29 < time.monotonic() - start < 2


def uploads(peer):
    for size in (0, 1, 100_000, 5 * MIB):
        sent = os.urandom(size)
        # Without Expect: 100-continue.
        received, _ = peer.request(
            "/echo", POST=True, POSTFIELDSIZE_LARGE=size, READFUNCTION=io.BytesIO(sent).read, HTTPHEADER=["Expect:"],
        )
        assert digest(received) == digest(sent), f"{size} bytes came back as {len(received)}"
    # Without a length, in pieces of any size; and with Expect: 100-continue.
    for fields in (["Expect:"], ["Expect: 100-continue"]):
        sent = os.urandom(3 * MIB + 1)
        source = io.BytesIO(sent)
        received, fields = peer.request(
            "/echo", UPLOAD=True, CUSTOMREQUEST="POST", HTTPHEADER=fields,
            READFUNCTION=lambda size, source=source: source.read(min(size, 1 + source.tell() % 5000)),
        )
        assert digest(received) == digest(sent), f"{len(sent)} bytes came back as {len(received)}"
        assert "content-length" not in fields, fields


def downloads(peer):
    for size in (20_000, 30_000, 50_000_000):
        count = 0

        def take(piece):
            nonlocal count
            count += len(piece)

        start = time.monotonic()
        peer.request(f"/data?size={size}", WRITEFUNCTION=take)
        assert count == size, f"{count} of {size} bytes"
    print(f"curl: {size} bytes in {time.monotonic() - start:.2f} s")


def in_parallel(peer):
    """Thirty requests on one connection."""
    multi = pycurl.CurlMulti()
    multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
    multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, 1)
    paths = [f"/echo/{number}" for number in range(15)] + [f"/data?size={number * 9999}" for number in range(1, 16)]
    # Later transfers wait for the first one's connection and use it.
    transfers = [peer.transfer(path, PIPEWAIT=True) for path in paths]
    for transfer in transfers:
        multi.add_handle(transfer)
    running, problems = 1, []
    while running:
        _, running = multi.perform()
        multi.select(1)
        left = 1
        while left:
            left, _, failed = multi.info_read()
            problems += [error for _, *error in failed]
    assert not problems, problems
    for path, transfer in zip(paths, transfers):
        check(path, transfer)
        content = transfer.answer.getvalue()
        wanted = path.rpartition("=")[2]
        assert content == path.encode() + b"\n" or len(content) == int(wanted), f"{path}: {len(content)} bytes"
    made = sum(transfer.getinfo(pycurl.NUM_CONNECTS) for transfer in transfers)
    assert made == 1, f"{made} connections"


class Discovery:
    """A transfer with a cache of Alt-Svc, through libcurl itself: pycurl does not know the option."""

    STRINGS = {"URL": 10002, "CAINFO": 10065, "ALTSVC": 10287}
    NUMBERS = {"ALTSVC_CTRL": 286, "IPRESOLVE": 113, "TIMEOUT": 13, "NOBODY": 44}
    ALTSVC_H3 = 1 << 5
    INFO_HTTP_VERSION = 0x200000 + 46

    def __init__(self):
        folder = os.path.dirname(os.path.dirname(pycurl.__file__))
        (path,) = glob.glob(f"{folder}/pycurl.libs/libcurl-*")
        self.curl = ctypes.CDLL(path)
        self.curl.curl_easy_init.restype = ctypes.c_void_p
        self.curl.curl_easy_strerror.restype = ctypes.c_char_p
        self.handle = ctypes.c_void_p(self.curl.curl_easy_init())

    def request(self, url, authority, cache):
        numbers = {"ALTSVC_CTRL": self.ALTSVC_H3, "IPRESOLVE": pycurl.IPRESOLVE_V4, "TIMEOUT": 10, "NOBODY": 1}
        strings = {"URL": url, "CAINFO": authority, "ALTSVC": cache}
        for name, value in numbers.items():
            self.expect(self.curl.curl_easy_setopt(self.handle, self.NUMBERS[name], ctypes.c_long(value)))
        for name, value in strings.items():
            self.expect(self.curl.curl_easy_setopt(self.handle, self.STRINGS[name], value.encode()))
        self.expect(self.curl.curl_easy_perform(self.handle))
        version = ctypes.c_long()
        self.expect(self.curl.curl_easy_getinfo(self.handle, self.INFO_HTTP_VERSION, ctypes.byref(version)))
        # Writes the cache.
        self.curl.curl_easy_cleanup(self.handle)
        return VERSIONS[version.value]

    def expect(self, code):
        assert code == 0, self.curl.curl_easy_strerror(code).decode()


def main(role, *arguments):
    if role == "discover":
        print(Discovery().request(*arguments))
        return
    peer = Peer(*arguments)
    for part in (small, uploads, downloads, in_parallel):
        part(peer)


main(*sys.argv[1:])
