#!/usr/bin/env python3
"""Runs the peer's gateway as it was released, without torch.

    peer_gateway.py --host H --port P --admin-api-key K       (in the environment of peer_env.sh)

Its packages' __init__ files import the whole trainer. So each package on the way is entered in sys.modules by its path alone,
and the two modules that the gateway takes small things from at its first update are replaced by what is written here. All
that serves a request, calls a worker or stores metadata is the peer's own.
"""
import dataclasses
import importlib
import importlib.util
import sys
import types

PACKAGES = ("areal", "areal.api", "areal.experimental", "areal.infra", "areal.infra.rpc", "areal.infra.utils", "areal.utils")
GATEWAY = "areal.experimental.weight_update.gateway.__main__"


def enter_package(name, root):
    """A package whose __init__ is never run; what lies in it is found as usual."""
    module = types.ModuleType(name)
    module.__path__ = [root + "".join("/" + part for part in name.split(".")[1:])]
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def enter_module(name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    sys.modules[name] = module


@dataclasses.dataclass
class SaveLoadMeta:
    path: str
    weight_format: str
    with_optim: bool


def serialize_value(value):
    """As far as the gateway uses it: a dataclass becomes {"type", "class_path", "data"}, lists go member by member."""
    if dataclasses.is_dataclass(value):
        name = type(value).__name__
        return {"type": "dataclass", "class_path": f"areal.api.io_struct.{name}", "data": dataclasses.asdict(value)}
    if isinstance(value, (list, tuple)):
        return [serialize_value(one) for one in value]
    return value


def enter():
    """From here on the gateway's modules can be imported."""
    root = importlib.util.find_spec("areal").submodule_search_locations[0]
    for name in PACKAGES:
        enter_package(name, root)
    enter_module("areal.api.io_struct", SaveLoadMeta=SaveLoadMeta,
                 get_versioned_lora_name=lambda name, version: f"{name}-v{version}")
    enter_module("areal.infra.rpc.serialization", serialize_value=serialize_value)


def main():
    enter()
    importlib.import_module(GATEWAY).main()


if __name__ == "__main__":
    main()
