#!/usr/bin/env python3
"""Runs everything that needs the real engines: the engine contract suite and the end-to-end scenario.

    tests/real/run.py --suite ci         what every change passes: under 15 minutes on two cores once installed
    tests/real/run.py --suite nightly    all of it: each test that kills an engine, on an engine of its own
    tests/real/run.py --only contract    or: --only e2e, --only lora

WEIGHLOCK_BIN is the program (default build/release/weighlock), WEIGHLOCK_CONTRACT_BIN the contract suite
(default build/release/engine_contract), WEIGHLOCK_ENGINES_ENV the Python environment (see install_env.sh).

Each engine is started once, for both suites; after that only what kills it starts it again. Prints each step with its
seconds, and a table at the end. Exit code 0 if all passed, 1 if not, 2 for wrong arguments.
"""
import argparse
import os
import subprocess
import sys
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(ROOT, "tests", "e2e")]
import engines as engine_kinds  # noqa: E402
import make_adapters  # noqa: E402
import make_models  # noqa: E402
from gateway import Gateway  # noqa: E402
from lora_scenario import VERSIONS, LoraScenario  # noqa: E402
from scenario import Scenario  # noqa: E402
from steps import run_in_folder  # noqa: E402
from trainers import Ranks  # noqa: E402

# What the end-to-end scenario and the harmless contract tests load; all others are made for nightly runs only.
BIG = ("big1", "big2")
# Whole models are loaded and verified with LoRA on, as they are without; but vLLM with LoRA on a CPU dies of a request for
# prompt_logprobs beside another request (docs/engines.md), which the end-to-end scenario sends.
LORA_OPTIONS = {
    "sglang": (
        "--enable-lora", "--max-lora-rank", "8", "--lora-target-modules", "q_proj", "v_proj", "--lora-backend", "torch_native",
    ),
    # Five adapters are more than either of its tables holds.
    "vllm": ("--enable-lora", "--max-loras", "2", "--max-lora-rank", "16", "--max-cpu-loras", "4"),
}  # fmt: skip
# The one lethal test of each engine that every change passes; it is the last thing that its process does.
LAST_ACT = {
    "sglang": "*truncated_file_kills_sglang_and_the_outcome_is_unknown",
    "vllm": "*touched_vllm_dies_of_the_first_request_when_it_is_resumed",
}
# (variant, what the answer has to name, through the command line?)
DAMAGED = (
    ("truncated", ["model.safetensors"], True),
    ("half", ["model.layers."], True),
    ("shape", ["model.layers.1.mlp.down_proj.weight"], True),
    ("stray", ["model-old.safetensors"], True),
    ("half", ["model.layers."], False),
)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=("ci", "nightly"), default="ci")
    parser.add_argument("--only", choices=("contract", "e2e", "lora"))
    parser.add_argument("--logs", help="folder for logs and checkpoints; kept. By default a temporary one, kept on failure")
    release = os.path.join(ROOT, "build", "release")
    parser.add_argument("--weighlock", default=os.environ.get("WEIGHLOCK_BIN", os.path.join(release, "weighlock")))
    contract = os.environ.get("WEIGHLOCK_CONTRACT_BIN", os.path.join(release, "engine_contract"))
    parser.add_argument("--contract", default=contract)
    args = parser.parse_args(argv)
    wanted = {"contract": args.contract, "e2e": args.weighlock, "lora": args.weighlock}
    for suite, binary in wanted.items():
        if args.only in (None, suite) and not os.access(binary, os.X_OK):
            parser.error(f"{binary} is not there; build it first, or name it (see --help)")
    return args


class Fleet:
    """The processes that both suites share."""

    def __init__(self, folder, python, models, with_lora):
        self.models = models
        start = self.start_model = os.path.join(models, "v1")
        self.engines = [kind(start, folder, python) for kind in engine_kinds.KINDS.values()]
        for engine in self.engines:
            engine.options = LORA_OPTIONS[engine.dialect] if with_lora else ()
        self.ranks = Ranks(start, os.path.join(folder, "trainers"), python)

    def start(self, with_ranks, say):
        """All at once: most of a start is one core importing Python modules."""
        for engine in self.engines:
            engine.start(wait=False)
        if with_ranks:
            self.ranks.start(wait=False)
        for engine in self.engines:
            engine.wait_ready()
            say(f"{engine.dialect} is ready at {engine.url}, core {engine.core}, log {engine.log}")
        if with_ranks:
            self.ranks.wait_ready()
            say(f"ranks at {', '.join(self.ranks.urls)}")

    def restart_without_lora(self, dialect):
        for engine in self.engines:
            if engine.dialect == dialect:
                engine.options = ()
                engine.restart()

    def stop(self):
        stopping = [threading.Thread(target=e.stop) for e in self.engines]
        for thread in stopping:
            thread.start()
        self.ranks.stop()
        for thread in stopping:
            thread.join()


def run_contract(binary, engine, models, test_filter, timeout, good=""):
    env = {
        **os.environ,
        "WEIGHLOCK_ENGINE_URL": engine.url,
        "WEIGHLOCK_ENGINE_DIALECT": engine.dialect,
        "WEIGHLOCK_ENGINE_MODELS": models,
        "WEIGHLOCK_ENGINE_PID": str(engine.core),
        "WEIGHLOCK_ENGINE_GOOD": good,
    }
    command = [binary, f"--gtest_filter={test_filter}"]
    code = subprocess.run(command, env=env, timeout=timeout, stdin=subprocess.DEVNULL).returncode
    if code != 0:
        raise AssertionError(f"{engine.dialect}: {test_filter} ended with {code}")


def lethal_tests(binary):
    """The full names of the tests that kill, as the program itself lists them."""
    command = [binary, "--gtest_list_tests", "--gtest_filter=*Lethal*"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    suite, names = "", []
    for line in text.splitlines():
        if line and not line.startswith(" "):
            suite = line.split("#")[0].strip()
        elif suite.endswith("."):
            names.append(suite + line.split("#")[0].strip())
    return names


def harmless(steps, args, fleet):
    for engine in fleet.engines:
        name = f"contract: {engine.dialect}, harmless"
        steps.run(name, run_contract, args.contract, engine, fleet.models, "*Harmless*", 900)
        if not engine.alive():
            steps.run(f"restart of {engine.dialect}, which a harmless test has killed", engine.start)


def lora(steps, args, fleet, folder):
    gateway = Gateway(args.weighlock, os.path.join(folder, "lora-gateway"), pair="adapters")
    save_path = os.path.join(folder, "saved-adapters")
    os.makedirs(save_path, exist_ok=True)
    try:
        if steps.run("lora: start of the gateway", gateway.start) is None:
            return
        scenario = LoraScenario(gateway, fleet.ranks, fleet.engines, fleet.start_model, save_path, steps.say)
        steps.run("lora: connect two ranks, SGLang and vLLM", scenario.connect)
        for version in range(1, VERSIONS):
            steps.run(f"lora: version {version}, and what the engines serve", scenario.update, version)
        steps.run("lora: vllm started again gets the window", scenario.restarted_engine_gets_the_window, "vllm", VERSIONS)
        steps.run("lora: the gateway ends in order", scenario.ends_in_order)
        steps.run("lora: the ranks save models again", fleet.ranks.save_adapters, 0)
    finally:
        gateway.stop()


def end_to_end(steps, args, fleet, folder):
    gateway = Gateway(args.weighlock, os.path.join(folder, "gateway"))
    save_path = os.path.join(folder, "saved")
    os.makedirs(save_path, exist_ok=True)
    try:
        if steps.run("e2e: start of the gateway", gateway.start) is None:
            return
        scenario = Scenario(gateway, fleet.ranks, fleet.engines, fleet.models, save_path, steps.say)
        steps.run("e2e: connect two ranks, SGLang and vLLM", scenario.connect)
        for n in range(3):
            steps.run(f"e2e: update {n + 1}, and what the engines serve", scenario.update)
        for variant, words, by_command in DAMAGED:
            way = "command line" if by_command else "HTTP"
            steps.run(f"e2e: refused: {variant} ({way})", scenario.refused, variant, words, by_command)
        steps.run("e2e: an update by AReaL's own calls", scenario.update_as_areal)
        for dialect in scenario.probes:
            name = f"e2e: request sent while {dialect} is paused"
            steps.run(name, scenario.request_sent_during_a_pause, dialect)
        steps.run("e2e: running requests survive mode keep", scenario.running_requests_survive_keep)
        for dialect in scenario.probes:
            steps.run(f"e2e: {dialect} killed in the load", scenario.killed_in_the_load, dialect)
            steps.run(f"e2e: {dialect} started again comes back", scenario.restarted_engine_comes_back, dialect)
        steps.run("e2e: the gateway ends in order", scenario.gateway_ends_in_order)
    finally:
        gateway.stop()


def last_acts(steps, args, fleet):
    for engine in fleet.engines:
        if engine.alive():
            name = f"contract: {engine.dialect}, the lethal test of its last act"
            steps.run(name, run_contract, args.contract, engine, fleet.models, LAST_ACT[engine.dialect], 120)


def nightly(steps, args, fleet):
    """Every test that kills, each on an engine of its own; then the harmless ones with loads that take longer."""
    for engine in fleet.engines:
        engine.options = LORA_OPTIONS[engine.dialect]
        for test in lethal_tests(args.contract):
            steps.run(f"start of {engine.dialect}", engine.restart)
            steps.run(f"contract: {engine.dialect}, {test}", run_contract, args.contract, engine, fleet.models, test, 300)
        engine.model = os.path.join(fleet.models, BIG[0])
        steps.run(f"start of {engine.dialect} with 73 MB", engine.restart)
        name = f"contract: {engine.dialect}, harmless with 73 MB"
        steps.run(name, run_contract, args.contract, engine, fleet.models, "*Harmless*", 900, ",".join(BIG))
        engine.stop()


def run_all(args, folder, steps):
    environment = steps.run("environment of the engines", install)
    if environment is None:
        return
    python = os.path.join(environment, "bin", "python")
    models = os.path.join(folder, "models")
    names = [n for n in make_models.VARIANTS if args.suite == "nightly" or n not in BIG]
    steps.run("models", lambda: [make_models.make(models, n) for n in names])
    steps.run("adapters", lambda: [make_adapters.make(models, n) for n in make_adapters.VARIANTS])
    fleet = Fleet(folder, python, models, with_lora=args.only != "e2e")
    try:
        steps.run("start of SGLang, vLLM and two ranks", fleet.start, args.only != "contract", steps.say)
        if steps.failed():
            return
        if args.only in (None, "contract"):
            harmless(steps, args, fleet)
        if args.only in (None, "lora"):
            lora(steps, args, fleet, folder)
        if args.only is None:
            steps.run("start of vllm without LoRA", fleet.restart_without_lora, "vllm")
        if args.only in (None, "e2e"):
            end_to_end(steps, args, fleet, folder)
        if args.only in (None, "contract") and args.suite == "ci":
            last_acts(steps, args, fleet)
        if args.only in (None, "contract") and args.suite == "nightly":
            nightly(steps, args, fleet)
    finally:
        fleet.stop()


def install():
    script = os.path.join(HERE, "install_env.sh")
    return subprocess.run([script], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def main(argv):
    args = parse(argv)
    return run_in_folder("real", args.logs, lambda folder, steps: run_all(args, folder, steps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
