"""The facts of a stored run as mark-up: tables with quiet names."""

import html

from app.viewmodels.run_detail import FactGroup


def facts_html(groups: tuple[FactGroup, ...], muted: str) -> str:
    """The facts as tables, names quiet, values able to wrap; every word is escaped."""
    return "".join(_table_html(g, muted) if g.rows else _group_html(g, muted) for g in groups)


def _group_html(group: FactGroup, muted: str) -> str:
    rows = (
        f'<tr><td style="color:{muted}; padding-right:16px">{html.escape(fact.name)}</td>'
        f"<td>{html.escape(fact.value).replace(chr(10), '<br>')}</td></tr>"
        for fact in group.facts
    )
    return f'{_title_html(group.title)}<table cellpadding="1">{"".join(rows)}</table>'


def _table_html(table: FactGroup, muted: str) -> str:
    head = "".join(f'<td align="right" style="color:{muted}">{_words(word)}</td>' for word in table.header)
    rows = "".join(f"<tr>{_cells_html(row, muted)}</tr>" for row in table.rows)
    return f'{_title_html(table.title)}<table cellpadding="1" cellspacing="0"><tr>{head}</tr>{rows}</table>'


def _cells_html(row: tuple[str, ...], muted: str) -> str:
    words = f'<td style="color:{muted}; padding-right:8px">{html.escape(row[0])}</td>'
    return words + "".join(f'<td align="right" style="padding-left:12px">{_words(cell)}</td>' for cell in row[1:])


def _words(cell: str) -> str:
    """What a cell says: after a table that ends in an empty cell, Qt leaves out the next heading's margin."""
    return html.escape(cell) or "&nbsp;"


def _title_html(title: str) -> str:
    return f'<p style="margin-top:12px; margin-bottom:2px"><b>{html.escape(title)}</b></p>'
