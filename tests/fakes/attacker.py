"""Somebody else's files, each of which would run something here."""

import json
from pathlib import Path

from app.runs.experiment.queue import add_plan
from app.storage.database import save_setting
from app.storage.known_settings import custom_source
from app.storage.store import Store
from app.values.events import Outcome
from app.values.plan import Plan
from tests.fakes.runs import SUMMARY, UTC_NS, S, begin
from workloads.catalog import CustomFile, Machine, complete, custom_workload, fill_defaults
from workloads.job_protocol import CustomWorkload
from workloads.protocol import RunSpec, Source, Value


class Attacker:
    """Files of somebody else in a folder, among them a database with whatever the user is to run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = folder / "marker"
        self.database = folder / "gift.vscope"
        self.python = folder / "env" / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        self.python.write_text(f"#!/bin/sh\ntouch {self.marker}\n")
        self.python.chmod(0o755)
        self.module = folder / "evil.py"
        self.module.write_text(f"open({str(self.marker)!r}, 'w')\ndef net(batch_size: int = 4): ...\n")

    def specs(self, workload: str = "dummy", **given: Value) -> list[RunSpec]:
        """Two variants; whatever is `given` need be no value that the program could have written."""
        found = [complete(workload, {"gpus": 0, "seconds": 0.1, "batch_size": size}, Machine()) for size in (4, 8)]
        return [RunSpec(workload=each.workload, variant={**each.variant, **given}) for each in found]

    def custom_specs(self) -> list[RunSpec]:
        """Two variants of the module, whose text the database has as one that was read here."""
        source = Source(path=str(self.module), text=self.module.read_text())
        net = CustomWorkload(name="net", help="", batch_size=4)
        found = custom_workload(net, CustomFile(path=source.path, sha256=source.sha256))
        stored = {"source": {"path": source.path, "text": source.text}, "workloads": [], "whole": False}
        save_setting(self.database, custom_source(source.sha256), json.dumps(stored))
        return [fill_defaults(found, {"gpus": 0, "batch_size": size}, Machine()) for size in (4, 8)]

    def queue(self, *specs: RunSpec, host: str = "") -> None:
        with Store.open(self.database) as store:
            add_plan(store, Plan(name="Layouts", variants=specs, repeats=1, host=host, max_idle_wait_s=0.0))

    def keep(self, *specs: RunSpec) -> None:
        with Store.open(self.database) as store:
            for number, spec in enumerate(specs):
                run = begin(store, uid=f"uid-{number}", spec=spec)
                done = Outcome(name="completed", exit_code=0)
                store.finish(run, outcome=done, summary=SUMMARY, t_ns=6 * S, utc_ns=UTC_NS + 6 * S)

    def preset(self) -> Path:
        file = self.folder / "evil.toml"
        file.write_text(
            '[gpu]\nquestion = "?"\nrepeats = 1\n[[gpu.matrix]]\nworkload = "evil.py:net"\n'
            "[gpu.matrix.settings]\ngpus = 0\nbatch_size = [4, 8]\n"
        )
        return file
