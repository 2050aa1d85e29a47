#!/usr/bin/env python3
"""Makes the recordings of this folder out of full ones.

    compact.py FULL.json ... --into recordings/

A full recording has the client's requests with the gateway's raw answers, and every request to the workers with its raw
headers. What is kept: the client's requests and answers by step, and of each step the requests to the workers by phase, as
JSON; the header lists once; what each worker reported of itself in AWEX mode; the state in which the workers ended. Addresses
and the save path become names in braces.
"""
import argparse
import json
import pathlib

SAVE_PATH = "/shared/w"
KEY = "golden-key"


def parsed(text):
    return json.loads(text) if text else None


def same_lists(messages):
    """The names of the headers that all of these have, in order, with values that don't depend on the message."""
    volatile = ("host", "content-length", "date")
    first = {name.lower(): value for name, value in messages[0]}
    for headers in messages[1:]:
        here = {name.lower(): value for name, value in headers}
        first = {name: value for name, value in first.items() if name in here}
    return {name: None if name in volatile else value for name, value in first.items()}


def phases_of(requests):
    out, last = [], None
    for request in requests:
        if request["phase"] != last:
            out.append([])
            last = request["phase"]
        out[-1].append({"worker": request["worker"], "method": request["method"], "path": request["path"],
                        "body": parsed(request["body"])})
    return [sorted(phase, key=lambda r: (r["worker"], r["path"])) for phase in out]


def reports_of(requests):
    """By worker, path: the answers from which AWEX's metadata is made."""
    out = {}
    for request in requests:
        if request["path"].startswith("/awex/report_"):
            out.setdefault(request["worker"], {})[request["path"]] = request["answer"][1]
    return out


def make_engines_whole(reports):
    """The recorded engines, of one rank each, report halves of tensors: the Python gateway passes on what no worker could
    plan with, and here it is refused. So each of theirs becomes whole."""
    for worker, by_path in reports.items():
        for tensor in by_path.get("/awex/report_weight_meta", {}).get("meta", []):
            data = tensor["data"]
            shape = [2 * data["global_shape"][0]] + data["global_shape"][1:]
            numel = 2 * data["global_numel"]
            data.update(global_shape=shape, global_numel=numel)
            for shard in data["shards"] + [s for replica in data["replicas"] for s in replica["data"]["shards"]]:
                shard["data"].update(shape=shape, numel=numel)
    return reports


def compact(full):
    steps = []
    for step, exchange in zip(full["steps"], full["client"]):
        begin, end = step["worker_requests"]
        request, answer = exchange["request"], exchange["answer"]
        steps.append({
            "step": step["step"],
            "request": {"method": request["method"], "path": request["path"], "body": parsed(request["body"])},
            "answer": {"status": int(answer["status_line"].split()[1]), "body": parsed(answer["body"])},
            "phases": phases_of(full["workers"][begin:end]),
        })
    return {
        "gateway": full["gateway"],
        "scenario": full["scenario"],
        "client_headers": dict(full["client"][-1]["request"]["headers"]),
        "answer_headers": same_lists([e["answer"]["headers"] for e in full["client"]]),
        "worker_headers": same_lists([r["headers"] for r in full["workers"]]),
        "steps": steps,
        "reports": make_engines_whole(reports_of(full["workers"])),
        "final_state": full["final_state"],
    }


def with_names(text, urls, gateway):
    text = text.replace(gateway, "{gateway}").replace(KEY, "{key}")
    for kind, list_of in urls.items():
        for index, url in enumerate(list_of):
            text = text.replace(url, "{%s:%d}" % (kind, index))
    return text.replace(SAVE_PATH, "{save_path}")


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("full", nargs="+", type=pathlib.Path)
    arguments.add_argument("--into", type=pathlib.Path, required=True)
    given = arguments.parse_args()
    for path in given.full:
        full = json.loads(path.read_text())
        out = compact(full)
        gateway = "http://" + out["client_headers"]["Host"]
        for volatile in ("Host", "Content-Length"):
            out["client_headers"].pop(volatile, None)
        out["client_headers"]["Authorization"] = "Bearer {key}"
        (given.into / path.name).write_text(with_names(json.dumps(out, indent=1), full["urls"], gateway) + "\n")


if __name__ == "__main__":
    main()
