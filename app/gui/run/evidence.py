"""Evidence of what ran: the verification badge and the page with kernels, devices and weight transfer."""

import html
import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QWidget

from app.gui.theme import GRID, Theme
from app.gui.widgets.basic import BreakingLabel, HtmlPage, button, make_column, make_row, report_style, text_label
from app.values import units
from app.viewmodels.history.evidence import Badge, EvidenceView
from app.viewmodels.history.kernel_time import DEVICE_COLUMNS

_BAR = 32
"""The blanks of the longest bar."""
_STYLE = "th, td { padding: 1px 16px 2px 0px; border-bottom: 0px; white-space: normal; }"


class BadgeLine(QWidget):
    """One line on what was verified of the run, with a button that shows the evidence."""

    toggled = Signal(bool)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._badge: Badge | None = None
        self._title = text_label("", "heading")
        self._detail = text_label("", "", wrap=True, selectable=True)
        self.button = button("Show e&vidence", "Requested against actual, and where the time went", flat=True)
        self.button.setCheckable(True)
        self.button.toggled.connect(self._toggle)
        theme.changed.connect(self._restyle)
        # Aligned with the text of the button.
        for label in (self._title, self._detail):
            label.setContentsMargins(0, GRID // 2, 0, GRID // 2)
        top = Qt.AlignmentFlag.AlignTop
        parts = (self._title, 0, top), (self._detail, 1, top), (self.button, 0, top)
        make_row(*parts, parent=self, margins=0, spacing=GRID)

    def show_view(self, view: EvidenceView) -> None:
        """Show this badge, with the button only if there is evidence."""
        self._badge = view.badge
        self._title.setText(f"{view.badge.symbol}  {view.badge.title}".strip())
        self._detail.setText(view.badge.detail)
        has_evidence = bool(view.aspects or view.portability or view.equality)
        self.button.setVisible(has_evidence)
        if not has_evidence:
            self.button.setChecked(False)
        self._restyle()

    def _toggle(self, checked: bool) -> None:
        self.button.setText("Hide e&vidence" if checked else "Show e&vidence")
        self.toggled.emit(checked)

    def _restyle(self) -> None:
        if self._badge is not None:
            self._title.setStyleSheet(f"color: {self._theme.tone_colour(self._badge.tone)};")


class EvidencePanel(QWidget):
    """Shows an `EvidenceView`: requested and actual, time by class, top kernels, weight transfer.

    `timeline_requested` requests the timeline of a stored run's step as a file.
    """

    timeline_requested = Signal()

    def __init__(self, theme: Theme, *, is_stored: bool = False) -> None:
        super().__init__()
        self._theme = theme
        self._is_stored = is_stored
        self._view: EvidenceView | None = None
        self.page = HtmlPage(0)
        self.page.setAccessibleName("Evidence of what ran")
        opener = button(
            "Open in &Perfetto …",
            "When each kernel of a step ran, on which stream: a file for ui.perfetto.dev",
            small=True,
        )
        opener.clicked.connect(self.timeline_requested)
        self._note = BreakingLabel("muted")
        self._step = QWidget()
        make_row(opener, (self._note, 1), parent=self._step, margins=0, spacing=GRID)
        make_column((self.page, 1), self._step, parent=self, margins=(0, GRID, 2 * GRID, GRID), spacing=GRID)
        theme.changed.connect(self._render)

    def show_view(self, view: EvidenceView) -> None:
        """Show this evidence from its top, unless it is already displayed."""
        if view != self._view:
            self._view = view
            self._note.setText("")
            self._step.setVisible(view.has_step and self._is_stored)
            self.page.verticalScrollBar().setValue(0)
            self._render()

    def show_note(self, text: str) -> None:
        self._note.setText(text)

    def _render(self) -> None:
        if self._view is not None:
            style = report_style(self._theme.colours) + _STYLE
            self.page.show_html("".join(_parts(self._view, self._theme)), style)


def _parts(view: EvidenceView, theme: Theme) -> Iterator[str]:
    """Yield the parts of the evidence as HTML, the most important first."""
    colours, escape = theme.colours, html.escape
    if view.aspects:
        yield "<h2>Requested and actual</h2>"
        yield _table(
            ("", "Requested", "Actual"),
            (
                (
                    escape(aspect.name),
                    escape(aspect.requested),
                    _coloured(f"{aspect.symbol} {aspect.actual}", colours.warning if aspect.differs else colours.text),
                )
                for aspect in view.aspects
            ),
        )
    if view.warning:
        yield f"<p>{_coloured(f'▲ {view.warning}', colours.warning)}</p>"
    if view.kernels:
        yield "<h2>Where the time went</h2>"
        if view.idle_share:
            yield f"<p><b>{view.idle_share}</b> of the measured step no kernel runs.</p>"
        yield _table(
            ("Class", "", f"% of {view.noun} time"),
            (
                (escape(part.name), _bar(part.share, part.colour, theme), units.percent(100 * part.share, 1))
                for part in view.classes
            ),
            numbers=(2,),
        )
        yield f'<p class="quiet">{escape(view.traced)}</p><h2>Top {view.noun}s</h2>'
        # A column without any values has no head.
        occupancy = "Occupancy" if any(kernel.occupancy for kernel in view.kernels) else ""
        tensor_cores = "Tensor cores" if any(kernel.tensor_cores for kernel in view.kernels) else ""
        largest = max(kernel.share for kernel in view.kernels) or 1.0
        yield _table(
            ("Class", view.noun.capitalize(), "", f"% of {view.noun} time", "Count", occupancy, tensor_cores),
            (
                (
                    escape(kernel.kind),
                    f'<span title="{escape(kernel.help)}">{escape(kernel.name)}</span>',
                    _bar(kernel.share / largest, kernel.colour, theme),
                    units.percent(100 * kernel.share, 1),
                    f"{kernel.count:,}",
                    kernel.occupancy,
                    kernel.tensor_cores,
                )
                for kernel in view.kernels
            ),
            numbers=(3, 4, 5),
        )
        yield f'<p class="quiet">{escape(view.other_kernels)}</p>'
    if view.devices:
        yield "<h2>Step time per device</h2>"
        yield _table(DEVICE_COLUMNS, (map(escape, row) for row in view.devices), numbers=range(1, len(DEVICE_COLUMNS)))
        yield f'<p class="quiet">{escape(view.imbalance)}</p>'
    if view.portability:
        yield "<h2>Weight transfer</h2>"
        yield _table(("", "Largest difference", ""), (map(escape, trial) for trial in view.portability), numbers=(1,))
    if view.equality:
        yield f"<h2>Against other variants</h2><p>{'<br>'.join(map(escape, view.equality))}</p>"
    notes = filter(None, (view.sources, *view.notes))
    yield f'<p class="quiet">{"<br>".join(map(escape, notes))}</p>'


def _table(header: Sequence[str], rows: Iterable[Iterable[str]], numbers: Collection[int] = ()) -> str:
    """Return a table of cells that are HTML already; columns of `numbers` are aligned to the right."""

    def line(tag: str, cells: Iterable[str]) -> str:
        kinds = (' class="number"' if n in numbers else "" for n in itertools.count())
        return f"<tr>{''.join(f'<{tag}{kind}>{cell}</{tag}>' for kind, cell in zip(kinds, cells, strict=False))}</tr>"

    return f"<table>{line('th', header)}{''.join(line('td', row) for row in rows)}</table>"


def _bar(fraction: float, colour: int, theme: Theme) -> str:
    """Return a bar of at least one blank, because everything listed took some time."""
    blanks = "&nbsp;" * max(1, round(_BAR * fraction))
    return f'<span style="background-color:{theme.colours.kernel_class(colour)}">{blanks}</span>'


def _coloured(text: str, colour: str) -> str:
    return f'<span style="color:{colour}">{html.escape(text)}</span>'
