"""What is offered to be compared next, by what is stored."""

from dataclasses import replace

from app.queries import Question, StoredExperiment
from app.viewmodels.compare.offers import compare_offers, experiment_choices
from tests.unit.viewmodels.stored import run_row

EXPERIMENT = StoredExperiment(
    experiment=3, uid="e", name="units=64,128", preset=None, created_utc_ns=0, plan="{}", runs=(1, 2)
)


def test_the_last_two_variants_of_one_workload_are_those_that_measured_the_earlier_first() -> None:
    latest = [
        run_row(9, units=256, outcome="stopped", throughput=None),
        run_row(8, workload="cnn10"),
        run_row(7, units=128),
        run_row(6, units=128),
        run_row(5, units=64),
        run_row(4, units=32),
    ]
    offer, *_ = compare_offers(latest, (), (), ())
    assert (offer.action, offer.runs) == ("compare", (5, 7))
    assert offer.detail == "lstm · Units 64 (run 5) and Units 128 (run 7)"


def test_the_last_experiment_is_one_of_the_user_s_own_with_something_to_compare() -> None:
    alone, of_reference = replace(EXPERIMENT, runs=(4,)), replace(EXPERIMENT, runs=(5, 6))
    older = replace(EXPERIMENT, name="older")
    offer, *_ = compare_offers((), (alone, of_reference, EXPERIMENT, older), (5, 6), ())
    assert (offer.action, offer.runs) == ("compare", (1, 2))
    assert offer.detail.startswith("units=64,128 · 2 runs · ")


def test_questions_that_the_reference_answers_come_after_what_is_ones_own() -> None:
    measured = [run_row(n, gpus=1, gpu_names=("NVIDIA H200",)) for n in (5, 6)]
    asked = Question("layout")
    own, question = compare_offers((), (EXPERIMENT,), (5, 6), (("A question", measured, asked),))
    assert own.runs == EXPERIMENT.runs
    assert (question.title, question.detail, question.runs) == ("A question", "H200 reference · 2 runs", (5, 6))
    assert (own.question, question.question) == (None, asked)


def test_who_has_nothing_can_build_an_experiment_or_add_the_reference() -> None:
    assert [offer.action for offer in compare_offers((), (), (), ())] == ["build", "add"]
    assert [offer.action for offer in compare_offers([run_row(1)], (), (9,), ())] == ["build"]


def test_experiments_are_chosen_by_number_name_and_size_and_only_the_newest_of_many() -> None:
    assert experiment_choices((EXPERIMENT, replace(EXPERIMENT, experiment=1, name="R&D", runs=(7,)))) == (
        (3, "3  units=64,128 · 2 runs"),
        (1, "1  R&D · 1 run"),
    )
    many = [replace(EXPERIMENT, experiment=n) for n in range(40, 0, -1)]
    assert [number for number, _ in experiment_choices(many)] == list(range(40, 15, -1))
    assert experiment_choices(()) == ()
