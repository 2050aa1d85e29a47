"""The JSON in which AReaL's workers and their gateway exchange the package's metadata: classes by name, tuples as lists.

Only the names that metadata uses are decoded here; the workers' own decoder imports whatever the JSON names.
"""
import dataclasses
import enum
from typing import Any

import torch
from package import ParameterMeta, ParameterReplicaMeta, ParameterShardMeta, ShardingType

CLASSES = {f"{c.__module__}.{c.__qualname__}": c for c in (ParameterMeta, ParameterReplicaMeta, ParameterShardMeta)}
ENUMS = {f"{ShardingType.__module__}.{ShardingType.__qualname__}": ShardingType}


def path_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        members = {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"type": "dataclass", "class_path": path_of(type(value)), "data": members}
    if isinstance(value, (list, tuple)):
        return [encode(one) for one in value]
    if isinstance(value, torch.dtype):
        return {"type": "torch_dtype", "value": str(value)}
    if isinstance(value, enum.Enum):
        return {"type": "enum", "class_path": path_of(type(value)), "value": value.value}
    return value


def decode(value: Any) -> Any:
    if isinstance(value, list):
        return [decode(one) for one in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("type")
    if kind == "dataclass":
        # Without its constructor, as the workers do: a member that is missing shows only when it is used.
        made = object.__new__(CLASSES[value["class_path"]])
        for name, member in value["data"].items():
            object.__setattr__(made, name, decode(member))
        return made
    if kind == "torch_dtype":
        return getattr(torch, value["value"].removeprefix("torch."))
    if kind == "enum":
        return ENUMS[value["class_path"]](value["value"])
    return {name: decode(member) for name, member in value.items()}
