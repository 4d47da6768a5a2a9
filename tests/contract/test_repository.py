"""What no file of the repository may hold, such as paths of somebody's machine, and what an install must have."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]

REGISTRIES = re.compile(
    r"https?://[^\s\"')]*(?:pypi|pythonhosted|simple/)|(?:^|\s)--?(?:extra-)?index-url|--find-links"
)
MACHINE_PATHS = re.compile(r"(?<![\w./-])/(?:work|root|home/\w+)/")


def repository_texts() -> dict[str, str]:
    """Every text file git knows or would take in, by its path; binary files are left out."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = [ROOT / name for name in names if name and (ROOT / name).is_file()]
    contents = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
    return {name: data.decode() for name, data in contents.items() if b"\0" not in data}


def lines_with(pattern: re.Pattern[str]) -> list[str]:
    """`path: line` of every line that the pattern is found in; this file may name what it looks for."""
    own = Path(__file__).relative_to(ROOT).as_posix()
    return [
        f"{name}: {line.strip()[:120]}"
        for name, text in repository_texts().items()
        for line in text.splitlines()
        if name != own and pattern.search(line)
    ]


def test_no_file_names_a_package_registry() -> None:
    assert lines_with(REGISTRIES) == []


def test_no_file_holds_a_path_of_a_machine() -> None:
    assert lines_with(MACHINE_PATHS) == []


def test_constraints_are_exact_versions() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith(("#", " "))]
    assert len(pins) > 50
    assert [pin for pin in pins if not re.fullmatch(r"[\w.-]+==[\w.!+]+(?: ; .+)?", pin)] == []


def test_the_headless_install_of_the_documents_leaves_out_qt_alone() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    names = {re.split(r"[<>=]", text)[0] for text in needed}
    (line,) = re.findall(r"^pip install (click .*)$", (ROOT / "docs" / "install.md").read_text("utf-8"), re.MULTILINE)
    assert names - set(line.split()) == {"PySide6-Essentials", "pyqtgraph"}
    assert set(line.split()) <= names


def test_workflows_run_what_a_contributor_runs() -> None:
    texts = {path.name: path.read_text("utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    steps = [step for text in texts.values() for job in yaml.safe_load(text)["jobs"].values() for step in job["steps"]]
    commands = [step.get("run", "") for step in steps]
    assert "python3 start.py test" in commands
    assert any("uv build" in command for command in commands)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (tested,) = re.findall(r"python: \[(.+)\]", texts["ci.yml"])
    named = {text.rpartition(" ")[2] for text in project["classifiers"] if re.search(r":: 3\.\d", text)}
    assert set(re.findall(r"[\d.]+", tested)) == named


def test_other_files_name_the_versions_of_this_program_and_its_tools() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))["version"] == project["version"]
    (hooks,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert f"ruff=={hooks['rev'].removeprefix('v')}" in (ROOT / "constraints.txt").read_text().splitlines()
