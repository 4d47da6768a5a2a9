"""Why a comparison of runs may not mean what it seems to, each reason in one plain sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.analysis import comparability
from app.analysis.comparability import HELD_SHARE, Hold
from app.analysis.fairness import gave_up_on
from app.facts import BESIDE, GATE, GPUS_USED, OTHERS_ON_GPU
from app.records import StoredRun
from app.viewmodels import units
from app.viewmodels.card_words import cards_words
from app.viewmodels.cells import example_word
from app.viewmodels.environment import by_value, differing_facts, fact_name, told_by_run
from app.viewmodels.evidence import mislabelled
from app.viewmodels.run_numbers import runs_words
from app.viewmodels.variants import differing
from workloads.catalog import with_defaults
from workloads.protocol import Value

EARLIER = 10
"""So many earlier runs of the baseline's variant are looked at, to see whether it has drifted."""

Severity = Literal["warning", "note"]
"""A warning is of something that may account for a difference; a note is worth knowing."""

EVIDENCE = "evidence"
"""The key of the doubt that some runs did not run what was asked."""

_ONE_BY_ONE = 4
"""So many runs are told each by itself."""
_SELDOM_MATTER = ("os", "kernel", "python", "numpy", "memory_total_bytes", "gpus_present")
_LIBRARIES = ("tensorflow", "keras", "cuda_built", "cudnn_built", "cuda_loaded", "cudnn_loaded", "nccl_loaded")
_SEVERAL = ("gpus_present", "cpu_count")
"""Facts whose names are of several things."""
_HELD: Mapping[Hold, str] = {
    "heat": "because of heat",
    "power limit": "by the power limit",
    "hardware slowdown": "by a hardware slowdown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """One reason to doubt: `values` are what each run it is about says, by run number."""

    key: str
    sentence: str
    values: Mapping[int, str]
    severity: Severity = "warning"


def doubts(runs: Sequence[StoredRun], older: Sequence[StoredRun] = ()) -> tuple[Doubt, ...]:
    """Every reason to doubt a comparison of these runs, warnings first.

    `older` are earlier runs of the baseline's variant beside those compared; their rows and environments count.
    """
    found = [
        *_mislabelled(runs),
        *_held_back(runs),
        *_begun_unfairly(runs),
        *_shared_gpu(runs),
        *_shared_host(runs),
        *_beside(runs),
        *_cards(runs),
        *_settings(runs),
        *_environment(runs),
        *_drifted(runs, older),
    ]
    return tuple(sorted(found, key=lambda doubt: doubt.severity == "note"))


def _mislabelled(runs: Sequence[StoredRun]) -> list[Doubt]:
    wrong = [run.row for run in runs if run.row.match is False]
    values = {row.run: row.mismatch_reason or "" for row in wrong}
    return [Doubt(key=EVIDENCE, sentence=mislabelled(wrong), values=values)] if wrong else []


def _held_back(runs: Sequence[StoredRun]) -> list[Doubt]:
    """Causes that held back some of the runs, as far as their telemetry tells; or all, where that is not as usual.

    A card at full load is at its power limit. One that heat or a slowdown holds back is slower than its kind.
    """
    shares = {run.row.run: comparability.held_back(run) for run in runs}
    found = []
    for hold, words in _HELD.items():
        known = {run: of_run[hold] for run, of_run in shares.items() if hold in of_run}
        held = {run: share for run, share in known.items() if share >= HELD_SHARE}
        is_usual = hold == "power limit"
        if held and not (is_usual and len(held) == len(known)):
            which, told = _which(held, known, runs), _each(held, "for")
            found.append(
                Doubt(
                    key=f"throttled {hold}",
                    sentence=f"GPUs were held back {words} in {which}: {told} of the measured part.",
                    values={run: units.percent(100 * share) for run, share in known.items()},
                    severity="note" if is_usual else "warning",
                )
            )
    return found


def _which(held: Mapping[int, float], known: Mapping[int, float], runs: Sequence[StoredRun]) -> str:
    if len(held) < len(known):
        return "some runs only"
    return "all runs" if len(held) == len(runs) else "all runs that tell"


def _each(shares: Mapping[int, float], between: str) -> str:
    """Which runs for which share each, of many from which to which."""
    if len(shares) <= _ONE_BY_ONE:
        return ", ".join(f"run {run} {between} {100 * share:.0f} %" for run, share in shares.items())
    ends = dict.fromkeys(f"{100 * share:.0f}" for share in (min(shares.values()), max(shares.values())))
    return f"{runs_words(shares)} {between} {' to '.join(ends)} %"


def _begun_unfairly(runs: Sequence[StoredRun]) -> list[Doubt]:
    """Runs on GPUs that began although these were hot or in use; how busy a host was while a run measured is known."""
    values = {run.row.run: gave_up_on(run.environment) for run in runs if comparability.cards_of(run)}
    values = {run: words for run, words in values.items() if words}
    sentence = f"The wait for cool GPUs that nobody uses gave up before a run ({_by_what(values)})."
    return [Doubt(key=GATE, sentence=sentence, values=values)] if values else []


def _shared_gpu(runs: Sequence[StoredRun]) -> list[Doubt]:
    values = {run.row.run: others for run in runs if (others := run.environment.get(OTHERS_ON_GPU))}
    sentence = f"Other processes used the GPU during a run, which makes it slower ({_by_what(values)})."
    return [Doubt(key=OTHERS_ON_GPU, sentence=sentence, values=values)] if values else []


def _by_what(values: Mapping[int, str]) -> str:
    """Which runs say what, of much of it only the first."""
    told = [f"{runs_words(alike)}: {words}" for words, alike in by_value(values).items()]
    left_out = f"; and {len(told) - _ONE_BY_ONE} more" if len(told) > _ONE_BY_ONE else ""
    return f"{'; '.join(told[:_ONE_BY_ONE])}{left_out}"


def _shared_host(runs: Sequence[StoredRun]) -> list[Doubt]:
    """Runs on the processor beside which other programs were busy."""
    shares = {run.row.run: share for run in runs if (share := comparability.others_load_pct(run)) is not None}
    busy = {run: share / 100 for run, share in shares.items() if share > comparability.BUSY_PCT}
    if not busy:
        return []
    sentence = (
        f"Other programs kept the processors busy while a run measured, which makes it slower: {_each(busy, 'by')}."
    )
    return [
        Doubt(
            key="others_on_host",
            sentence=sentence,
            values={run: units.percent(share) for run, share in shares.items()},
        )
    ]


def _beside(runs: Sequence[StoredRun]) -> list[Doubt]:
    """That some runs on GPUs had the machine's other ones quiet beside them and others not."""
    measured = [run for run in runs if run.row.summary.throughput is not None and comparability.cards_of(run)]
    values = {
        run.row.run: run.environment.get(BESIDE) or ("other runs" if comparability.had_company(run, runs) else "")
        for run in measured
    }
    beside, alone = ([run for run, others in values.items() if bool(others) is told] for told in (True, False))
    if not beside or not alone:
        return []
    sentence = (
        f"{runs_words(beside).capitalize()} went on beside runs on other GPUs of the machine, the others alone."
        if len(beside) <= len(alone)
        else f"{runs_words(alone).capitalize()} went on alone, the others beside runs on other GPUs of the machine."
    )
    return [Doubt(key=BESIDE, sentence=sentence, values=values)]


def _cards(runs: Sequence[StoredRun]) -> list[Doubt]:
    """That the kind of card differs, or which cards of one kind were used where nobody asked for them.

    That matters where variants that are compared share none of them.
    """
    kinds = {run.row.run: ", ".join(sorted(set(run.row.gpu_names))) for run in runs if run.row.gpu_names}
    if len(set(kinds.values())) > 1:
        return [_differing("card", "The kind of GPU", kinds)]
    asked = differing([run.row.spec for run in runs])
    used = {run.row.run: cards for run in runs if (cards := comparability.cards_of(run))}
    if "devices" in asked or len(set(used.values())) < 2:
        return []
    only = comparability.only_on(runs)
    if "gpus" in asked and not only:
        return []
    kind = next(iter(kinds.values()), "GPUs")
    sentence = cards_words(kind, list(used.values()), only, [run.row for run in runs])
    values = {run: ", ".join(sorted(cards)) for run, cards in used.items()}
    return [Doubt(key=GPUS_USED, sentence=sentence, values=values, severity="warning" if only else "note")]


def _settings(runs: Sequence[StoredRun]) -> list[Doubt]:
    """Settings of the cards that telemetry saw."""
    limits = {run.row.run: units.with_unit(watts, "W") for run in runs if (watts := comparability.power_limit_w(run))}
    by_hand = {run.row.run: comparability.clocks_set(run) for run in runs}
    clocks = {run: "set by hand" if set_ else "automatic" for run, set_ in by_hand.items() if set_ is not None}
    told = (
        ("power_limit", "The GPUs' power limit", limits),
        ("clocks", "How the GPUs' clocks are set", clocks),
    )
    return [_differing(key, name, values) for key, name, values in told if len(set(values.values())) > 1]


def _environment(runs: Sequence[StoredRun]) -> list[Doubt]:
    return [
        _differing(key, fact_name(key), values, "note" if key in _SELDOM_MATTER or _asked_for(runs, key) else "warning")
        for key, values in differing_facts(runs).items()
        if key != GPUS_USED
    ]


def _asked_for(runs: Sequence[StoredRun], key: str) -> bool:
    """Whether a library's version differs because the runs name other interpreters, and for no other reason."""
    found: dict[Value, set[str]] = {}
    for run in runs:
        interpreter = run.row.spec.variant.get("interpreter", "")
        found.setdefault(interpreter, set()).add(run.environment.get(key, ""))
    return key in _LIBRARIES and len(found) > 1 and all(len(values) == 1 for values in found.values())


def _differing(key: str, name: str, values: Mapping[int, str], severity: Severity = "warning") -> Doubt:
    differ = "differ" if key in _SEVERAL else "differs"
    return Doubt(key=key, sentence=f"{name} {differ}: {told_by_run(values)}.", values=values, severity=severity)


def _drifted(runs: Sequence[StoredRun], older: Sequence[StoredRun]) -> list[Doubt]:
    found = comparability.drift(runs, older)
    if found is None or found.interval is None or found.interval[0] <= 1 <= found.interval[1]:
        return []
    spec = with_defaults(older[0].row.spec)
    newest = {run.row.run: run.row.summary.throughput for run in runs if with_defaults(run.row.spec) == spec}
    sentence = (
        f"The baseline has drifted: its {units.plural('run', len(newest))} here ran {100 * abs(found.value - 1):.1f} % "
        f"{'faster' if found.value > 1 else 'slower'} than older runs of the same variant in the same environment."
    )
    values = {run: units.rate(value, example_word(spec)) for run, value in newest.items()}
    return [Doubt(key="drift", sentence=sentence, values=values)]
