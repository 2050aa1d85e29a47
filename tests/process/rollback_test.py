#!/usr/bin/env python3
"""The way back, stored versions and the journal by the command line, with the real programs.

    rollback_test.py BUILD       BUILD holds weighlock, tinyengine and tinytrainer
"""
import json
import os
import sqlite3
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import programs  # noqa: E402
from programs import KEY, call, wait_for  # noqa: E402


class RollbackTest(programs.Programs):
    def weighlock(self, *arguments, url=None, seconds=90):
        """Exit code, stdout, stderr."""
        where = ["--gateway", url] if url else []
        done = subprocess.run([programs.program("weighlock"), *arguments, *where], capture_output=True, text=True,
                              timeout=seconds, check=False, env={**os.environ, "WEIGHLOCK_ADMIN_API_KEY": KEY})
        return done.returncode, done.stdout, done.stderr

    def committed_up_to(self, last):
        engines, trainers = self.fleet()
        gateway, url = self.gateway()
        self.connect_disk(url, engines, trainers)
        for version in range(1, last + 1):
            code, out, err = self.weighlock("update", "actor", "--version", str(version), url=url)
            self.assertEqual(code, 0, out + err)
        return engines, gateway, url

    def test_the_way_back_and_what_is_stored_by_the_command_line(self):
        engines, gateway, url = self.committed_up_to(2)
        code, out, err = self.weighlock("rollback", "actor", url=url)
        self.assertEqual(code, 0, out + err)
        self.assertIn("pair actor v1: succeeded", out)
        for engine in engines:
            self.assertFalse(self.is_paused(engine))
        code, out, err = self.weighlock("versions", "actor", url=url)
        self.assertEqual(code, 0, err)
        self.assertIn("committed v1, workers are healed with v1, the next version is above v2", out)
        code, out, err = self.weighlock("versions", "verify", "actor", "1", url=url)
        self.assertEqual(code, 0, err)
        code, out, err = self.weighlock("rollback", "actor", url=url)
        self.assertEqual(code, 3, out + err)
        self.assertIn("stored: v1, v2", err)
        code, out, err = self.weighlock("update", "actor", "--version", "2", url=url)
        self.assertEqual(code, 3, out + err)
        code, out, err = self.weighlock("update", "actor", "--version", "3", url=url)
        self.assertEqual(code, 0, out + err)
        code, out, err = self.weighlock("workers", "actor", "--json", url=url)
        self.assertEqual([one["version"] for one in json.loads(out)["items"]], [3, 3], err)
        self.assertIsNone(gateway.child.poll(), gateway.text())

    def test_a_gateway_that_is_killed_on_the_way_back_undoes_it_and_may_be_asked_again(self):
        engines, gateway, url = self.committed_up_to(2)
        self.fault_next_loads(engines, fault="hang")
        code, out, err = self.weighlock("rollback", "actor", "--wait", "0", "--key", "back", "--json", url=url)
        self.assertEqual(code, 0, out + err)
        update = json.loads(out)["id"]
        wait_for("loads on their way", lambda: all(self.is_asked_to_load(engine) for engine in engines))
        gateway.child.kill()
        gateway.child.wait()
        _, url = self.gateway("again")
        wait_for("the end of the recovery", lambda: call("GET", url + "/readyz")[0] == 200, seconds=60)
        for engine in engines:
            self.assertFalse(self.is_paused(engine))
        code, out, err = self.weighlock("rollback", "actor", "--key", "back", "--json", url=url)
        told = json.loads(out)
        self.assertEqual((code, told["id"], told["state"]), (3, update, "rolled_back"), out + err)
        _, pair = call("GET", url + "/v1/pairs/actor")
        self.assertEqual((pair["committed"], pair["workers"]["ready"]), (2, 2), pair)
        code, out, err = self.weighlock("rollback", "actor", "--to", "1", url=url)
        self.assertEqual(code, 0, out + err)

    def test_a_damaged_journal_is_named_by_serve_and_shown_by_inspect(self):
        _, gateway, _ = self.committed_up_to(1)
        code, out, err = self.weighlock("journal", "inspect", self.path("state"))
        self.assertEqual(code, 0, out + err)
        self.assertIn("commit", out)
        self.assertIn(": sound: ", out)
        gateway.child.kill()
        gateway.child.wait()
        code, out, err = self.weighlock("journal", "inspect", "--state-dir", self.path("state"), "--json")
        self.assertEqual(code, 0, err)
        records = json.loads(out)["records"]
        number = next(record["number"] for record in records if record["kind"] == "commit")
        self.assertLess(number, records[-1]["number"], "it is in the middle")
        change = ("UPDATE records SET body = CAST(replace(CAST(body AS TEXT), '\"version\":1', '\"version\":2') AS BLOB) "
                  "WHERE number = ?")
        for sql, fault in ((change, f"record {number}: its content"), ("DELETE FROM records WHERE number = ?",
                                                                       f"record {number} is missing")):
            with self.subTest(fault):
                database = sqlite3.connect(self.path("state/journal.db"))
                self.assertEqual(database.execute(sql, (number,)).rowcount, 1)
                database.commit()
                database.close()
                refused = self.start_gateway("refused")
                self.assertNotEqual(refused.child.wait(timeout=30), 0)
                self.assertIn(fault, refused.text())
                self.assertIn("weighlock journal inspect", refused.text())
                code, out, err = self.weighlock("journal", "inspect", self.path("state"))
                self.assertEqual(code, 1, out + err)
                self.assertIn(f"DAMAGE  {fault}", out)
                for other in (number - 1, number + 1):
                    self.assertRegex(out, rf"(?m)^ *{other}  ", "the rest is shown")


if __name__ == "__main__":
    programs.main()
