"""How fast a run computed: operations by formula in its measured time, and the share of what its devices can do."""

from app.records import Summary


def flops_per_s(summary: Summary) -> float | None:
    """Floating-point operations a second: those of one step by formula, times steps a second."""
    if summary.flops_per_step is None or not summary.measured_s:
        return None
    return summary.flops_per_step * summary.measured_steps / summary.measured_s


def utilisation(summary: Summary) -> float | None:
    """Model FLOP utilisation: `flops_per_s` as a share of the calibrated matrix-product rate of the run's devices.

    Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B; there the ceiling is the
    data sheet's, here it is measured.
    """
    rate = flops_per_s(summary)
    return rate / summary.peak_flops_per_s if rate is not None and summary.peak_flops_per_s else None


def peak_doubt(summary: Summary) -> str:
    """What to do about a share above one, which says that the peak was measured on a busy machine; "" below."""
    share = utilisation(summary)
    return "the peak was measured too low: `calibrate` on a quiet machine measures it anew" if (share or 0) > 1 else ""


def utilisation_pct(summary: Summary) -> float | None:
    """The same in percent."""
    share = utilisation(summary)
    return None if share is None else 100 * share
