"""Who holds which part of a model, for trainers and engines of many kinds, and the JSON in which each reports it.

Reports say what AReaL's adapters say: FSDP's offsets are rank * (rows // ranks), which is wrong where torch cuts uneven
pieces; an engine multiplies its own rows by the ranks to get a whole tensor's. `begin` of a Part is the truth. Standard
library only.
"""
import dataclasses
import json
import random
from typing import Callable, Iterable, Iterator

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Tensor:
    """`split`: the dimension that tensor-parallel ranks share, None for all on each. `expert` and `layer`: its number."""

    name: str
    shape: Shape
    split: int | None = None
    layer: int | None = None
    expert: int | None = None
    dtype: str = "torch.bfloat16"


@dataclasses.dataclass(frozen=True)
class Part:
    tensor: Tensor
    rank: int
    world: int
    begin: Shape
    extent: Shape
    offset: Shape  # as reported
    whole: Shape  # as reported
    shards: int = 1
    dim: int = 0
    tp_rank: int = 0
    pp_rank: int = 0
    ep_rank: int = 0


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    train: list[list[Part]]  # by rank
    engine: list[Part]  # of all its ranks, in one list, as the bridge gathers it
    engine_ranks: int
    engines: int


def product(shape: Shape) -> int:
    out = 1
    for extent in shape:
        out *= extent
    return out


def model(layers: int = 2, hidden: int = 48, experts: int = 0, odd: bool = False, vocabulary: int = 96) -> list[Tensor]:
    out = [Tensor("model.embed_tokens.weight", (vocabulary, hidden), 0), Tensor("model.norm.weight", (hidden,)),
           Tensor("lm_head.weight", (vocabulary, hidden), 0)]  # fmt: skip
    for layer in range(layers):
        begin = f"model.layers.{layer}."
        for name, shape, split in (("self_attn.q_proj.weight", (hidden, hidden), 0), ("self_attn.q_proj.bias", (hidden,), 0),
                                   ("self_attn.o_proj.weight", (hidden, hidden), 1),
                                   ("input_layernorm.weight", (hidden,), None),
                                   ("mlp.down_proj.weight", (hidden, 80), 1)):  # fmt: skip
            dtype = "torch.float32" if split is None else "torch.bfloat16"
            out.append(Tensor(begin + name, shape, split, layer, dtype=dtype))
        for expert in range(experts):
            for name in ("gate_proj", "down_proj"):
                out.append(Tensor(f"{begin}mlp.experts.{expert}.{name}.weight", (hidden, 24), 0, layer, expert))
    if odd:
        out += [Tensor("model.extra.weight", (10, hidden)), Tensor("model.few.weight", (3, 5))]
        out.append(Tensor("visual.conv", (6, 3, 2, 4, 4)))
    return out


def interval(size: int, parts: int, index: int) -> tuple[int, int]:
    """torch.chunk's rule: pieces rounded up, the last ones short or empty."""
    piece = -(-size // parts)
    return min(index * piece, size), min((index + 1) * piece, size)


def whole(tensor: Tensor, rank: int, world: int, **coordinates: int) -> Part:
    zeros = (0,) * len(tensor.shape)
    return Part(tensor, rank, world, zeros, tensor.shape, zeros, tensor.shape, **coordinates)


def cut(tensor: Tensor, rank: int, world: int, parts: int, index: int, dim: int = 0, **coordinates: int) -> Part:
    """One piece along `dim`, with the offset as the FSDP adapter computes it."""
    low, high = interval(tensor.shape[dim], parts, index)

    def at(value: int) -> Shape:
        return tuple(value if d == dim else 0 for d in range(len(tensor.shape)))

    extent = tuple(high - low if d == dim else size for d, size in enumerate(tensor.shape))
    offset = at(index * (tensor.shape[dim] // parts))
    return Part(tensor, rank, world, at(low), extent, offset, tensor.shape, parts, dim, **coordinates)


def fsdp(tensors: list[Tensor], ranks: int, copies: int = 1) -> list[list[Part]]:
    world = ranks * copies
    return [[cut(t, r, world, ranks, r % ranks) for t in tensors] for r in range(world)]


def grid(tensors: list[Tensor], rows: int, columns: int) -> list[list[Part]]:
    """FSDP along dimension 0, tensor parallelism along dimension 1 where there is one."""
    out = []
    for rank in range(rows * columns):
        own = []
        for t in tensors:
            part = cut(t, rank, rows * columns, rows, rank // columns)
            if len(t.shape) > 1:
                other = cut(t, rank, rows * columns, columns, rank % columns, 1)
                mixed = [(a if d == 0 else b) for d, (a, b) in enumerate(zip(part.begin, other.begin))]
                extent = (part.extent[0], other.extent[1], *t.shape[2:])
                offset = (part.offset[0], other.offset[1], *part.offset[2:])
                part = dataclasses.replace(part, begin=tuple(mixed), extent=extent, offset=offset)
            own.append(dataclasses.replace(part, tp_rank=rank % columns))
        out.append(own)
    return out


def copies(tensors: list[Tensor], ranks: int) -> list[list[Part]]:
    return [[whole(t, r, ranks) for t in tensors] for r in range(ranks)]


def experts(tensors: list[Tensor], ep: int, dp: int, count: int) -> list[list[Part]]:
    """Experts on one rank of each group of `ep`, everything else on every rank."""
    return [[whole(t, r, ep * dp, ep_rank=r % ep) for t in tensors if t.expert is None or t.expert * ep // count == r % ep]
            for r in range(ep * dp)]  # fmt: skip


def stage_of(tensor: Tensor, stages: int, layers: int) -> int:
    if tensor.layer is not None:
        return tensor.layer * stages // layers
    return 0 if "embed" in tensor.name else stages - 1


def stages(tensors: list[Tensor], count: int, dp: int, layers: int) -> list[list[Part]]:
    out = []
    for rank in range(count * dp):
        own = [t for t in tensors if stage_of(t, count, layers) == rank // dp]
        out.append([whole(t, rank, count * dp, pp_rank=rank // dp) for t in own])
    return out


def engine(tensors: list[Tensor], tp: int, pp: int = 1, layers: int = 1, expert_parallel: int = 0) -> list[Part]:
    out: list[Part] = []
    for rank in range(tp * pp):
        stage, place = rank // tp, rank % tp
        for t in tensors:
            if pp > 1 and stage_of(t, pp, layers) != stage:
                continue
            where = {"tp_rank": place, "pp_rank": stage}
            if expert_parallel and t.expert is not None:
                if t.expert * tp // expert_parallel == place:
                    out.append(whole(t, rank, tp * pp, **where))
            elif t.split is None or tp == 1:
                out.append(whole(t, rank, tp * pp, **where))
            else:
                part = cut(t, rank, tp * pp, tp, place, t.split, **where)
                own = part.extent[t.split]  # the adapter knows its own rows only
                offset = tuple(place * own if d == t.split else 0 for d in range(len(t.shape)))
                told = tuple(own * tp if d == t.split else size for d, size in enumerate(t.shape))
                out.append(dataclasses.replace(part, offset=offset, whole=told))
    return out


def handed() -> Iterator[Case]:
    """The layouts of the measured table, and mixtures."""
    plain, odd = model(), model(odd=True)
    yield Case("FSDP 2 to TP 1", fsdp(plain, 2), engine(plain, 1), 1, 1)
    yield Case("FSDP 4 to TP 1, uneven", fsdp(odd, 4), engine(odd, 1), 1, 1)
    yield Case("FSDP 4 to TP 2, uneven", fsdp(odd, 4), engine(odd, 2), 2, 1)
    yield Case("FSDP 4 to TP 4", fsdp(plain, 4), engine(plain, 4), 4, 1)
    yield Case("FSDP 2 to 2 engines of TP 2", fsdp(plain, 2), engine(plain, 2), 2, 2)
    yield Case("4 copies to TP 1", copies(plain, 4), engine(plain, 1), 1, 1)
    yield Case("4 copies to 3 engines", copies(plain, 4), engine(plain, 1), 1, 3)
    yield Case("4 copies to TP 4", copies(plain, 4), engine(plain, 4), 4, 1)
    yield Case("4 copies to 3 engines of TP 2", copies(plain, 4), engine(plain, 2), 2, 3)
    yield Case("2 copies of FSDP 3 to TP 2, uneven", fsdp(odd, 3, 2), engine(odd, 2), 2, 1)
    yield Case("FSDP 8 to 3 engines, rows fewer than ranks", fsdp(odd, 8), engine(odd, 1), 1, 3)
    yield Case("grid 3 x 2 to TP 2", grid(odd, 3, 2), engine(odd, 2), 2, 2)
    uneven = model(vocabulary=100)
    yield Case("FSDP 2 to TP 3, an uneven vocabulary", fsdp(uneven, 2), engine(uneven, 3), 3, 1)
    yield Case("FSDP 3 to TP 8, a last part told before others", fsdp(uneven, 3), engine(uneven, 8), 8, 2)
    moe = model(experts=8)
    yield Case("EP 4 x DP 2 to 2 engines of EP 4", experts(moe, 4, 2, 8), engine(moe, 4, expert_parallel=8), 4, 2)
    yield Case("EP 2 x DP 3 to TP 2", experts(moe, 2, 3, 8), engine(moe, 2), 2, 1)
    deep = model(layers=6)
    yield Case("PP 4 to PP 2", stages(deep, 4, 1, 6), engine(deep, 1, 2, 6), 2, 1)
    yield Case("PP 2 x DP 2 to PP 3 x TP 2, 2 engines", stages(deep, 2, 2, 6), engine(deep, 2, 3, 6), 6, 2)


def drawn(seed: int) -> Case:
    """A random model between a random trainer and random engines."""
    dice = random.Random(seed)
    layers, count = dice.randint(1, 4), dice.choice([0, 4, 8])
    tensors = model(layers, dice.choice([24, 48, 50]), count, dice.random() < 0.5, dice.choice([96, 100, 97]))
    dice.shuffle(tensors)
    trainers: list[Callable[[], list[list[Part]]]] = [
        lambda: fsdp(tensors, dice.randint(1, 7), dice.randint(1, 3)), lambda: copies(tensors, dice.randint(1, 6)),
        lambda: grid(tensors, dice.randint(1, 4), dice.randint(1, 3)),
        lambda: experts(tensors, dice.choice([1, 2, 4]), dice.randint(1, 3), 8),
        lambda: stages(tensors, dice.randint(1, 3), dice.randint(1, 3), layers),
    ]  # fmt: skip
    tp, pp = dice.randint(1, 5), dice.choice([1, 1, 2])
    own = engine(tensors, tp, pp, layers, count if dice.random() < 0.5 else 0)
    if {p.rank for p in own} != set(range(tp * pp)):
        return drawn(seed + 1_000_003)  # a stage without a tensor: no worker runs so
    return Case(f"drawn {seed}", dice.choice(trainers)(), own, tp * pp, dice.randint(1, 3))


def shard_json(part: Part) -> dict:
    kind = "TP_SHARDING" if part.shards > 1 else "NO_SHARDING"
    return {"type": "dataclass", "class_path": "awex.meta.weight_meta.ParameterShardMeta", "data": {
        "tp_rank": part.tp_rank, "attn_tp_rank": part.tp_rank, "pp_rank": part.pp_rank, "ep_rank": part.ep_rank,
        "ep_tp_rank": 0, "global_rank": part.rank, "world_size": part.world, "engine_rank": 0, "name": part.tensor.name,
        "shape": list(part.extent), "numel": product(part.extent),
        "dtype": {"type": "torch_dtype", "value": part.tensor.dtype}, "global_offset": list(part.offset),
        "sharding_type": {"type": "enum", "class_path": "awex.sharding.param_sharding.ShardingType", "value": kind},
        "num_shards": part.shards, "sharding_dim": part.dim, "cp_rank": 0, "cp_size": 1, "cp_mode": "none"}}  # fmt: skip


def tensor_json(part: Part) -> dict:
    shard = shard_json(part)
    replica = {"type": "dataclass", "class_path": "awex.meta.weight_meta.ParameterReplicaMeta", "data": {"shards": [shard]}}
    return {"type": "dataclass", "class_path": "awex.meta.weight_meta.ParameterMeta", "data": {
        "name": part.tensor.name, "global_numel": product(part.whole), "global_shape": list(part.whole),
        "dtype": {"type": "torch_dtype", "value": part.tensor.dtype}, "shards": [shard], "replicas": [replica]}}  # fmt: skip


def reports(case: Case) -> Iterator[tuple[str, str]]:
    """File name and text of each worker's answer."""

    def text(key: str, status: str, parts: Iterable[Part]) -> str:
        return json.dumps({"status": status, key: [tensor_json(p) for p in parts]}, separators=(",", ":"))

    for rank, parts in enumerate(case.train):
        yield f"train-{rank}.json", text("result", "success", parts)
    told = text("meta", "ok", case.engine)
    for number in range(case.engines):
        yield f"infer-{number}.json", told
