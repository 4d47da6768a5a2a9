"""`detach`: kill whoever has a part in a detached run, at random moments, and look what is lost, doubled or left.

Each kill has a run of `dummy` of its own, detached to this machine through its spool, and two programs that attach to
it at once, each with a database of its own. The process that makes the run, its guard, its sampler, its worker, one of
the attaching programs or its carrier gets SIGKILL. Then the run is stopped, and a third program fetches what is left.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import psutil

from app.agent.detached import spool_folder
from app.grants import typed
from app.hosts.attach import SpoolLink, detach_run
from app.hosts.book import find_host
from app.hosts.open import open_entry
from app.paths import ROOT, python_environment
from app.runs import leases
from app.runs.session import RunServices
from app.storage.store import Store
from benchmarks.harness import Result
from tests.reliability.invariants import BROKEN, broken_in
from workloads import catalog

KILLS = 60
Victim = Literal["maker", "guard", "sampler", "worker", "attaching program", "its carrier"]
_MODULES: dict[Victim, str] = {"sampler": "app.telemetry.sampler", "worker": "workloads.worker"}
_LATEST_S = 2.0
"""After the detach; the run measures after about half a second."""
_END_S = 90.0
_PROGRAMS = ("first", "second", "third")
_FAULTS = ("programs that hang", "runs lost", "runs doubled", "recordings left", "processes left")


def measure(kills: int = KILLS) -> Sequence[Result]:
    """Kill so often; return how runs ended, and how much was lost, doubled, left or broken."""
    faults: Counter[str] = Counter()
    endings: Counter[str] = Counter()
    moments = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {leases.FOLDER_VARIABLE: folder, "XDG_STATE_HOME": folder}
        for number in range(kills):
            victim = get_args(Victim)[number % len(get_args(Victim))]
            case = Path(folder) / str(number)
            ending, found = _kill_once(victim, case, moments.uniform(0.0, _LATEST_S))
            endings[f"{victim}: {ending}"] += 1
            faults += sum((broken_in(case / name, ended=True) for name in _PROGRAMS), found)
    return [
        *(Result(name=ending, value=count, unit="runs") for ending, count in sorted(endings.items())),
        *(Result(name=name, value=faults[name], unit="", limit=0) for name in (*_FAULTS, *BROKEN)),
    ]


def _kill_once(victim: Victim, folder: Path, moment_s: float) -> tuple[str, Counter[str]]:
    """Detach a run, attach twice, kill; return how the run ended where it is stored at the end, and the faults."""
    faults: Counter[str] = Counter()
    entry = find_host("sh:", typed)
    with closing(SpoolLink.open(entry, lambda _: None)) as link:
        folder.mkdir()
        with closing(open_entry(entry)) as connection:
            spec = catalog.complete("dummy", {"gpus": 0, "seconds": 600.0}, connection.host.machine)
            services = RunServices(database=folder / "profiles.db", host=connection.host)
            uid = detach_run(spec, services, link, 10.0)
        maker = psutil.Process(int((spool_folder() / uid / "pid").read_text()))
        programs = [_attach(folder / name) for name in _PROGRAMS[:2]]
        time.sleep(moment_s)
        has_begun = b'"type":"run_started"' in (spool_folder() / uid / "recording.jsonl").read_bytes()
        ours = [maker, *maker.parents()[:1], *maker.children(recursive=True)]
        _kill(victim, maker, programs[0])
        link.stop(uid)
    for program in programs:
        try:
            program.wait(_END_S)
        except subprocess.TimeoutExpired:
            faults["programs that hang"] += 1
            program.kill()
    _attach(folder / _PROGRAMS[2]).wait(_END_S)
    runs = [_outcomes(folder / name / "profiles.db", uid) for name in _PROGRAMS]
    faults["runs lost"] += has_begun and not any(runs)
    faults["runs doubled"] += sum(len(outcomes) > 1 for outcomes in runs)
    faults["recordings left"] += sum(1 for _ in spool_folder().iterdir())
    faults["processes left"] += len(psutil.wait_procs(ours, timeout=_END_S)[1])
    return next((outcomes[0] for outcomes in runs if outcomes), "not stored"), faults


def _attach(folder: Path) -> "subprocess.Popen[bytes]":
    folder.mkdir(parents=True)
    return subprocess.Popen(
        [sys.executable, "-m", "app", "attach", "sh:", "--db", str(folder / "profiles.db")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=python_environment(),
        start_new_session=True,
    )


def _kill(victim: Victim, maker: psutil.Process, program: "subprocess.Popen[bytes]") -> None:
    match victim:
        case "maker":
            victims = [maker]
        case "guard":
            victims = maker.parents()[:1]
        case "attaching program":
            victims = [psutil.Process(program.pid)]
        case "its carrier":
            victims = psutil.Process(program.pid).children()
        case _:
            victims = [child for child in maker.children() if _MODULES[victim] in child.cmdline()]
    for process in victims:
        process.kill()


def _outcomes(database: Path, uid: str) -> list[str]:
    """Return the outcomes of all runs of this id in a database."""
    if not database.exists():
        return []
    with Store.open(database) as store:
        return [str(row.outcome and row.outcome.name) for row in store.list_runs() if row.uid == uid]
