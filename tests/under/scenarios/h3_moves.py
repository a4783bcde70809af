"""Clients of HTTP/3 that change their address within requests, and a hundred connections on one socket, on two cores,
while certificates are reloaded: no request is lost, and every content is right."""

import json
import pathlib

import networks

SECONDS = 120
PROGRAM = pathlib.Path(__file__).parents[1] / "h3_moving.py"


async def run(binary):
    results = json.loads(await networks.run_alone(PROGRAM, "serve", str(binary.path), binary.io))
    assert not results["failures"], f"{results}"
    assert results["upload_moves"] == results["download_moves"] == 10, f"{results}"
    assert results["fewest"] > 10, f"a connection had too few requests: {results}"
    assert results["certificates"] >= 5, f"connections after reloads have old certificates: {results}"
    # The summary counts what QUIC has refused, ignored or ended.
    assert not any("quic_" in line for line in results["log"]), f"{results}"
    counters = results["counters"]
    assert counters["datagrams_forwarded"] > 0, f"no datagram was for another core: {results}"
    # Beyond the limit of what waits for a core, datagrams are lost, and sent again.
    lost = counters["datagrams_not_forwarded"]
    assert lost < counters["datagrams_forwarded"] / 10, f"{results}"
    return (f"{results['upload_moves'] + results['download_moves']} moves, {results['shared_requests']} requests on a"
            f" shared socket, {results['new_connections']} new connections, {results['reloads']} reloads;"
            f" {counters['datagrams_forwarded']} of {counters['datagrams_received']} datagrams forwarded, {lost} not")
