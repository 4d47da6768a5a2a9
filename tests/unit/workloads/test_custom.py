"""A user's own file: what its functions are described as, trained in this process, and how its errors are told."""

import importlib.metadata
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fakes.tensorflow import precision_of, train_recipe
from workloads import catalog
from workloads.catalog import CustomFile, Machine, fill_defaults
from workloads.custom.definitions import custom_workload, reserved_names
from workloads.custom.function import UserFunction
from workloads.custom.source import describe_file
from workloads.errors import CustomWorkloadError, TrainingError, outcome_of
from workloads.job_protocol import CustomParameter, FileDescription
from workloads.protocol import RunSpec, Source, Value
from workloads.tensorflow.runtime import Replicas

EXAMPLE = Path(__file__).parents[3] / "examples" / "mlp.py"

DENSE = """
    import keras
    import numpy as np

    def dense(batch_size=8, seed=1):
        inputs = keras.Input((4,))
        normal = keras.layers.BatchNormalization()(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, kernel_regularizer="l2")(normal))
        def batch(step):
            rng = np.random.default_rng(step)
            x = rng.normal(size=(batch_size, 4))
            return x, x.sum(axis=1, keepdims=True)
        return model, "mse", batch
"""


@pytest.fixture(autouse=True)
def this_process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file is read by processes that end soon after: here its module and its stdin must not stay."""
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    yield
    sys.modules.pop("own_workload", None)


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras_with_another_framework_is_refused_by_its_line(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    reason = f"KERAS_BACKEND is set to '{backend}', and Keras runs on TensorFlow here; set it to 'tensorflow', or leave"
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    given = source(f'import os\nos.environ["KERAS_BACKEND"] = "{backend}"\nraise ModuleNotFoundError("{backend}")\n')
    with pytest.raises(CustomWorkloadError, match=f"^mine.py:2: {reason}"):
        describe_file(given)
    # A function is called in runs alone, where Keras is imported already.
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    late = source(f"def net(batch_size=8):\n    import os\n    os.environ['KERAS_BACKEND'] = '{backend}'\n")
    function = UserFunction(spec_of(late, "net"), late)
    with pytest.raises(CustomWorkloadError, match=f"^mine.py:3: {reason}"):
        function.call(object, "model")


def test_keras_on_tensorflow_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    given = source("import os\nos.environ['KERAS_BACKEND'] = 'tensorflow'\ndef net(batch_size=8): ...\n")
    assert describe_file(given).workloads[0].framework == "tensorflow"


BOTH = """
    import sys
    from workloads.custom.source import load_module
    from workloads.errors import outcome_of
    from workloads.protocol import Source

    source = Source(path="/mine/mine.py", text=sys.argv[1])
    try:
        load_module(source)
        print("loaded", sys.modules["triton"] is not None)
    except Exception as error:
        print(outcome_of(error, {}, None, source).reason)
"""


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("def data(): import torch\n__import__('tensorflow')\nimport triton", "loaded True"),
        (
            "import tensorflow\ntorch = __import__('torch')\ntorch.optim.SGD([torch.ones(1).requires_grad_()], 0.1)",
            "loaded False",
        ),
        ("import tensorflow\nimport triton.language", "mine.py:2: Triton after TensorFlow would end the process, so"),
    ],
    ids=["PyTorch", "TensorFlow", "Triton in TensorFlow's"],
)
def test_tensorflow_and_triton_in_one_file_do_not_end_the_process(text: str, printed: str) -> None:
    if not {"torch", "triton"} <= {package.name for package in importlib.metadata.distributions()}:
        pytest.skip("Triton comes with PyTorch for NVIDIA's GPUs alone")
    # Of its own: `import tensorflow, triton` ends in a segmentation fault.
    command = [sys.executable, "-c", textwrap.dedent(BOTH), text]
    child = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    assert child.stdout.startswith(printed)


def source(text: str, name: str = "mine.py") -> Source:
    return Source(path=f"/mine/{name}", text=textwrap.dedent(text))


def example() -> Source:
    return Source(path=str(EXAMPLE), text=EXAMPLE.read_text(encoding="utf-8"))


def spec_of(given: Source, name: str, **values: Value) -> RunSpec:
    (described,) = describe_file(given, name).workloads
    workload = custom_workload(described, CustomFile(path=given.path, sha256=given.sha256))
    return fill_defaults(workload, {"gpus": 0, **values}, Machine(cpu_count=2))


def trained(
    given: Source,
    spec: RunSpec,
    replicas: Replicas,
    steps: int,
    optimizer: Callable[..., Any] | None = None,
    batches: int | None = None,
) -> tuple[Any, list[float]]:
    """The user's workload trained so many steps, also with another optimizer: its model, and each step's loss."""
    from workloads.tensorflow.custom import custom_recipe

    recipe = custom_recipe(spec, given)
    optimizer = optimizer or recipe.optimizer
    return train_recipe(recipe, spec.variant, replicas, steps, optimizer=optimizer, batches=batches)


def reason_of(given: Source, work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - whatever a user's file raises
        ending = outcome_of(error, {}, None, given)
        assert (ending.outcome, bool(ending.traceback)) == ("failed", True)
        return ending.reason or ""
    pytest.fail("nothing was wrong")


def test_a_signature_and_its_docstring_are_the_parameters() -> None:
    assert [workload.name for workload in describe_file(example()).workloads] == ["mlp", "words"]
    description = describe_file(example(), "mlp")
    (mlp,) = description.workloads
    assert description == FileDescription(workloads=(mlp,), source=example())
    assert (mlp.batch_size, mlp.help) == (256, "Dense layers classify synthetic 28 x 28 images into ten classes.")
    assert mlp.parameters == (
        CustomParameter(name="units", kind="integer", default=256, help="Units of each hidden layer."),
        CustomParameter(name="layers", kind="integer", default=2, help="Hidden layers, one after the other."),
        CustomParameter(
            name="activation",
            kind="choice",
            default="relu",
            help="Activation after each hidden layer.",
            choices=("relu", "tanh"),
        ),
        CustomParameter(
            name="dropout", kind="number", default=0.0, help="Share of each hidden layer's outputs dropped in training."
        ),
    )


def test_defaults_alone_say_the_kind_and_annotations_may_be_texts() -> None:
    text = """
        from __future__ import annotations
        WIDE = 3
        def _private(batch_size=4): ...
        def plain(batch_size=4, word="a", on=True, rate: float = 1, wide: int = WIDE): ...
    """
    (plain,) = describe_file(source(text)).workloads
    kinds = [(parameter.name, parameter.kind, parameter.default) for parameter in plain.parameters]
    assert kinds == [("word", "text", "a"), ("on", "switch", True), ("rate", "number", 1.0), ("wide", "integer", 3)]


def test_a_function_has_the_name_that_the_file_gives_it_whatever_a_type_checker_alone_can_read() -> None:
    text = """
        def _wide(units):
            def inner(batch_size: "Size" = 4, /, rate: "float" = 1) -> "Model": return units, batch_size, rate
            return inner
        small, large = _wide(2), _wide(7)
        best = large
        short = lambda batch_size=3: batch_size
    """
    description = describe_file(source(text))
    assert [workload.name for workload in description.workloads] == ["small", "large", "short"]
    assert [parameter.kind for parameter in description.workloads[0].parameters] == ["number"]
    assert description.left_out == ()
    spec = spec_of(source(text), "large", batch_size=9)
    with pytest.raises(CustomWorkloadError, match="the first value it returns is int"):
        UserFunction(spec, source(text)).call(str, "text")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def f(batch_size=4, units): ...", r"mine.py:1: SyntaxError: (non-default|parameter without a default)"),
        ("import nothing_such", r"mine.py:1: ModuleNotFoundError: No module named 'nothing_such'"),
        ("x = 1\n\ndef f(batch_size=4):\n  ...\ny = 1 / 0", "mine.py:5: ZeroDivisionError: division by zero"),
        ("raise SystemExit(3)", "mine.py:1: the file ends the program when it is read"),
        ("input('? ')", "mine.py:1: EOFError"),
        ("def f(units=3): ...", "mine.py: none of its functions is a workload. Write one such as"),
        ("x = 1\ndef f(batch_size='a'): ...", "mine.py:2: batch_size of f is 'a', and has to be a whole number from 1"),
        ("def f(batch_size=-3): ...", "mine.py:1: batch_size of f is -3, and has to be a whole number from 1."),
        ("async def f(batch_size=4): ...", "mine.py:1: f has async or yield in it; a workload is a plain function"),
        ("def f(batch_size=4): yield 1", "mine.py:1: f has async or yield in it; a workload is a plain function"),
        ("raise ValueError('x' * 5000)", "mine.py:1: ValueError: x{300} …$"),
        ("def f(batch_size=4, *, units): ...", "mine.py:1: units needs a default, such as units: int = 64"),
        ("def f(batch_size=4, **more): ...", r"mine.py:1: \*\*more cannot be set; name every parameter"),
        ("def f(batch_size=4, gpus=2): ...", "mine.py:1: gpus is the name of one of the program's settings"),
        ("def f(batch_size=4, units: int = 1.5): ...", "mine.py:1: units: int = 1.5 is none that can be set"),
        ("def f(batch_size=4, sizes=(1, 2)): ...", r"mine.py:1: sizes=\(1, 2\) is none that can be set"),
        ("def f(batch_size=4, n=10**400): ...", "mine.py:1: the default of n is a number of more than 64 bits"),
        ("def f(batch_size=10**400): ...", "mine.py:1: batch_size of f is 1000"),
        ("def f(batch_size=4, x=float('inf')): ...", "mine.py:1: x=inf is none that can be set"),
        ("def f(batch_size=4, text='x' * 4_001): ...", "mine.py:1: a text of text has more than 4,000 characters"),
        (r"def f(batch_size=4, text='\x1b'): ...", "mine.py:1: a text of text has .*, or control characters"),
        ("def f(batch_size=4, on: bool = 1): ...", "mine.py:1: on: bool = 1 is none that can be set"),
        ("x = 1\ndef f(batch_size=4, x: 'Whole' = 4): ...", "mine.py:2: x: 'Whole' = 4 is none that can be set"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_line(text: str, sentence: str) -> None:
    given = source(text)
    reason = reason_of(given, lambda: describe_file(given))
    assert re.match(sentence, reason), reason
    assert "own/" not in reason


def test_a_function_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(CustomWorkloadError, match=r"mine.py: There is no function g in it. It has f, h."):
        describe_file(source("def f(): ...\ndef h(): ..."), "g")


def test_every_common_parameter_applies_and_says_which_state_of_the_file_is_meant() -> None:
    spec = spec_of(example(), "words", precision="float16", width=8)
    assert spec.workload == "mlp.py:words"
    assert spec.variant["source"] == example().sha256
    assert (spec.variant["width"], spec.variant["batch_size"], spec.variant["precision"]) == (8, 64, "float16")
    assert reserved_names() - {"source"} <= spec.variant.keys()
    assert {"gpus", "xla", "mode", "seconds", "interpreter"} <= reserved_names()
    assert not reserved_names() & {"batch_size", "seed"}
    assert catalog.with_defaults(spec) == spec


@pytest.mark.parametrize("given", [{}, {"xla": True}, {"precision": "float16"}])
def test_the_example_s_texts_are_learnt(replica: Replicas, given: dict[str, Value]) -> None:
    spec = spec_of(example(), "words", batch_size=16, length=6, **given)
    with precision_of(spec.variant["precision"]):
        _, losses = trained(example(), spec, replica, 60)
    assert losses[0] == pytest.approx(np.log(2), abs=0.02)
    assert losses[-1] < 0.5 * losses[0]


def test_xla_gets_no_layer_that_would_choose_cudnn_and_a_word_says_so(
    replica: Replicas, capsys: pytest.CaptureFixture[str]
) -> None:
    given: dict[str, Value] = {"batch_size": 4, "length": 3, "bidirectional": True}
    compiled, _ = trained(example(), spec_of(example(), "words", xla=True, **given), replica, 0)
    assert [layer.use_cudnn for layer in _lstms(compiled)] == [False, False]
    assert re.search(r"so (\w+_lstm\w* \(LSTM\)(, | )){2}ran with use_cudnn=False", capsys.readouterr().out)
    plain, _ = trained(example(), spec_of(example(), "words", **given), replica, 0)
    assert [layer.use_cudnn for layer in _lstms(plain)] == ["auto", "auto"]
    assert not capsys.readouterr().out


def _lstms(model: Any) -> list[Any]:
    (bidirectional,) = [layer for layer in model._model.layers if hasattr(layer, "forward_layer")]
    return [bidirectional.forward_layer, bidirectional.backward_layer]


def test_layers_that_xla_cannot_compile_are_named_before_it_tries(replica: Replicas) -> None:
    given = source(DENSE.replace("def batch", "model.layers[-1].supports_jit = False\n        def batch"))
    reason = reason_of(given, lambda: trained(given, spec_of(given, "dense", xla=True), replica, 1))
    assert re.match(r"mine.py:5: XLA cannot compile dense\w* \(Dense\); choose xla=false", reason), reason


def test_layers_with_a_state_of_their_own_train_on_two_replicas(pair: Replicas) -> None:
    _, losses = trained(source(DENSE), spec_of(source(DENSE), "dense"), pair, 3)
    assert np.isfinite(losses).all()


def with_optimizer(words: str) -> Source:
    """The dense workload without layers that have a state, trained by this optimizer."""
    text = textwrap.dedent(DENSE).replace("keras.layers.BatchNormalization()(inputs)", "inputs")
    return source(text.replace('"mse", batch', f'"mse", batch, {words}'))


@pytest.mark.parametrize(("given", "several"), [({}, False), ({"xla": True}, False), ({"precision": "float16"}, True)])
def test_an_optimizer_of_keras_makes_the_steps_of_the_programs_own(
    replica: Replicas, pair: Replicas, given: dict[str, Value], several: bool
) -> None:
    from workloads.tensorflow.optimizers import Momentum

    mine = with_optimizer("keras.optimizers.SGD(0.05, momentum=0.9)")
    spec, replicas = spec_of(mine, "dense", **given), pair if several else replica
    with precision_of(spec.variant["precision"]):
        keras_s, losses = trained(mine, spec, replicas, 4)
        ours, expected = trained(mine, spec, replicas, 4, optimizer=lambda weights: Momentum(weights, 0.05))
    assert losses == pytest.approx(expected, rel=1e-5)
    for a, b in zip(keras_s.weights, ours.weights, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("several", [False, True])
def test_a_step_that_float16_skips_leaves_weights_and_the_optimizers_state(
    replica: Replicas, pair: Replicas, several: bool
) -> None:
    import keras
    import tensorflow as tf

    from workloads.tensorflow.custom import KerasOptimizer, ReplicaOptimizer
    from workloads.tensorflow.optimizers import LossScale
    from workloads.tensorflow.recipe import compile_function

    replicas = pair if several else replica
    with replicas.strategy.scope():
        weight = tf.Variable([1.0, 2.0])
        create = partial(ReplicaOptimizer, keras.optimizers.Adam(0.1), constraints=[None], may_skip=True)
        scaled = LossScale(KerasOptimizer([weight], create), initial=4.0)

    def step(gradient: tf.Tensor) -> None:
        replicas.strategy.run(lambda: scaled.apply([gradient], tf.constant(1.0)))

    run = compile_function(step, xla=False)
    run(tf.constant([float("inf"), 4.0]))
    np.testing.assert_array_equal(weight.numpy(), [1.0, 2.0])
    run(tf.constant([2.0, 2.0]))
    # The first step that counts: Adam without a bias of its averages moves by its rate.
    np.testing.assert_allclose(weight.numpy(), [0.9, 1.9], rtol=1e-4)


def test_an_optimizer_may_be_named_and_have_a_schedule_and_a_state_of_its_own(replica: Replicas) -> None:
    named, sgd = with_optimizer('"sgd"'), with_optimizer("keras.optimizers.SGD(0.01)")
    _, losses = trained(named, spec_of(named, "dense"), replica, 3)
    assert losses == pytest.approx(trained(sgd, spec_of(sgd, "dense"), replica, 3)[1])
    falling = "keras.optimizers.schedules.PiecewiseConstantDecay([1], [0.1, 0.0])"
    more = with_optimizer(f"keras.optimizers.AdamW({falling}, weight_decay=0.1, clipnorm=1.0, use_ema=True)")
    model, losses = trained(more, spec_of(more, "dense"), replica, 3)
    again, _ = trained(more, spec_of(more, "dense"), replica, 6)
    assert losses[1] != losses[0]
    # Its rate is 0 from the third step on.
    np.testing.assert_array_equal(model.weights[0].numpy(), again.weights[0].numpy())


def test_an_optimizer_is_refused_by_a_keras_that_is_too_old(replica: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    import keras

    monkeypatch.setattr(keras, "__version__", "3.3.3")
    given = with_optimizer('"sgd"')
    reason = reason_of(given, lambda: trained(given, spec_of(given, "dense"), replica, 1))
    assert reason == "mine.py:5: an optimizer needs Keras 3.4 or newer; this is 3.3.3."


def test_a_model_that_waits_for_its_inputs_is_built_by_them(replica: Replicas) -> None:
    text = textwrap.dedent(DENSE).replace("keras.Model(inputs,", "keras.Sequential([").replace("(normal))", "])")
    spec = spec_of(source(text), "dense", mode="inference")
    model, _ = trained(source(text), spec, replica, 1)
    assert [tuple(weight.shape) for weight in model.weights] == [(4, 1), (1,)]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ('return model, "mse", batch', "return model", "mine.py:5: the function returns Functional, and should return"),
        (
            'return model, "mse", batch',
            "return 1, 2, 3",
            "mine.py:5: the first value it returns is int, no Keras model; a workload of PyTorch imports torch",
        ),
        ('"mse"', '"msee"', "mine.py:5: 'msee' is not a loss that Keras knows"),
        ('"mse", batch', '"mse", 3', "mine.py:5: the third value it returns is not a function"),
        ('"mse", batch', '"mse", batch, 3', "mine.py:5: 3 is not an optimizer that Keras knows; give one, such"),
        ('"mse", batch', '"mse", batch, "sgdd"', "mine.py:5: 'sgdd' is not an optimizer that Keras knows"),
        ('"mse", batch', '"mse", batch, "adam", 5', "mine.py:5: the function returns tuple, and should return"),
        (
            '"mse", batch',
            '"mse", batch, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())',
            "mine.py:5: with float16 the program scales the loss",
        ),
        (
            '"mse", batch',
            '"mse", batch, type("Mine", (keras.optimizers.SGD,), {"get_config": lambda self: {"mine": 1}})()',
            "mine.py:5: ValueError: .*mine",
        ),
        ("return x, x.sum", "return x + nothing, x.sum", "mine.py:12: NameError: name 'nothing' is not defined"),
        (
            "return x, x.sum(axis=1, keepdims=True)",
            "return x",
            "mine.py:5: TypeError: batch returns ndarray, and should",
        ),
        (
            "(batch_size, 4)",
            "(3, 4)",
            r"mine.py:5: ValueError: batch returns an array of shape \(3, 4\) where batch_size is 8$",
        ),
        ("return x, x", "raise SystemExit #", "mine.py:12: the file ends the program"),
        ("return x, x", "return x.astype(str), x", "mine.py:5: TypeError: batch returns string values"),
        ("return x, x", "return x.tolist(), x", "mine.py:5: TypeError: batch returns single values; convert"),
        ("(batch_size, 4)", "(batch_size, 5)", "mine.py:5: ValueError: Input"),
    ],
)
def test_what_a_function_gives_is_looked_at_before_it_is_trained(
    replica: Replicas, old: str, new: str, sentence: str
) -> None:
    text = textwrap.dedent(DENSE)
    assert old in text
    given = source(text.replace(old, new))
    reason = reason_of(given, lambda: trained(given, spec_of(given, "dense"), replica, 1))
    assert re.match(sentence, reason), reason


def test_batches_of_several_shapes_are_told_with_both(replica: Replicas) -> None:
    text = textwrap.dedent(DENSE).replace("(4,)", "(None, 4)").replace("(batch_size, 4)", "(batch_size, 2 + step, 4)")
    given = source(text)
    reason = reason_of(given, lambda: trained(given, spec_of(given, "dense"), replica, 1))
    assert reason.startswith(
        "mine.py:5: ValueError: batch returns (8, 3, 4), (8, 1, 4) at step 1 and returned (8, 2, 4), (8, 1"
    )


GRAPH_ERROR = """Graph execution error:

Detected at node Cast defined at (most recent call last):
  File "/lib/a.py", line 3, in call

  File "/mine/mine.py", line 12, in batch

  File "/lib/b.py", line 4, in cast

A label of 7 is too large.
\t [[{{node Cast}}]] [Op:step]
"""


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (GRAPH_ERROR, "mine.py:12: ValueError: A label of 7 is too large."),
        ("Graph execution error:\n\nDetected at node A\n<stack traces unavailable>\nToo big", "ValueError: Too big"),
        ("Exception encountered when calling A.call().\n\n\x1b[1mFour are due.\x1b[0m\n", "ValueError: Four are due."),
        ("{{function_node Pack}} Shapes differ.", "ValueError: Shapes differ."),
        ("Graph execution error:", "ValueError: Graph execution error:"),
    ],
)
def test_of_a_library_s_words_those_are_told_that_say_what_is_wrong(message: str, reason: str) -> None:
    ending = outcome_of(ValueError(message), {}, None, source(""))
    assert (ending.reason or "").removeprefix("mine.py: ") == reason


def test_a_loss_that_is_lost_names_the_file() -> None:
    ending = outcome_of(TrainingError("The loss was nan after step 3."), {}, None, example())
    assert ending.reason == "mlp.py: The loss was nan after step 3."


def test_a_file_that_changed_since_is_not_trained(replica: Replicas) -> None:
    spec = spec_of(source(DENSE), "dense")
    changed = source(DENSE + "\n    # a word more\n")
    with pytest.raises(CustomWorkloadError, match="not the one this run is of"):
        trained(changed, spec, replica, 1)


EXAMPLES = sorted(EXAMPLE.parent.glob("*.py"))


def read(path: Path) -> Source:
    return Source(path=str(path), text=path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_explains_its_parameters_and_names_none_that_is_not_there(path: Path) -> None:
    given = read(path)
    known: dict[str, set[str]] = {}
    for described in describe_file(given).workloads:
        assert all([described.help, *(parameter.help for parameter in described.parameters)])
        workload = custom_workload(described, CustomFile(path=given.path, sha256=given.sha256))
        known[described.name] = {parameter.name for parameter in workload.parameters}
    commands = re.findall(rf"examples/{path.name}:(\w+)(.*)", given.text)
    assert len(commands) >= 2
    for name, words in commands:
        assert set(re.findall(r"(\w+)=", words)) <= known[name]


@pytest.mark.usefixtures("unoptimized")
def test_the_transformer_learns_on_two_replicas_with_dropout(pair: Replicas) -> None:
    given = read(EXAMPLE.with_name("transformer.py"))
    sizes: dict[str, Value] = {"batch_size": 4, "layers": 1, "heads": 2, "width": 16, "length": 8, "vocabulary": 20}
    _, losses = trained(given, spec_of(given, "transformer", dropout=0.1, **sizes), pair, 30)
    assert np.mean(losses[-5:]) < 0.85 * losses[0]


def test_resnet_50_has_the_weights_that_keras_documents() -> None:
    from workloads.tensorflow.custom import custom_recipe

    given = read(EXAMPLE.with_name("resnet50.py"))
    model = custom_recipe(spec_of(given, "resnet50", batch_size=2, image_size=32, mode="inference"), given).model()
    assert sum(weight.shape.num_elements() for weight in model.weights) == 25_583_592
