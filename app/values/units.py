"""Numbers with their units as text: few significant digits, grouped thousands; a missing value is a dash, never 0."""

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, tzinfo
from typing import TypeGuard

ABSENT = "–"
_SPACE = "\N{NO-BREAK SPACE}"
_LOOSE_PERCENT = re.compile(r"(?<=\d) %")
_NAMED_NUMBER = re.compile(r"(?<=[^\W\d_]) (?=[±−~]?\d)|(?<=\d) (?=(?:GPUs?|runs?|against)\b)")
_PART, _LONGEST_PART = " · ", 28
"""What stands between the parts of a name, and up to how many letters a part is never broken."""
_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def is_known(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 3) -> str:
    """Return the value with about `digits` significant digits, never less than its whole part: 68,899, 12.3, 0.0421."""
    if not is_known(value):
        return ABSENT
    if value == 0:
        return "0"
    return f"{value:,.{_decimals(value, digits)}f}"


def _decimals(value: float, digits: int) -> int:
    """Return how many decimals a number other than 0 needs for that many significant digits."""
    return min(12, max(0, digits - 1 - math.floor(math.log10(abs(value)))))


def with_minus(figures: str) -> str:
    """Return figures with a minus as wide as a plus instead of a hyphen, as `−2.1`."""
    return figures.replace("-", "\N{MINUS SIGN}")


def tied(text: str) -> str:
    """Return a sentence that came from elsewhere with its numbers tied to their percent signs."""
    return _LOOSE_PERCENT.sub(f"{_SPACE}%", text)


def bound(text: str) -> str:
    """Return a text that breaks neither between a word and its number nor within a short part of a name.

    `batch 64` and `2 GPUs` stay in a line, and so does `hierarchical copy` between two ` · `; no line begins with one.
    """
    parts = text.split(_PART)
    short = [part.replace(" ", _SPACE) if len(part) <= _LONGEST_PART and len(parts) > 1 else part for part in parts]
    return _NAMED_NUMBER.sub(_SPACE, f"{_SPACE}· ".join(short))


def with_unit(value: float | None, unit: str, decimals: int = 0) -> str:
    """Return the value with its unit and a fixed number of decimals. None and NaN are a dash."""
    return quantity(f"{value:,.{decimals}f}", unit) if is_known(value) else ABSENT


def amount(value: float | None, unit: str, digits: int = 3) -> str:
    """Return the value with its unit and about that many significant digits. None and NaN are a dash."""
    return quantity(number(value, digits), unit) if is_known(value) else ABSENT


def exactly(value: float, unit: str) -> str:
    """Return a value that somebody chose, with no needless digits, as `0.5 %` or `2 %`."""
    return quantity(f"{value:,g}", unit)


def quantity(figures: str, unit: str) -> str:
    """Return figures with their unit, between which no line breaks, as `5.1–7.7 %`."""
    return f"{figures}{_SPACE}{unit}"


def watts(power_mw: float | None) -> str:
    """Return power given in milliwatts, as `688 W`."""
    return ABSENT if power_mw is None else with_unit(power_mw / 1000, "W")


def gflops(flops_per_s: float | None) -> str:
    """Return operations per second, always in billions so that a column compares: `13,375 GFLOPS`."""
    return ABSENT if flops_per_s is None else amount(flops_per_s / 1e9, "GFLOPS")


def flops(flops_per_s: float | None) -> str:
    """Return operations per second in the unit that suits one figure alone: `349 GFLOPS`, `13.4 TFLOPS`."""
    if is_known(flops_per_s) and flops_per_s >= 1e12:
        return amount(flops_per_s / 1e12, "TFLOPS")
    return gflops(flops_per_s)


def percent(value: float | None, decimals: int = 0) -> str:
    """Return a value from 0 to 100, as `99 %`."""
    return with_unit(value, "%", decimals)


def celsius(value: float | None) -> str:
    """Return a temperature, as `61 °C`."""
    return with_unit(value, "°C")


def megahertz(value: float | None) -> str:
    """Return a clock, as `1,980 MHz`."""
    return with_unit(value, "MHz")


def milliseconds(value: float | None) -> str:
    """Return a short time, as `5.02 ms`."""
    return amount(value, "ms")


def seconds(value: float | None) -> str:
    """Return a time that matters to its fractions, as `4.21 s` or `5.18 ms`."""
    return milliseconds(value * 1000) if value is not None and value < 1 else amount(value, "s")


def bytes_unit(value: float | None) -> tuple[float, str]:
    """Return the power of 1024 that suits a number of bytes, and its name."""
    power = 0
    if is_known(value) and value >= 1:
        power = min(int(math.log2(value) // 10), len(_BYTE_UNITS) - 1)
    return 1024.0**power, _BYTE_UNITS[power]


def byte_size(value: float | None) -> str:
    """Return bytes in powers of 1024, as `3.1 GiB`."""
    if not is_known(value):
        return ABSENT
    scale, unit = bytes_unit(value)
    scaled = value / scale
    return f"{scaled:,.{0 if scale == 1 or scaled >= 100 else 1}f}{_SPACE}{unit}"


def bytes_of_total(value: float | None, total: float | None) -> str:
    """Return bytes of a total in the total's unit, as `4.0 of 140 GiB`."""
    if total is None or not is_known(value):
        return byte_size(value)
    scale, unit = bytes_unit(total)
    scaled_total = total / scale
    return f"{value / scale:,.1f} of {scaled_total:,.{0 if scaled_total >= 100 else 1}f}{_SPACE}{unit}"


def plural(word: str, count: float = 2) -> str:
    """Return the word for that many: `image` and 2 give `images`."""
    return word if count == 1 else f"{word}s"


def rate_unit(example: str) -> str:
    """Return the unit of throughput for an example's word: `images/s`."""
    return f"{plural(example)}/s"


def rate(per_second: float | None, example: str) -> str:
    """Return throughput, as `68,899 images/s`."""
    return amount(per_second, rate_unit(example))


def plus_minus(half_width: str) -> str:
    """Return half of an interval's width after its sign, as `± 0.4 %`."""
    return quantity("±", half_width)


def span(low: str, high: str) -> str:
    """Return two numbers as a range, `5.1–7.7`; with `to` where a sign before one of them would read as the dash."""
    return f"{low} to {high}" if {low[:1], high[:1]} & {"−", "+", "-"} else f"{low}–{high}"


def range_of(values: Iterable[float], text: Callable[[float], str]) -> str:
    """Return the smallest and the largest of some values as a range; one number where both read the same."""
    numbers = list(values)
    low, high = text(min(numbers)), text(max(numbers))
    return low if low == high else span(low, high)


def ratio(value: float | None) -> str:
    """Return a ratio, as `2.50×` or `24.1×`."""
    return f"{ratio_figures(value)}×" if is_known(value) else ABSENT


_ANY_RATIO = 1e9
"""A ratio that nothing has: the end of an interval of two very different runs may be beyond it."""


def ratio_figures(value: float) -> str:
    """Return a ratio without its sign, with three digits; one that nothing has, times a power of ten: `2.16e99`."""
    if value and not 1 / _ANY_RATIO < value < _ANY_RATIO:
        return with_minus(f"{value:.2e}".replace("e+", "e"))
    return number(value)


def interval(ends: tuple[float, float] | None, digits: int = 3) -> str:
    """Return the ends of an interval with that many significant digits, as `40,320–41,575`; "" without one.

    Both have the decimals of the upper one, `912–1,118`, unless it is ten times the lower one or more.
    """
    if not ends:
        return ""
    low, high = ends
    is_narrow = is_known(high) and 0 < low < high < 10 * low
    return span(f"{low:,.{_decimals(high, digits)}f}" if is_narrow else number(low, digits), number(high, digits))


def duration(seconds: float | None) -> str:
    """Return a time as minutes and seconds, `2:10`, or with hours, `1:02:10`."""
    if not is_known(seconds):
        return ABSENT
    return clock(max(0.0, seconds))


def duration_range(least_s: float, most_s: float) -> str:
    """Return a time that is not known exactly, as `35 to 50 s`, `6 to 9 min` or `1.5 to 2 h`, rounded outwards."""
    unit_s, step, unit = next(scale for scale in _TIME_SCALES if most_s < scale[0] * _MOST_OF_UNIT or scale[2] == "h")
    low, high = math.floor(least_s / unit_s / step) * step, math.ceil(most_s / unit_s / step) * step
    if low == 0:
        return f"up to {high:g} {unit}"
    return f"about {high:g} {unit}" if low == high else f"{low:g} to {high:g} {unit}"


_TIME_SCALES = ((1, 5, "s"), (60, 1, "min"), (3600, 0.5, "h"))
"""Seconds of a unit of time, the step of its figures, and its name."""
_MOST_OF_UNIT = 100
"""Figures of three digits are of the next unit."""


def clock(seconds: float, decimals: int = 0) -> str:
    """Return a time of a plot as `0:30`, finer as `0:16.5`, with hours as `1:02:10`; a negative one with a minus."""
    scale: int = 10**decimals
    parts = round(abs(seconds) * scale)
    total_s, fraction = divmod(parts, scale)
    hours, minutes, rest = total_s // 3600, total_s // 60 % 60, total_s % 60
    text = f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
    sign = "−" if seconds < 0 < parts else ""
    return f"{sign}{text}" + (f".{fraction:0{decimals}d}" if decimals else "")


def instant(seconds: float, shown_s: float) -> str:
    """Return the time of a point in a plot as a clock, about as fine as can be pointed at.

    `shown_s` is the length of time that the plot shows.
    """
    return clock(seconds, min(3, max(1, math.ceil(2 - math.log10(shown_s)))))


def age(seconds: float) -> str:
    """Return how long something is ago, in its largest unit: `5 s`, `3 min`, `2 h`."""
    for size_s, unit in ((3600, "h"), (60, "min")):
        if seconds >= size_s:
            return with_unit(seconds // size_s, unit)
    return with_unit(max(0.0, seconds // 1), "s")


_SOURCE_LOCATION = re.compile(r"[^:]+\.py:\d+: ")
"""How a sentence begins that names a line of a file, whose name may hold spaces."""


def sentence(phrase: str) -> str:
    """Return a phrase as a sentence: a capital first, a full stop last. Names such as cuDNN or mine.py:3 stay."""
    text = phrase.strip()
    if not text:
        return ""
    word = text.split()[0]
    is_name = not word.islower() or "." in word.rstrip(".") or _SOURCE_LOCATION.match(text) is not None
    first = text[0] if is_name else text[0].upper()
    return first + text[1:] + ("" if text[-1] in ".!?…" else ".")


def local_time(utc_ns: int, zone: tzinfo | None = None) -> str:
    """Return a time for lists and sentences, as `2026-03-01 14:05` in `zone` (None is the system's)."""
    return f"{datetime.fromtimestamp(utc_ns / 1e9, UTC).astimezone(zone):%Y-%m-%d %H:%M}"


def utc_time(utc_ns: int | None) -> str:
    """Return a time for details, and for what is sent elsewhere, as `2026-03-01 14:05:09 UTC`."""
    if utc_ns is None:
        return ABSENT
    return datetime.fromtimestamp(utc_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
