"""Part of `compare`: verdicts on few, unequal and drifting runs, and on runs that are judged again and again.

One number per process, as the program measures it; its true ratio is 1, so that every difference said is false. On
logarithms a true difference only shifts all values, so coverage is the same for any other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from app.analysis.intervals import LEVEL, PLANNED_LEVEL, level_at, ratio, repeats_to_tell, required_repeats
from app.runs.experiment.schedule import run_order
from app.values.records import Floats
from benchmarks.harness import Result

MIN_COVERAGE_PCT = 93.0
MAX_FALSE_PCT = 7.0
SIZES = ((3, 3), (3, 4), (3, 8), (8, 3), (4, 4), (4, 8), (5, 5), (5, 10), (10, 10))
LOOKS = range(3, 21)
"""Numbers of runs of each variant after which somebody looks."""
_ORDERS = 500
"""Seeds of the order of runs."""
_MOST_RUNS = 300
"""Runs of each variant after which nobody follows advice any more."""

Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]
"""Returns logarithms of throughputs of one variant, of mean 0."""


def normal(random: np.random.Generator, shape: tuple[int, ...], sd: float) -> Floats:
    """Draw normal values."""
    return np.asarray(random.normal(0, sd, shape))


def heavy(random: np.random.Generator, shape: tuple[int, ...], sd: float) -> Floats:
    """Draw values of Student's t with 3 degrees of freedom: now and then one is far off."""
    return np.asarray(sd / np.sqrt(3) * random.standard_t(3, shape))


def skewed(random: np.random.Generator, shape: tuple[int, ...], sd: float) -> Floats:
    """Draw values that are often a little too fast and seldom far too slow."""
    return np.asarray(sd * (1 - random.exponential(1, shape)))


def slow_mode(random: np.random.Generator, shape: tuple[int, ...], slower: float) -> Floats:
    """Draw values of which one in ten is slower by this share, the others alike to 0.5 %."""
    return np.asarray(0.1 * slower - slower * (random.random(shape) < 0.1) + random.normal(0, 0.005, shape))


def states(random: np.random.Generator, shape: tuple[int, ...], share: float, slower: float, sd: float) -> Floats:
    """Draw values of which this share is slower, as of a GPU with two clocks, and all differ by `sd` besides."""
    return np.asarray(slower * (share - (random.random(shape) < share)) + random.normal(0, sd, shape))


def lognormal(random: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Floats:
    """Draw values that are now and then far slower: 2 % times a lognormal value."""
    return np.asarray(0.02 * (np.exp(sigma**2 / 2) - random.lognormal(0, sigma, shape)))


class Case(NamedTuple):
    """How two variants are noisy.

    `inherent` says why no interval over so few processes can be right, `unequal` why not of unequal numbers of them.
    """

    variant: Draw
    baseline: Draw
    drift: Callable[[np.random.Generator, int, int], Floats] | None = None
    interleaved: bool = True
    inherent: str = ""
    unequal: str = ""


def linear_drift(_random: np.random.Generator, cases: int, runs: int) -> Floats:
    """Return a machine that gets slower by 5 % in all."""
    return np.tile(np.linspace(0, -0.05, runs), (cases, 1))


def sudden_drift(random: np.random.Generator, cases: int, runs: int) -> Floats:
    """Return a machine that gets slower by 15 % between two runs."""
    return np.asarray(-0.15 * (np.arange(runs) >= random.integers(1, runs, (cases, 1))))


def sticky_states(random: np.random.Generator, cases: int, runs: int) -> Floats:
    """Return a machine that is slower by 6 % in one of two states, and stays in each for five runs on average."""
    switches = random.random((cases, runs)) < 0.2
    switches[:, 0] = random.random(cases) < 0.5
    return np.asarray(-0.06 * (np.cumsum(switches, axis=1) % 2))


def periodic(random: np.random.Generator, cases: int, runs: int, period: int) -> Floats:
    """Return a machine that is slower by 5 % in the first half of every so many runs, from anywhere on."""
    start = random.integers(0, period, (cases, 1))
    return np.asarray(-0.05 * ((np.arange(runs) + start) % period < period / 2))


def wandering(random: np.random.Generator, cases: int, runs: int, likeness: float = 0.7) -> Floats:
    """Return a machine that wanders by 5 %, from run to run much like before."""
    found = random.normal(0, 0.05, (cases, runs))
    for run in range(1, runs):
        found[:, run] = likeness * found[:, run - 1] + np.sqrt(1 - likeness**2) * found[:, run]
    return np.asarray(found)


def _alike(draw: Draw) -> Case:
    return Case(draw, draw)


def _interleaved(draw: Draw, drift: Callable[[np.random.Generator, int, int], Floats]) -> Case:
    return Case(draw, draw, drift, unequal="the further runs of one are not interleaved")


def _one_after_the_other(draw: Draw, drift: Callable[[np.random.Generator, int, int], Floats]) -> Case:
    return Case(draw, draw, drift, interleaved=False, inherent="the drift is in the difference")


_QUIET, _NOISY = partial(normal, sd=0.01), partial(normal, sd=0.05)
_HALF = partial(normal, sd=0.005)

_USUAL, _UNEQUAL = "normal 2 %", "normal 5 % against 1 %"
NOISY_PAIRS: Mapping[str, Case] = {
    _USUAL: _alike(partial(normal, sd=0.02)),
    "heavy tails 5 %": _alike(partial(heavy, sd=0.05)),
    "skewed 15 %": _alike(partial(skewed, sd=0.15)),
    "lognormal, σ 1.5": _alike(partial(lognormal, sigma=1.5)),
    "slow mode of both": _alike(partial(slow_mode, slower=0.3)),
    "half of the runs 3 % slower": _alike(partial(states, share=0.5, slower=0.03, sd=0.0005)),
    "35 % of the runs 8 % slower": _alike(partial(states, share=0.35, slower=0.08, sd=0.001)),
    "half of the runs 4 % slower, 0.5 % besides": _alike(partial(states, share=0.5, slower=0.04, sd=0.005)),
    "normal 2 % against 1 %": Case(partial(normal, sd=0.02), _QUIET),
    _UNEQUAL: Case(_NOISY, _QUIET),
    "interleaved, linear drift 5 %": _interleaved(_QUIET, linear_drift),
    "interleaved, 15 % slower at once": _interleaved(_HALF, sudden_drift),
    "interleaved, wandering 5 %": _interleaved(_HALF, wandering),
    "interleaved, wandering 5 % slowly": _interleaved(_HALF, partial(wandering, likeness=0.9)),
    "interleaved, each run unlike the one before, 5 %": Case(
        _HALF, _HALF, partial(wandering, likeness=-0.5), inherent="unlike neighbours are of two variants"
    ),
    "interleaved, sticky states 6 %": _interleaved(_HALF, sticky_states),
    **{
        f"interleaved, a period of {period} runs, 5 %": _interleaved(
            partial(normal, sd=0.002), partial(periodic, period=period)
        )
        for period in (2, 3, 4, 6, 8)
    },
    "20 % of the runs of one only 10 % slower": Case(
        partial(states, share=0.2, slower=0.1, sd=0.002),
        partial(normal, sd=0.002),
        inherent="few runs do not show a state of one side",
    ),
    "slow mode of one only": Case(
        partial(slow_mode, slower=0.3), _HALF, inherent="few runs do not show a rare slow mode"
    ),
    "skewed 15 % against normal 1 %": Case(partial(skewed, sd=0.15), _QUIET, inherent="skew does not cancel"),
    "A first, then B, linear drift 5 %": _one_after_the_other(_QUIET, linear_drift),
    "A first, then B, wandering 5 %": _one_after_the_other(_HALF, wandering),
}


def draw(random: np.random.Generator, case: Case, cases: int, sizes: tuple[int, int]) -> tuple[Floats, Floats]:
    """Return logarithms of throughputs of a variant and its baseline, in the order of measurement.

    Args:
        random: Random numbers.
        case: How they are noisy.
        cases: Number of cases, the first axis.
        sizes: Runs of each.
    """
    a, b = case.variant(random, (cases, sizes[0])), case.baseline(random, (cases, sizes[1]))
    if case.drift is None:
        return a, b
    more = [int(sizes[1] > sizes[0])] * abs(sizes[1] - sizes[0])
    orders = np.array([[*order, *more] for order in _orders(min(sizes))])
    order = orders[np.arange(cases) % _ORDERS] if case.interleaved else np.sort(orders[np.zeros(cases, int)])
    machine = case.drift(random, cases, order.shape[1])
    by_variant = np.take_along_axis(machine, np.argsort(order, axis=1, kind="stable"), axis=1)
    return a + by_variant[:, : sizes[0]], b + by_variant[:, sizes[0] :]


@lru_cache
def _orders(repeats: int) -> tuple[tuple[int, ...], ...]:
    return tuple(run_order(2, repeats, seed) for seed in range(_ORDERS))


class Welch(NamedTuple):
    """Of each case the difference of means, its degrees of freedom, and its standard error by the program and by Welch.

    The program's is that of `half_width_of_sum`.
    """

    difference: Floats
    degrees: Floats
    error: Floats
    plain_error: Floats

    def half_width(self, level: float) -> Floats:
        """Return half the width of the program's interval."""
        return np.asarray(stdtrit(self.degrees, 0.5 + level / 2) * self.error)

    def plain_half_width(self, level: float = LEVEL) -> Floats:
        """Return half the width of Welch's."""
        return np.asarray(stdtrit(self.degrees, 0.5 + level / 2) * self.plain_error)


def welch(a: Floats, b: Floats) -> Welch:
    """Compare the rows of two arrays as `app.analysis.intervals.ratio` compares two samples."""
    n_a, n_b = a.shape[1], b.shape[1]
    var_a, var_b = a.var(axis=1, ddof=1), b.var(axis=1, ddof=1)
    square_a, square_b = var_a / n_a, var_b / n_b
    squares = square_a + square_b
    degrees = squares**2 / (square_a**2 / (n_a - 1) + square_b**2 / (n_b - 1))
    pooled = ((n_a - 1) * var_a + (n_b - 1) * var_b) / (n_a + n_b - 2) * (1 / n_a + 1 / n_b)
    error = np.sqrt(np.maximum(squares, pooled))
    return Welch(a.mean(axis=1) - b.mean(axis=1), degrees, error, np.sqrt(squares))


def measure(random: np.random.Generator, cases: int) -> Iterator[Result]:
    """Measure what the program's intervals cover, then other rules for repeated looks.

    Args:
        random: Random numbers.
        cases: Number of cases of each kind.
    """
    for name, case in NOISY_PAIRS.items():
        for sizes in SIZES:
            yield from _size_results(random, name, case, cases, sizes)
    for name in (_USUAL, "interleaved, linear drift 5 %", "interleaved, wandering 5 %"):
        yield from _pairing_results(random, name, cases)
    for name, case in NOISY_PAIRS.items():
        if case.drift is None and not case.inherent:
            yield from _look_results(random, name, case, cases)
    yield from _advice_results(random, cases // 5)
    yield from _telling_results(random, cases // 10)
    for noisier in (1, 2, 4):
        yield _stopping_result(random, noisier, cases)
    yield from _rule_results(random, cases)


def _size_results(
    random: np.random.Generator, name: str, case: Case, cases: int, sizes: tuple[int, int]
) -> Iterator[Result]:
    found = welch(*draw(random, case, cases, sizes))
    inherent = case.inherent or (case.unequal if sizes[0] != sizes[1] else "")
    label = f"{name}, {sizes[0]} against {sizes[1]}" + (f" ({inherent})" if inherent else "")
    half, plain = found.half_width(PLANNED_LEVEL), found.plain_half_width()
    yield from _limited(label, found.difference, half, limited=not inherent)
    yield Result(name=f"{label}: plain Welch covers", value=_pct(abs(found.difference) <= plain), unit="%")
    passed = _pct(found.difference > found.half_width(2 * PLANNED_LEVEL - 1))
    yield Result(name=f"{label}: a gate passes what is slower by its margin", value=passed, unit="%")
    if name == _USUAL:
        yield Result(name=f"{label}: width of plain Welch's", value=_times(half, plain), unit="times")


def _limited(label: str, difference: Floats, half: Floats, *, limited: bool) -> Iterator[Result]:
    """Yield coverage and false differences of either sign, which have a limit in all but the inherent rows."""
    covered, different = _pct(abs(difference) <= half), _pct(abs(difference) > half)
    least, most = (MIN_COVERAGE_PCT, MAX_FALSE_PCT) if limited else (None, None)
    yield Result(name=f"{label}: covers", value=covered, unit="%", limit=least, at_least=True)
    yield Result(name=f"{label}: falsely different", value=different, unit="%", limit=most)


def _pairing_results(random: np.random.Generator, name: str, cases: int) -> Iterator[Result]:
    """Yield what pairing by round would give an interleaved experiment: Student's t on the differences of a round."""
    for n in (3, 5, 10):
        a, b = draw(random, NOISY_PAIRS[name], cases, (n, n))
        differences = a - b
        error = differences.std(axis=1, ddof=1) / np.sqrt(n)
        paired, found = stdtrit(n - 1, 0.5 + LEVEL / 2) * error, welch(a, b)
        label = f"{name}, {n} rounds, paired"
        yield Result(name=f"{label}: covers", value=_pct(abs(found.difference) <= paired), unit="%")
        yield Result(
            name=f"{label}: width of plain Welch's", value=_times(paired, found.plain_half_width()), unit="times"
        )


class Look(NamedTuple):
    """Runs of a variant and of its baseline, and which look at them it is."""

    runs: int
    baseline: int
    number: int


WAYS: Mapping[str, Sequence[Look]] = {
    "each run from 3 to 20": [Look(n, n, n - 2) for n in LOOKS],
    "planned 3, extended to 6, 12, 24, 48": [Look(3 * 2**k, 3 * 2**k, k + 1) for k in range(5)],
    "planned 10, extended run by run to 20": [Look(n, n, n - 9) for n in range(10, 21)],
    "3 each, then each run of one alone to 20": [Look(n, 3, n - 2) for n in LOOKS],
}
"""How runs may be judged again and again."""
EARLY_WAYS: Mapping[str, Sequence[Look]] = {
    "each run from 3 of 10 planned": [*(Look(n, n, n - 2) for n in range(3, 10)), Look(10, 10, 1)],
}
"""Ways to look too early that the program cannot see, without a limit."""


def _look_results(random: np.random.Generator, name: str, case: Case, cases: int) -> Iterator[Result]:
    """Yield how often runs that are judged again are said to differ at any look."""
    a, b = draw(random, case, cases, (48, 48))
    for way, looks in {**WAYS, **EARLY_WAYS}.items():
        found = [welch(a[:, : look.runs], b[:, : look.baseline]) for look in looks]
        # Of all looks the worst: what is beyond its interval there is beyond it at some look.
        half_widths = [each.half_width(level_at(look.number)) for each, look in zip(found, looks, strict=True)]
        worst = np.stack([each.difference / half for each, half in zip(found, half_widths, strict=True)])
        largest = np.take_along_axis(worst, abs(worst).argmax(axis=0)[np.newaxis], axis=0)[0]
        label = f"{name}, looks after {way}" + (" (too early)" if way in EARLY_WAYS else "")
        limited = way in WAYS and not (case.unequal and any(look.runs != look.baseline for look in looks))
        yield from _limited(label, largest, np.ones_like(largest), limited=limited)
        plain = [abs(each.difference) <= each.plain_half_width() for each in found]
        yield Result(name=f"{label}: plain Welch covers", value=_pct(np.all(plain, axis=0)), unit="%")


def _advice_results(random: np.random.Generator, cases: int) -> Iterator[Result]:
    """Yield the same of experiments of three repeats that are extended as the verdict advises, up to three times."""
    for name in (_USUAL, "heavy tails 5 %", _UNEQUAL):
        case, ends, promised = NOISY_PAIRS[name], [], []
        for a, b in zip(*draw(random, case, cases, (_MOST_RUNS, _MOST_RUNS)), strict=True):
            ratio, fulfilled = _follow(a, b)
            ends.append(ratio)
            promised += fulfilled
        label = f"{name}, advice followed three times"
        yield from _limited(label, np.array(ends), np.ones(len(ends)), limited=True)
        yield Result(name=f"{label}: interval as narrow as promised", value=_pct(np.array(promised)), unit="%")


def _follow(a: Floats, b: Floats) -> tuple[float, list[bool]]:
    """Extend one experiment as advised until a difference is said.

    Returns:
        The last difference in half-widths, and of each piece of advice whether the interval was as narrow then.
    """
    n, fulfilled, target = 3, [], None
    for look in range(1, 5):
        found = welch(a[np.newaxis, :n], b[np.newaxis, :n])
        half = float(found.half_width(level_at(look))[0])
        if target is not None:
            fulfilled.append(half <= np.log1p(target))
        ratio = float(found.difference[0]) / half
        advice = required_repeats(np.exp(a[:n]).tolist(), np.exp(b[:n]).tolist(), look)
        if abs(ratio) > 1 or advice is None or n + advice.repeats > _MOST_RUNS:
            break
        n, target = n + advice.repeats, advice.half_width
    return ratio, fulfilled


_GAPS_PCT = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
"""True distances of the two fastest of three variants; the third is 20 % slower."""
MIN_TOLD_PCT = 80.0
_MOST_TOLD = 100
"""Repeats; a number above it is not said."""


def _rivals(logs: Sequence[Floats], look: int) -> list[int]:
    """Return the fastest of three variants at this look, and those that may be as fast, as the verdict finds them."""
    first, *others = sorted(range(3), key=lambda variant: -float(logs[variant].mean()))
    ratios = [
        ratio(np.exp(logs[variant]).tolist(), np.exp(logs[first]).tolist(), level_at(look, 2)) for variant in others
    ]
    return [first, *(n for n, found in zip(others, ratios, strict=True) if found and (found.high or 1.0) >= 1)]


def _telling_results(random: np.random.Generator, cases: int) -> Iterator[Result]:
    """Yield how often "N more repeats would tell which is fastest" is said, and comes true when they are made."""
    for runs in (3, 5):
        outcomes = []
        for gap_pct in _GAPS_PCT:
            came_true = []
            for _ in range(cases):
                means = (np.log1p(gap_pct / 100), 0.0, -0.2)
                logs = [random.normal(centre, 0.02, runs + _MOST_TOLD) for centre in means]
                first, *others = _rivals([log[:runs] for log in logs], 1)
                samples = [np.exp(logs[variant][:runs]).tolist() for variant in (first, *others)]
                needed = [repeats_to_tell(samples[0], rival, 1, 2) or _MOST_TOLD + 1 for rival in samples[1:]]
                if needed and (more := max(needed)) <= _MOST_TOLD:
                    came_true.append(_rivals([log[: runs + more] for log in logs], 2) == [0])
            label = f"{runs} runs each, two of three variants {gap_pct:g} % apart: that repeats tell the fastest"
            yield Result(name=f"{label} is said", value=100 * len(came_true) / cases, unit="%")
            yield Result(name=f"{label} comes true", value=_pct(came_true) if came_true else 0.0, unit="%")
            outcomes += came_true
        name = f"{runs} runs each, all distances together: that repeats tell the fastest comes true"
        limit = MIN_TOLD_PCT if runs == 3 else None  # of five it is said too seldom
        yield Result(name=name, value=_pct(outcomes) if outcomes else 0.0, unit="%", limit=limit, at_least=True)


_OCCASIONS = (
    ("planned", 3, 1),
    ("planned", 5, 1),
    ("planned", 10, 1),
    ("second look", 11, 2),
    ("added one by one", 10, 8),
)
"""An occasion, the runs of each variant then, and which look it is."""

_TARGETS = (0.3, 0.5, 0.7, 0.9, 1.1, 1.4, 1.8, 2.3, 3.0, 4.0, 6.0, 9.0)
"""Target precisions, in standard deviations of the quieter variant."""


def _stopping_result(random: np.random.Generator, noisier: float, cases: int) -> Result:
    """Return the coverage of experiments that end with the first interval that is narrow enough, of targets the worst.

    Args:
        random: Random numbers.
        noisier: How much noisier one of the variants is.
        cases: Number of cases of each target.
    """
    a, b = normal(random, (cases, LOOKS[-1]), noisier), normal(random, (cases, LOOKS[-1]), 1.0)
    found = [welch(a[:, :n], b[:, :n]) for n in LOOKS]
    half_widths = np.stack([each.half_width(PLANNED_LEVEL) for each in found])
    covered = np.stack([abs(each.difference) for each in found]) <= half_widths
    worst = 100.0
    for target in _TARGETS:
        narrow = half_widths <= target
        ends = np.where(narrow.any(axis=0), narrow.argmax(axis=0), len(found) - 1)
        worst = min(worst, _pct(covered[ends, np.arange(cases)]))
    return Result(
        name=f"until any precision, one variant {noisier:g} times as noisy: covers at worst",
        value=worst,
        unit="%",
        limit=MIN_COVERAGE_PCT,
        at_least=True,
    )


Rule = Callable[[Welch, int, int], Floats]
"""Returns half the widths of intervals of n runs each, at this look."""


def _pocock(found: Welch, _n: int, _look: int) -> Floats:
    """Return intervals of one level at 18 looks: Pocock (1977), Biometrika 64; the level by simulation."""
    return found.plain_half_width(0.99)


def _obrien_fleming(found: Welch, n: int, _look: int) -> Floats:
    """Return intervals that are wide at first, with 20 runs the last: O'Brien and Fleming (1979), Biometrics 35."""
    return np.asarray(stdtrit(found.degrees, ndtr(2.1 * np.sqrt(LOOKS[-1] / n))) * found.plain_error)


def _by_runs(found: Welch, n: int, _look: int) -> Floats:
    """Return intervals whose level depends on the number of runs alone, whether they were planned or not."""
    return found.plain_half_width(1 - 0.025 * (3 / n) ** 0.8)


def _mixture(found: Welch, n: int, _look: int) -> Floats:
    """Return the always-valid interval of a t mixture, for equal variances.

    Wang and Ramdas (2023), "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance",
    arXiv 2310.03722: flat over the scale, normal over the effect, whose variance is 13 times that of a process.
    """
    degrees, growth = 2 * n - 2, 1 + 13 * n / 2
    bound = (np.sqrt(growth) / (1 - LEVEL)) ** (2 / (degrees + 1))
    return np.asarray(np.sqrt(degrees * (bound - 1) / (1 - bound / growth)) * found.plain_error)


RULES: Mapping[str, Rule] = {
    "plain Welch": lambda found, _n, _look: found.plain_half_width(),
    "the program": lambda found, _n, look: found.half_width(level_at(look)),
    "one level for every look": _pocock,
    "wide at first": _obrien_fleming,
    "by number of runs": _by_runs,
    "t mixture": _mixture,
}
"""Candidates for looking again."""


def _rule_results(random: np.random.Generator, cases: int) -> Iterator[Result]:
    """Yield errors, widths and power of the candidates."""
    draws = {name: draw(random, NOISY_PAIRS[name], cases, (20, 20)) for name in (_USUAL, _UNEQUAL)}
    for rule_name, rule in RULES.items():
        for noise, (a, b) in draws.items():
            found = {n: welch(a[:, :n], b[:, :n]) for n in LOOKS}
            covered = [abs(each.difference) <= rule(each, n, n - 2) for n, each in found.items()]
            label = f"{rule_name}, {noise}"
            yield Result(name=f"{label}: looks 3 to 20 cover", value=_pct(np.all(covered, axis=0)), unit="%")
        found = {n: welch(*(side[:, :n] for side in draws[_USUAL])) for n in LOOKS}
        for label, n, look in _OCCASIONS:
            half = rule(found[n], n, look)
            name, times = f"{rule_name}, {n} runs, {label}", _times(half, found[n].plain_half_width())
            yield Result(name=f"{name}: width of plain Welch's", value=times, unit="times")
            yield Result(
                name=f"{name}: 3 % is said to be faster", value=_pct(found[n].difference + 0.03 > half), unit="%"
            )


def _times(half: Floats, other: Floats) -> float:
    """Return how much wider than others intervals are, the geometric mean."""
    return float(np.exp(np.log(half / other).mean()))


def _pct(condition: Sequence[bool] | Floats | np.ndarray) -> float:
    return 100 * float(np.mean(condition))
