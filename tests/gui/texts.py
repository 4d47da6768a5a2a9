"""What parts of the window show, as text."""

import re
from functools import singledispatch

from PySide6.QtWidgets import QLabel, QWidget

from app.gui.compare.screen import CompareView
from app.gui.experiment.queue import BannerView, QueueView
from app.gui.history.page import RunPageView
from app.gui.history.screen import RunDiffView
from app.gui.monitor.details import DetailsView, NoGpuView
from app.gui.monitor.screen import MonitorTable
from app.gui.run.evidence import BadgeLine, EvidencePanel
from app.gui.run.first_start import ChoiceCard
from app.gui.run.live import LiveView
from app.gui.widgets.basic import EmptyState
from app.gui.widgets.result import ResultView


@singledispatch
def displayed_text(view: QWidget) -> str:
    """What a part of the window shows, as text; plots are left out."""
    raise TypeError(f"nobody has said yet what {type(view).__name__} shows")


@displayed_text.register
def _(view: CompareView) -> str:
    notes = (label.text() for label in (*view.notes.warnings, view.notes.text))
    parts = (view.problem.text, displayed_text(view.header.result), *notes)
    return "\n".join(filter(None, parts)).replace("\N{NO-BREAK SPACE}", " ")


@displayed_text.register
def _(view: BannerView) -> str:
    return " ".join(filter(None, (view._text.text(), view._detail.text())))


@displayed_text.register
def _(view: QueueView) -> str:
    labels = (view.count, view._now, view._wait, view._time_left)
    return " ".join(label.text() for label in labels if label.text())


@displayed_text.register
def _(view: RunDiffView) -> str:
    return f"{view._title.text()}\n{view._names.text()}\n{view.page.toPlainText()}"


@displayed_text.register
def _(view: RunPageView) -> str:
    labels = (view._title, view._subtitle, view._outcome, view._reason, view._notes)
    texts = (
        displayed_text(view.badge),
        displayed_text(view.evidence),
        view._traceback.toPlainText(),
        view._details.toPlainText(),
    )
    return "\n".join([*(label.text() for label in labels), *texts])


@displayed_text.register
def _(view: NoGpuView) -> str:
    return f"{view._reason.text()}\n{view._with_gpu.text()}"


@displayed_text.register
def _(view: DetailsView) -> str:
    grid = view._process_grid
    cells = (grid.itemAt(n) for n in range(grid.count()))
    labels = [cell.widget() for cell in cells if cell is not None]
    listed = " ".join(label.text() for label in labels if isinstance(label, QLabel))
    labels_shown = (view._title, view._subtitle, view._state, view._processes_note, view._not_reported)
    absence = displayed_text(view._absence) if view._curves.currentWidget() is view._absence else ""
    figures = " ".join(filter(None, re.sub("<[^>]+>", " ", view.figures.text()).split(" ")))
    texts = (*(label.text() for label in labels_shown), listed, figures, absence)
    return "\n".join(filter(None, texts))


@displayed_text.register
def _(view: MonitorTable) -> str:
    cells = (view._rows.row_cells(row) for row in range(view._rows.rowCount()))
    spaces = ["\N{NO-BREAK SPACE}" if not column.numeric else " " for column in view._rows.columns]
    shown = (
        (
            " ".join(filter(None, (cell.text.replace("\N{NO-BREAK SPACE}", space), cell.unit)))
            for cell, space in zip(row, spaces, strict=True)
        )
        for row in cells
    )
    return "\n".join(" · ".join(filter(None, row)) for row in shown)


@displayed_text.register
def _(view: BadgeLine) -> str:
    return f"{view._title.text()} {view._detail.text()}"


@displayed_text.register
def _(view: EvidencePanel) -> str:
    return view.page.toPlainText()


@displayed_text.register
def _(view: ChoiceCard) -> str:
    labels = (view.title, view.text)
    return " ".join(label.text() for label in labels if label.text())


@displayed_text.register
def _(view: LiveView) -> str:
    labels = (
        view._placeholder,
        view._title,
        view._detail,
        view._number,
        view._unit,
        view._spread,
        view._time_left,
        view._facts,
    )
    return " ".join(label.text() for label in labels if label.text()).replace("\N{NO-BREAK SPACE}", " ")


@displayed_text.register
def _(view: EmptyState) -> str:
    return f"{view._title.text()}\n{view._text.text()}"


@displayed_text.register
def _(view: ResultView) -> str:
    return f"{view._answer.text()}\n{view._next_step.text()}\n{view._lamp.text()}\n{view.plot.accessibleName()}"
