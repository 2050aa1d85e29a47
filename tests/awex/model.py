"""The weights of a small decoder, as a training rank and as a tensor-parallel rank of an engine hold and describe them.

The description follows AReaL's adapters in everything that a planner sees, their mistake in the offsets of uneven shards
included. Weights are generated from a seed, so that every process knows what every other should hold.
"""
import dataclasses
import hashlib

import torch
from package import ParameterMeta, shard_meta, tensor_meta

HEADS, KV_HEADS, HEAD_SIZE = 4, 2, 12
VOCABULARY, INNER = 100, 80
# Parts of one tensor in an engine, views of it on the wire.
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@dataclasses.dataclass(frozen=True)
class Shape:
    """Which model. odd: with tensors whose rows no number of ranks divides; tied: the trainer has no lm_head of its own."""

    layers: int = 2
    hidden: int = 48
    odd: bool = False
    tied: bool = False


@dataclasses.dataclass(frozen=True)
class Tensor:
    """`split` is the dimension that the tensor-parallel ranks share; None: each has all of it."""

    name: str
    shape: tuple[int, ...]
    split: int | None
    dtype: torch.dtype = torch.bfloat16


def _layer(prefix: str, hidden: int) -> list[Tensor]:
    q, kv = HEADS * HEAD_SIZE, KV_HEADS * HEAD_SIZE
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    out = [Tensor(prefix + "input_layernorm.weight", (hidden,), None, torch.float32)]
    for part, rows in (("q", q), ("k", kv), ("v", kv)):
        out.append(Tensor(f"{attention}{part}_proj.weight", (rows, hidden), 0))
        out.append(Tensor(f"{attention}{part}_proj.bias", (rows,), 0))
    return out + [
        Tensor(attention + "o_proj.weight", (hidden, q), 1),
        Tensor(prefix + "post_attention_layernorm.weight", (hidden,), None, torch.float32),
        Tensor(mlp + "gate_proj.weight", (INNER, hidden), 0),
        Tensor(mlp + "up_proj.weight", (INNER, hidden), 0),
        Tensor(mlp + "down_proj.weight", (hidden, INNER), 1),
    ]


def tensors_of(shape: Shape) -> list[Tensor]:
    """What an engine has."""
    out = [Tensor("model.embed_tokens.weight", (VOCABULARY, shape.hidden), 0)]
    for layer in range(shape.layers):
        out += _layer(f"model.layers.{layer}.", shape.hidden)
    out += [Tensor("model.norm.weight", (shape.hidden,), None), Tensor("lm_head.weight", (VOCABULARY, shape.hidden), 0)]
    if shape.odd:
        out += [Tensor("model.ten.weight", (10, shape.hidden), 0), Tensor("model.five.bias", (5,), None)]
    return out


def weights_of(shape: Shape, seed: int) -> dict[str, torch.Tensor]:
    """The whole model. Tied ones are equal, of course."""
    generator = torch.Generator().manual_seed(seed)
    out = {t.name: torch.randn(t.shape, generator=generator).to(t.dtype) for t in tensors_of(shape)}
    if shape.tied:
        out["lm_head.weight"] = out["model.embed_tokens.weight"]
    return out


def digests(parameters: dict[str, torch.Tensor]) -> dict[str, str]:
    """Of the bytes of each tensor."""
    return {
        name: hashlib.sha256(value.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()[:16]
        for name, value in sorted(parameters.items())
    }


class TrainPart:
    """One training rank. layout "fsdp": rows in chunks as torch.chunk makes them; "copies": a whole copy on each rank."""

    def __init__(self, shape: Shape, rank: int, world: int, layout: str) -> None:
        self.shape, self.rank, self.world, self.sharded = shape, rank, world, layout == "fsdp" and world > 1
        self.tensors = [t for t in tensors_of(shape) if not (shape.tied and t.name == "lm_head.weight")]
        self.parameters: dict[str, torch.Tensor] = {}
        self.seed = 0

    def _rows(self, extent: int) -> slice:
        chunk = -(-extent // self.world)
        return slice(min(self.rank * chunk, extent), min((self.rank + 1) * chunk, extent))

    def set_weights(self, seed: int) -> None:
        self.seed = seed
        whole = weights_of(self.shape, seed)
        self.parameters = {
            t.name: (whole[t.name][self._rows(t.shape[0])] if self.sharded else whole[t.name]).clone() for t in self.tensors
        }

    def meta(self) -> list[ParameterMeta]:
        return [tensor_meta(t.shape, self._shard(t)) for t in self.tensors]

    def _shard(self, tensor: Tensor):  # noqa: ANN202 (the package's class)
        mine = self.parameters[tensor.name]
        offset = [0] * len(tensor.shape)
        if self.sharded:
            # What AReaL's FSDP adapter says; it is wrong where the rows don't divide.
            offset[0] = self.rank * (tensor.shape[0] // self.world)
        shards = self.world if self.sharded else 1
        return shard_meta(tensor.name, tuple(mine.shape), tuple(offset), self.rank, self.world, tensor.dtype, shards)


class InferPart:
    """One tensor-parallel rank of an engine. It starts with weights of nobody's, and what it fuses is one piece of memory."""

    def __init__(self, shape: Shape, rank: int, world: int) -> None:
        self.shape, self.rank, self.world = shape, rank, world
        self.tensors = tensors_of(shape)
        self.parameters = {t.name: torch.full(self._extent(t), -7.0, dtype=t.dtype) for t in self.tensors}
        self._fuse()
        if shape.tied:
            self.parameters["lm_head.weight"] = self.parameters["model.embed_tokens.weight"]

    def _splits(self, tensor: Tensor) -> bool:
        return tensor.split is not None and self.world > 1

    def _extent(self, tensor: Tensor) -> tuple[int, ...]:
        out = list(tensor.shape)
        if self._splits(tensor):
            if out[tensor.split] % self.world:
                raise ValueError(f"{tensor.name}: {out[tensor.split]} don't divide by {self.world} ranks")
            out[tensor.split] //= self.world
        return tuple(out)

    def _fuse(self) -> None:
        for first in [name for name in self.parameters if ".q_proj." in name or ".gate_proj." in name]:
            parts = next(group for group in FUSED if f".{group[0]}." in first)
            names = [first.replace(parts[0], part) for part in parts]
            whole, at = torch.cat([self.parameters[name] for name in names]), 0
            for name in names:
                rows = self.parameters[name].shape[0]
                self.parameters[name] = whole.narrow(0, at, rows)
                at += rows

    def expected(self, seed: int) -> dict[str, torch.Tensor]:
        return self._mine(weights_of(self.shape, seed))

    def _mine(self, whole: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            t.name: whole[t.name].chunk(self.world, t.split)[self.rank] if self._splits(t) else whole[t.name]
            for t in self.tensors
        }

    def load(self, whole: dict[str, torch.Tensor]) -> None:
        for name, value in self._mine(whole).items():
            self.parameters[name].copy_(value)

    def leading(self, name: str, count: int) -> list | None:
        """The first rows of the whole tensor, where this rank has them."""
        tensor = next((t for t in self.tensors if t.name == name), None)
        if tensor is None or (self._splits(tensor) and tensor.split != 0) or self.rank != 0:
            return None
        return self.parameters[name][:count].float().tolist()

    def meta(self) -> list[ParameterMeta]:
        return [tensor_meta(t.shape, self._shard(t)) for t in self.tensors]

    def _shard(self, tensor: Tensor):  # noqa: ANN202 (the package's class)
        extent, offset = self._extent(tensor), [0] * len(tensor.shape)
        if not self._splits(tensor):
            return shard_meta(tensor.name, extent, tuple(offset), self.rank, self.world, tensor.dtype, tp_rank=self.rank)
        offset[tensor.split] = self.rank * extent[tensor.split]
        return shard_meta(
            tensor.name, extent, tuple(offset), self.rank, self.world, tensor.dtype, self.world, tensor.split, self.rank
        )
