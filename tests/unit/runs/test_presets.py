"""Presets: every one of the box can run wherever it says, and a file that is none is told in one sentence."""

from pathlib import Path

import pytest

from app.errors import UserError
from app.runs.presets import FOLDER, preset
from workloads.catalog import Gpu, Machine, UsageError, check

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
@pytest.mark.parametrize("name", [path.stem for path in FOLDER.glob("*.toml")])
def test_nothing_of_a_preset_is_refused_on_any_machine(name: str, machine: Machine) -> None:
    plan = preset(name).plan(machine)
    assert len(plan.variants) > 1
    assert [check(spec, machine) for spec in plan.variants if check(spec, machine)] == []


def test_the_article_on_two_gpus_is_its_whole_matrix_with_layouts_side_by_side() -> None:
    plan = preset("article-c").plan(MACHINES[0])
    places = [(s.workload, s.variant["batch_size"], s.variant["gpus"], s.variant["layout"]) for s in plan.variants]
    assert len(set(places)) == 40
    assert places[:3] == [("cnn10", 128, 1, "NHWC"), ("cnn10", 128, 1, "NCHW"), ("cnn10", 128, 2, "NHWC")]
    assert {spec.variant["precision"] for spec in plan.variants} == {"tf32"}
    assert (plan.repeats, plan.notes) == (3, ())
    assert preset("article-c").plan(MACHINES[0], repeats=1).repeats == 1


def test_a_smaller_machine_does_less_and_says_so() -> None:
    one, old, cpu = (preset("article-c").plan(MACHINES[n]) for n in (1, 2, 3))
    assert len(one.variants) == 20
    assert one.notes == ("This machine has 1 GPU: 20 variants with more are left out.",)
    assert {spec.variant["precision"] for spec in old.variants} == {"float32"}
    assert old.notes == ("precision=float32 in place of tf32, which cannot run here.",)
    assert {spec.variant["gpus"] for spec in cpu.variants} == {0}
    assert cpu.notes[0].startswith("No GPU here, so smaller:")


def test_a_user_s_own_file_is_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    page = (FOLDER.parents[1] / "docs" / "experiments.md").read_text(encoding="utf-8")
    path.write_text(page.partition("```toml")[2].partition("```")[0], encoding="utf-8")
    plan = preset(str(path)).plan(MACHINES[0])
    assert plan.name == "mine", "as the documentation shows it"
    assert [(spec.variant["gpus"], spec.variant["xla"]) for spec in plan.variants[:2]] == [(1, False), (1, True)]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[gpu", "is no preset"),
        ("[gpu]\nquestion = 1\n", "is no preset"),
        (None, "cannot be read: No such file or directory."),
    ],
)
def test_a_file_that_is_none_is_one_sentence(tmp_path: Path, text: str | None, sentence: str) -> None:
    path = tmp_path / "mine.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=sentence):
        preset(str(path))


def test_an_unknown_name_says_which_there_are() -> None:
    with pytest.raises(UsageError, match="There are: article-a, article-b, article-c, quick, or a file's path"):
        preset("article-d")
