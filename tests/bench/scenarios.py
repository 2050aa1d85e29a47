"""What is measured. Each function runs one gateway once, in processes of its own, and returns plain figures."""
import json
import os
import re
import signal
import subprocess
import threading
import time

from processes import Http, KEY, Lab, memory_mib

SAVE_MS, LOAD_MS, TRANSFER_MS = 300, 200, 50
TRUSTING = {"evidence": "acknowledged"}  # call and success: what the peer has
LIKE_THE_PEER = {"evidence": "acknowledged", "pause": "caller"}  # and the trainer pauses and continues, as with the peer


class NotOk(Exception):
    pass


def fsyncs(path, since_ns):
    """[(begin, end)] in ns of the journal's fsyncs that began after `since_ns`."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        lines = [line.split(None, 2) for line in file]
    return [(int(begin), int(end)) for begin, end, name in lines
            if int(begin) >= since_ns and re.search(r"journal\.db(-wal)?$", name.strip())]


def one_update(lab, version, trainer_pauses=False):
    """An update whose workers have closed their idle connections before it, as engines do between two train steps."""
    lab.fleet.ask("close_idle")
    time.sleep(0.03)
    lab.fleet.ask("clear")
    if trainer_pauses:
        lab.fleet.ask("pause", {"paused": True})
    fleet_before, began_ns, before = lab.fleet.ask("statistics")["cpu_s"], time.monotonic_ns(), lab.gateway.cpu()
    wall, answer = lab.gateway.update(version)
    after = lab.gateway.cpu()
    if answer.get("status") != "ok":
        raise NotOk(f"{lab.gateway.name}: update {version}: {str(answer)[:500]}")
    if trainer_pauses:
        lab.fleet.ask("pause", {"paused": False})
    seen = lab.fleet.ask("statistics")
    if seen["still_paused"]:
        raise NotOk(f"{lab.gateway.name}: {seen['still_paused']} workers are left paused")
    syncs = fsyncs(lab.fsync_log, began_ns)
    if lab.gateway.name == "ours" and not syncs:
        raise NotOk("ours: no fsync of the journal was seen; is libfsync_log.so where the programs are?")
    window = [seen["pause_began_s"] * 1e9, seen["pause_ended_s"] * 1e9]
    in_pause = sum(max(0, min(end, window[1]) - max(begin, window[0])) for begin, end in syncs)
    # A gateway that doesn't pause leaves it to the trainer, who pauses before the call and continues after it.
    we_pause = lab.gateway.name == "ours" and not trainer_pauses
    pause = seen["longest_pause_s"] - seen["slowest_own_s"] if we_pause else wall
    return {"wall_ms": wall * 1e3, "cpu_ms": (after - before) * 1e3, "calls": seen["requests"],
            "cpu_per_call_ms": (after - before) * 1e3 / seen["requests"], "pause_ms": pause * 1e3,
            "longest_pause_ms": seen["longest_pause_s"] * 1e3, "connections": seen["connections"],
            "fleet_cpu_ms": (seen["cpu_s"] - fleet_before) * 1e3, "fsyncs": len(syncs), "fsync_in_pause_ms": in_pause / 1e6,
            "in_flight_max": seen["in_flight_max"]}


def updates(arguments, gateway, workers, count, settings=None, latency=None):
    """`count` updates after a first one: a dict of lists, and what it takes to start and to hold the fleet."""
    with Lab(arguments, gateway, {"infer": workers, "train": 1, "latency_ms": latency or {}}) as lab:
        lab.gateway.connect(lab.fleet.urls, lab.save_path, settings)
        wall, answer = lab.gateway.update(1)
        if answer.get("status") != "ok":
            raise NotOk(f"{gateway}: the first update: {str(answer)[:500]}")
        trainer_pauses = (settings or {}).get("pause") == "caller"
        runs = [one_update(lab, version, trainer_pauses) for version in range(2, count + 2)]
        out = {name: [run[name] for run in runs] for name in runs[0]}
        out.update(start_ms=[lab.gateway.start_s * 1e3], resident_mib=[memory_mib(lab.gateway.pid)[0]],
                   first_ms=[wall * 1e3])
        return out


def slow_loads(arguments, gateway, workers, count, settings=TRUSTING):
    out = updates(arguments, gateway, workers, count, settings,
                  {"/save": SAVE_MS, "/update_weights_from_disk": LOAD_MS})
    out["beyond_ms"] = [wall - SAVE_MS - LOAD_MS for wall in out["wall_ms"]]
    return out


def wait_for_looks(lab, engines):
    """Train steps take longer than the ten seconds in which our gateway looks at each engine once: until it has. The
    peer waits as long, since a process that was idle begins slowly."""
    lab.fleet.ask("clear")
    began = time.monotonic()
    while time.monotonic() - began < 20:
        time.sleep(0.25)
        looked = lab.fleet.ask("statistics")["routes"].get("/server_info", {}).get("count", 0) >= engines
        if looked if lab.gateway.name == "ours" else time.monotonic() - began > 10:
            return


def transfers(arguments, gateway, workers, count, settings=None):
    """Updates in AWEX mode of a pair of `workers`, half of them trainers: the fleet's transfer is a collective that takes
    TRANSFER_MS after the last has been asked; what the gateway adds to it. "connect_ms" is of a bring-up in which all
    workers answer at once."""
    fleet = {"infer": workers // 2, "train": workers // 2, "latency_ms": {"/awex/update_weights": TRANSFER_MS}}
    with Lab(arguments, gateway, fleet, ["--update-timeout", "60"]) as lab:
        connected, refused = lab.gateway.connect_awex(lab.fleet.urls, settings)
        if refused:
            raise NotOk(f"{gateway}: {refused}")
        wall, answer = lab.gateway.update(1)
        if answer.get("status") != "ok":
            raise NotOk(f"{gateway}: the first transfer: {str(answer)[:500]}")
        runs = []
        for version in range(2, count + 2):
            if not arguments.smoke:
                wait_for_looks(lab, workers // 2)
            runs.append(one_update(lab, version, (settings or {}).get("pause") == "caller"))
        out = {name: [run[name] for run in runs] for name in runs[0]}
        out.update(connect_ms=[connected * 1e3], first_ms=[wall * 1e3],
                   beyond_ms=[ms - TRANSFER_MS for ms in out["wall_ms"]])
        return out


def served(arguments, gateway, workers, readers):
    """What a worker reads of the metadata at a bring-up, both lists, and the gateway's CPU for it."""
    fleet = {"infer": workers // 2, "train": workers // 2, "awex_tensors": 10 if arguments.smoke else 100}
    with Lab(arguments, gateway, fleet) as lab:
        _, refused = lab.gateway.connect_awex(lab.fleet.urls)
        if refused:
            raise NotOk(f"{gateway}: {refused}")
        pair = json.loads(lab.fleet.ask("statistics")["awex_group"])["pair_name"]
        keys = ("training_params_meta", "infer_params_meta")
        runs = [read_at_once(lab, readers, f"/weight_meta/{pair}/{key}") for key in keys]
        return {"mb": [sum(run["mb"] for run in runs)], "cpu_ms": [sum(run["cpu_s"] for run in runs) * 1e3 / readers]}


def watched(arguments, workers, seconds):
    """What watching an idle fleet takes: the share of one core, and the requests to a worker in ten seconds. Engines close
    a connection that is silent for five seconds, so each look makes a new one."""
    with Lab(arguments, "ours", {"infer": workers, "train": 1}) as lab:
        lab.gateway.connect(lab.fleet.urls, lab.save_path)
        _, answer = lab.gateway.update(1)
        if answer.get("status") != "ok":
            raise NotOk(f"ours: the first update: {str(answer)[:500]}")
        time.sleep(1)  # what the update left to do
        lab.fleet.ask("clear")
        began, before = time.monotonic(), lab.gateway.cpu()
        while time.monotonic() - began < seconds:
            lab.fleet.ask("close_idle")
            time.sleep(5)
        wall, cpu = time.monotonic() - began, lab.gateway.cpu() - before
        requests = lab.fleet.ask("statistics")["requests"]
        return {"share_percent": [100 * cpu / wall], "requests_per_worker_10s": [10 * requests / workers / wall],
                "cpu_per_request_us": [1e6 * cpu / max(requests, 1)]}


def collective_saves(arguments, gateway, trainers):
    """How many ranks are in their /save at once, when none answers before all have been asked."""
    with Lab(arguments, gateway, {"infer": 1, "train": trainers}, ["--update-timeout", "5"]) as lab:
        lab.gateway.connect(lab.fleet.urls, lab.save_path, TRUSTING)
        _, answer = lab.gateway.update(1)
        return {"in_flight_max": lab.fleet.ask("statistics")["in_flight_max"], "ok": answer.get("status") == "ok"}


def metadata(arguments, gateway, megabytes, readers):
    """CPU for each MB of a stored value that is read, by one reader and by many at once. None where there is no store."""
    with Lab(arguments, gateway, {"infer": 1, "train": 1}) as lab:
        entry = {"name": "model.layers.0.self_attn.q_proj.weight", "shape": [4096, 4096], "numel": 16777216, "shards": [0]}
        count = int(megabytes * 1e6 / len(json.dumps(entry)))
        value = json.dumps({"value": [entry] * count}).encode()
        status, text = lab.gateway.http.call("PUT", "/weight_meta/bench/params", value)
        if status == 404:
            return None
        if status != 200:
            raise NotOk(f"{gateway}: PUT /weight_meta answered {status}: {text[:300]}")
        return {"one": read_at_once(lab, 1), "many": read_at_once(lab, readers), "readers": readers,
                "value_mb": len(value) / 1e6}


def read_at_once(lab, readers, path="/weight_meta/bench/params"):
    sizes, failures = [], []

    def read():
        status, text = Http(lab.gateway.http.port, KEY).call("GET", path)
        (sizes if status == 200 else failures).append(len(text))

    began, before = time.monotonic(), lab.gateway.cpu()
    threads = [threading.Thread(target=read) for _ in range(readers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures or len(sizes) != readers:
        raise NotOk(f"{lab.gateway.name}: {readers - len(sizes)} of {readers} reads failed")
    cpu = lab.gateway.cpu() - before
    return {"cpu_s": cpu, "mb": sizes[0] / 1e6, "wall_s": time.monotonic() - began,
            "cpu_ms_per_mb": cpu * 1e3 / (sum(sizes) / 1e6)}


def recovery(arguments, workers):
    """Seconds from `kill -9` of the gateway, in the middle of the loads, until its next life has undone the update; without the
    engines' own time: the load that ran, and the one that heals."""
    fleet = {"infer": workers, "train": 1, "latency_ms": {"/update_weights_from_disk": LOAD_MS}}
    with Lab(arguments, "ours", fleet) as lab:
        lab.gateway.connect(lab.fleet.urls, lab.save_path, TRUSTING)
        _, answer = lab.gateway.update(1)
        if answer.get("status") != "ok":
            raise NotOk(f"ours: the first update: {str(answer)[:500]}")
        lab.fleet.ask("clear")
        port = lab.gateway.http.port
        status, text = Http(port, KEY).call("POST", "/v1/pairs/bench/updates", {"version": 2})
        if status != 202:
            raise NotOk(f"ours: the update to kill was answered {status}: {text[:300]}")
        while lab.fleet.ask("statistics")["routes"].get("/update_weights_from_disk", {}).get("count", 0) < workers / 2:
            time.sleep(0.005)
        began = time.monotonic()
        os.kill(lab.gateway.pid, signal.SIGKILL)
        while True:
            try:
                if Http(port, timeout=10).call("GET", "/readyz")[0] == 200:
                    break
            except OSError:
                pass
            if time.monotonic() - began > 120:
                raise NotOk("ours: no recovery within 120 s")
            time.sleep(0.01)
        took = time.monotonic() - began
        if lab.fleet.ask("statistics")["still_paused"]:
            raise NotOk("ours: workers are left paused after the recovery")
        return took - 2 * LOAD_MS / 1e3


def simulated(arguments, seeds):
    """Seeds per second of the simulator, one process."""
    began = time.monotonic()
    done = subprocess.run([os.path.join(arguments.build, "sim"), "--seeds", f"1..{seeds}"], capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise NotOk(f"the simulator failed: {done.stdout[-500:]}{done.stderr[-500:]}")
    return seeds / (time.monotonic() - began)
