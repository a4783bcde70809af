#!/usr/bin/env python3
"""Times of transfers over HTTP/3 with curl, as PyPI's pycurl brings it with ngtcp2.

h3_times.py URL COUNT     COUNT transfers on one connection, one after the other; prints the seconds of each
"""

import sys

import pycurl

HTTP_3_ONLY = 31


def main(url, count):
    transfer = pycurl.Curl()
    received = 0

    def take(piece):
        nonlocal received
        received += len(piece)

    settings = {
        "URL": url, "HTTP_VERSION": HTTP_3_ONLY, "SSL_VERIFYPEER": 0, "SSL_VERIFYHOST": 0, "TIMEOUT": 60,
        "WRITEFUNCTION": take,
    }
    for name, value in settings.items():
        transfer.setopt(getattr(pycurl, name), value)
    for number in range(int(count)):
        transfer.perform()
        assert transfer.getinfo(pycurl.RESPONSE_CODE) == 200
        # The handle keeps its connection.
        assert transfer.getinfo(pycurl.NUM_CONNECTS) == (1 if number == 0 else 0)
        print(transfer.getinfo(pycurl.TOTAL_TIME))
    print(f"{received} bytes", file=sys.stderr)


main(*sys.argv[1:])
