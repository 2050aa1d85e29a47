"""Transfers that must succeed: from each layout of trainers to each of engines, three versions, bit for bit."""
import dataclasses
from typing import Any

from fleet import Fleet
from gateway import Gateway
from pair import Pair

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


LAYOUTS = (
    Layout("FSDP 2 -> TP 2", 2, "fsdp", 1, 2),
    Layout("FSDP 4, uneven -> TP 2", 4, "fsdp", 1, 2, {"odd": True}),
    Layout("4 copies -> 3 engines, tied embeddings", 4, "copies", 3, 1, {"tied": True}),
    Layout("2 FSDP -> 2 engines x TP 2", 2, "fsdp", 2, 2),
    Layout("3 FSDP, uneven -> 2 engines", 3, "fsdp", 2, 1, {"odd": True}),
    Layout("3 copies -> 2 engines x TP 2, tied embeddings", 3, "copies", 2, 2, {"odd": True, "tied": True}),
)


def fits(layout: Layout) -> dict[str, Any]:
    return {"shape": layout.shape, "group_seconds": GROUP_SECONDS}


def start(gateway: Gateway, fleet: Fleet, layout: Layout) -> Pair:
    trainers = fleet.trainers(layout.trainers, layout=layout.layout, **fits(layout))
    return Pair(gateway, fleet, trainers, fleet.engines(layout.engines, layout.tp, **fits(layout)))


def transfer(gateway: Gateway, fleet: Fleet, layout: Layout, say) -> None:  # noqa: ANN001
    """Connect, three updates, disconnect."""
    pair = start(gateway, fleet, layout)
    try:
        pair.connect()
        for worker in pair.workers:
            pair.assert_asked(worker, "init_weights_update_group", 1)
            pair.assert_asked(worker, "batch_isend_irecv", 1)
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
