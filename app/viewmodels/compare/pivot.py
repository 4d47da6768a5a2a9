"""The effect of one setting by two others: a cell for each matched pair, with published figures beside it."""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.analysis.effects import Effect, compute_effects
from app.analysis.intervals import Estimate
from app.analysis.verdict import throughputs
from app.metrics import METRIC_BY_KEY
from app.values import units
from app.values.plan import Article, Publication, PublishedEffect, PublishedValue, step_key
from app.viewmodels.compare.comparison import Comparison
from app.viewmodels.compare.table import ComparedVariant
from app.viewmodels.format.cells import OUTCOMES, TextTable, example_word
from app.viewmodels.format.naming import SEPARATOR, format_setting, setting_label, setting_text, variant_names
from app.viewmodels.format.ratios import CI, Unit, describe_ratio, unit_of
from workloads.catalog import OUTSIDE_STEP, UsageError, has_parameter
from workloads.protocol import RunSpec, Value

_STATES = {"no_run": "no run", "one_run": "one run", **{name: label.word for name, label in OUTCOMES.items()}}
"""Why a cell has no ratio or interval, by key: too few runs on a side, or its last run's outcome."""


class Quote(NamedTuple):
    """An article's figures or words about a variant."""

    article: Article
    effect: PublishedEffect
    value: PublishedValue


@dataclass(frozen=True, slots=True, kw_only=True)
class PivotCell:
    """The variants before and after the change, their settings after it, and the ratio of their throughputs."""

    spec: RunSpec
    before: ComparedVariant | None
    after: ComparedVariant | None
    ratio: Estimate | None
    quotes: tuple[Quote, ...]

    @property
    def state(self) -> str:
        """Return the key of the reason for a missing ratio or interval; "" if both exist."""
        if self.ratio and self.ratio.interval:
            return ""
        for side in (self.before, self.after):
            if side is None:
                return "no_run"
            if not throughputs(side.result.runs):
                outcome = side.result.runs[-1].outcome
                return outcome.name if outcome else "running"
        return "one_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pivot:
    """The effect of changing a setting from `before`; the ratios are those of the comparison's effects.

    Attributes:
        rows_by: The settings at the head of each row; the one asked about comes first if it changes to several values.
        columns_by: The setting of the columns; "" if there is only one column.
        axes: The settings that can be rows and columns.
    """

    asked: str
    before: Value
    rows_by: tuple[str, ...]
    columns_by: str
    cells: tuple[PivotCell, ...]
    axes: tuple[str, ...]
    example: str

    @property
    def figure(self) -> str:
        """Return the key of the metric beside each ratio: the first quotation's."""
        return next((quote.effect.figure for cell in self.cells for quote in cell.quotes), "throughput")

    @property
    def sources(self) -> tuple[str, ...]:
        articles = (quote.article for cell in self.cells for quote in cell.quotes)
        sources = (", measured on ".join(filter(None, (article.title, article.machine))) for article in articles)
        return tuple(f"The article: {source}." for source in dict.fromkeys(sources))

    def label(self, name: str) -> str:
        return setting_label([cell.spec for cell in self.cells], name)


def make_pivot(
    comparison: Comparison,
    asked: str = "",
    rows: str = "",
    columns: str = "",
    published: Sequence[Publication] = (),
    before: Value | None = None,
) -> Pivot | None:
    """Return the effect of changing a setting from `before`, by default from the published or the baseline's value.

    By default the setting is the verdict's, else a published one, or the one with most pairs; rows and columns are the
    two other settings with most values. None if no two variants differ in a single setting.

    Raises:
        UsageError: No two variants differ only in this setting, or another one does not vary.
    """
    pairs = Counter[str]()
    for effect in _effects(comparison):
        pairs[effect.parameter] += len(effect.pairs) + effect.single_run_pairs
    if not pairs:
        return None
    about = [effect for publication in published for effect in publication.article.effects]
    likely = (comparison.verdict.asked, *(effect.setting for effect in about), pairs.most_common(1)[0][0])
    asked = asked or next(setting for setting in likely if setting in pairs)
    values = {(variant.spec.workload, variant.spec.variant.get(asked)) for variant in comparison.variants}
    befores = (one.before for one in about if one.setting == asked and (one.workload, one.before) in values)
    before = next(befores, None) if before is None else before
    effects = [effect for effect in _effects(comparison, asked, before) if effect.parameter == asked]
    if not effects:
        raise UsageError(f"No two of these variants differ in {asked} alone. Ask about {', '.join(pairs)}.")
    before = before if before in [effect.before for effect in effects] else effects[0].before
    groups = _groups(comparison.variants, asked)
    afters = [value for value in _ordered(value for group in groups for value in group) if value != before]
    axes = _axes([group for group in groups if before in group and len(group) > 1], asked)
    if len(afters) > 1 or not axes:
        axes.insert(0, asked)
    if (wrong := {rows, columns} - {"", *axes}) or (rows and rows == columns):
        raise UsageError(f"Rows and columns can be two of {', '.join(axes)}, not {', '.join(wrong or {rows})}.")
    rows = rows or next((name for name in axes if name != columns), asked)
    columns = columns or next((name for name in axes if name not in (rows, asked)), "")
    rows_by = (rows,) if asked in (rows, columns) or len(afters) == 1 else (asked, rows)
    ratios = {(pair.before[0].run, pair.after[0].run): pair.ratio for effect in effects for pair in effect.pairs}
    cells = [_cell(group, asked, before, value, ratios, published) for group in groups for value in afters]
    paired = [cell for cell in cells if cell.before and cell.after]
    quoted = [cell for cell in cells if any(quote.value.figure or quote.value.ratio for quote in cell.quotes)]
    in_rows = {_key(cell.spec, columns) for cell in (*paired, *quoted)}
    in_columns = {_at(cell.spec, columns) for cell in paired}
    completed = [row for variant in comparison.variants for row in variant.result.runs if row.completed]
    examples = {example_word(row.spec, row.summary) for row in completed}
    return Pivot(
        asked=asked,
        before=before,
        rows_by=rows_by,
        columns_by=columns,
        cells=tuple(c for c in cells if _key(c.spec, columns) in in_rows and _at(c.spec, columns) in in_columns),
        axes=tuple(axes),
        example=examples.pop() if len(examples) == 1 else "example",
    )


def make_pivots(comparison: Comparison, published: Sequence[Publication]) -> list[Pivot]:
    """Return a pivot for each question of these publications that the runs can answer, else the default one."""
    effects = [effect for publication in published for effect in publication.article.effects]
    pivots = []
    for setting, before in dict.fromkeys((effect.setting, effect.before) for effect in effects):
        try:
            pivots.append(make_pivot(comparison, setting, published=published, before=before))
        except UsageError:  # no pair was measured for it, or none was chosen
            continue
    answers = [pivot for pivot in pivots if pivot and any(cell.quotes for cell in pivot.cells)]
    return answers or list(filter(None, [make_pivot(comparison)]))


def _effects(comparison: Comparison, asked: str = "", before: Value | None = None) -> Iterator[Effect]:
    """Yield the effects in each workload, from the baseline's values, or of the setting asked about from `before`."""
    workloads: dict[str, list[ComparedVariant]] = defaultdict(list)
    for variant in comparison.variants:
        if throughputs(variant.result.runs):
            workloads[variant.spec.workload].append(variant)
    for variants in workloads.values():
        base = next((variant for variant in variants if variant.result.is_baseline), variants[0])
        if before not in (None, _at(base.spec, asked)):
            base = next((variant for variant in variants if _at(variant.spec, asked) == before), base)
        if base.result.is_baseline and comparison.verdict.effects:
            yield from comparison.verdict.effects
        else:
            yield from compute_effects([variant.result.runs for variant in variants], base.result.runs)


_Group = dict[Value, ComparedVariant]
"""Variants that are equal except for the setting asked about, by its values."""


def _at(spec: RunSpec, name: str) -> Value:
    return spec.variant.get(name, "")


def _key(spec: RunSpec, name: str) -> Hashable:
    """Return a key that variants share if they differ only in this setting."""
    return spec.workload, frozenset(setting for setting in spec.variant.items() if setting[0] != name)


def _groups(variants: Sequence[ComparedVariant], asked: str) -> list[_Group]:
    groups: dict[Hashable, _Group] = defaultdict(dict)
    for variant in variants:
        if asked in variant.spec.variant and has_parameter(variant.spec, asked):
            groups[_key(variant.spec, asked)][variant.spec.variant[asked]] = variant
    return list(groups.values())


def _axes(groups: Sequence[_Group], asked: str) -> list[str]:
    """Return the other settings that vary, those with most values first."""
    values: dict[str, set[Value]] = defaultdict(set)
    for spec in (variant.spec for group in groups for variant in group.values()):
        for name in spec.variant.keys() - OUTSIDE_STEP - {asked}:
            values[name] |= {spec.variant[name]} if has_parameter(spec, name) else set()
    return sorted((name for name in values if len(values[name]) > 1), key=lambda name: (-len(values[name]), name))


def _cell(
    group: _Group,
    asked: str,
    before: Value,
    after: Value,
    ratios: Mapping[tuple[int, int], Estimate],
    published: Sequence[Publication],
) -> PivotCell:
    """Return the cell of these variants; `ratios` are by the first run of each side."""
    spec = next(iter(group.values())).spec
    spec = RunSpec(workload=spec.workload, variant={**spec.variant, asked: after})
    sides = group.get(before), group.get(after)
    first_runs = tuple(side.result.runs[0].run for side in sides if side)
    quotes = (
        Quote(publication.article, effect, value)
        for publication in published
        if sides[1] and step_key(sides[1].spec) in publication.keys
        for effect in publication.article.effects
        if (effect.workload, effect.setting, effect.before) == (spec.workload, asked, before)
        for value in effect.values
        if {**effect.settings, **value.settings, asked: value.after}.items() <= spec.variant.items()
    )
    ratio = ratios.get(first_runs) if len(first_runs) == 2 else None
    return PivotCell(spec=spec, before=sides[0], after=sides[1], ratio=ratio, quotes=tuple(quotes))


def _names(specs: Sequence[RunSpec], without: Sequence[str]) -> list[str]:
    """Return what distinguishes each spec from the others besides some settings; "" if nothing does."""
    common = {name: value for spec in specs for name, value in spec.variant.items() if name in without}
    rests = [
        RunSpec(workload=spec.workload, variant={name: common.get(name, value) for name, value in spec.variant.items()})
        for spec in specs
    ]
    apart = [rest for number, rest in enumerate(rests) if rest not in rests[:number]]
    names = variant_names(apart) if len(apart) > 1 else [""]
    return [names[apart.index(rest)] for rest in rests]


def _ordered(values: Iterable[Value]) -> list[Value]:
    different = list(dict.fromkeys(values))
    return different if any(isinstance(value, str) for value in different) else sorted(different, key=float)


def pivot_table(pivot: Pivot) -> TextTable:
    """Return the rows as text: for each column the effect, and the figures before and after."""
    metric, by = METRIC_BY_KEY[pivot.figure], pivot.columns_by
    rows: dict[Hashable, dict[Value, PivotCell]] = defaultdict(dict)
    for cell in pivot.cells:
        rows[_key(cell.spec, by)][_at(cell.spec, by)] = cell
    specs = [next(iter(row.values())).spec for row in rows.values()]
    example = pivot.example
    unit = metric.unit.format(example=example, examples=units.plural(example))
    figure = unit if unit == metric.column_title or metric.key == "throughput" else f"{metric.column_title}, {unit}"
    before = RunSpec(workload=specs[0].workload, variant={**specs[0].variant, pivot.asked: pivot.before})
    afters = dict.fromkeys(setting_text(cell.spec, pivot.asked) for cell in pivot.cells)
    columns = _ordered(_at(cell.spec, by) for cell in pivot.cells)
    ratio_unit = unit_of(cell.ratio.value for cell in pivot.cells if cell.ratio)
    heads = {
        _at(cell.spec, by): format_setting(cell.spec, by) if by in cell.spec.variant else "Change"
        for cell in pivot.cells
    }
    names = _names(specs, (pivot.asked, *pivot.rows_by, by))
    is_named, is_quoted = any(names), any(cell.quotes for cell in pivot.cells)
    labels = [*(["Variant"] if is_named else []), *map(pivot.label, pivot.rows_by)]
    orders = {name: _ordered(_at(spec, name) for spec in specs) for name in pivot.rows_by}
    ranked = []
    for row, spec, name in zip(rows.values(), specs, names, strict=True):
        settings = (setting_text(spec, by) if by in spec.variant else units.ABSENT for by in pivot.rows_by)
        cells = (part for column in columns for part in _cell_texts(row.get(column), pivot.figure, ratio_unit))
        quotes = dict.fromkeys(_quote_text(quote, spec, by) for cell in row.values() for quote in cell.quotes)
        text = (*([name] if is_named else []), *settings, *cells, *([SEPARATOR.join(quotes)] if is_quoted else []))
        ranked.append(((names.index(name), *(order.index(_at(spec, by)) for by, order in orders.items())), text))
    return TextTable(
        caption=(
            f"{pivot.label(pivot.asked)} {setting_text(before, pivot.asked)} → "
            f"{next(iter(afters)) if len(afters) == 1 else '…'}: how throughput changes where nothing else does "
            f"({CI}s hold together), and {figure} before → after."
        ),
        head=(
            *labels,
            *(part for column in columns for part in (heads[column], figure)),
            *(["Article"] if is_quoted else []),
        ),
        rows=tuple(text for _, text in sorted(ranked)),
        numeric=frozenset(range(len(labels), len(labels) + 2 * len(columns))),
    )


def _cell_texts(cell: PivotCell | None, figure: str, unit: Unit) -> tuple[str, str]:
    """Return the ratio with its interval, or a word for why there is none; and the figures of both sides."""
    if cell is None:
        return _STATES["no_run"], units.ABSENT
    why = _STATES.get(cell.state, "")
    effect = f"{describe_ratio(cell.ratio, unit)}{f' ({why})' if why else ''}" if cell.ratio else why
    sides = (cell.before, cell.after)
    values = [figure_of(side, figure) for side in sides]
    if values == [None, None]:
        return effect, units.ABSENT
    wrong = any(run.evidence_state == "mismatch" for side in sides if side for run in side.result.runs)
    return effect, f"{' → '.join(units.number(value, 4) for value in values)}{' ✘' if wrong else ''}"


def figure_of(side: ComparedVariant | None, figure: str) -> float | None:
    """Return a side's figure over its runs, in the unit of the metric's columns."""
    if side is None:
        return None
    if figure == "throughput":
        return side.result.throughput.value if side.result.throughput else None
    value = side.metrics[figure]
    return None if value is None else value / METRIC_BY_KEY[figure].unit_size


def _quote_text(quote: Quote, spec: RunSpec, columns_by: str) -> str:
    """Return published figures, `349 → 724, 2.1×`, or words, with the column's name if they belong to one."""
    effect, value = quote.effect, quote.value
    settings = {**effect.settings, **value.settings}
    figures = " → ".join(f"{number:,g}" for number in (effect.before_figure, value.figure) if number is not None)
    ratio = f"{units.range_of(value.ends, lambda end: f'{end:g}')}×" if value.ends else ""
    text = ", ".join(filter(None, (figures if value.figure else "", ratio, value.says)))
    column = RunSpec(workload=spec.workload, variant={**spec.variant, **settings})
    return f"{setting_text(column, columns_by)}: {text}" if columns_by in settings else text
