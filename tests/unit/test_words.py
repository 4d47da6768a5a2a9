"""Identifiers use the glossary's terms: none contains a word that docs/internals/glossary.md retires."""

import ast
import functools
import re
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = ROOT / "docs" / "internals" / "glossary.md"
SOURCES = [ROOT / "start.py", *(path for folder in ("app", "workloads") for path in (ROOT / folder).rglob("*.py"))]
Trees = dict[str, ast.Module]

COMMAND = "python -m app "

AT_THE_END = {"words"}
"""Retired only as the last word of a longer name: `words` alone are words."""

DATA = {
    "asked": "key of evidence in documents and the database, and of plans and presets",
    "carried": "key of plans stored in the queue",
    "settled": "state of experiments in documents and in the database",
}
"""Names that are data, and so keep their old words."""


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trees() -> Trees:
    """Parse the program's modules, by their paths."""
    return {path.relative_to(ROOT).as_posix(): parse(path) for path in SOURCES}


def retired_terms() -> set[str]:
    """Return the words of the glossary's last table, each in singular and plural."""
    table = GLOSSARY.read_text(encoding="utf-8").split("## Words not used in identifiers")[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| ")][2:]
    words = {word for row in rows for word in re.sub(r"\(.*?\)", "", row).replace(",", " ").split()}
    return words | {f"{word}s" for word in words if not word.endswith("s")}


@functools.cache
def name_parts(name: str) -> list[str]:
    """Return the words of a name in snake_case or CamelCase, in small letters."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return every name that a module defines, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) if (
                not name.startswith("test_")
            ):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def is_retired(name: str, retired: set[str]) -> bool:
    parts = name_parts(name)
    return not (retired - AT_THE_END).isdisjoint(parts) or (len(parts) > 1 and parts[-1] in AT_THE_END)


def test_no_identifier_uses_a_retired_word(trees: Trees) -> None:
    retired = retired_terms()
    tests = ((str(path), parse(path)) for path in (ROOT / "tests").rglob("*.py"))
    found = [
        f"{path}:{line} {name}"
        for path, tree in chain(trees.items(), tests)
        for name, line in identifiers(tree)
        if name not in DATA and is_retired(name, retired)
    ]
    assert found == []


FILLERS = re.compile(r"_*(each|found|given|gone|known|made|place|said|shown|taken|told|wanted|whole)_*")
FILLERS_IN_DATA = {"app/runs/custom.py: whole": "key of files stored in the database"}


def test_a_value_is_named_by_what_it_is(trees: Trees) -> None:
    names = set()
    for path, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case (
                    ast.arg(arg=name)
                    | ast.Name(id=name, ctx=ast.Store())
                    | ast.Attribute(attr=name, ctx=ast.Store())
                    | ast.MatchAs(name=str(name))
                    | ast.ExceptHandler(name=str(name))
                ) if FILLERS.fullmatch(name):
                    names.add(f"{path}: {name}")
    assert names == set(FILLERS_IN_DATA)


def test_no_sentence_names_the_program_in_its_own_words(trees: Trees) -> None:
    """Installed it is `variantscope`, in a checkout `python -m app`: a sentence takes `PROGRAM` of app/paths.py."""
    texts = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in SOURCES}
    with_command = [path for path, text in texts.items() if COMMAND in text]
    assert [path for path in with_command if any(COMMAND in text for text, _ in sentences(trees[path]))] == []
    assert [path for path, text in texts.items() if '"python", "-m", "app"' in text] == []


def sentences(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return every string of a module with its line, but for docstrings, those below values too."""
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docstrings:
            yield node.value, node.lineno


@pytest.mark.parametrize(
    ("name", "expected"),
    [("errand", True), ("_Errand", True), ("stop_asked", True), ("figure_words", True), ("words", False)],
)
def test_the_check_itself_knows_a_retired_word(name: str, expected: bool) -> None:
    assert is_retired(name, retired_terms()) is expected


UNITS = r"%|ms|µs|s|W|mJ|J|kJ|MHz|GHz|Hz|[KMG]i?B|kB|°C|min|h|FLOP/byte|TB/s|[GT]FLOPS"
AFTER_A_NUMBER = re.compile(rf"^ (?:{UNITS})(?![\w/])")
BY_HAND = re.compile(r"\d %|±(?:$|[ \d])|\d [KMG]B\b")
STORED = {"plan.py": "`until ± 0.5 %` is a fact of stored runs"}


def breakable_numbers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Return every sentence in which a line may break between a number and its unit, or `±` and its number."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for before, after in pairwise(node.values):
                text = after.value if isinstance(after, ast.Constant) and isinstance(after.value, str) else ""
                if isinstance(before, ast.FormattedValue) and AFTER_A_NUMBER.match(text):
                    yield f"{{}}{text}", node.lineno
    yield from ((text, line) for text, line in sentences(tree) if BY_HAND.search(text))


def test_numbers_get_their_units_from_one_place(trees: Trees) -> None:
    """A sentence takes `app.values.units`: no line breaks before a unit, and sizes are in powers of 1024 everywhere."""
    found = [
        f"{path}:{line} {text}"
        for path, tree in trees.items()
        if path.startswith("app/") and Path(path).name not in {*STORED, "units.py"}
        for text, line in breakable_numbers(tree)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('f"{share} %"', True),
        ('f"{length} s long"', True),
        ('f"{count} steps"', False),
        ('"known to ± 0.5"', True),
        ('"about 3 MB"', True),
        ('f"{units.percent(share)} of it"', False),
    ],
)
def test_the_check_itself_knows_a_number_by_hand(source: str, expected: bool) -> None:
    assert any(breakable_numbers(ast.parse(f"x = {source}"))) is expected


TAKES_APART = {"split", "rsplit", "partition", "rpartition", "startswith", "endswith", "removeprefix", "removesuffix"}
TAKEN_APART = {
    ("app/errors.py", ": "): "the class of an error without a message",
    ("app/gui/shell/shell.py", " left"): "the status of a run, which says how long a phase takes or what is left of it",
    ("app/metrics.py", "\xa0"): "figures and unit, to line up numbers",
    ("app/runs/environment.py", "fatal: "): "what git says",
    ("app/telemetry/sampler.py", "model name"): "/proc/cpuinfo",
    ("app/viewmodels/experiment/preview.py", ": "): "notes of preset files",
    ("app/viewmodels/experiment/preview.py", ". "): "notes of preset files",
    ("app/viewmodels/format/cells.py", "\xa0"): "figures and unit, to line up numbers",
    ("app/viewmodels/format/naming.py", "GeForce "): "NVML's names of GPUs",
    ("app/viewmodels/format/naming.py", "NVIDIA "): "NVML's names of GPUs",
    ("app/viewmodels/history/evidence.py", " and "): "reasons that workers stored",
    ("app/viewmodels/history/evidence.py", " looks the same for "): "reasons that workers stored",
    ("app/viewmodels/history/run_detail.py", 'File "'): "tracebacks of Python",
}
"""By file and what is looked for, the texts that may be taken apart, as they are not our own sentences."""


def taken_apart(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the words by which a text is taken apart, "" for the separator of names, with the line."""
    for node in ast.walk(tree):
        if (
            not isinstance(node, ast.Call)
            or not isinstance(node.func, ast.Attribute)
            or node.func.attr not in TAKES_APART
        ):
            continue
        for argument in node.args:
            if "SEPARATOR" in ast.dump(argument):
                yield "", node.lineno
            words = "".join(
                part.value
                for part in ast.walk(argument)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )
            if re.search(r"[ \xa0]", words) and words.strip(" "):
                yield words, node.lineno


def test_our_own_sentences_and_names_are_not_taken_apart(trees: Trees) -> None:
    of_app = ((path, tree) for path, tree in trees.items() if path.startswith("app/"))
    occurrences = {(path, words) for path, tree in of_app for words, _ in taken_apart(tree)}
    assert occurrences == set(TAKEN_APART)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("text.split(SEPARATOR)", True),
        ("text.partition(naming.SEPARATOR)", True),
        ("text.startswith(f'Connecting to {name}')", True),
        ("text.partition(' (')", True),
        ("text.split(' ')", False),
        ("path.endswith('.toml')", False),
        ("SEPARATOR.join(parts)", False),
    ],
)
def test_the_check_itself_knows_a_text_taken_apart(source: str, expected: bool) -> None:
    assert any(taken_apart(ast.parse(source))) is expected
