"""Which devices a run may have, and on which of them its variant has least been."""

from app.runs.experiment.schedule import DeviceBalancer
from app.runs.leases import candidate_devices
from workloads.catalog import Gpu, Machine, complete
from workloads.protocol import RunSpec, Value

MACHINE = Machine(gpus=tuple(Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200") for n in range(4)))


def on(**given: Value) -> RunSpec:
    return complete("dummy", {"gpus": 1, **given}, MACHINE)


ONE, OTHER = on(step_ms=1.0), on(step_ms=2.0)


def test_a_run_may_have_the_gpus_it_names_or_all_and_without_any_the_processor() -> None:
    assert candidate_devices(ONE, MACHINE) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    assert candidate_devices(on(devices="3, GPU-1"), MACHINE) == ["GPU-3", "GPU-1"]
    assert candidate_devices(on(gpus=0), MACHINE) == ["cpu"]


def test_a_variant_goes_first_where_others_were_and_it_was_not() -> None:
    spread = DeviceBalancer(2, MACHINE)
    assert spread.ranked_devices(ONE)[0] == "GPU-0"
    spread.add(ONE, ["GPU-2"])
    assert spread.ranked_devices(OTHER) == ["GPU-2", "GPU-0", "GPU-1", "GPU-3"]
    assert spread.ranked_devices(ONE) == ["GPU-0", "GPU-1", "GPU-3", "GPU-2"]
    spread.add(OTHER, ["GPU-2"])
    assert spread.ranked_devices(ONE) == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"], "none of them is behind"


def test_a_run_on_named_cards_is_one_of_the_variant_that_leaves_them_open() -> None:
    spread = DeviceBalancer(2, MACHINE)
    spread.add(on(step_ms=1.0, devices="0"), ["GPU-0"])
    spread.add(OTHER, ["GPU-1"])
    assert spread.ranked_devices(ONE)[0] == "GPU-1"


def test_of_two_runs_the_one_begins_that_was_least_on_the_free_card() -> None:
    spread = DeviceBalancer(2, MACHINE)
    assert spread.choose([OTHER, ONE], {"GPU-1"}) == OTHER, "of equals the first"
    spread.add(ONE, ["GPU-0"])
    spread.add(OTHER, ["GPU-1"])
    taken = {"GPU-2", "GPU-3"}
    assert spread.choose([OTHER, ONE], taken | {"GPU-0"}) == ONE
    assert spread.choose([ONE, OTHER], taken | {"GPU-1"}) == OTHER


def test_one_for_which_no_card_is_free_waits_behind_the_others() -> None:
    spread = DeviceBalancer(2, MACHINE)
    named = on(step_ms=3.0, devices="1")
    assert spread.choose([named, ONE], {"GPU-1"}) == ONE
    assert spread.choose([named, ONE], {"GPU-0"}) == named


def test_a_run_on_two_cards_counts_on_both() -> None:
    spread = DeviceBalancer(2, MACHINE)
    both, others = (on(gpus=2, step_ms=ms) for ms in (1.0, 2.0))
    spread.add(both, ["GPU-1", "GPU-2"])
    assert spread.ranked_devices(others)[:2] == ["GPU-1", "GPU-2"]
    assert spread.choose([both, others], {"GPU-3"}) == others
