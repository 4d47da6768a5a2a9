"""How well runs scale to more GPUs, as pages with pictures: HTML and Markdown."""

from collections.abc import Sequence

from app.records import StoredRun
from app.report import marked
from app.report.marked import Marked, literal
from app.report.markup import escaped
from app.report.page import page, table
from app.report.pictures.ink import LIGHT, PAGE
from app.report.scaling_picture import picture
from app.viewmodels.scaling import ScalingView, scaling_views

_TITLE = "How well it scales"


def scaling_html_page(runs: Sequence[StoredRun]) -> str:
    """Every pair among the runs."""
    return page(_TITLE, f"<h1>{_TITLE}</h1>" + "".join(map(scaling_html, scaling_views(runs))))


def scaling_markdown_page(runs: Sequence[StoredRun], stem: str) -> Marked:
    """The same; `stem` begins the names of its pictures' files."""
    views = scaling_views(runs)
    files = scaling_files(views, stem)
    parts = [scaling_markdown(view, file) for view, file in zip(views, files, strict=True)]
    return Marked("\n\n".join([f"# {_TITLE}", *parts]) + "\n", files)


def scaling_files(views: Sequence[ScalingView], stem: str) -> dict[str, str]:
    """The picture of each pair by the name of its file."""
    drawings = (picture(view, LIGHT) for view in views)
    return {f"{stem}-scaling-{n}.svg": drawing.svg(LIGHT.paper) for n, drawing in enumerate(drawings, 1)}


def scaling_html(view: ScalingView) -> str:
    """One pair: its words, its picture and its table."""
    words = f"<h3>{escaped(view.title)}</h3><p>{escaped(headline(view))} {escaped(view.cause)}</p>"
    figures = table(("", *view.sides), view.rows, frozenset({1, 2}))
    return f"{words}<figure>{picture(view, PAGE).svg()}</figure>{figures}"


def scaling_markdown(view: ScalingView, file: str) -> str:
    """One pair whose picture is in a file."""
    figures = marked.table(("", *view.sides), view.rows, frozenset({1, 2}))
    words = f"{literal(headline(view))} {literal(view.cause)}"
    return "\n\n".join([f"### {literal(view.title)}", words, marked.picture(view.title, file), figures])


def headline(view: ScalingView) -> str:
    """The figure that matters, in a sentence."""
    return f"Efficiency {view.efficiency} ({view.interval}), {view.speedup} as fast."
