"""How a comparison's table is arranged: order, groups, what is unfolded; and its rows as text."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeVar

from app.values import units
from app.values.plain import cell_text
from app.viewmodels.compare.table import BASE, SPEEDUP, VARIANT, CompareTable, TableRow, VariantRows
from app.viewmodels.format import cells
from app.viewmodels.format.cells import Cell, Column, TextTable
from app.viewmodels.format.naming import format_setting
from workloads.catalog import own_variant

Each = TypeVar("Each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """The order of the rows. Variants are identified by their first run.

    Attributes:
        unfolded: The variants whose runs are shown below them.
        column: The column to sort by; None sorts by speed, with variants that do other work last. The baseline is
            first.
        descending: The direction of that order.
        group_by: The parameter by whose values variants are grouped; "" for none.
        folded: The titles of groups that show only their head.
    """

    unfolded: frozenset[int] = field(default_factory=frozenset)
    column: int | None = None
    descending: bool = True
    group_by: str = ""
    folded: frozenset[str] = field(default_factory=frozenset)

    def sorted_by(self, column: int, *, numeric: bool) -> "Arrangement":
        """Return the arrangement after a click on a column's header: natural order, reversed, unsorted."""
        if column != self.column:
            return replace(self, column=column, descending=numeric)
        if self.descending is numeric:
            return replace(self, descending=not numeric)
        return replace(self, column=None)

    def rows(self, table: CompareTable) -> list[TableRow]:
        if not self.group_by or all(self.group_by != name for name, _ in table.parameters):
            return self._of_variants(table.variants, table)
        groups: dict[str, list[VariantRows]] = {}
        for variant in table.variants:
            is_set = self.group_by == "workload" or self.group_by in own_variant(variant.spec)
            title = format_setting(variant.spec, self.group_by) if is_set else "not set"
            groups.setdefault(title, []).append(variant)
        return self._of_groups(groups, table)

    def _of_groups(self, groups: Mapping[str, Sequence[VariantRows]], table: CompareTable) -> list[TableRow]:
        rows: list[TableRow] = []
        for title, group in groups.items():
            name = f"{title}  ({len(group)} {units.plural('variant', len(group))})"
            cells = tuple(Cell(text=name, key=title) if key == VARIANT else Cell(text="") for key in table.keys)
            runs = tuple(run for variant in group for run in variant.summary.runs)
            rows.append(TableRow(kind="group", cells=cells, runs=runs, style=None, is_baseline=False, title=title))
            if title not in self.folded:
                rows += self._of_variants(group, table)
        return rows

    def _of_variants(self, variants: Sequence[VariantRows], table: CompareTable) -> list[TableRow]:
        column = table.keys.index(SPEEDUP) if self.column is None and table.keys else self.column
        rows: list[TableRow] = []
        for variant in self._ordered(variants, column, lambda variant: variant.summary):
            rows.append(variant.summary if len(variant.runs) > 1 else variant.runs[0])
            if len(variant.runs) > 1 and variant.summary.runs[0] in self.unfolded:
                members = self._ordered(variant.runs, column, lambda row: row)
                n = table.keys.index(VARIANT)  # its name is not repeated
                rows += [
                    replace(row, kind="member", cells=(*row.cells[:n], Cell(text=""), *row.cells[n + 1 :]))
                    for row in members
                ]
        return rows

    def _ordered(self, items: Sequence[Each], column: int | None, get_row: Callable[[Each], TableRow]) -> list[Each]:
        """Return the items with the baseline first, and absent values last in either direction."""
        if column is None:
            return list(items)
        keyed = [(get_row(item).cells[column].key, item) for item in items]
        present = [(key, item) for key, item in keyed if key is not None]
        present.sort(key=itemgetter(0), reverse=self.descending or self.column is None)
        ordered = [item for _, item in present] + [item for key, item in keyed if key is None]
        by_speed = self.column is None
        return sorted(ordered, key=lambda item: (not get_row(item).is_baseline, by_speed and get_row(item).other_work))


def text_table(table: CompareTable, rows: Sequence[TableRow], columns: Sequence[int]) -> TextTable:
    """Return these columns of rows as text; what follows a number, such as its interval, gets a separate column."""
    titles = [(title, column) for n in columns if (column := table.columns[n]) for title in column_titles(column)]
    return TextTable(
        head=tuple(title for title, _ in titles),
        rows=tuple(tuple(text for n in columns for text in _texts(table.columns[n], row.cells[n])) for row in rows),
        numeric=frozenset(number for number, (_, column) in enumerate(titles) if column.numeric),
    )


def column_titles(column: Column) -> list[str]:
    return [column.title, *([column.second] if column.second else [])]


def _texts(column: Column, cell: Cell) -> list[str]:
    return [cell.text, cell.unit or units.ABSENT] if column.second else [cells.plain_text(cell)]


def table_text(table: CompareTable, rows: Sequence[TableRow], hidden: Collection[str], *, markdown: bool) -> str:
    """Return the visible columns as tab-separated text for a spreadsheet, or as a Markdown table."""
    columns = [n for n, key in enumerate(table.keys) if key not in hidden and key != BASE]
    texts = text_table(table, rows, columns)
    lines = [[" ".join(text.splitlines()).replace("\t", " ") for text in line] for line in (texts.head, *texts.rows)]
    if not markdown:
        lines = [[cell if n in texts.numeric else cell_text(cell) for n, cell in enumerate(line)] for line in lines]
        return "\n".join("\t".join(line) for line in lines)
    rule = ["---:" if n in texts.numeric else "---" for n in range(len(texts.head))]
    escaped = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in (escaped[0], rule, *escaped[1:]))
