"""README shows what the program prints now, and its first screen is short; links of all documents lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli.main import main
from tests.fakes.command_line import parse_arguments
from tests.site_home import home

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (ROOT / "README.md").read_text("utf-8")
POINT = "A/B-test your training script on your GPU, unmodified: confidence intervals, energy, and proof of what ran."
EXAMPLE_LIMIT, WORD_LIMIT = 250, 700
"""Words of the README until its first example ends, and of all of it."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
HEAD, EXAMPLE, REST = TEXT.split("```\n", 2)
COMMANDS = re.findall(r"python3 start\.py ([a-z][^`\n]*)", TEXT.replace("python3 start.py test ", ""))


def test_the_example_and_its_reason_are_what_the_commands_print_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*words: str) -> str:
        assert main(words) == 0
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    add, compare = (shlex.split(command)[2:] for command in re.findall(r"^\$ (.+)$", EXAMPLE, re.MULTILINE))
    assert re.sub(r"^\$ .+\n", "", EXAMPLE, flags=re.MULTILINE) == printed(*add) + printed(*compare)
    total, part = re.findall(r"[\d.]+ ms|\d+ %", REST.partition("* **Why.**")[2])[:2]
    reason = rf"^NCHW takes {total} less per step than NHWC.* {part} is in pooling"
    assert re.search(reason, printed(*compare, "--why"), re.MULTILINE)


def test_the_point_comes_first_and_the_first_example_ends_soon() -> None:
    assert TEXT.splitlines()[2] == f"**{POINT}**"
    assert len(f"{HEAD} {EXAMPLE}".split()) <= EXAMPLE_LIMIT
    assert len(TEXT.split()) <= WORD_LIMIT


@pytest.mark.parametrize("line", COMMANDS)
def test_each_command_is_read(line: str) -> None:
    assert parse_arguments(*shlex.split(line.partition("  #")[0]))


def test_the_articles_figures_are_those_of_the_reference_runs() -> None:
    articles = (DOCS / "internals" / "articles.md").read_text("utf-8")
    (table,) = re.findall(r"^\| \| question .*\n\| ---.*\n((?:\|.*\n)+)", articles, re.MULTILINE)
    figures = [figure for row in table.splitlines() for figure in re.findall(r"\d+\.\d+×?|\d+×", row.split("|")[4])]
    assert len(figures) > 20
    known = (DOCS / "reference.md").read_text("utf-8")
    assert [figure for figure in figures if not re.search(rf"(?<![\d.]){re.escape(figure)}(?![\d.]\d)", known)] == []


def test_the_simulated_errors_are_those_of_the_statistics() -> None:
    rows = re.findall(
        r"^\|[\w ]*\| [35] \|(.+)\|$", (DOCS / "internals" / "statistics.md").read_text("utf-8"), re.MULTILINE
    )
    errors = [[float(re.findall(r"[\d.]+", cell)[0]) for cell in row.split("|")[3:5]] for row in rows if "**" in row]
    ours, steps = [f"{min(each)} to {max(each)} %" for each in zip(*errors, strict=True)]
    assert len(errors) == 8
    assert f"faster in {ours} of cases" in TEXT
    assert f"all steps in {steps} (" in TEXT


def test_every_page_of_the_documents_is_in_the_list_of_pages() -> None:
    named = set(re.findall(r"\]\(docs/(\w[\w-]*\.md)\)", TEXT.partition("## Documentation")[2]))
    assert named == {path.name for path in DOCS.glob("*.md")}


def test_users_have_twenty_pages_that_begin_with_a_command() -> None:
    texts = {path.name: path.read_text("utf-8") for path in DOCS.glob("*.md")}
    assert len(texts) <= 20
    assert sum(len(text.split()) for text in texts.values()) <= 35_000
    starts = {name: " ".join(text.split()[:130]) for name, text in texts.items()}
    assert [name for name, start in starts.items() if "```" not in start] == []
    assert [name for name, text in texts.items() if re.search(r"\btests?[/.]\w|\b(?:app|workloads)/\w", text)] == []


def anchors(page: Path) -> set[str]:
    """Return what a link to a page can have behind its `#`."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    titles = re.findall(r"^#+ (.+)$", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_to_a_part_of_a_page_lead_to_a_title() -> None:
    links = [
        (page, link)
        for page in PAGES
        for link in re.findall(r"\]\(([^):]*\.md#[^)]+|#[^)]+)\)", page.read_text("utf-8"))
    ]
    assert len(links) > 50
    broken = []
    for page, link in links:
        name, _, anchor = link.partition("#")
        if anchor not in anchors(page.parent / name if name else page):
            broken.append(f"{page.name}: {link}")
    assert broken == []


LINK = re.compile(r"""(?:\]\(|\bsrc(?:set)?=")([^)#:"]+)[^):"]*[)"]""")
"""Of Markdown, and of a picture in HTML, which has one for each colour scheme."""


def test_links_lead_to_files_and_every_picture_is_in_a_document() -> None:
    links = {(page, link) for page in PAGES for link in LINK.findall(page.read_text("utf-8"))}
    assert sorted(f"{page.name}: {link}" for page, link in links if not (page.parent / link).exists()) == []
    shown = {(page.parent / link).resolve() for page, link in links}
    assert {path.name for path in (DOCS / "images").iterdir() if path.resolve() not in shown} == set()


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    assert len(list((tmp_path / "site" / "images").iterdir())) == len(list((DOCS / "images").iterdir()))
    assert POINT in (tmp_path / "site" / "index.html").read_text("utf-8")


def test_the_home_of_the_site_is_readme_and_links_to_its_pages() -> None:
    links = [link for link in LINK.findall(home()) if not (DOCS / link).is_file()]
    assert links == []
    assert len(LINK.findall(home())) > 20
    assert "CONTRIBUTING" in home(), "what the site lacks keeps its name"
