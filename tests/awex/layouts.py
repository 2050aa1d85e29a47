"""Transfers that must succeed: from each layout of trainers to each of engines, three versions, bit for bit."""
import dataclasses
import os
import socket
from collections.abc import Callable
from typing import Any

import wire
from fleet import Fleet
from gateway import Gateway
from pair import Pair
from steps import Skipped

UPDATES = 3
# Nothing fails here: only a machine that does something else makes anybody wait.
GROUP_SECONDS = 60
# How much more than its share a sender may send, where all hold the same.
BALANCE = 1.05


@dataclasses.dataclass(frozen=True)
class Layout:
    name: str
    trainers: int
    layout: str
    engines: int
    tp: int
    shape: dict[str, Any] = dataclasses.field(default_factory=dict)
    host: str = "127.0.0.1"  # of all workers


LAYOUTS = (
    Layout("FSDP 2 -> TP 2", 2, "fsdp", 1, 2),
    Layout("FSDP 4, uneven -> TP 2", 4, "fsdp", 1, 2, {"odd": True}),
    Layout("4 copies -> 3 engines, tied embeddings", 4, "copies", 3, 1, {"tied": True}),
    Layout("2 FSDP -> 2 engines x TP 2", 2, "fsdp", 2, 2),
    Layout("3 FSDP, uneven -> 2 engines", 3, "fsdp", 2, 1, {"odd": True}),
    Layout("3 copies -> 2 engines x TP 2, tied embeddings", 3, "copies", 2, 2, {"odd": True, "tied": True}),
)
# Its ranks are asked, find the metadata and meet at IPv6 addresses; gloo's own connections are at the host name's address.
OVER_IPV6 = Layout("over IPv6, FSDP 2, uneven -> 2 engines x TP 2", 2, "fsdp", 2, 2, {"odd": True}, host="::1")


def fits(layout: Layout) -> dict[str, Any]:
    return {"shape": layout.shape, "group_seconds": GROUP_SECONDS, "host": layout.host}


def start(gateway: Gateway, fleet: Fleet, layout: Layout) -> Pair:
    trainers = fleet.trainers(layout.trainers, layout=layout.layout, **fits(layout))
    return Pair(gateway, fleet, trainers, fleet.engines(layout.engines, layout.tp, **fits(layout)))


def transfer(gateway: Gateway, fleet: Fleet, layout: Layout, say: Callable[[str], None]) -> None:
    """Connect, three updates, disconnect."""
    pair = start(gateway, fleet, layout)
    try:
        pair.connect()
        for worker in pair.workers:
            pair.assert_asked(worker, "init_weights_update_group", 1)
            pair.assert_asked(worker, "batch_isend_irecv", 1)
        assert_told_addresses(pair, layout.host)
        for count in range(1, UPDATES + 1):
            answer = pair.update()
            pair.assert_updated(answer)
            pair.assert_nothing_sent_twice()
            for worker in pair.workers:
                pair.assert_asked(worker, "update_weights", count)
            say(f"v{pair.version}: {answer['duration_ms']:.0f} ms, sent {pair.sent_bytes()} bytes")
        if layout.layout == "copies":
            assert_balanced(pair.sent_bytes())
        disconnect(pair)
    finally:
        fleet.clear()


def transfer_over_ipv6(binary: str, folder: str, fleet: Fleet, say: Callable[[str], None]) -> None:
    """With a gateway of its own, which listens at that address only."""
    try:
        socket.create_server((OVER_IPV6.host, 0), family=socket.AF_INET6).close()
    except OSError as error:
        raise Skipped(f"nobody can listen at {OVER_IPV6.host} here: {error}") from error
    gateway = Gateway(binary, os.path.join(folder, "gateway-ipv6"), pair="actor", host=OVER_IPV6.host)
    try:
        gateway.start()
        transfer(gateway, fleet, OVER_IPV6, say)
    finally:
        gateway.stop()


def assert_told_addresses(pair: Pair, host: str) -> None:
    for worker in pair.workers:
        [told] = worker.seen("init_weights_update_group")
        addresses = told["master_addr"], told["kv_store_url"]
        assert addresses == (wire.in_url(host), pair.gateway.url), f"{worker.name} was told {addresses}"


def assert_balanced(sent: list[int]) -> None:
    mean = sum(sent) / len(sent)
    assert max(sent) <= BALANCE * mean, f"senders of equal copies sent {sent} bytes"


def disconnect(pair: Pair) -> None:
    """Nothing is left: no group where it can be torn down, no metadata."""
    [name] = set(pair.group_names())
    pair.disconnect()
    for worker in pair.trainers:
        assert not worker.digests()[0]["in_group"], f"{worker.name} is left in the group"
    for key in ("training_params_meta", "infer_params_meta"):
        status = pair.gateway.call("GET", f"/weight_meta/{name}/{key}").status
        assert status == 404, f"{key} of {name} is still there after the disconnect: {status}"
    for engine in pair.engines:
        assert not engine.paused(), f"{engine.name} is left paused by the disconnect"
