"""Presets: every one of the box can run wherever it says, and a file that is none is told in one sentence."""

import re
from pathlib import Path

import pytest

from app.errors import UserError
from app.grants import typed
from app.runs.custom import ReadOptions, UnreadFileError, resolve_workload, stored_source
from app.runs.experiment.presets import PRESET_FOLDER, load_preset, publications
from app.runs.leases import Leases
from app.runs.weight_transfer import transfer_targets
from tests.present import present
from workloads.catalog import Gpu, Machine, UsageError, Workload, check

H200 = [Gpu(index=n, uuid=f"GPU-{n}", name="NVIDIA H200", compute_capability=(9, 0)) for n in range(2)]
OLD = [Gpu(index=n, uuid=f"GPU-{n}", name="RTX 2080 Ti", compute_capability=(7, 5)) for n in range(2)]
MACHINES = (
    Machine(gpus=tuple(H200), cpu_count=32),
    Machine(gpus=tuple(H200[:1]), cpu_count=32),
    Machine(gpus=tuple(OLD), cpu_count=4),
    Machine(cpu_count=2),
    Machine(cpu_count=8, platform="darwin"),
)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [path.stem for path in PRESET_FOLDER.glob("*.toml")])
def test_nothing_of_a_preset_is_refused_on_any_machine(name: str, machine: Machine) -> None:
    named = load_preset(name)
    plan = named.plan(machine)
    assert len(plan.variants) > 1
    if not machine.gpus and named.preset.cpu is None:
        assert plan.notes[0] == "It needs an NVIDIA GPU, and this machine has none."
        assert all(check(spec, machine) for spec in plan.specs)
        return
    refusals = [refusal for spec in plan.specs for refusal in check(spec, machine)]
    assert refusals == []
    for transfer in plan.weight_transfers:
        targets = transfer_targets(transfer.spec, transfer.into, transfer.gpus, machine)
        assert len(targets.possible) == len(transfer.into)


def test_the_article_on_two_gpus_is_its_whole_matrix_with_layouts_side_by_side() -> None:
    plan = load_preset("article-c").plan(MACHINES[0])
    theirs = [s for s in plan.variants if s.variant["framework"] == "tensorflow"]
    native = [s for s in theirs if s.variant["implementation"] == "native" and s.variant["precision"] == "tf32"]
    usual = [s for s in native if s.variant.get("pooling", "average") == "average"]
    cells = [(s.workload, s.variant["batch_size"], s.variant["gpus"], s.variant["layout"]) for s in usual]
    assert len(set(cells)) == 40
    assert cells[:3] == [("cnn10", 128, 1, "NHWC"), ("cnn10", 128, 1, "NCHW"), ("cnn10", 128, 2, "NHWC")]
    assert (len(theirs), len(usual)) == (66, 40), "the rest is float32, Keras's layers and the poolings"
    exchanges = [(s.variant["gpus"], s.variant["all_reduce"]) for s in plan.variants if s not in theirs]
    assert {exchange: exchanges.count(exchange) for exchange in exchanges} == {
        (1, "nccl"): 4,
        (2, "nccl"): 4,
        (2, "data_parallel"): 4,
    }
    assert (plan.repeats, plan.notes) == (3, ())
    assert load_preset("article-c").plan(MACHINES[0], repeats=1).repeats == 1


def test_a_smaller_machine_does_less_and_says_so() -> None:
    one, old, cpu = (load_preset("article-c").plan(MACHINES[n]) for n in (1, 2, 3))
    assert len(one.variants) == 44
    assert one.notes == ("This machine has 1 GPU: 34 variants with more are left out.",)
    assert {spec.variant["precision"] for spec in old.variants} == {"float32"}
    assert old.notes == ("Precision float32 in place of TF32, which cannot run here.",)
    assert {spec.variant["gpus"] for spec in cpu.variants} == {0}
    assert cpu.notes[0].startswith("No GPU here, so scaled down:")


def test_a_width_asked_for_makes_repeats_the_most_there_are() -> None:
    plan = load_preset("quick").plan(MACHINES[3], until_pct=0.5)
    assert (plan.repeats, plan.until_pct) == (20, 0.5)
    assert load_preset("quick").plan(MACHINES[3], repeats=6, until_pct=0.5).repeats == 6
    assert load_preset("quick").plan(MACHINES[3]).until_pct is None


def own(folder: Path, *changes: tuple[str, str]) -> str:
    """A preset of two forms, with some of its text changed."""
    text = """
        [gpu]
        question = "?"
        repeats = 8
        matrix = [{ workload = "lstm", settings = { gpus = 1, xla = [false, true] } }]
        [cpu]
        question = "?"
        repeats = 8
        matrix = [{ workload = "lstm", settings = { gpus = 0, xla = [false, true] } }]
        [article]
        title = "An article"
        [[article.effects]]
        workload = "lstm"
        setting = "xla"
        before = false
        figure = "step_p50"
        values = [{ after = true, ratio = 2 }]
    """
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_may_say_itself_how_narrow_is_enough(tmp_path: Path) -> None:
    path = own(tmp_path, ("repeats = 8", 'repeats = 8\n        until = "2 %"'))
    plan = load_preset(path).plan(MACHINES[3])
    assert (plan.repeats, plan.until_pct) == (8, 2.0)
    assert load_preset(path).plan(MACHINES[3], until_pct=0.5).until_pct == 0.5, "the user's goes before"


def test_a_variant_that_is_listed_twice_is_one(tmp_path: Path) -> None:
    twice = "xla = [true, false, true] } }, { workload = 'lstm', settings = { gpus = 0, xla = true"
    named = load_preset(own(tmp_path, ("gpus = 0, xla = [false, true]", f"gpus = 0, {twice}")))
    assert [spec.variant["xla"] for spec in named.plan(MACHINES[3]).variants] == [True, False]
    assert all(len(plan.variants) == 2 for plan in named.all_plans())


def of_mine(folder: Path, word: str = "work/mine.py:mine") -> str:
    """A preset of a workload in a file, which is not made."""
    lstm = ('workload = "lstm", settings = { gpus = 0, xla', f'workload = "{word}", settings = {{ gpus = 0, xla')
    return own(folder, lstm, ('workload = "lstm"\n', f'workload = "{Path(word).name}"\n'))


def test_a_workload_of_the_users_own_is_named_by_its_place_as_seen_from_the_presets_file(
    tmp_path: Path, database_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(word: str) -> Workload:
        return resolve_workload(word, database_path, ReadOptions(consent=typed, leases=Leases(tmp_path)))

    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "mine.py").write_text("def mine(batch_size: int = 4, units: int = 8): ...\n")
    monkeypatch.chdir(tmp_path)
    named = load_preset(Path(of_mine(tmp_path)).name, find)
    plan = named.plan(MACHINES[3])
    assert [(spec.workload, spec.variant["units"]) for spec in plan.variants] == [("mine.py:mine", 8)] * 2
    assert plan in named.all_plans()
    assert present(stored_source(plan.variants[0], database_path)).path == str(tmp_path / "work" / "mine.py")
    whole = load_preset(of_mine(tmp_path, f"{tmp_path / 'work' / 'mine.py'}:mine"), find)
    assert whole.plan(MACHINES[3]).variants == plan.variants
    assert [one.article.title for one in publications(plan.variants, [whole.key], find)] == ["An article"]
    assert publications(plan.variants, [whole.key]) == (), "where nobody looks for the file, its runs are of no preset"


def test_a_workload_that_cannot_be_had_is_told_with_the_presets_file(tmp_path: Path, database_path: Path) -> None:
    def find(word: str) -> Workload:
        return resolve_workload(word, database_path, ReadOptions(consent=typed, leases=Leases(tmp_path)))

    with pytest.raises(UsageError, match=r"^own.toml names a workload .*work/mine.py cannot be read \(No such file"):
        load_preset(of_mine(tmp_path), find)
    (tmp_path / "mine.py").write_text("def mine(batch_size=4:\n")
    broken = of_mine(tmp_path, "mine.py:mine")
    with pytest.raises(UserError, match=r"^mine.py:1: SyntaxError"):
        load_preset(broken, find)
    with pytest.raises(UnreadFileError, match=r"^mine.py has not been read yet.$"):
        load_preset(broken, lambda word: resolve_workload(word, database_path, None))


def test_brackets_without_end_are_told(tmp_path: Path) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(f"x = {'[' * 3_000}{']' * 3_000}")
    with pytest.raises(UserError, match=r"deep\.toml is not a preset: it has too many nested brackets\.$"):
        load_preset(str(path))


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ("repeats = 8", "repeats = -1", "Expected `int` >= 1 - at `$.gpu.repeats`"),
        ("repeats = 8", 'repeats = 8\nasked = "layout"', "layout is asked about, and no matrix sets it"),
        ("repeats = 8", "repeats = 1000", "Expected `int` <= 999 - at `$.gpu.repeats`"),
        ("[false, true]", "[]", "Expected `array` of length >= 1"),
        ("repeats = 8", 'repeats = 8\nuntil = "narrow"', "'narrow' is not a precision such as 0.5%"),
        ('figure = "step_p50"', 'figure = "pie"', "Invalid enum value 'pie'"),
        ("gpus = 0", f"gpus = 0, seed = {[*range(251)]}", "502 combinations are too many: 500 at most"),
    ],
)
def test_values_that_nobody_can_mean_are_told_with_the_file(tmp_path: Path, before: str, after: str, why: str) -> None:
    with pytest.raises(UserError, match=rf"own\.toml is not a preset: {re.escape(why)}"):
        load_preset(own(tmp_path, (before, after)))


def test_a_user_s_own_file_is_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    page = (PRESET_FOLDER.parents[1] / "docs" / "experiments.md").read_text(encoding="utf-8")
    path.write_text(page.partition("```toml")[2].partition("```")[0], encoding="utf-8")
    plan = load_preset(str(path)).plan(MACHINES[0])
    assert plan.name == "XLA and the LSTM", "as the documentation shows it"
    assert [(spec.variant["gpus"], spec.variant["xla"]) for spec in plan.variants[:2]] == [(1, False), (1, True)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"[gpu", "is not a preset"),
        (b"[gpu]\nquestion = 1\n", "is not a preset"),
        (b'[gpu]\nquestion = "gr\xf6\xdfer?"\n', "is not a preset: it is not written in UTF-8."),
        (None, r"cannot be read \(No such file or directory\); put it back, or name another file\."),
    ],
)
def test_a_file_that_is_none_is_one_sentence(tmp_path: Path, text: bytes | None, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(UserError, match=sentence):
        load_preset(str(path))


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UsageError, match=r"Presets: article-a, .*, quick; or give the path of a file"):
        load_preset("article-d")


def test_a_preset_is_titled_by_itself_its_article_or_its_file(tmp_path: Path) -> None:
    form = 'question = "?"\nrepeats = 1\nmatrix = [{workload = "dummy", settings = {gpus = 0}}]'
    plain = f"[gpu]\n{form}\n[cpu]\n{form}\n"
    article = f'{plain}[article]\ntitle = "An article (2019)"\neffects = []\n'
    titles = []
    for number, text in enumerate((plain, article, f'title = "My own"\n{article}')):
        file = tmp_path / f"mine{number}.toml"
        file.write_text(text, encoding="utf-8")
        titles.append(load_preset(str(file)).title)
    assert titles == ["mine0", "An article (2019)", "My own"]
