"""What the terminal says of implementations in which weights cannot be tried."""

from app.cli.run import describe_excluded
from app.runs.weight_transfer import transfer_targets
from workloads.catalog import Machine, complete


def test_implementations_that_are_left_out_are_a_line_per_reason() -> None:
    machine = Machine()
    spec = complete("gru", {"framework": "jax", "gpus": 0}, machine)
    lines = describe_excluded(spec, transfer_targets(spec, (), 0, machine).excluded)
    assert [line.partition(" left out: ")[2].partition(" ")[0] for line in lines] == ["cuDNN", "JAX"]
    assert lines[1].startswith("Auto, 6 separate GEMMs, ")
    assert " were left out: JAX has no counterpart of this implementation here; use one of " in lines[1]
    assert describe_excluded(spec, {"cudnn": "It has no GPU."}) == ["cuDNN was left out: It has no GPU."]
