"""A run's evidence on the terminal: asked beside ran, where the time went, weights tried elsewhere."""

from app.cli.terminal import print_table
from app.viewmodels import units
from app.viewmodels.device_rows import HEADS
from app.viewmodels.evidence import Aspect, Badge, EvidenceView
from app.viewmodels.kernels import KernelRow

_BAR = 20
_NAME = 66


def badge_line(badge: Badge) -> str:
    """The badge in one line: `✔ Ran as asked: cuDNN · XLA off · 1 GPU`."""
    return f"{badge.symbol} {badge.title}: {badge.detail}".strip()


def print_evidence(view: EvidenceView) -> None:
    """Prints all there is; the badge only where it is all."""
    if not view.aspects:
        print(f"  {badge_line(view.badge)}")
    else:
        print_table(("  evidence", "asked", "ran", ""), [_aspect(aspect) for aspect in view.aspects])
    for line in (view.seen, *view.notes):
        if line:
            print(f"  {line}")
    if view.kernels:
        print()
        _print_kernels(view)
    if view.devices:
        print()
        header = ("  device, a step", *(word.lower() for word in HEADS[1:]))
        shown = [(f"  {device.device}", *device[1:]) for device in view.devices]
        print_table(header, shown, right=frozenset(range(1, len(HEADS))))
        print(f"  {view.imbalance}")
    if view.portability:
        print()
        rows = [(f"  {trial.where}", trial.difference, trial.of) for trial in view.portability]
        print_table(("  the weights elsewhere", "largest difference", ""), rows)


def _aspect(aspect: Aspect) -> tuple[str, str, str, str]:
    return (f"  {aspect.name}", aspect.asked, aspect.ran, "✘" if aspect.differs else "")


def _print_kernels(view: EvidenceView) -> None:
    print(f"  {view.traced} In {view.between} of the time {view.idle}.")
    shares = ", ".join(f"{each.name} {units.percent(100 * each.share, 1)}" for each in view.classes)
    print(f"  Of {view.noun} time: {shares}")
    print()
    header = ("   share", "", "count", "class", view.noun)
    print_table(header, [_kernel(kernel, view.kernels[0].share) for kernel in view.kernels], right=frozenset({2}))
    if view.rest:
        print(f"  {view.rest}")


def _kernel(kernel: KernelRow, largest: float) -> tuple[str, str, str, str, str]:
    bar = "█" * round(_BAR * kernel.share / largest) if largest else ""
    return (f"  {units.percent(100 * kernel.share, 1):>7}", bar, f"{kernel.count:,}", kernel.kind, _elided(kernel.name))


def _elided(name: str) -> str:
    """The name with its middle left out where it is long: both ends tell kernels apart. `--json` has it whole."""
    half = (_NAME - 1) // 2
    return name if len(name) <= _NAME else f"{name[:half]}…{name[-half:]}"
