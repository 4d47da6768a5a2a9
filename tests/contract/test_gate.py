"""Every start of the program passes the gate of `app.grants`: no module builds an order without it."""

import re

from tests.contract.test_imports import ROOT

STARTS = re.compile(r"\.launcher\.launch\(|\bComputeGradients\(|\bDescribeFile\(|\bHostProcess\((?:Start|start_it|\n)")
GATES = re.compile(r"\.admit\(|\brequire\(|\bfind_host\(")
WITHOUT = {
    "app/runs/maker.py": "it makes what a session, or the order of a detached run, has passed",
}
OTHER_SIDE = ("app/hosts/serve.py", "app/hosts/detached.py", "app/hosts/ray_driver.py")
"""On a host orders are followed that have passed the gate."""


def test_who_starts_something_passes_the_gate() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text("utf-8") for path in (ROOT / "app").rglob("*.py")}
    calls = {name: re.sub(r"^(class|def) .*$", "", text, flags=re.MULTILINE) for name, text in texts.items()}
    starting = {name for name, text in calls.items() if STARTS.search(text) and not name.startswith(OTHER_SIDE)}
    assert len(starting) > 4, "the words are still those of the program"
    ungated = {name for name in starting if not GATES.search(calls[name])}
    assert ungated == set(WITHOUT)
