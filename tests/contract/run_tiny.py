#!/usr/bin/env python3
"""Runs the engine contract suite against tinyengine, as SGLang and as vLLM, and prints what each part took.

    run_tiny.py --bin build/release          where engine_contract and tinyengine were built

One tinyengine process for each dialect, with an engine for each lethal test, one for each test that freezes its engine (they
mostly wait, so they wait beside each other), and one for all others. Fails if a test fails, if one is skipped that isn't named
below, or if one that is named was not skipped. Exit code 0 if all passed, 1 if not, 2 for wrong arguments.
"""
import argparse
import concurrent.futures
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "real"))
import make_adapters  # noqa: E402
import make_models  # noqa: E402

DIALECTS = ("sglang", "vllm")
AT_ONCE = 6  # programs under test beside each other: most of their time is waiting
TIME_SCALE = "0.2"  # of the delays that the real engines show; the contract is about order, not about seconds
STEP_MS = "2"  # a request has to be seen running
PART_SECONDS_MAX = 150  # a part takes under ten on a quiet machine; this is for a hang
START_SECONDS_MAX = 20

# What has no meaning in a dialect, or kills it there and is a lethal test. Everything else must run.
SKIPPED = {
    "sglang": {
        "Damage/Harmless.damaged_directory_is_told_as_the_table_says_and_a_good_one_heals/truncated",
        "Damage/Harmless.damaged_directory_is_told_as_the_table_says_and_a_good_one_heals/truncated_shard",
        "HarmlessHeal.empty_checkpoint_leaves_a_healthy_vllm_as_it_is",
        "Lethal.wrong_shape_needs_a_new_process_of_vllm",
        "Lethal.touched_vllm_dies_of_the_first_request_when_it_is_resumed",
        "LethalAdapter.whose_directory_is_gone_kills_vllm_when_it_has_left_the_cache",
    },
    "vllm": {
        "Damage/Harmless.damaged_directory_is_told_as_the_table_says_and_a_good_one_heals/shape",
        "Lethal.truncated_file_kills_sglang_and_the_outcome_is_unknown",
        "LethalAdapter.with_other_ranks_than_its_config_says_kills_sglang_with_the_first_request",
    },
}


def tests_of(contract):
    """The full names of all tests, as the program itself lists them."""
    text = subprocess.run([contract, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    suite, names = "", []
    for line in text.splitlines():
        word = line.split("#")[0].strip()
        if line and not line.startswith(" "):
            suite = word
        elif suite.endswith("."):
            names.append(suite + word)
    return names


class Engines:
    """One tinyengine process with `count` engines of one dialect."""

    def __init__(self, program, dialect, count, model, log):
        self.urls, self.lines, self.log = [], queue.Queue(), log
        command = [program, "--model", model, "--served-model-name", "policy", "--step-ms", STEP_MS, "--time-scale", TIME_SCALE]
        command += ["--max-lora-rank", "16", "--max-cpu-loras", "4"]
        with open(log, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(
                command + ["--engine", f"{dialect}:0"] * count, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        threading.Thread(target=self.read, daemon=True).start()
        self.await_urls(count)

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put("")

    def await_urls(self, count):
        until = time.monotonic() + START_SECONDS_MAX
        while len(self.urls) < count:
            try:
                line = self.lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                line = ""
            if not line:
                self.stop()
                raise RuntimeError(f"tinyengine told {len(self.urls)} of {count} URLs and no more; its words are in {self.log}")
            if line.startswith("listening "):
                self.urls.append(line.split()[2])

    def stop(self):
        self.process.kill()
        self.process.wait()


class Part:
    """One run of the contract program: its name, what it took, and what was wrong, if anything."""

    def __init__(self, contract, dialect, url, models, tests, log):
        self.dialect, self.log = dialect, log
        self.name = f"{dialect}: {tests[0] if len(tests) == 1 else f'{len(tests)} harmless tests'}"
        self.expected = {test: "SKIPPED" if test in SKIPPED[dialect] else "COMPLETED" for test in tests}
        self.command = [contract, f"--gtest_filter={':'.join(tests)}", f"--gtest_output=json:{log}.json"]
        self.environment = {
            **os.environ,
            "WEIGHLOCK_ENGINE_URL": url,
            "WEIGHLOCK_ENGINE_DIALECT": dialect,
            "WEIGHLOCK_ENGINE_MODELS": models,
            "WEIGHLOCK_ENGINE_PID": "tiny",
        }
        self.seconds, self.wrong, self.slowest = 0.0, [], []

    def run(self):
        began = time.monotonic()
        try:
            with open(self.log, "w", encoding="utf-8") as out:
                code = subprocess.run(
                    self.command, env=self.environment, timeout=PART_SECONDS_MAX, stdin=subprocess.DEVNULL, stdout=out, stderr=out
                ).returncode
            self.judge(code)
        except subprocess.TimeoutExpired:
            self.wrong.append(f"not done after {PART_SECONDS_MAX} s")
        self.seconds = time.monotonic() - began
        return self

    def judge(self, code):
        if not os.path.exists(f"{self.log}.json"):
            self.wrong.append(f"ended with {code} and without a report")
            return
        with open(f"{self.log}.json", encoding="utf-8") as report:
            suites = json.load(report)["testsuites"]
        tests = {f"{suite['name']}.{test['name']}": test for suite in suites for test in suite["testsuite"]}
        for name, wanted in self.expected.items():
            test = tests.get(name, {"result": "not run"})
            if test.get("failures"):
                self.wrong.append(f"failed: {name}")
            elif test["result"] != wanted:
                self.wrong.append(f"{test['result']} instead of {wanted}: {name}")
        if code != 0 and not self.wrong:
            self.wrong.append(f"ended with {code}")
        if len(tests) > 1:
            timed = sorted(((float(test["time"].rstrip("s")), name) for name, test in tests.items()), reverse=True)
            self.slowest = timed[:3]

    def tell(self):
        print(f"{self.seconds:7.1f} s  {'FAILED' if self.wrong else 'ok':6}  {self.name}", flush=True)
        for seconds, name in self.slowest:
            print(f"           of it {seconds:.1f} s  {name}")
        for line in self.wrong:
            print(f"           {line}")
        if self.wrong and os.path.exists(self.log):
            with open(self.log, encoding="utf-8") as text:
                print(text.read(), flush=True)


def parts_of(args, folder, models, fleets):
    tests = tests_of(args.contract)
    lethal = [test for test in tests if "Lethal" in test]
    abandoned = [test for test in tests if "Abandoned" in test and test not in lethal]
    others = [test for test in tests if test not in lethal and test not in abandoned]
    groups = [others] + [[test] for test in abandoned + lethal]
    for name in set.union(*SKIPPED.values()) - set(tests):
        raise RuntimeError(f"the list of skipped tests names '{name}', which is no test")
    parts = []
    for dialect in DIALECTS:
        log = os.path.join(folder, f"{dialect}-engine.log")
        program = os.path.join(args.bin, "tinyengine")
        fleets.append(Engines(program, dialect, len(groups), os.path.join(models, "v1"), log))
        for url, some in zip(fleets[-1].urls, groups):
            log = os.path.join(folder, f"{dialect}-{len(parts)}.log")
            parts.append(Part(args.contract, dialect, url, models, some, log))
    # The longest first.
    return sorted(parts, key=lambda part: -len(part.expected))


def run(args, folder):
    began = time.monotonic()
    models = os.path.join(folder, "models")
    for name in make_models.VARIANTS:
        if not name.startswith("big"):
            make_models.make(models, name)
    for name in make_adapters.VARIANTS:
        make_adapters.make(models, name)
    print(f"{time.monotonic() - began:7.1f} s  ok      models", flush=True)
    fleets, failed = [], 0
    try:
        parts = parts_of(args, folder, models, fleets)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for part in concurrent.futures.as_completed([pool.submit(part.run) for part in parts]):
                part.result().tell()
                failed += bool(part.result().wrong)
    finally:
        for fleet in fleets:
            fleet.stop()
    print(f"{time.monotonic() - began:7.1f} s  all: {len(parts)} parts, {failed} failed")
    return failed


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--contract", help="engine_contract; by default beside tinyengine")
    args = parser.parse_args(argv)
    args.contract = args.contract or os.path.join(args.bin, "engine_contract")
    for program in (args.contract, os.path.join(args.bin, "tinyengine")):
        if not os.access(program, os.X_OK):
            parser.error(f"{program} is not there; build it first, or name another folder with --bin")
    folder = tempfile.mkdtemp(prefix="weighlock-contract-")
    try:
        return 1 if run(args, folder) else 0
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
