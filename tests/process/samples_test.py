#!/usr/bin/env python3
"""The samples of deploy/ against the program that they are for.

    samples_test.py BUILD       BUILD holds weighlock
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)
import programs  # noqa: E402

DEPLOY = os.path.join(os.path.dirname(TESTS), "deploy")
BASE = {"libc6", "libgcc-s1"}  # in every Debian image
SANITIZERS = re.compile(r"lib[a-z]*san\d+$")


def sample(name):
    with open(os.path.join(DEPLOY, name), encoding="utf-8") as file:
        return file.read()


def run(arguments, **environment):
    return subprocess.run(arguments, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True,
                          timeout=60, check=False)


class SamplesTest(unittest.TestCase):
    def config(self, what, **environment):
        ended = run([programs.program("weighlock"), "config", what, "--config", os.path.join(DEPLOY, "weighlock.toml")],
                    **environment)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return ended.stdout

    def test_settings_are_accepted_without_a_warning_also_those_that_are_commented_out(self):
        here = {"WEIGHLOCK_STORAGE_ROOTS": TESTS}  # the sample's own is on the host that it is for
        self.assertIn(" 0 warnings", self.config("check", WEIGHLOCK_ADMIN_API_KEY="k" * 32, **here))
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "all.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(re.sub(r"(?m)^# (\w+ = )", r"\1", sample("weighlock.toml")))
            ended = run([programs.program("weighlock"), "config", "print", "--config", path])
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertRegex(ended.stdout, r"fence +/usr/local/sbin/weighlock-fence +file ")

    def test_each_key_of_the_environment_file_is_a_setting(self):
        names = re.findall(r"(?m)^(WEIGHLOCK_\w+)=$", sample("weighlock.env"))
        self.assertEqual(len(names), 3)
        shown = self.config("print", **dict.fromkeys(names, "k" * 32))
        for name in names:
            self.assertRegex(shown, rf"(?m)^{name.removeprefix('WEIGHLOCK_').lower()} +\(hidden\) +environment$")

    def test_unit_is_one_that_systemd_takes(self):
        if not shutil.which("systemd-analyze"):
            self.skipTest("no systemd-analyze here")
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "weighlock.service")
            with open(path, "w", encoding="utf-8") as file:
                file.write(sample("weighlock.service").replace("/usr/local/bin/weighlock", programs.program("weighlock")))
            ended = run(["systemd-analyze", "verify", path])
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertNotIn("weighlock.service", ended.stderr)

    def test_unit_finishes_after_an_end_by_itself_and_leaves_a_killed_one_to_the_next_start(self):
        command = re.search(r"(?m)^ExecStopPost=/bin/sh -c '(.*)'$", sample("weighlock.service"))[1]
        command = command.replace("/usr/local/bin/weighlock", programs.program("weighlock"))
        with tempfile.TemporaryDirectory() as state:
            ended = run(["/bin/sh", "-c", command], EXIT_CODE="exited", WEIGHLOCK_STATE_DIR=state)
            self.assertIn("no gateway kept its state in", ended.stderr)
            killed = run(["/bin/sh", "-c", command], EXIT_CODE="killed", WEIGHLOCK_STATE_DIR=state)
            self.assertEqual((killed.returncode, killed.stderr), (0, ""))

    def test_image_has_the_packages_of_all_libraries_that_the_program_links(self):
        if not shutil.which("dpkg"):
            self.skipTest("no dpkg here")
        linked = run(["ldd", programs.program("weighlock")]).stdout
        self.assertNotIn("not found", linked)
        packages = set()
        for path in re.findall(r"=> (/\S+)", linked):
            # By one of its two names: /lib is a link to /usr/lib.
            owner = run(["dpkg", "-S", path]).stdout or run(["dpkg", "-S", os.path.realpath(path)]).stdout
            packages.add(owner.partition(":")[0])
        named = set(sample("Dockerfile").split())
        self.assertGreater(len(packages), 5)
        self.assertEqual({p for p in packages - named - BASE if not SANITIZERS.match(p)}, set())


if __name__ == "__main__":
    programs.main()
