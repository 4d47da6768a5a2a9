from app.viewmodels.naming import short_name
from workloads.catalog import Gpu, Machine, complete
from workloads.protocol import RunSpec

MACHINE = Machine(gpus=(Gpu(index=0, uuid="a", name="H200"), Gpu(index=1, uuid="b", name="H200")), cpu_count=8)


def test_a_name_says_what_runs_where() -> None:
    spec = complete("cnn10", {"gpus": 2, "precision": "bfloat16", "xla": True}, MACHINE)
    assert short_name(spec) == "cnn10 NCHW · 2 GPUs · batch 1024 · bfloat16 · XLA"


def test_defaults_of_the_cpu_are_not_named() -> None:
    assert short_name(complete("lstm", {}, Machine())) == "lstm Standard · CPU · batch 32"


def test_what_is_unusual_is_named() -> None:
    assert short_name(complete("lstm", {"layers": 4}, MACHINE)) == "lstm cuDNN · 1 GPU · batch 64 · layers 4"


def test_an_unknown_workload_still_has_a_name() -> None:
    assert short_name(RunSpec(workload="mine", variant={"gpus": 1, "depth": 3})) == "mine · 1 GPU · depth 3"
