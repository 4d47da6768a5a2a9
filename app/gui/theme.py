"""Colours, fonts and distances of the window, light or dark as the user or the system chose, through Qt itself."""

import re
from dataclasses import asdict, dataclass
from string import Template

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QGuiApplication, QPalette, QPixmapCache
from PySide6.QtWidgets import QApplication, QWidget

from app.gui.window_state import WindowState
from app.paths import RESOURCES
from app.viewmodels.charts import palette
from app.viewmodels.format.cells import Tone

GRID = 8
"""Every distance is a multiple of this many pixels, or half of it."""

LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
RIGHT = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter

_FONT_PX = 13
_ICON_CACHE_KIB = 1024
"""Pictures and swatches of a comparison of 25 variants take 0.2 MB, or 0.7 MB at two pixels per point."""
_AS_FAR_FROM_WHITE_AS_BLACK = 0.179
"""The relative luminance that contrasts equally with black and white."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours(palette.Palette):
    """The colours of the window in one scheme; charts and reports share some of them."""

    scheme: str
    window: str
    raised: str
    faint: str
    accent: str
    accent_hover: str
    on_accent: str
    good: str
    bad: str
    band: str
    band_measure: str


LIGHT = Colours(
    **asdict(palette.LIGHT),
    scheme="light",
    window="#f4f5f6",
    raised="#e9ebed",
    faint="#848c96",
    accent="#0b66c3",
    accent_hover="#0a58a8",
    on_accent="#ffffff",
    good="#10764c",
    bad="#961815",
    band="#0a1a1d21",
    band_measure="#140b66c3",
)

DARK = Colours(
    **asdict(palette.DARK),
    scheme="dark",
    window="#16181b",
    raised="#2a2e34",
    faint="#727b86",
    accent="#4ea1f3",
    accent_hover="#6fb4f7",
    on_accent="#0c1a28",
    good="#2ecba2",
    bad="#fd827b",
    band="#0affffff",
    band_measure="#1c4ea1f3",
)


SYSTEM, LIGHT_ALWAYS, DARK_ALWAYS = "system", "light", "dark"
"""The user's choices; the first follows the system."""

_SCHEMES = {LIGHT_ALWAYS: Qt.ColorScheme.Light, DARK_ALWAYS: Qt.ColorScheme.Dark}


class Theme(QObject):
    """The current colours; `changed` is emitted after the user or the system switches between light and dark."""

    changed = Signal()

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.colours = LIGHT
        self.choice = SYSTEM
        self._state = WindowState("theme", self)
        self._sheet = style_sheet()

    def start(self) -> None:
        """Set the application's style and font, and follow the system's colour scheme."""
        QApplication.setStyle("Fusion")
        font = QApplication.font()
        font.setPixelSize(_FONT_PX)
        QApplication.setFont(font)
        # Qt keeps a copy of every icon it drew; those of earlier comparisons, including thumbnails, would fill its 10
        # MB.
        QPixmapCache.setCacheLimit(_ICON_CACHE_KIB)
        hints = QGuiApplication.styleHints()
        hints.colorSchemeChanged.connect(self.apply)
        self._follow(self._state.read("choice", SYSTEM))

    def choose(self, choice: str) -> None:
        """Follow the system, or always be light or dark; remembered at the next start."""
        self._state.keep("choice", choice)
        self._state.write()
        self._follow(choice)

    def _follow(self, choice: str) -> None:
        """Also tell Qt, which draws window frames and the desktop's own dialogs, and apply its scheme."""
        hints = QGuiApplication.styleHints()
        self.choice = choice if choice in _SCHEMES else SYSTEM
        hints.setColorScheme(_SCHEMES.get(choice, Qt.ColorScheme.Unknown))
        self.apply(_SCHEMES.get(choice, hints.colorScheme()))

    def apply(self, scheme: Qt.ColorScheme) -> None:
        """Switch to a scheme; an unknown one counts as light."""
        self.colours = DARK if scheme == Qt.ColorScheme.Dark else LIGHT
        QApplication.setPalette(_palette(self.colours))
        for window in QApplication.topLevelWidgets():
            window.setProperty("scheme", self.colours.scheme)
        # The style sheet names the palette's roles, which Qt looks up when it polishes a widget: another style sheet
        # would cause a new layout of everything.
        for widget in QApplication.allWidgets():
            widget.style().polish(widget)
        self.changed.emit()

    def apply_style_sheet(self, widget: QWidget) -> None:
        """Apply the style sheet to a widget and its children, if it is not applied yet; it follows the theme.

        Not on the application: there Qt restyles each widget once for itself and once for each of its ancestors.
        """
        if widget.styleSheet() != self._sheet:
            widget.window().setProperty("scheme", self.colours.scheme)
            widget.setStyleSheet(self._sheet)

    def tone_colour(self, tone: Tone) -> str:
        colours = self.colours
        return {
            "good": colours.good,
            "warning": colours.warning,
            "bad": colours.bad,
            "quiet": colours.muted,
            "busy": colours.accent,
        }[tone]

    def curve_colour(self, index: int) -> QColor:
        """Return the colour of a curve; the same index has the same hue on every screen."""
        return QColor(self.colours.curve(index))


def ink_on(ground: QColor) -> QColor:
    """Return black or white, whichever contrasts more with a background: at least 4.5:1 (WCAG 2.2, with gamma 2.2)."""
    red, green, blue = (part**2.2 for part in (ground.redF(), ground.greenF(), ground.blueF()))
    return QColor("white" if 0.2126 * red + 0.7152 * green + 0.0722 * blue < _AS_FAR_FROM_WHITE_AS_BLACK else "black")


def style_sheet() -> str:
    template = Template((RESOURCES / "style.qss").read_text(encoding="utf-8"))
    roles = {name: f"palette({re.sub(r'(?<!^)(?=[A-Z])', '-', role.name).lower()})" for name, role in _ROLES.items()}
    return template.substitute(roles, icons=(RESOURCES / "icons").as_posix())


def tabular_font(size_px: int | None = None, *, bold: bool = False) -> QFont:
    """Return the application's font with digits of equal width, so that numbers do not jump."""
    font = QFont(QApplication.font())
    font.setFeature(QFont.Tag("tnum"), 1)
    if size_px is not None:
        font.setPixelSize(size_px)
    font.setBold(bold)
    return font


_ROLES = {
    "text": QPalette.ColorRole.WindowText,
    "muted": QPalette.ColorRole.PlaceholderText,
    "faint": QPalette.ColorRole.NoRole,
    "line": QPalette.ColorRole.Mid,
    "window": QPalette.ColorRole.Window,
    "surface": QPalette.ColorRole.Base,
    "raised": QPalette.ColorRole.Button,
    "accent": QPalette.ColorRole.Accent,
    "accent_hover": QPalette.ColorRole.LinkVisited,
    "on_accent": QPalette.ColorRole.HighlightedText,
    "good": QPalette.ColorRole.Midlight,
    "warning": QPalette.ColorRole.Shadow,
    "bad": QPalette.ColorRole.BrightText,
}
"""The style sheet's colours by name, with their roles in the palette."""

_ALSO = {
    QPalette.ColorRole.AlternateBase: "window",
    QPalette.ColorRole.Text: "text",
    QPalette.ColorRole.ButtonText: "text",
    QPalette.ColorRole.ToolTipBase: "raised",
    QPalette.ColorRole.ToolTipText: "text",
    QPalette.ColorRole.Highlight: "accent",
    QPalette.ColorRole.Link: "accent",
}
"""The colours of the palette's other roles."""


def _palette(colours: Colours) -> QPalette:
    palette = QPalette(QColor(colours.raised), QColor(colours.window))
    for role, name in [*_ALSO.items(), *((role, name) for name, role in _ROLES.items())]:
        palette.setColor(role, QColor(getattr(colours, name)))
    for role in (QPalette.ColorRole.Text, QPalette.ColorRole.WindowText, QPalette.ColorRole.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(colours.faint))
    return palette
