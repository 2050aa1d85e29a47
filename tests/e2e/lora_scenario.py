"""LoRA end to end: the ranks save adapters, the gateway brings each under a name of its own to both engines.

Both engines serve the start model throughout. Nothing asks for a name that has left the window: SGLang would load it
again from its directory.
"""
import probes
import wire
from scenario import FAR

NAME = "rollout"
KEEP = 2
VERSIONS = 6
RANK = 4
# The engines round the base and the adapter to bfloat16, one after the other: up to 0.08 was seen.
NEAR = 0.15
# The base's own values before and after: the same computation, so the same numbers but for the batches they were in.
SAME = 0.02


class LoraScenario:
    def __init__(self, gateway, ranks, engines, base, save_path, say):
        self.gateway = gateway
        self.ranks = ranks
        self.engines = engines
        self.base = base
        self.save_path = save_path
        self.say = say
        self.probes = {e.dialect: probes.probe_of(e) for e in engines}
        self.directories = {}
        self.references = {}
        self.before = {}

    def name(self, version):
        return f"{NAME}-v{version}"

    def window(self, version):
        return [v for v in range(version - KEEP + 1, version + 1) if v > 0]

    def connect(self):
        self.ranks.save_adapters(RANK)
        urls = [e.url for e in self.engines]
        self.gateway.connect_adapters_as_areal(self.ranks.urls, urls, self.save_path, NAME, KEEP)
        expected = self.reference(None)
        for dialect, probe in self.probes.items():
            self.before[dialect] = probes.all_scores(probe)
            away = probes.farthest(self.before[dialect], expected)
            assert away < NEAR, f"{dialect} doesn't serve {self.base}: {away:.3f} away"

    def reference(self, adapter):
        """By transformers, in float32, with the adapter's product added to the weights of the base."""
        if adapter not in self.references:
            rows = self.ranks.reference(self.base, list(probes.SEQUENCES), adapter)
            self.references[adapter] = [value for row in rows for value in row]
        return self.references[adapter]

    def update(self, version):
        answer = self.gateway.update_as_areal(version)
        assert answer["status"] == "ok" and answer["error"] is None, answer
        self.directories[version] = self.ranks.last_saved()
        if version > 1:
            moved = probes.farthest(self.reference(self.directories[version]), self.reference(self.directories[version - 1]))
            assert moved > FAR, f"the adapters differ by {moved:.3f} only: this would prove nothing"
        self.assert_serves(version)

    def assert_serves(self, version):
        """The whole window by its names, each its own values; nothing else of ours listed; the base as ever."""
        wanted = {self.name(v): self.directories[v] for v in self.window(version)}
        for dialect, probe in self.probes.items():
            listed = probes.adapters(probe)
            assert listed.get(self.name(version)) == self.directories[version], f"{dialect} lists {listed}"
            what = f"{dialect} lists the window {sorted(wanted)} and nothing else"
            wire.wait_until(lambda: probes.adapters(probe) == wanted, 30, what, every=0.25)
            for name, directory in wanted.items():
                away = probes.farthest(probes.all_scores(probe, name), self.reference(directory))
                self.say(f"{dialect}: {name} is {away:.3f} away from {directory}")
                assert away < NEAR, f"{dialect}: {name} serves something else: {away:.3f} away"
            away = probes.farthest(probes.all_scores(probe), self.before[dialect])
            assert away < SAME, f"{dialect}: the base moved by {away:.3f}"
            assert not probe.paused(), f"{dialect} is paused"

    def restarted_engine_gets_the_window(self, dialect, version):
        """A new process knows no adapter; the next update brings the versions that are still wanted, too."""
        self.probes[dialect].engine.restart()
        assert probes.adapters(self.probes[dialect]) == {}, "a new process that knows adapters proves nothing"
        self.update(version)

    def ends_in_order(self):
        assert self.gateway.stop(), f"the gateway didn't end with 0 after SIGTERM:\n{self.gateway.tail()}"
        for dialect, probe in self.probes.items():
            assert not probe.paused(), f"{dialect} is left paused"
