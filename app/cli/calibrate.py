"""`calibrate`: how fast this machine's devices multiply matrices, measured anew."""

from argparse import Namespace

from app.cli.services import run_services
from app.cli.terminal import print_json, print_table, say
from app.runs.calibration import calibrate
from app.storage.store import Store
from app.viewmodels import units


def calibrate_devices(chosen: Namespace) -> int:
    """Measures, stores and prints."""
    with run_services(chosen.db) as services, Store.open(services.database) as store:
        found = list(calibrate(services, store, chosen.precision, say))
    if chosen.json:
        rates = [{name: getattr(each, name) for name in each.__struct_fields__} for each in found]
        print_json({"calibrations": rates})
        return 0
    rows = [(each.device, each.precision, units.gflops(each.flops_per_s), f"{each.size}³") for each in found]
    print_table(("device", "precision", "matrix products", "size"), rows, right=frozenset({2, 3}))
    return 0
