"""A library in which every name and message is mark-up, commands a terminal, and turns the text around it."""

from pathlib import Path

from app.storage.store import Store
from app.values.plan import Plan, encode_plan
from tests.fakes.saved_experiments import save_experiment
from tests.unit.viewmodels.stored import keep, run_row, stored_run
from workloads.protocol import Evidence, Kernel

MARKUP = "<img src=x onerror=a()>"
HOSTILE = f"{MARKUP}\x1b]0;x\x07\u202e"

EVIDENCE = Evidence(
    requested={HOSTILE: HOSTILE},
    actual={HOSTILE: "another"},
    match=False,
    reason=HOSTILE,
    sources=(HOSTILE,),
    notes=(HOSTILE,),
    steps=3,
    span_ns=1000,
    busy_ns=900,
    kernels=(Kernel(name=HOSTILE, kind="other", count=3, time_ns=900),),
)
_NAMES = (
    "UPDATE runs SET note = ?",
    "UPDATE runs SET reason = ? WHERE outcome = 'failed'",
    "UPDATE devices SET name = ?",
    "UPDATE log_lines SET text = ?",
    "INSERT INTO tags (run, tag) SELECT run, ? FROM runs",
    """INSERT INTO filters (name, query) VALUES (?, '{"text": "a"}')""",
)


def make_hostile_library(path: Path) -> None:
    """Three runs of an experiment, a failed one, and an entry of the queue."""
    with Store.open(path) as store:
        rows = [run_row(n, implementation=f"{HOSTILE}{n}", throughput=1000.0 + n) for n in range(1, 4)]
        rows.append(run_row(4, outcome="failed", throughput=None, implementation=HOSTILE))
        for row in rows:
            environment = {"cpu": HOSTILE, "driver": f"{HOSTILE}{row.run}", HOSTILE: HOSTILE}
            keep(store, stored_run(row, environment=environment, evidence=EVIDENCE))
        plan = Plan(name=HOSTILE, variants=tuple(row.spec for row in rows), repeats=2, preset=HOSTILE, notes=(HOSTILE,))
        text = encode_plan(plan)
        save_experiment(store.library, [1, 2, 3], name=HOSTILE, preset=HOSTILE, plan=text)
        store.queue.add(name=HOSTILE, preset=HOSTILE, plan=text)
        for sql in _NAMES:
            store._db.execute(sql, (HOSTILE,))
        store._db.conn.commit()
