"""A user's own module in PyTorch: trained in this process, its errors by line, and mislabels that evidence catches."""

import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.fakes import tensorflow as in_tensorflow
from tests.fakes.tensorflow import Array, TensorflowProcess
from tests.unit.workloads.tensorflow.test_gradients import arrays
from tests.unit.workloads.test_frameworks import collected, task_of
from workloads import seeding
from workloads.catalog import CustomFile, Machine, check, custom_workload, fill_defaults, refusal_of_text
from workloads.custom.source import describe_file
from workloads.errors import CustomWorkloadError, outcome_of
from workloads.job_protocol import ComputeGradients
from workloads.jobs import perform
from workloads.protocol import Evidence, RunSpec, Source, Value

EXAMPLES = Path(__file__).parents[4] / "examples"

NET = """
    import numpy as np
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)
            self.norm = nn.BatchNorm2d(8)
            self.head = nn.Linear(8, 4)

        def forward(self, images):
            found = self.norm(self.conv(images)).relu()
            return self.head(found.mean((2, 3)))


    def net(batch_size: int = 16, layout: str = "channels_last", seed: int = 1):
        model = Net()
        form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
        model.to(memory_format=form)

        def batch(step):
            classes = np.arange(batch_size, dtype=np.int32) % 4
            noise = np.random.default_rng([seed, step]).normal(size=(batch_size, 3, 6, 6))
            images = torch.from_numpy(noise + classes[:, None, None, None]).float()
            return images.to(memory_format=form), classes

        return model, nn.CrossEntropyLoss(), batch
"""


@pytest.fixture(autouse=True)
def _this_process_as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file is read by processes that end soon after; one thread and few batches are enough for such models."""
    import torch
    from torch._dynamo.utils import counters

    torch.set_num_threads(1)
    monkeypatch.setattr(seeding, "_MAX_BATCHES", 2)
    monkeypatch.setattr(sys, "stdin", sys.stdin)
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "-1")
    yield
    torch._dynamo.reset()
    counters.clear()
    sys.modules.pop("own_workload", None)


def source(text: str = NET, *changes: tuple[str, str]) -> Source:
    text = textwrap.dedent(text)
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return Source(path="/mine/mine.py", text=text)


def spec_of(given: Source, name: str = "net", /, **values: Value) -> RunSpec:
    (described,) = describe_file(given, name).workloads
    workload = custom_workload(described, CustomFile(path=given.path, sha256=given.sha256))
    spec = fill_defaults(workload, {"gpus": 0, **values}, Machine(cpu_count=2))
    assert check(spec, Machine(cpu_count=2)) == ()
    return spec


def evidence_of(given: Source, **values: Value) -> Evidence:
    spec = spec_of(given, **values)
    return collected(spec, task_of(spec, given))


def losses_of(given: Source, steps: int, name: str = "net", **values: Value) -> list[float]:
    task = task_of(spec_of(given, name, **values), given)
    return [task.fetch(task.step()) for _ in range(steps)]


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(
    "change",
    [
        ("batch\n", "batch, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)\n"),
        ("images.to(memory_format=form), classes", "{'images': images}, {'classes': classes}"),
        ("nn.CrossEntropyLoss()", "lambda outputs, targets: nn.functional.cross_entropy(outputs, targets).reshape(1)"),
        ("images.to(memory_format=form), classes", "images.numpy().astype('>f4'), classes.astype('>i4')"),
        ("(found.mean((2, 3)))", "(found.mean((2, 3)).cfloat()).abs()"),
    ],
    ids=["optimizer", "dicts", "a function", "the other order of bytes", "complex"],
)
def test_the_loss_falls(change: tuple[str, str]) -> None:
    changes = [change]
    if "'classes'" in change[1]:
        loss = "lambda outputs, targets: nn.functional.cross_entropy(outputs, targets['classes'])"
        changes.append(("nn.CrossEntropyLoss()", loss))
    if "cfloat" in change[1]:
        changes.append(("nn.Linear(8, 4)", "nn.Linear(8, 4, dtype=torch.complex64)"))
    losses = losses_of(source(NET, *changes), 60)
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:3])


@pytest.mark.filterwarnings("ignore:Casting complex values")
@pytest.mark.parametrize(
    ("changes", "ran"),
    [
        ([("(found.mean((2, 3)))", "(found.mean((2, 3)).cfloat()).abs()")], "complex64"),
        ([("(found.mean((2, 3)))", "(found.mean((2, 3)).cdouble()).abs()")], "c10::complex<double>"),
    ],
)
def test_a_type_of_products_that_no_precision_has_is_named(changes: list[tuple[str, str]], ran: str) -> None:
    head = ("nn.Linear(8, 4)", f"nn.Linear(8, 4, dtype=torch.{'complex64' if ran == 'complex64' else 'complex128'})")
    no_convolution = ("self.norm(self.conv(images))", "self.norm(images.repeat(1, 3, 1, 1)[:, :8])")
    found = evidence_of(source(NET, *changes, head, no_convolution))
    assert found.actual["precision"] == ran


def test_a_model_may_give_its_loss_itself_and_take_several_inputs() -> None:
    own = (
        ("def forward(self, images):", "def forward(self, images, classes):"),
        (
            "return self.head(found.mean((2, 3)))",
            "return nn.functional.cross_entropy(self.head(found.mean((2, 3))), classes)",
        ),
        ("return images.to(memory_format=form), classes", "return (images, classes), None"),
        ("nn.CrossEntropyLoss()", "None"),
    )
    assert losses_of(source(NET, *own), 2, precision="float16") == pytest.approx(losses_of(source(), 2), rel=0.01)


def test_variants_compute_the_same_loss_and_gradients(tmp_path: Path) -> None:
    given = source()
    for precision in ("float32", "bfloat16"):
        spec = spec_of(given, precision=precision)
        request = ComputeGradients(spec=spec, path=str(tmp_path / f"{precision}.npz"), source=given)
        assert "losses" in str(perform(request))
    exact, short = (arrays(tmp_path / f"{name}.npz") for name in ("float32", "bfloat16"))
    assert list(exact) == list(short) == [f"{name}.{kind}" for name in ("conv", "norm", "head") for kind in KINDS]
    for name in ("head.weight", "head.bias"):
        np.testing.assert_allclose(short[name], exact[name], atol=0.05 * np.abs(exact[name]).max())


KINDS = ("weight", "bias")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("Linear(8, 4)", "Linear(9, 4)"), "mine.py:16: RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        (("return model, nn", "return 'model', nn"), "mine.py:19: the first value it returns is str, no nn.Module"),
        (("nn.CrossEntropyLoss()", "[torch.ones(9, 9)]"), "mine.py:19: a value of type list is not a loss of PyTorch;"),
        (("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss"), "mine.py:19: the class CrossEntropyLoss is not a loss of"),
        (
            ("return model, nn", "return nn.Sequential(nn.Flatten(), nn.LazyLinear(4)), nn"),
            "mine.py:19: the model has lazy layers without sizes; call it before you return it.",
        ),
        (("form), classes", "form), next(iter(()))"), "mine.py:28: StopIteration: an iterator has no more values"),
        (("form), classes", "form), exec('raise KeyboardInterrupt')"), "mine.py:28: KeyboardInterrupt"),
        (
            ("nn.CrossEntropyLoss()", "nn.CrossEntropyLoss(reduction='none')"),
            "mine.py:19: TypeError: the loss gives a tensor of shape (16,), and should give one number",
        ),
        (("nn.CrossEntropyLoss()", "None"), "mine.py:19: TypeError: batch returns targets, and there is no loss"),
        (("form), classes", "form), None"), "mine.py:19: TypeError: batch returns no targets, which the loss needs;"),
        (
            ("form), classes", "form), classes[1:]"),
            "mine.py:19: ValueError: batch returns an array of shape (15,) where",
        ),
        pytest.param(
            ("form), classes", "form), torch.nested.nested_tensor([torch.ones(2)] * 16)"),
            "mine.py:19: TypeError: batch returns a nested tensor; convert it with .to_padded_tensor(0.0)",
            marks=pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
        ),
        (("form), classes", "form)"), "mine.py:19: TypeError: batch returns Tensor, and should give (x, y)"),
        (
            ("model = Net()", "model = Net().requires_grad_(False)"),
            "mine.py:19: the model has no trainable weights; choose mode=inference, or make a layer trainable.",
        ),
        (
            ("nn.CrossEntropyLoss()", "lambda outputs, targets: outputs.detach().mean()"),
            "mine.py:19: TypeError: the loss gives a number that depends on no trained weight",
        ),
        (
            ("batch\n", "batch, 'adam'\n"),
            "mine.py:19: 'adam' is not an optimizer of PyTorch; give one of all weights, such as torch.optim.SGD(model",
        ),
        (
            ("batch\n", "batch, torch.optim.SGD(Net().parameters())\n"),
            "mine.py:19: the optimizer has none of the model's weights; give it model.parameters().",
        ),
    ],
)
def test_what_does_not_fit_is_told_by_line(change: tuple[str, str], reason: str) -> None:
    given = source(NET, change)
    with pytest.raises(Exception) as caught:  # noqa: PT011 - whatever a user's file raises
        losses_of(given, 1)
    ending = outcome_of(caught.value, {}, None, given)
    assert (ending.outcome, (ending.reason or "")[: len(reason)]) == ("failed", reason)


def test_outputs_that_are_no_tensors_are_told_in_inference() -> None:
    given = source(NET, ("return self.head(found.mean((2, 3)))", "return found.tolist()"))
    with pytest.raises(CustomWorkloadError, match=r"mine.py:19: TypeError: the model returns no tensor"):
        losses_of(given, 1, mode="inference")


def test_outputs_in_a_dataclass_are_seen_in_both_modes() -> None:
    answer = "return Answer(self.head(found.mean((2, 3))), 'x')"
    given = source(
        NET,
        ("from torch import nn", "from dataclasses import dataclass\nfrom torch import nn"),
        ("class Net(", "@dataclass\nclass Answer:\n    logits: object\n    name: str\n\n\nclass Net("),
        ("return self.head(found.mean((2, 3)))", answer),
        ("nn.CrossEntropyLoss()", "lambda outputs, targets: nn.functional.cross_entropy(outputs.logits, targets)"),
    )
    for mode in ("train", "inference"):
        assert evidence_of(given, mode=mode).actual["examples"] == "different examples"


def test_a_file_has_the_framework_that_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    assert {workload.framework for workload in describe_file(source()).workloads} == {"pytorch"}
    keras = "def net(batch_size=8):\n    import keras\n"
    assert describe_file(source(keras)).workloads[0].framework == "tensorflow"
    on_pytorch = source(
        NET, ("import numpy as np", "import os\nos.environ['KERAS_BACKEND'] = 'torch'\nimport numpy as np")
    )
    assert describe_file(on_pytorch).workloads[0].framework == "pytorch", "it may have Keras on PyTorch"
    mixed = source(NET, ("from torch import nn", "from torch import nn\nfrom keras.layers import Dense"))
    assert refusal_of_text(mixed.path, mixed.text) == (
        "mine.py:5: the file imports TensorFlow as well as PyTorch; keep the workloads of each in a separate file."
    )


def test_a_model_that_does_what_it_says_is_verified() -> None:
    evidence = evidence_of(source(), precision="bfloat16")
    assert (evidence.match, evidence.reason, evidence.unverified) == (True, None, {})
    assert (evidence.actual["layout"], evidence.actual["precision"]) == ("channels_last", "bfloat16")
    assert (evidence.actual["training"], evidence.actual["examples"]) == ("all weights trained", "different examples")


FROZEN = ("Linear(8, 4)", "Linear(8, 4); self.more = nn.Linear(2, 2)")
LOST = ("self.norm(self.conv(images))", "self.norm(self.conv(images).contiguous())")
NOISE = ("self.head(found", "self.head(nn.functional.dropout(0 * found + 1, 0.5, self.training)")
FEW = ("found =", "images = torch.cat([images[:2]] * 8) if torch.is_grad_enabled() else images; found =")
UNTRAINED = ("batch\n", "batch, torch.optim.SGD(model.parameters(), lr=0.0)\n")


@pytest.mark.parametrize(
    ("change", "aspect", "actual", "reason"),
    [
        (LOST, "layout", "channels_first and channels_last", "another layout than channels_last: norm (BatchNorm2d)."),
        (FROZEN, "training", None, "The loss does not depend on 2 of the 8 weights: more.weight, more.bias."),
        (UNTRAINED, "training", "no weight trained", "The steps did not change any weight."),
        (("noise + ", "0 * noise + 0 * "), "examples", None, "Different examples in a batch of 16: 1."),
        (NOISE, "examples", None, "Different outputs for 16 different examples: 1."),
        (FEW, "examples", None, "Different outputs for 16 different examples: 2."),
    ],
    ids=["layout lost", "without gradient", "nothing trained", "one example", "noise alone", "few with gradients"],
)
def test_what_ran_otherwise_is_caught(change: tuple[str, str], aspect: str, actual: str | None, reason: str) -> None:
    evidence = evidence_of(source(NET, change))
    assert evidence.match is (None if actual is None else False)
    assert evidence.actual.get(aspect) == actual
    assert reason in (evidence.reason or "")


@pytest.mark.parametrize(
    ("frozen", "actual"),
    [
        ("[*model.parameters()][:4]", "4 of 6 weights frozen (86.96 % of their numbers), all others trained"),
        ("[model.head.bias]", "1 of 6 weights frozen (1.449 % of their numbers), all others trained"),
        ("[]", "all weights trained"),
    ],
)
def test_frozen_weights_are_told_by_number_and_share(frozen: str, actual: str) -> None:
    evidence = evidence_of(
        source(NET, ("model = Net()", f"model = Net(); [p.requires_grad_(False) for p in {frozen}]"))
    )
    assert (evidence.match, evidence.requested["training"], evidence.actual["training"]) == (True, actual, actual)


@pytest.mark.parametrize(
    ("change", "mode", "notes"),
    [
        (
            ("found =", "self.eval(); found ="),
            "train",
            "evaluation mode in a run that trains (4 of 4): the model (Net).",
        ),
        (
            ("found =", "self.norm.eval(); found ="),
            "train",
            "evaluation mode in a run that trains (1 of 4): norm (Batch",
        ),
        (
            ("found =", "self.norm.train(); found ="),
            "inference",
            "training mode in a run of inference (1 of 4): norm (Ba",
        ),
        (("found =", "found ="), "train", ""),
    ],
    ids=["all", "one", "inference", "none"],
)
def test_modules_in_another_mode_than_the_run_are_named(change: tuple[str, str], mode: str, notes: str) -> None:
    evidence = evidence_of(source(NET, change), mode=mode)
    assert evidence.match is True
    assert [note.removeprefix("Modules in ")[: len(notes)] for note in evidence.notes] == [notes] * bool(notes)


SHRINKING = ("self.conv(images)", "self.conv(images) * 1e-6")
"""A batch norm makes up for it by the batch's statistics; by those of a few steps nothing is left but its bias."""
SCRIPTED = ("model.to(memory_format=form)", "model = torch.jit.script(model.to(memory_format=form))")


@pytest.mark.filterwarnings("ignore:`torch.jit")
@pytest.mark.parametrize("change", [SHRINKING, SCRIPTED], ids=["statistics of a few steps", "TorchScript"])
def test_outputs_are_those_of_the_mode_that_ran(change: tuple[str, str]) -> None:
    evidence = evidence_of(source(NET, change), layout="channels_first")
    assert evidence.actual["examples"] == "different examples"


def test_of_equal_outputs_in_inference_it_names_statistics_that_no_training_has_updated() -> None:
    evidence = evidence_of(source(NET, SHRINKING), mode="inference")
    assert "Different outputs for 16 different examples: 1. Running statistics" in evidence.unverified["examples"]


FORCES = """
    import torch
    from torch import nn


    class Forces(nn.Module):
        def __init__(self):
            super().__init__()
            self.energy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1, bias=False))

        def forward(self, places):
            places = places.requires_grad_(True)
            return -torch.autograd.grad(self.energy(places).sum(), places, create_graph=True)[0]


    def net(batch_size: int = 8):
        return Forces(), nn.MSELoss(), lambda step: (torch.randn(batch_size, 3), torch.zeros(batch_size, 3))
"""


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_a_model_may_differentiate_in_its_forward_pass(capsys: pytest.CaptureFixture[str], mode: str) -> None:
    evidence = evidence_of(source(FORCES), mode=mode)
    assert (evidence.match, evidence.actual["examples"]) == (True, "different examples")
    assert ("inference keeps gradients" in capsys.readouterr().out) is (mode == "inference")


TYPES = """
    import numpy as np
    import torch
    from torch import nn


    def net(batch_size: int = 8, weights: str = "float32", batches: str = ""):
        kind = getattr(torch, batches, None)

        def batch(step):
            values = np.random.default_rng(step).normal(size=(batch_size, 6))
            values = values if kind is None else torch.from_numpy(values).to(kind)
            return values[:, :4], values[:, 4:]

        return nn.Linear(4, 2).to(getattr(torch, weights)), nn.MSELoss(), batch
"""


@pytest.mark.parametrize("kind", ["float64", "bfloat16", "float16"])
def test_a_batch_keeps_the_type_of_its_tensors(tmp_path: Path, kind: str) -> None:
    evidence = evidence_of(source(TYPES), weights=kind, batches=kind)
    assert (evidence.actual["precision"], evidence.actual["examples"]) == (kind, "different examples")
    spec = spec_of(source(TYPES), weights=kind, batches=kind)
    request = ComputeGradients(spec=spec, path=str(tmp_path / "gradients.npz"), source=source(TYPES))
    assert "losses" in str(perform(request))
    with pytest.raises(CustomWorkloadError, match="must have the same dtype"):
        losses_of(source(TYPES), 1, batches=kind)


@pytest.mark.parametrize("kind", ["float32", "float64", "bfloat16"])
def test_what_numpy_makes_float64_becomes_the_type_of_the_weights(kind: str) -> None:
    assert evidence_of(source(TYPES), weights=kind).actual["precision"] == kind


def test_gradients_in_pieces_are_compared_as_whole_ones(tmp_path: Path) -> None:
    paths = [tmp_path / f"{sparse}.npz" for sparse in (True, False)]
    words = (
        ("nn.Linear(4, 2)", "nn.EmbeddingBag(9, 2, sparse=SPARSE)"),
        ("values[:, :4]", "torch.arange(32).view(8, 4) % 7"),
    )
    for sparse, path in zip((True, False), paths, strict=True):
        given = source(TYPES, *words, ("SPARSE", str(sparse)))
        assert "losses" in str(perform(ComputeGradients(spec=spec_of(given), path=str(path), source=given)))
    pieces, whole = map(arrays, paths)
    np.testing.assert_allclose(pieces["weight"], whole["weight"], rtol=1e-5)


def test_targets_count_for_the_memory_of_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from workloads.pytorch.steps import device_batches

    monkeypatch.setattr(seeding, "_MAX_BATCHES", 64)
    monkeypatch.setattr(seeding, "_MAX_BYTES", 4_000)
    asked: list[int] = []

    def batch(number: int) -> Any:
        asked.append(number)
        return torch.zeros(1), {"targets": torch.zeros(249)}

    device_batches(batch, torch.device("cpu"))
    assert asked == [0, 1, 2, 3]


DENSE = """
    import numpy as np
    import torch
    from torch import nn


    class Dense(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
            self.odd = False

        def forward(self, numbers):
            self.odd = not self.odd
            hidden = self.first(numbers)
            return self.last(hidden)


    def net(batch_size: int = 8):
        return Dense(), None, lambda step: (np.eye(batch_size, 4), None)
"""


@pytest.mark.filterwarnings("ignore:`torch.jit")  # Inductor's own
@pytest.mark.skipif(shutil.which("g++") is None, reason="Inductor needs a C++ compiler")
@pytest.mark.parametrize(
    ("line", "actual", "reason"),
    [
        ("hidden", "on", ""),
        ("torch._dynamo.graph_break()", "partly", "It left them: Call to `torch._dynamo.graph_break()`."),
        ("print('a step')", "partly", "It left them: Failed to trace builtin operator."),
        ("hidden = torch.compiler.disable(self.first)(numbers)", "partly", "Outside of them ran "),
        ("hidden = hidden if self.odd else -hidden", "partly", "Outside of them ran "),
    ],
    ids=["whole", "graph break", "print", "left out", "recompiled too often"],
)
def test_what_inductor_did_not_compile_is_caught(line: str, actual: str, reason: str) -> None:
    import torch

    unused = ("self.odd = not self.odd", "") if "odd" not in line else ("numbers)\n    ", "numbers)\n    ")
    given = source(DENSE, ("return self.last", f"{line}\n        return self.last"), unused)
    with torch._dynamo.config.patch(recompile_limit=1):
        evidence = evidence_of(given, compile=True, mode="inference")
    assert (evidence.actual["compile"], evidence.match) == (actual, actual == "on")
    assert reason in (evidence.reason or "")


def example(name: str) -> Source:
    path = EXAMPLES / name
    return Source(path=str(path), text=path.read_text(encoding="utf-8"))


def test_the_transformer_learns_what_keras_s_does(tensorflow: TensorflowProcess) -> None:
    sizes: dict[str, Value] = {"batch_size": 4, "layers": 1, "heads": 2, "width": 16, "length": 8, "vocabulary": 20}
    given = example("transformer_torch.py")
    keras_spec = tensorflow.call(spec_of, example("transformer.py"), "transformer", **sizes)
    assert spec_of(given, "transformer", **sizes).variant.keys() == keras_spec.variant.keys()
    losses = losses_of(given, 60, "transformer", **sizes)
    assert np.mean(losses[-5:]) < 0.85 * losses[0]


def test_resnet_50_computes_what_keras_s_does(tensorflow: TensorflowProcess) -> None:
    import torch

    from workloads.pytorch.custom import CustomWorkload

    spec = spec_of(example("resnet50_torch.py"), "resnet50", batch_size=2, image_size=32, classes=10, mode="inference")
    custom = CustomWorkload(spec, example("resnet50_torch.py"), torch.device("cpu"))
    images, _ = custom.batch(0)
    theirs, expected = tensorflow.call(in_tensorflow.resnet_50, images.permute(0, 2, 3, 1).numpy())
    first, blocks, head = custom.model.module[0], custom.model.module[3:-3], custom.model.module[-1]
    names = [f"conv{stage}_block{number + 1}" for stage, count in enumerate((3, 4, 6, 3), 2) for number in range(count)]
    pairs = [(first, "conv1"), *zip(blocks, names, strict=True)]
    with torch.no_grad():
        for module, name in pairs[1:]:
            for number, layer in enumerate((module.shortcut, *module.layers[::2])):
                if not isinstance(layer, torch.nn.Identity):
                    _copy_convolution(theirs, f"{name}_{number}", layer)
        _copy_convolution(theirs, "conv1", first)
        kernel, bias = theirs["predictions"]
        head.weight.copy_(torch.from_numpy(kernel.T))
        head.bias.copy_(torch.from_numpy(bias))
        custom.model.eval()
        ours = custom.model(images).numpy()
    np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-3 * float(np.abs(ours).max()))


def _copy_convolution(theirs: dict[str, list[Array]], name: str, layer: Any) -> None:
    import torch

    kernel, bias = theirs[f"{name}_conv"]
    layer[0].weight.copy_(torch.from_numpy(kernel.transpose(3, 2, 0, 1)))
    layer[0].bias.copy_(torch.from_numpy(bias))
