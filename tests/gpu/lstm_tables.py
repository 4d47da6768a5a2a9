"""The tables of articles A and B beside what was measured, as lines of text."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from workloads import catalog
from workloads.machine import Gpu, Machine
from workloads.recurrent_layers import LSTM_IMPLEMENTATIONS, RECURRENT_LAYERS
from workloads.worker import flops_per_step

IMPLEMENTATIONS = tuple(implementation.name for implementation in LSTM_IMPLEMENTATIONS)
_LADDER = RECURRENT_LAYERS["lstm"].ladder
_ARTICLE_A = dict(zip(_LADDER, (349, 724, 994, 1942, 2199, 2290, 3898), strict=True))
"""GFLOPS of the forward pass in the article (NVIDIA, cuDNN 5): the last with four layers, the others with one."""
_ARTICLE_B = {"standard": "1", "cudnn": "6 to 8", "block_fused": "2.5 to 3"}
"""Training speed-up over the plain LSTM in the article."""


@dataclass(frozen=True)
class Case:
    """One variant of the list."""

    implementation: str
    layers: int
    mode: str
    xla: bool
    precision: str = "tf32"
    unroll: int = 1


@dataclass
class Found:
    """What was measured: bare steps, runs through the program, and PyTorch's times."""

    bare: dict[Case, dict[str, Any]] = field(default_factory=dict)
    runs: dict[Case, Mapping[str, Any]] = field(default_factory=dict)
    torch: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Found":
        """What an earlier call kept."""
        results = cls(torch=list(document["torch"]))
        for line in document["bare"]:
            results.add_bare(line)
        for run in document["runs"]:
            case = Case(**{name: value for name, value in run.items() if name != "document"})
            results.runs[case] = run["document"]
        return results

    def add_bare(self, line: dict[str, Any]) -> None:
        """Takes one line of `steps`."""
        names = ("implementation", "layers", "mode", "xla", "precision", "unroll")
        self.bare[Case(**{name: line[name] for name in names if name in line})] = line

    def line(self, case: Case) -> dict[str, Any]:
        """What the bare loop said of a case, in float32 where that was a rehearsal on the CPU."""
        return self.bare.get(case) or self.bare.get(replace(case, precision="float32")) or {}

    def ms(self, case: Case) -> float | None:
        """The bare step's milliseconds."""
        return self.line(case).get("ms")

    def document(self) -> dict[str, Any]:
        """All of it for a file."""
        return {
            "bare": list(self.bare.values()),
            "runs": [{**asdict(case), "document": document} for case, document in self.runs.items()],
            "torch": self.torch,
        }


def lines(results: Found) -> Iterator[str]:
    """Both tables, PyTorch's, and the program beside the bare loop."""
    yield from _ladder(results)
    yield from _training(results)
    yield from _torch_lines(results)
    yield from _program(results)


def _ladder(results: Found) -> Iterator[str]:
    yield ""
    yield "Article A: forward pass, GFLOPS (wavefront: the deeper stack, the others one layer)"
    yield f"{'rung':16}{'article':>8}{'ratio':>7} | {'bare':>8}{'ratio':>7}{'XLA':>9}{'ratio':>7} | evidence"
    base = _gflops(results, Case("gemm8", 1, "inference", False))
    for rung in _LADDER:
        layers = _deep(results) if rung == "wavefront" else 1
        plain, compiled = (_gflops(results, Case(rung, layers, "inference", xla)) for xla in (False, True))
        article = _ARTICLE_A[rung]
        evidence = _evidence(results.runs.get(Case(rung, layers, "inference", False)))
        yield (
            f"{rung:16}{article:8,}{article / 349:6.1f}x | {_number(plain, 8, 0)}{_ratio(plain, base)}"
            f"{_number(compiled, 9, 0)}{_ratio(compiled, base)} | {evidence}"
        )


def _training(results: Found) -> Iterator[str]:
    deep = _deep(results)
    yield ""
    yield f"Article B: training, ms a step with 1 and {deep} layers, speed-up over standard"
    heads = "".join(f"{head:>8}{'':7}" for head in ("1", f"{deep}", "1 XLA", f"{deep} XLA"))
    yield f"{'implementation':16}{'article':>9} | {heads} | evidence"
    for name in IMPLEMENTATIONS:
        cells = ""
        for xla in (False, True):
            for layers in (1, deep):
                standard = results.ms(Case("standard", layers, "train", False))
                ms = results.ms(Case(name, layers, "train", xla))
                cells += f"{_number(ms, 8, 2)}{_ratio(standard, ms)}"
        evidence = _evidence(results.runs.get(Case(name, 1, "train", False)))
        yield f"{name:16}{_ARTICLE_B.get(name, '–'):>9} | {cells} | {evidence}"


def _torch_lines(results: Found) -> Iterator[str]:
    yield ""
    yield "PyTorch nn.LSTM beside the fastest here, ms (ratio: this program's time over PyTorch's)"
    for line in results.torch:
        for mode in ("train", "inference"):
            best, name = min(
                (
                    (bare["ms"], _name(case))
                    for case, bare in results.bare.items()
                    if "ms" in bare
                    and (case.layers, case.mode, case.precision) == (line["layers"], mode, line["precision"])
                ),
                default=(None, ""),
            )
            torch_ms = line[f"{mode}_ms"]
            yield (
                f"{line['layers']} layers {line['precision']:9}{mode:10} PyTorch {torch_ms:7.2f}   "
                f"{name:30}{_number(best, 7, 2)}{_ratio(best, torch_ms)}"
            )


def _name(case: Case) -> str:
    turns = f" unroll {case.unroll}" if case.unroll > 1 else ""
    return f"{case.implementation}{' XLA' if case.xla else ''}{turns}"


def _program(results: Found) -> Iterator[str]:
    yield ""
    yield "Through the program: ms a step (p50), over the bare loop's (at least 0.95), and what ran"
    for case, document in results.runs.items():
        bare_ms = results.ms(case)
        ms = _rate_ms(document)
        yield (
            f"{case.implementation:16}{case.layers} {case.mode:9} {'XLA' if case.xla else '   '} "
            f"{document['outcome']:10}{_number(ms, 8, 2)}{_ratio(bare_ms, ms)}  {_evidence(document)}"
        )


def _deep(results: Found) -> int:
    return max((case.layers for case in results.bare), default=1)


def _rate_ms(document: Mapping[str, Any]) -> float | None:
    """Milliseconds a step from the throughput, which counts everything between the first step and the last."""
    measured = document.get("measured") or {}
    return 1e3 * measured["seconds"] / measured["steps"] if measured.get("steps") else None


def _gflops(results: Found, case: Case) -> float | None:
    line, ms = results.line(case), results.ms(case)
    if ms is None:
        return None
    machine = Machine(gpus=(Gpu(index=0, uuid="GPU-0", name=""),))
    settings = {key: value for key, value in line.items() if key not in ("ms", "compile_s")}
    flops = flops_per_step(catalog.complete("lstm", settings, machine))
    return flops / ms / 1e6 if flops else None


def _evidence(document: Mapping[str, Any] | None) -> str:
    evidence = document.get("evidence") if document else None
    if not evidence:
        return "–"
    ran = " ".join(f"{key}={value}" for key, value in evidence["ran"].items())
    steps = evidence.get("steps") or 0
    kernels = sum(kernel["count"] for kernel in evidence.get("kernels", ())) / steps if steps else None
    busy = evidence.get("busy_share")
    kernel_count = _number(kernels, 0, 0)
    return f"{evidence['state']}: {ran}; {kernel_count} kernels a step, busy {_number(busy and 100 * busy, 0, 0)} %"


def _ratio(value: float | None, base: float | None) -> str:
    return f"{value / base:6.2f}x" if value and base else f"{'–':>7}"


def _number(value: float | None, width: int, decimals: int) -> str:
    return f"{'–':>{width}}" if value is None else f"{value:{width},.{decimals}f}"
