"""AWEX's metadata at DeepSeek-V3's size: parsed, put right and planned by us; merged and served by both, at a tenth of it."""
import json
import os
import subprocess
import tempfile

from processes import HERE
from scenarios import KEY, Http, Lab, NotOk, read_at_once

READ_BY = 384  # workers, of that transfer
PEER_LAYERS = 6  # of 58: the peer's process would take all of a small machine's memory


def generated(directory, layers):
    """The three sizes: train ranks, an engine's ranks, engines."""
    program = os.path.join(HERE, "../awexplan/deepseek.py")
    made = subprocess.run([program, directory, "--layers", str(layers)], stdout=subprocess.PIPE, text=True, check=True)
    return made.stdout.split()


def planned(arguments, directory, sizes):
    tool = os.path.join(arguments.build, "awex_plan_tool")
    ran = subprocess.run([tool, directory, *sizes, "--no-plan"], stdout=subprocess.PIPE, text=True, check=True)
    told = json.loads(ran.stdout)
    told["plan_s"] = told["repair_s"] + told["predict_s"] + told["prove_s"]
    told["balance"] = told["busiest"] / told["lower_bound"]
    told["redundancy"] = told["sent"] / told["needed"]
    told["resident_gib"] = told["resident_kib"] / 2**20
    told["connect_cpu_s"] = told["parse_s"] + told["repair_s"] + told["prove_lists_s"] + told["serialise_s"]
    told["proof_of_connect"] = told["prove_lists_s"] / told["connect_cpu_s"]
    return told


def whole(arguments):
    """Ours alone, at the full size; smaller in a smoke run."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as directory:
        return planned(arguments, directory, generated(directory, 1 if arguments.smoke else 58))


def read_of_ours(arguments, directory, readers):
    """CPU of our gateway for one worker's two GETs of the lists that planned() wrote."""
    keys = ("training_params_meta", "infer_params_meta")
    with Lab(arguments, "ours", {"infer": 1, "train": 1}) as lab:
        for key in keys:
            with open(os.path.join(directory, key + ".json"), "rb") as file:
                status, text = Http(lab.gateway.http.port, KEY).call("PUT", f"/weight_meta/size/{key}", file.read())
            if status != 200:
                raise NotOk(f"PUT /weight_meta answered {status}: {text[:300]}")
        runs = [read_at_once(lab, readers, f"/weight_meta/size/{key}") for key in keys]
        return {"read_cpu_s": sum(run["cpu_s"] for run in runs) / readers, "read_mb": sum(run["mb"] for run in runs)}


def served(arguments, gateway, readers):
    """What a worker reads at a bring-up, and the gateway's CPU for all of them: connect once, and a read for each."""
    with tempfile.TemporaryDirectory(dir=arguments.scratch) as directory:
        sizes = generated(directory, 1 if arguments.smoke else PEER_LAYERS)
        if gateway == "ours":
            told = planned(arguments, directory, sizes)
            told.update(read_of_ours(arguments, directory, readers))
        else:
            command = [arguments.peer, os.path.join(HERE, "peer_metadata.py"), directory, sizes[0], sizes[2]]
            ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            told = json.loads(ran.stdout)
        told["all_cpu_s"] = told["connect_cpu_s"] + READ_BY * told["read_cpu_s"]
        return told
