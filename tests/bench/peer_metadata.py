#!/usr/bin/env python3
"""What the peer's gateway does with AWEX's metadata at connect, and for each worker that reads it (in peer_env.sh's environment).

    peer_metadata.py DIRECTORY TRAIN_RANKS ENGINES

Reads DIRECTORY/train-<i>.json and infer-<e>.json as it reads answers, merges and stores as its connect does, and answers one GET
of each list through its own application, without sockets. Prints CPU seconds and bytes as JSON.
"""
import asyncio
import importlib
import json
import pathlib
import sys
import time

import peer_gateway

KEYS = ("training_params_meta", "infer_params_meta")


def application():
    """The peer's module and its application."""
    peer_gateway.enter()
    module = importlib.import_module("areal.experimental.weight_update.gateway.app")
    config = importlib.import_module("areal.experimental.weight_update.gateway.config")
    return module, module.create_app(config.WeightUpdateConfig())


def listed(directory, name, count):
    out = []
    for number in range(count):
        told = json.loads((directory / f"{name}-{number}.json").read_bytes())
        out.extend(told.get("result", told.get("meta")))
    return out


async def get(app, key):
    """The answer's bytes."""
    sizes, messages = [], [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    async def send(message):
        if message["type"] == "http.response.start" and message["status"] != 200:
            raise SystemExit(f"GET {key} answered {message['status']}")
        sizes.append(len(message.get("body", b"")))

    path = f"/weight_meta/p/{key}"
    await app({"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http", "path": path,
               "raw_path": path.encode(), "query_string": b"", "root_path": "", "headers": [], "client": None,
               "server": ("127.0.0.1", 80)}, receive, send)
    return sum(sizes)


def main():
    directory, train, engines = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    module, app = application()
    began = time.process_time()
    merged = module._merge_training_meta_by_name(listed(directory, "train", train))
    infer = listed(directory, "infer", engines)
    for key, value in zip(KEYS, (merged, infer)):
        app.state.kv_store.put("p", key, value)
    connected = time.process_time()
    sizes = [asyncio.run(get(app, key)) for key in KEYS]
    read = time.process_time()
    print(json.dumps({"connect_cpu_s": connected - began, "read_cpu_s": read - connected, "read_mb": sum(sizes) / 1e6}))


if __name__ == "__main__":
    main()
