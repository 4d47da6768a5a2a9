"""The tutorial says only what is there: its words on the screen, its keys, commands and pictures."""

import ast
import re
import shlex
from pathlib import Path

import pytest

from app.gui.shell.action_table import GROUPS
from tests.fakes.command_line import parse_arguments
from tests.pictures import IMAGES, LIVE, PICTURES

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
KEYS = {keys for group in GROUPS for action in group.actions for keys in action.keys}
_KEY = re.compile(r"(?:Ctrl\+(?:Shift\+)?[A-Z\d,.]|F1)$")


def _phrases() -> list[str]:
    """Return what is bold or in italics, a path through a menu in its parts."""
    marked = [bold or thin for bold, thin in re.findall(r"\*\*([^*]+)\*\*|(?<!\*)\*([A-Z][^*]+)\*(?!\*)", TEXT)]
    return [part for phrase in marked for part in phrase.split(" → ") if part != "bold"]


def _labels() -> set[str]:
    """Return every text of the window and its view-models, as it is shown."""
    files = [*(ROOT / "app" / "gui").rglob("*.py"), *(ROOT / "app" / "viewmodels").rglob("*.py")]
    files.append(ROOT / "workloads" / "parameters.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8"))))
    texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
    return {text.replace("&", "") for text in texts}


@pytest.fixture(scope="module")
def labels() -> set[str]:
    return _labels()


@pytest.mark.parametrize("phrase", sorted({each for each in _phrases() if not _KEY.match(each)}))
def test_each_word_of_the_tutorial_is_on_the_screen(phrase: str, labels: set[str]) -> None:
    assert phrase in labels


def test_each_key_of_the_tutorial_does_something() -> None:
    named = set(re.findall(r"Ctrl\+(?:Shift\+)?[A-Z\d,.]|\bF1\b", TEXT))
    assert {"Ctrl+K", "Ctrl+Shift+C", "F1"} <= named
    assert named <= KEYS


@pytest.mark.parametrize("line", re.findall(r"python -m app ([^`\n]+)", TEXT))
def test_each_command_of_the_tutorial_is_read(line: str) -> None:
    assert parse_arguments(*shlex.split(line))


def test_each_picture_of_the_tutorial_is_taken_from_the_program() -> None:
    shown = re.findall(r"\(images/(.+)\.png\)", TEXT)
    assert len(shown) > 8
    for name in shown:
        assert name in {**PICTURES, **LIVE}
        assert (IMAGES / f"{name}.png").exists()
