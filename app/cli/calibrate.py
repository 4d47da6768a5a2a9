"""`calibrate`: how fast this machine's devices multiply matrices, measured anew."""

from argparse import Namespace

from app.cli.services import run_services
from app.cli.terminal import print_json, print_table, say
from app.runs.calibration import Calibrated, calibrate
from app.storage.store import Store
from app.viewmodels import units

_LOWER = 0.9
"""A rate below so much of the one before is more than chance: something was changed, or something else was busy."""


def calibrate_devices(chosen: Namespace) -> int:
    """Measures, stores and prints."""
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        measured = list(calibrate(services, store, chosen.precision, say))
    if chosen.json:
        rates = [{name: getattr(each.found, name) for name in each.found.__struct_fields__} for each in measured]
        print_json({"calibrations": rates})
        return 0
    rows = [_row(each) for each in measured]
    print_table(("device", "precision", "matrix products", "before", "size"), rows, right=frozenset({2, 3, 4}))
    for each in measured:
        if each.before is not None and each.found.flops_per_s < _LOWER * each.before.flops_per_s:
            say(_lower_words(each))
    return 0


def _row(measured: Calibrated) -> tuple[str, ...]:
    found, before = measured
    was = units.ABSENT if before is None else units.gflops(before.flops_per_s)
    return found.device, found.precision, units.gflops(found.flops_per_s), was, f"{found.size}³"


def _lower_words(measured: Calibrated) -> str:
    found = measured.found
    return (
        f"{found.device} in {found.precision} is slower than before. If neither driver, TensorFlow nor power limit was "
        "changed, something else was busy: run it again on a quiet machine."
    )
