"""A name server over UDP and TCP with A records that change."""

import socket
import struct
import threading

TTL = 1


class NameServer:
    """Serves `records`, a map of names to lists of IPv4 addresses; other names do not exist. `fails` answers SERVFAIL."""

    def __init__(self, address):
        self.records = {}
        self.fails = False
        self.udp = socket.socket(type=socket.SOCK_DGRAM)
        self.udp.bind((address, 53))
        self.tcp = socket.create_server((address, 53))
        threading.Thread(target=self.serve_udp, daemon=True).start()
        threading.Thread(target=self.serve_tcp, daemon=True).start()

    def serve_udp(self):
        while True:
            query, client = self.udp.recvfrom(4096)
            self.udp.sendto(self.answer(query), client)

    def serve_tcp(self):
        while True:
            connection, _ = self.tcp.accept()
            with connection:
                prefix = connection.recv(2, socket.MSG_WAITALL)
                if len(prefix) == 2:
                    query = connection.recv(struct.unpack("!H", prefix)[0], socket.MSG_WAITALL)
                    answer = self.answer(query)
                    connection.sendall(struct.pack("!H", len(answer)) + answer)

    def answer(self, query):
        """The response (RFC 1035, section 4.1) to a query with one question."""
        labels, at = [], 12
        while length := query[at]:
            labels.append(query[at + 1 : at + 1 + length].decode("latin-1").lower())
            at += 1 + length
        question = query[12 : at + 5]
        (kind,) = struct.unpack_from("!H", query, at + 1)
        addresses = self.records.get(".".join(labels))
        code = 2 if self.fails else 3 if addresses is None else 0
        shown = (addresses or []) if kind == 1 and code == 0 else []
        answers = b"".join(
            b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, TTL, 4) + socket.inet_aton(address) for address in shown
        )
        header = query[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, len(shown), 0, 0)
        return header + question + answers
