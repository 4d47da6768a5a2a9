"""Freezing a folder: what is copied and hashed, revisions, and what is refused."""

import os
from pathlib import Path

import pytest

from app.errors import UserError
from app.runs.custom import stored_source
from app.runs.script import Script, script_variants
from app.storage.store import Store
from app.viewmodels.run.selection import parse_script_values
from tests.integration.test_scripts import git
from tests.present import present
from workloads.catalog import Machine, UsageError
from workloads.protocol import Command, Source, Value
from workloads.script.runner import _copy


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VARIANTSCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def database(database_path: Path) -> Path:
    Store.open(database_path).close()
    return database_path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text("import package\n")
    (folder / "package" / "__init__.py").write_text("VALUE = 1\n")
    return folder


@pytest.fixture
def repository(folder: Path) -> Path:
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("data\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "one")
    return folder


def frozen(database: Path, folder: Path, **more: object) -> Source:
    links = {name: str(folder / name) for name in more.pop("links", ())}  # type: ignore[attr-defined]
    command = Command(words=("python", "train.py"), links=links)
    script = Script(command=command, folder=folder, **more)  # type: ignore[arg-type]
    (spec,) = script_variants(script, {}, Machine(), database)
    return present(stored_source(spec, database))


def names(source: Source) -> list[str]:
    return [module.name for module in source.modules]


def test_a_folder_outside_of_git_is_frozen_without_caches(database: Path, folder: Path) -> None:
    for name in (".hidden/x.py", "__pycache__/x.pyc", "venv/pyvenv.cfg", "venv/x.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")
    source = frozen(database, folder)
    assert names(source) == ["package/__init__.py", "train.py"]
    assert Path(source.modules[1].path).read_text() == "import package\n"
    assert not source.modules[1].path.startswith(str(folder))


def test_git_says_what_is_frozen(database: Path, repository: Path) -> None:
    (repository / "data").mkdir()
    (repository / "data" / "large.bin").write_text("x")
    (repository / "new.py").write_text("x = 1\n")
    (repository / "package" / "__init__.py").unlink()
    source = frozen(database, repository)
    assert names(source) == [".gitignore", "new.py", "train.py"]
    assert "+changes" in source.text


def test_a_damaged_tree_is_frozen_anew(database: Path, folder: Path) -> None:
    source = frozen(database, folder)
    file = Path(source.modules[0].path)
    file.write_text("VALUE = 3\n")
    assert frozen(database, folder).sha256 == source.sha256
    assert file.read_text() == "VALUE = 1\n"


def test_a_run_has_a_copy_of_its_own_in_a_folder_of_the_same_name(database: Path, folder: Path) -> None:
    source = frozen(database, folder)
    tree = Path(source.modules[1].path).parent
    tree.with_name(f"{tree.name}.1").touch()  # it cannot be deleted as a folder is
    with _copy(source) as first, _copy(source) as second:
        for number, copy in ((2, first), (3, second)):
            assert (copy.parent.name, copy.name) == (f"{tree.name}.{number}", folder.name)
            assert (copy / "train.py").read_text() == "import package\n"


def test_a_link_is_frozen_as_one_that_does_not_lead_back(database: Path, folder: Path, tmp_path: Path) -> None:
    (folder / "link.py").symlink_to("train.py")
    (folder / "package" / "all").symlink_to(folder)
    (folder / "data").symlink_to(tmp_path)
    source = frozen(database, folder)
    assert names(source)[2:] == [f"data -> {tmp_path}", "link.py -> train.py", "package/all -> .."]
    assert Path(source.modules[1].path).with_name("link.py").readlink() == Path("train.py")


def test_a_command_in_a_folder_of_a_repository_freezes_all_of_it(database: Path, repository: Path) -> None:
    source = frozen(database, repository / "package")
    assert (present(source.command).folder, source.path) == ("package", str(repository / "package"))
    assert "train.py" in names(source)


def test_a_folder_that_git_ignores_is_frozen_as_outside_of_git(database: Path, repository: Path) -> None:
    inner = repository / "data" / "inner"
    inner.mkdir(parents=True)
    (inner / "train.py").write_text("x = 1\n")
    source = frozen(database, inner)
    assert source.command is not None
    assert (source.command.folder, names(source)) == (".", ["train.py"])
    with pytest.raises(UsageError, match=r"inner has no files in \w{40}"):
        frozen(database, inner, revisions=("main",))
    (repository / "empty").mkdir()
    with pytest.raises(UsageError, match="empty has no files that git tracks"):
        frozen(database, repository / "empty")


def test_revisions_are_trees_of_their_own(database: Path, repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    (repository / "train.py").write_text("import package, os\n")
    git(repository, "commit", "-aqm", "two")
    (repository / "train.py").write_text("not committed\n")
    script = Script(command=Command(words=("python", "train.py")), folder=repository, revisions=("main", first[:7]))
    specs = script_variants(script, {}, Machine(), database)
    texts = []
    for spec in specs:
        source = present(stored_source(spec, database))
        texts.append(next(Path(module.path).read_text() for module in source.modules if module.name == "train.py"))
    assert texts == ["import package, os\n", "import package\n"]
    assert specs[1].variant["revision"] == f"{first[:7]}@{first[:12]}"
    assert git(repository, "status", "--short") == "M train.py"


def test_what_cannot_be_frozen_is_refused(database: Path, repository: Path, folder: Path) -> None:
    with pytest.raises(UsageError, match="has no revision nosuch"):
        frozen(database, repository, revisions=("nosuch",))
    with pytest.raises(UsageError, match="is not a folder"):
        frozen(database, repository / "nosuch")
    with pytest.raises(UsageError, match="nosuch, which is to be linked, does not exist"):
        frozen(database, repository, links=("nosuch",))
    bytes_name = repository / "\udcff.txt"
    bytes_name.touch()
    with pytest.raises(UserError, match=r"^'\\udcff\.txt' is not UTF-8: rename the file, or exclude it"):
        frozen(database, repository)
    bytes_name.unlink()
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{git(repository, 'rev-parse', 'HEAD')},sub")
    git(repository, "commit", "-qm", "sub")
    with pytest.raises(UserError, match="sub is a submodule"):
        frozen(database, repository, revisions=("main",))


@pytest.mark.parametrize("cache", ["/dev/null", "/proc/self"])
def test_without_a_folder_for_frozen_code_the_variable_that_names_one_is_named(
    database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.setenv("VARIANTSCOPE_CACHE", cache)
    with pytest.raises(UserError, match=rf"^{cache}/scripts .* VARIANTSCOPE_CACHE names another place\.$"):
        frozen(database, folder)


def variants(folder: Path, words: str, settings: dict[str, tuple[Value, ...]]) -> list[dict[str, Value]]:
    script = Script(command=Command(words=tuple(words.split())), folder=folder, variables={"N": ("", "1")})
    specs = script_variants(script, settings, Machine(), None)
    return [{key: value for key, value in spec.variant.items() if key[0] in "{$"} for spec in specs]


def test_values_are_combined(folder: Path) -> None:
    assert variants(folder, "python {folder}/t.py", {"folder": (1, "a")}) == [
        {"{folder}": 1, "$N": ""},
        {"{folder}": 1, "$N": "1"},
        {"{folder}": "a", "$N": ""},
        {"{folder}": "a", "$N": "1"},
    ]


@pytest.mark.parametrize(
    ("words", "settings", "sentence"),
    [
        ("python t.py {x}", {}, r"\{x\} has no value: add -s x=… before the --"),
        ("python t.py", {"x": (1,)}, r"The command has no placeholder \{x\} for -s x"),
        ("python t.py", {"precision": ("tf32",)}, r"no placeholder \{precision\}"),
    ],
)
def test_a_placeholder_and_its_value_need_each_other(
    folder: Path, words: str, settings: dict[str, tuple[Value, ...]], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        variants(folder, words, settings)


def test_a_file_of_the_folder_by_its_whole_path_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="would not run as it is frozen"):
        variants(folder, f"python {folder}{os.sep}train.py", {})


@pytest.mark.parametrize(
    ("text", "is_switch", "values"),
    [
        ("32,64", False, (32, 64)),
        ("1e-3,0.5,08,1.50,-3", False, ("1e-3", 0.5, "08", "1.50", -3)),
        ("inf,nan,1e999,true", False, ("inf", "nan", "1e999", "true")),
        ("", False, ("",)),
        ("off,on", True, (False, True)),
        ("a,a", False, ("a",)),
    ],
)
def test_values_stay_as_they_were_typed(text: str, is_switch: bool, values: tuple[Value, ...]) -> None:
    command = Command(words=("python", "{x?--x}" if is_switch else "{x}"))
    assert parse_script_values(command, {"x": text}) == {"x": values}
