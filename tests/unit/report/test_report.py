"""The report of a comparison as one HTML file and as Markdown: the verdict's numbers, and nothing that is not text."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.analysis.intervals import Estimate
from app.cli.main import main
from app.report.comparison import compare_document
from app.report.model import ReportModel, build_report
from app.report.render import Markup, escape_markdown, html_report, markdown_report, render_table, write_report
from app.values import units
from app.values.records import StoredRun
from app.viewmodels.compare.comparison import compare, prepare_comparison
from app.viewmodels.compare.scaling import scaling_views
from app.viewmodels.format.cells import TextTable
from app.viewmodels.format.ratios import describe_ratio, unit_of
from tests.fakes.pictures import grid, with_memory_traffic
from tests.fakes.scaling import ONE, TALKING, run_of
from tests.fakes.traces import CONV, traced_run
from tests.unit.viewmodels.stored import UTC_NS, keep_all, stopped_after_one_reading
from workloads.protocol import RunSpec, Value

HOSTILE = (
    "</td></svg><script src=\"//evil.example/x.js\">alert(1)</script><img src=x onerror='y'>&amp;"
    "`|*_[a](b)\x1b\x00\x9b\u202e"
)
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Page(HTMLParser):
    """Every tag with its attributes, and whether all of them were closed in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return "".join(self.words)


def contents(runs: list[StoredRun], baseline: int = 1) -> ReportModel:
    return build_report(compare(prepare_comparison(runs), baseline), UTC_NS)


@pytest.fixture(scope="module")
def runs() -> list[StoredRun]:
    environment = {"driver": "580.1", "cpu": "A processor", "tensorflow": "2.21.0"}
    made = [replace(with_memory_traffic(run), environment=environment) for run in grid()]
    return [*made[:-1], replace(made[-1], environment={**environment, "driver": "575.9"})]


@pytest.fixture(scope="module")
def page(runs: list[StoredRun]) -> Page:
    return Page(html_report(contents(runs)))


def test_it_says_what_compare_says(runs: list[StoredRun], page: Page) -> None:
    comparison = compare(prepare_comparison(runs), 1)
    document = compare_document(comparison)
    assert all(units.bound(sentence) in page.text for sentence in comparison.verdict.sentences)
    assert all(units.bound(warning["text"]) in page.text for warning in document["warnings"])
    assert document["warnings"]
    shown = page.text.replace(",", "")
    column = unit_of(row["speedup"]["ratio"] for row in document["rows"])
    for row in document["rows"]:
        if row["speedup"]["ratio"] is None or row["decision"] == "baseline":
            continue
        low, high = row["speedup"]["interval"]
        ratio = row["speedup"]["ratio"]
        assert describe_ratio(Estimate(ratio, low, high, 3), column) in page.text
        assert f"{row['throughput']['value']:.0f}" in shown


def test_the_verdict_stands_first_and_what_it_is_not_about_among_the_doubts(runs: list[StoredRun]) -> None:
    wrong = replace(runs[1], row=replace(runs[1].row, evidence_state="mismatch", evidence_reason="It ran in NHWC."))
    text = Page(html_report(contents([runs[0], wrong]))).text
    parts = ("NCHW trains\xa010.0\xa0% faster", "Speed-up against NHWC", "Warnings", "It ran in NHWC.")
    assert [text.index(part) for part in parts] == sorted(text.index(part) for part in parts)
    assert text.count(" did not run what was requested.") == 1


def test_a_run_without_evidence_says_what_it_is_without(runs: list[StoredRun]) -> None:
    without = contents([replace(runs[0], evidence=None), runs[1]]).evidence.rows[0]
    assert without[-1] == "No evidence was stored. The run is from a version that did not collect evidence yet."


def test_figures_of_a_variant_are_those_of_the_windows_table(runs: list[StoredRun]) -> None:
    peaks = [3 << 30, 5 << 30, 4 << 30]
    alike = [run for run in runs if run.row.spec == runs[0].row.spec][: len(peaks)]
    measured = [
        replace(run, row=replace(run.row, summary=replace(run.row.summary, device_peak_bytes=peak, mean_power_mw=peak)))
        for run, peak in zip(alike, peaks, strict=True)
    ]
    table = compare(prepare_comparison(measured), 1).table
    (row,) = compare_document(compare(prepare_comparison(measured), 1))["rows"]
    assert row["memory"]["device_peak_bytes"] == max(peaks)
    assert row["power"]["mean_mw"] == sorted(peaks)[1]
    assert row["temperature_c"] is not None
    shown = {key: table.variants[0].summary.cells[n].key for n, key in enumerate(table.keys)}
    assert [shown[key] for key in ("device_memory", "mean_power", "peak_power", "temperature", "utilisation")] == [
        *(row["memory"]["device_peak_bytes"], row["power"]["mean_mw"], row["power"]["peak_mw"]),
        *(row["temperature_c"], row["utilisation_pct"]),
    ]


def test_it_has_all_its_parts(page: Page) -> None:
    titles = [word for word in page.words if word.strip()]
    for part in (
        *("Warnings", "Figures", "Charts", "Over time", "What ran", "Environment"),
        *("How to repeat it", "Runs", "out of memory", "uid-1", "580.1", "575.9 (run 54)"),
    ):
        assert any(part in word for word in titles), part
    again = next(word for word in titles if word.startswith("python -m app run cnn10"))
    assert "-s implementation=native -s layout=NHWC -s gpus=1 -s batch_size=256 -s precision=tf32" in again


def test_effects_of_single_settings_are_a_table_and_a_chart(runs: list[StoredRun], page: Page) -> None:
    found = contents(runs)
    layout = next(row for row in found.effects.rows if row[0] == "NHWC → NCHW")
    assert (layout[1], layout[3]) == ("1.10×", "8")
    assert all(cell in page.words for cell in layout if cell)
    assert page.text.count("What each setting does by itself") == 2
    written = markdown_report(found, "found")
    assert f"| {escape_markdown(layout[0])} |" in written.text
    assert "NHWC → NCHW" in written.files["found-effects.svg"]
    assert (
        "What each setting does by itself"
        not in markdown_report(contents(runs[:2]), "few").text.partition("## Charts")[0]
    )


def test_it_needs_nothing_else(runs: list[StoredRun], page: Page) -> None:
    assert not {tag for tag, _ in page.tags} & {"script", "link", "img", "iframe", "object", "embed", "a", "use"}
    for _, attributes in page.tags:
        assert not {"href", "src", "xlink:href", "srcset", "action"} & set(attributes)
        assert not [name for name in attributes if name.startswith("on")]
    text = html_report(contents(runs))
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.findall(r"url\(|@import", text)


def test_its_policy_allows_what_it_uses_and_no_more(runs: list[StoredRun]) -> None:
    shown = Page(html_report(contents([hostile_run(run) for run in runs])))
    policies = [attributes["content"] for tag, attributes in shown.tags if attributes.get("http-equiv")]
    assert len(policies) == 1
    directives = dict(part.split(maxsplit=1) for part in policies[0].split("; "))
    assert directives == {
        "default-src": "'none'",
        "style-src": "'unsafe-inline'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    names = [tag for tag, _ in shown.tags]
    assert "style" in names
    assert any("style" in attributes for _, attributes in shown.tags), "a hash would not allow these"
    assert not set(names) & {"script", "link", "img", "image", "iframe", "object", "video", "audio", "form", "base"}
    first_of_head = names[names.index("head") + 1 :][:2]
    assert first_of_head == ["meta", "meta"], "it holds for all that follows"


def test_it_is_light_on_paper_and_dark_only_on_a_dark_screen(runs: list[StoredRun]) -> None:
    text = html_report(contents(runs))
    style = text[text.index("<style>") : text.index("</style>")]
    assert "@media screen and (prefers-color-scheme:dark)" in style
    assert "@page" in style
    assert "break-inside:avoid" in style
    defined = set(re.findall(r"(--[a-z0-9]+):", style))
    assert set(re.findall(r"var\((--[a-z0-9]+)\)", text)) <= defined


def hostile_run(run: StoredRun) -> StoredRun:
    """With every text of a database saying something that would be markup."""
    assert run.row.outcome is not None
    spec = run.row.spec
    row = replace(
        run.row,
        spec=RunSpec(workload=spec.workload, variant={**spec.variant, "implementation": HOSTILE, HOSTILE: HOSTILE}),
        uid=HOSTILE,
        note=HOSTILE,
        tags=(HOSTILE,),
        evidence_reason=HOSTILE,
        outcome=replace(run.row.outcome, reason=HOSTILE),
        gpu_names=(HOSTILE,),
        evidence_state="mismatch",
    )
    return replace(run, row=row, environment={HOSTILE: HOSTILE, "driver": f"{HOSTILE}{run.row.run}"})


def test_nothing_from_the_database_is_markup(runs: list[StoredRun]) -> None:
    found = contents([hostile_run(run) for run in runs])
    shown = Page(html_report(found))
    assert not {tag for tag, _ in shown.tags} & {"script", "img", "a"}
    assert not [name for _, attributes in shown.tags for name in attributes if name.startswith("on")]
    assert "alert(1)" in shown.text, "it is told, as text"
    assert not set("\x1b\x00\x9b\u202e") & set(shown.text)
    written = markdown_report(found, "r")
    assert not re.findall(r"(?<!\\)<(?![r-])", re.sub(r"(?m)^    .*$", "", written.text)), (
        "outside of code no tag begins"
    )
    assert not set("\x1b\x00\x9b\u202e") & set("".join((written.text, *written.files.values())))
    for text in written.files.values():
        tags = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(text).iter()}
        assert tags <= {"svg", "g", "title", "text", "rect", "line", "circle", "polygon", "polyline"}


def test_markdown_has_its_pictures_beside_it(runs: list[StoredRun]) -> None:
    written = markdown_report(contents(runs), "report")
    linked = re.findall(r"!\[[^\n]*\]\(<([^>]+)>\)", written.text)
    assert sorted(linked) == sorted(written.files)
    assert {"report-speed-up.svg", "report-batch.svg", "report-gpus.svg", "report-over-time.svg"} <= set(linked)
    heads = [
        line for line in written.text.splitlines() if line.startswith("| Variant | ") and " | Requested | " not in line
    ]
    assert heads[0].count("|") == 8, "six columns beside a name fit on paper"
    assert len(heads) > 1


def test_literal_text_stays_in_one_cell() -> None:
    assert escape_markdown("a|b\nc <d> `e` *f* $g$") == r"a\|b c \<d\> \`e\` \*f\* \$g\$"


def test_runs_with_nothing_measured_have_a_report_too() -> None:
    bare = [run for run in grid() if run.row.outcome is not None and run.row.outcome.name == "out_of_memory"][:2]
    shown = Page(html_report(contents(bare, bare[0].row.run)))
    assert "out of memory" in shown.text
    assert "Charts" not in shown.words


@pytest.mark.parametrize(("batches", "tables"), [(2, 1), (3, 2)])
def test_few_variants_stand_side_by_side_in_one_table(runs: list[StoredRun], batches: int, tables: int) -> None:
    """A column each, and of six a row each: four tables of two rows were nothing to read."""
    sizes = sorted({int(run.row.spec.variant["batch_size"]) for run in runs})[:batches]
    chosen = [run for run in runs if run.row.spec.variant["batch_size"] in sizes and run.row.spec.variant["gpus"] == 1]
    model = contents(chosen, chosen[0].row.run)
    assert (len(model.evidence.rows), len(model.figures) > 1) == (2 * batches, tables > 1)
    if tables > 1:
        return
    (figures,) = model.figures
    assert (figures.head[0], set(figures.head[1:])) == ("", {row[0] for row in model.evidence.rows})
    speedup = next(row for row in figures.rows if row[0] == "Speed-up")
    assert speedup[1] == "baseline"
    assert re.fullmatch(r"\+[\d.]+\xa0% \(\+[\d.]+ to \+[\d.]+\xa0%\)", speedup[2])
    text = html_report(model)
    assert "No chart" not in text
    assert {part.partition('"')[0] for part in text.split('font-family="')[1:]} == {"system-ui,sans-serif"}


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_single_reading_of_a_run_that_was_stopped_is_a_dot(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"found.{ending}"
    write_report(file, compare(prepare_comparison([stopped_after_one_reading(1)]), 1), UTC_NS)
    (plots,) = (text for path in tmp_path.rglob("*") if path.is_file() and "CPU load" in (text := path.read_text()))
    assert "<circle" in plots
    assert "<polyline" not in plots


@pytest.fixture
def database(database_path: Path) -> Path:
    keep_all(database_path, (*ONE, *TALKING))
    return database_path


@pytest.mark.parametrize("ending", ["html", "md"])
def test_the_command_line_writes_it(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    file = tmp_path / f"found.{ending}"
    words = ["compare", "1", "2", "3", "4", "--db", str(database)]
    assert main([*words, "--json", "--report", str(file)]) == 0
    document = json.loads(capsys.readouterr().out)
    text = file.read_text(encoding="utf-8")
    verdict = (units.bound if ending == "html" else escape_markdown)(document["verdict"]["text"])
    first = re.search(r"<h1>(.*)</h1>" if ending == "html" else r"\A# (.*)", text)
    assert first is not None
    assert verdict.startswith(first[1]), "the first line is the answer"
    assert verdict.removeprefix(first[1]).strip() in text
    assert "Most likely communication" in text, "where scaling is lost, of runs that were traced"
    charts = {"found-speed-up.svg", "found-scaling-1.svg"}
    assert charts <= {path.name for path in tmp_path.iterdir()} if ending == "md" else not list(tmp_path.glob("*.svg"))


def test_of_many_pairs_the_worst_of_each_variant_is_drawn_and_all_have_a_row() -> None:
    batches = (128, 256, 512, 1024)
    runs = [
        run_of(10 * gpus + n, gpus=gpus, batch=batch, compute_ms=(batch / 10 / gpus,) * gpus, communication_ms=gpus - 1)
        for gpus in (1, 2)
        for n, batch in enumerate(batches)
    ]
    contents = build_report(compare(prepare_comparison(runs), 10), UTC_NS)
    (drawn,) = contents.scaling
    assert drawn.title == "1 to 2 GPUs, the same global batch (strong scaling)"
    assert drawn.sides == ("1 GPU, batch 128", "2 GPUs, batch 128"), "the least work between two exchanges"
    assert len(contents.pairs.rows) == 7, "four batches at one global batch, three at one a GPU"
    assert html_report(contents).count("All pairs that differ only in their GPUs") == 1
    few = build_report(compare(prepare_comparison([*ONE, *TALKING]), ONE[0].row.run), UTC_NS)
    assert (len(few.scaling), few.pairs.rows) == (1, ())


def _with(run: StoredRun, **settings: Value) -> StoredRun:
    spec = run.row.spec
    variant = {**spec.variant, **settings}
    return replace(run, row=replace(run.row, spec=RunSpec(workload=spec.workload, variant=variant)))


def test_of_many_pairs_no_more_than_a_few_are_drawn() -> None:
    pairs = [
        (n, run_of(10 * n + gpus, gpus=gpus, batch=64, compute_ms=(9.0 / gpus,) * gpus, communication_ms=n * gpus))
        for n in range(1, 7)
        for gpus in (1, 2)
    ]
    runs = [_with(run, weight_decay=n) for n, run in pairs]
    report = build_report(compare(prepare_comparison(runs), 11), UTC_NS)
    assert len(report.pairs.rows) == 6
    shares = [view.scaling.efficiency.value for view in report.scaling]
    assert len(shares) == 4
    assert shares == sorted(shares, reverse=True), "in the order of the table"
    assert min(shares) == min(view.scaling.efficiency.value for view in scaling_views(runs))
    text = html_report(report)
    section = text[text.index("<h2>Where scaling is lost</h2>") :]
    assert section.index("All pairs that differ") < section.index("<h3>"), "the table before the pictures"


def test_long_tables_are_folded_up_and_short_ones_are_not(runs: list[StoredRun]) -> None:
    many = html_report(contents(runs))
    assert many.count("<details>") == many.count("</details>")
    variants = len(contents(runs).reruns)
    for title in (
        *(f"The commands of {variants} variants", f"The table of {variants} variants"),
        f"The table of {len(runs)} runs",
    ):
        assert f"<details><summary>{title}</summary>" in many
    assert "<details>" not in html_report(contents(runs[:3]))


def test_what_is_as_usual_of_every_run_has_a_sentence_in_place_of_a_column(runs: list[StoredRun]) -> None:
    alike = [replace(run, row=replace(run.row, evidence_state="verified")) for run in runs[:3]]
    found = contents(alike)
    assert " · all completed · all verified" in found.comparison.alike
    assert found.figures[0].rows[0][0] == "Speed-up"
    other = contents([*alike[:2], replace(alike[2], row=replace(alike[2].row, evidence_state="verified in part"))])
    assert " · all completed" in other.comparison.alike
    assert "verified" not in other.comparison.alike
    assert "Evidence" not in [row[0] for row in found.figures[0].rows]
    assert "Evidence" in [row[0] for row in other.figures[0].rows]


def test_wrong_use_is_said(database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "1", "3", "--db", str(database), "--report"]
    assert main([*words, "x.pdf"]) == 2
    assert main([*words, str(tmp_path / "nowhere" / "x.html")]) == 1
    assert "cannot be written (No such file or directory); name another place." in capsys.readouterr().err


def test_the_report_says_why_with_a_waterfall_and_the_kernels() -> None:
    """Kernels may have any name."""
    hostile = "<img src=x>|pooling"
    nhwc = traced_run(1, 20.0, {hostile: 4.0, CONV: 14.0}, layout="NHWC")
    nchw = traced_run(2, 18.0, {hostile: 1.0, CONV: 14.5}, layout="NCHW")
    report = build_report(compare(prepare_comparison([nhwc, nchw]), 1), UTC_NS)
    page = html_report(report)
    section = page[page.index("<h2>Why</h2>") :]
    assert "NCHW takes 2.00\N{NO-BREAK SPACE}ms less per step than NHWC" in section
    assert 'aria-label="From NHWC to NCHW"' in section
    assert "NHWC with the pooling of NCHW" in section
    assert "<img" not in page
    rendered = markdown_report(report, "found")
    assert "<img" not in rendered.text.replace("\\<", "")
    assert "![NCHW against NHWC](<found-why-1.svg>)" in rendered.text
    ElementTree.fromstring(rendered.files["found-why-1.svg"])


@pytest.mark.parametrize(
    ("markup", "line"),
    [
        ("latex", r"a\_b \& 5~\% \textbackslash{}x & $-$3 ± 1 \\"),
        ("markdown", "| a\\_b \\& 5\N{NO-BREAK SPACE}% \\\\x | −3 ± 1 |"),
    ],
)
def test_no_character_of_a_cell_is_markup(markup: Markup, line: str) -> None:
    row = ("a_b & 5\N{NO-BREAK SPACE}% \\x", "−3 ± 1")
    table = TextTable(head=("name", "value"), rows=(row,), numeric=frozenset({1}))
    assert line in render_table(table, markup).splitlines()
