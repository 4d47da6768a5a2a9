"""Custom models that do not do what they are said to: each is found, or said to be out of sight. On the CPU."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evidence_runs import collect_evidence, spec_of
from tests.present import present
from workloads.aspects import Observation
from workloads.catalog import CustomFile, Machine, fill_defaults
from workloads.custom.definitions import custom_workload
from workloads.custom.evidence import NOT_INSPECTED, Findings
from workloads.custom.source import describe_file
from workloads.evidence import Aspect
from workloads.operations import Op
from workloads.protocol import Evidence, RunSpec, Source, Value
from workloads.tensorflow.evidence.custom import custom_layout, layer_notes, step_aspects
from workloads.tensorflow.runtime import Replicas
from workloads.training import Layer
from workloads.xla import XlaTrace

MISLABELLED = Path(__file__).parents[3] / "mislabelled.py"


@pytest.fixture(autouse=True)
def this_process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file is read by processes that end soon after: here its module, its stdin and its types must not stay."""
    import keras
    import tensorflow as tf

    policy = keras.config.dtype_policy()
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    yield
    tf.config.run_functions_eagerly(False)
    keras.config.set_dtype_policy(policy)
    sys.modules.pop("own_workload", None)


def evidence_of(name: str, replica: Replicas, *, steps: bool = False, **values: Value) -> Evidence:
    import keras

    source = Source(path=str(MISLABELLED), text=MISLABELLED.read_text(encoding="utf-8"))
    (described,) = describe_file(source, name).workloads
    workload = custom_workload(described, CustomFile(path=source.path, sha256=source.sha256))
    spec = fill_defaults(workload, {"gpus": 0, **values}, Machine(cpu_count=2))
    precision = spec.variant["precision"]
    keras.config.set_dtype_policy("mixed_bfloat16" if precision == "bfloat16" else str(precision))
    return collect_evidence(spec, replica, steps=steps, source=source)


def test_the_layers_of_another_layout_are_named(replica: Replicas) -> None:
    forgotten = evidence_of("layouts", replica, layout="channels_first", norm_axis=1)
    assert (forgotten.state, forgotten.actual["layout"]) == ("mismatch", "channels_first and channels_last")
    assert forgotten.reason == ("2 of 4 layers are channels_last: conv (Conv2D), global_pool (GlobalAveragePooling2D).")
    alike = evidence_of("layouts", replica)
    assert (alike.state, alike.actual["layout"]) == ("verified", "channels_last")


def test_where_no_layout_is_requested_layers_that_differ_leave_the_run_verified_in_part(replica: Replicas) -> None:
    evidence = evidence_of("formats", replica)
    assert (evidence.state, evidence.unverified) == (
        "verified in part",
        {"layout": "1 of 4 layers are channels_first: norm (BatchNormalization)."},
    )


def test_what_the_articles_author_forgot_is_named(replica: Replicas) -> None:
    """Norm and global pooling left as they were; with as many filters as pixels Keras errs, too."""
    names = "2 of 4 layers are channels_last: norm (BatchNormalization), global_pool (GlobalAveragePooling2D)."
    evidence = evidence_of("forgotten", replica, filters=8)
    assert (evidence.state, evidence.requested["layout"]) == ("verified in part", "the same in all layers")
    assert evidence.reason == (
        f"{names} Keras puts the bias of conv along the width: images are as wide there as they have channels."
    )
    assert evidence_of("forgotten", replica, filters=4).reason == names


def test_a_misplaced_bias_alone_is_a_mismatch_where_channels_first_was_requested() -> None:
    variant = {**spec_of("lstm").variant, "layout": "channels_first"}
    layers = tuple(Layer(name=name, kind="Conv2D", layout="channels_first") for name in ("good", "bad"))
    biases = tuple(
        Op(type="BiasAdd", name=f"model/{name}_1/BiasAdd", layout=layout)
        for name, layout in (("good", "NCHW"), ("bad", "NHWC"), ("head", "NHWC"))
    )
    aspect = present(
        custom_layout(Observation(spec=RunSpec(workload="own.py:net", variant=variant), layers=layers, graph=biases))
    )
    assert (aspect.actual, aspect.matches) == ("channels_first and channels_last", False)
    assert (aspect.reason or "").startswith("Keras puts the bias of bad along the width:")


def test_a_type_is_weighed_by_its_time_and_not_by_its_number_of_products(replica: Replicas) -> None:
    evidence = evidence_of("types", replica, steps=True, precision="bfloat16")
    assert evidence.state == "mismatch"
    assert "in float32, not in bfloat16." in present(evidence.reason)
    assert evidence_of("types", replica, precision="bfloat16", large="as requested").state == "verified"


def test_without_a_trace_nobody_knows_which_type_did_the_work(replica: Replicas) -> None:
    evidence = evidence_of("types", replica, precision="bfloat16")
    assert (evidence.state, list(evidence.unverified)) == ("verified in part", ["precision"])
    assert evidence.reason == "Products are in bfloat16 and float32, and no trace shows how long those of each took."


def test_work_in_python_is_out_of_sight(replica: Replicas) -> None:
    evidence = evidence_of("python_calls", replica)
    assert (evidence.state, list(evidence.unverified)) == ("verified in part", ["precision"])
    assert evidence.reason == "2 operations ran in Python (py_function), where nothing shows what is computed."


def test_a_layer_that_asks_for_xla_by_itself_is_found(replica: Replicas) -> None:
    evidence = evidence_of("compiled_inside", replica)
    assert (evidence.state, evidence.actual["xla"]) == ("mismatch", "partly")
    assert (evidence.reason or "").startswith("XLA compiled ")


def test_recurrent_layers_say_how_they_ran(replica: Replicas) -> None:
    evidence = evidence_of("recurrent", replica)
    assert evidence.notes == ("Recurrent layers ran: backward_both, forward_both, last as a loop.",)
    graph = (
        Op(type="CudnnRNNV3", name="sequential/forward_both_1/CudnnRNNV3", device="GPU:0"),
        Op(
            type="MatMul", name="sequential/last_1/while/body/_3/MatMul", loop="sequential/last_1/while", device="GPU:0"
        ),
    )
    spec = spec_of("lstm")
    layers = tuple(Layer(name=name, kind="LSTM", recurrent=True) for name in ("forward_both", "last"))
    seen = Observation(spec=spec, graph=graph, layers=layers)
    assert list(layer_notes(seen)) == ["Recurrent layers ran: forward_both through cuDNN; last as a loop."]


@pytest.mark.parametrize(
    ("compiled", "optimizer", "cause"),
    [
        (False, False, "Keras transposes there and back"),
        (False, True, "TensorFlow's graph optimizer changes layouts; use layout_optimizer=false"),
        (True, False, "XLA chooses the layout itself"),
    ],
)
def test_operations_of_another_layout_than_their_layers_are_named(compiled: bool, optimizer: bool, cause: str) -> None:
    variant = {**spec_of("lstm", layout_optimizer=optimizer).variant, "layout": "NCHW"}
    ops = tuple(
        Op(type="Conv2D", name=f"model/{name}_1/convolution", layout=layout, compiled=compiled)
        for name, layout in (("first", "NCHW"), ("second", "NHWC"))
    )
    layers = tuple(Layer(name=name, kind="Conv2D", layout="channels_first") for name in ("first", "second"))
    seen = Observation(
        spec=RunSpec(workload="own.py:net", variant=variant),
        layers=layers,
        graph=() if compiled else ops,
        trace=XlaTrace(programs=ops if compiled else ()),
    )
    aspect = present(custom_layout(seen))
    assert (aspect.actual, aspect.matches) == ("channels_first and channels_last", False)
    assert aspect.reason == f"1 of 2 operations on images ran in NHWC (second): {cause}."


@pytest.mark.parametrize(
    ("how", "aspect", "actual", "reason"),
    [
        ("eager", "execution", "eagerly", "2 steps ran eagerly: Python started their operations one by one."),
        (
            "branch",
            "execution",
            None,
            "Operations are in branches (tf.cond) of inner: nothing shows how often a step computes them.",
        ),
        ("loop", "execution", None, "Operations are in loops of inner: nothing shows how often a step computes them."),
        ("one answer", "examples", None, "Different outputs for 16 different examples: 1."),
        ("one answer in training", "examples", None, "Different outputs for 16 different examples: 1."),
        ("one example", "examples", None, "Different examples in a batch of 16: 1."),
        ("no gradient", "training", "no weight trained", "The loss does not depend on any weight."),
        ("a head alone", "training", None, "The loss does not depend on 2 of the 6 weights: alone/kernel, alone/bias."),
        ("no rate", "training", "no weight trained", "The steps did not change any weight."),
        ("bfloat16 weights", "training", "no weight trained", "The steps did not change any weight."),
        ("constant loss", "training", None, "The loss was 0 in the first step and in the last."),
    ],
)
def test_a_step_that_does_less_than_it_seems_is_not_verified(
    replica: Replicas, how: str, aspect: str, actual: str | None, reason: str
) -> None:
    precision = "bfloat16" if how == "bfloat16 weights" else "float32"
    evidence = evidence_of("shortcuts", replica, how=how, precision=precision)
    assert evidence.state == ("mismatch" if actual else "verified in part")
    assert (evidence.actual.get(aspect), evidence.reason) == (actual, reason)
    assert {name for name, value in evidence.requested.items() if evidence.actual.get(name) != value} == {aspect}


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_a_step_that_does_all_of_it_is_verified(replica: Replicas, mode: str) -> None:
    evidence = evidence_of("shortcuts", replica, mode=mode)
    assert (evidence.state, evidence.reason) == ("verified", None)
    trained = {"training": "all weights trained"} if mode == "train" else {}
    assert evidence.actual.items() >= {"execution": "as a graph", **trained, "examples": "different examples"}.items()


@pytest.mark.parametrize(
    ("frozen", "trained"),
    [
        ("none", "all weights trained"),
        ("inner", "2 of 6 weights frozen (41.67 % of their numbers), all others trained"),
        ("all but the head", "4 of 6 weights frozen (58.33 % of their numbers), all others trained"),
    ],
)
def test_weights_and_statistics_that_stay_as_they_are_are_told(replica: Replicas, frozen: str, trained: str) -> None:
    evidence = evidence_of("statistics", replica, frozen=frozen)
    assert (evidence.state, evidence.reason) == ("verified", None)
    assert (evidence.actual["training"], evidence.actual["examples"]) == (trained, "different examples")


def test_branches_and_loops_are_seen_in_what_xla_compiled(replica: Replicas) -> None:
    branch = evidence_of("shortcuts", replica, how="branch", xla=True, steps=True)
    assert (branch.state, list(branch.unverified)) == ("verified in part", ["execution"])
    assert "in branches" in branch.unverified["execution"]


def test_two_replicas_are_looked_at_as_one_is(pair: Replicas) -> None:
    evidence = evidence_of("shortcuts", pair, how="one answer")
    assert evidence.unverified["examples"] == "Different outputs for 8 different examples: 1."
    assert evidence.actual["training"] == "all weights trained"


CUSTOM = RunSpec(workload="own.py:net", variant={**spec_of("lstm").variant})
PRODUCT = Op(type="MatMul", name="net/dense/MatMul", device="CPU:0", dtype="float32")


def step_aspect(name: str, *more: Op, layers: tuple[Layer, ...] = (), **findings: Any) -> Aspect | None:
    findings = {"weights": ("a", "b"), "distinct": (16, 16, 16), **findings}
    seen = Observation(spec=CUSTOM, graph=(PRODUCT, *more), layers=layers, findings=Findings(**findings))
    return next((aspect for aspect in step_aspects(seen) if aspect.name == name), None)


@pytest.mark.parametrize(
    ("distinct", "verified"),
    [((16, 3, 3), True), ((16, 2, 2), None), ((64, 64, 9), True), ((64, 64, 8), None), ((4, 2, 2), True),
     ((2, 1, 1), None), ((4, 4, 1), None), ("The check of outputs could not be used: no.", None)],
)  # fmt: skip
def test_examples_and_outputs_are_told_where_at_most_an_eighth_differ(distinct: Any, verified: bool | None) -> None:
    assert present(step_aspect("examples", distinct=distinct)).matches is verified


def test_of_a_single_example_nothing_can_differ() -> None:
    assert step_aspect("examples", distinct=(1, 1, 1)) is None


@pytest.mark.parametrize(
    ("findings", "matches"),
    [
        ({"losses": (1.0, 1.0, 1.0)}, None),
        ({"losses": (1.0, 1.0, 0.9)}, True),
        ({"losses": (1.0,)}, True),
        ({"unchanged": ("a",), "without_gradient": ("b",)}, False),
        ({"unchanged": ("a",), "without_gradient": ("a",)}, None),
        ({"without_gradient": ("a", "b"), "losses": (1.0, 1.0)}, False),
    ],
)
def test_training_is_what_changes_every_weight_and_the_loss(findings: Any, matches: bool | None) -> None:
    assert present(step_aspect("training", **findings)).matches is matches


def test_a_loop_of_a_recurrent_layer_is_none_of_the_models_own() -> None:
    product = Op(type="MatMul", name="net/mine_1/while/body/_3/MatMul", loop="net/mine_1/while", dtype="float32")
    recurrent = Layer(name="mine", kind="LSTM", recurrent=True)
    found = [step_aspect("execution", product, layers=layers) for layers in ((recurrent,), ())]
    assert [aspect.matches for aspect in found if aspect] == [True, None]


@pytest.mark.parametrize("compiled", [True, False])
def test_what_stands_in_a_branch_is_known_in_functions_too(compiled: bool) -> None:
    import tensorflow as tf

    from workloads.tensorflow.evidence.graph import collected_ops, start_collecting

    def inner(x: Any) -> Any:
        many = tf.switch_case(tf.cast(x[0, 0], tf.int32), [lambda: x @ x, lambda: x])
        return tf.cond(x[0, 0] > 0, lambda: many @ x @ x, lambda: many) + x @ x

    def step(x: Any) -> Any:
        return tf.function(inner, jit_compile=compiled, autograph=False)(x)

    start_collecting()
    tf.function(step, autograph=False)(tf.ones((4, 4)))
    products = [op for op in collected_ops() if op.is_product]
    assert sorted(op.branch for op in products) == [False, True, True, True]
    assert {op.compiled for op in products} == {compiled}


def test_a_run_that_ended_early_was_not_looked_at() -> None:
    found = list(step_aspects(Observation(spec=CUSTOM, graph=(PRODUCT,))))
    assert [(aspect.name, aspect.reason) for aspect in found] == [
        (name, NOT_INSPECTED) for name in ("execution", "training", "examples")
    ]


@pytest.mark.parametrize(("difference", "distinct"), [(0.0, 1), (0.9e-5, 1), (1.2e-5, 2)])
def test_outputs_are_alike_but_for_rounding(replica: Replicas, difference: float, distinct: int) -> None:
    import tensorflow as tf

    from workloads.tensorflow.steps import count_distinct_outputs

    def answers(inputs: Any) -> Any:
        return [[tf.constant([[1.0], [1.0], [1.0], [1.0 + difference]]), tf.reduce_sum(inputs)]]

    batch = tf.range(4.0)[tf.newaxis, :, tf.newaxis], ()
    assert count_distinct_outputs(answers, batch, replica) == (4, 4, distinct)
