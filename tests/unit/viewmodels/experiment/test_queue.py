"""The queue as values: rows, banners and cells."""

from dataclasses import replace

from app.queries import ExperimentProgress, TimeLeft
from app.viewmodels.experiment.queue import (
    NAME_COLUMN,
    QUEUE_COLUMNS,
    STATE_COLUMN,
    WIDEST_CELLS,
    QueueModel,
    VerdictText,
)
from app.viewmodels.format.cells import Bar
from workloads.catalog import Machine, complete

SPEC = complete("dummy", {"gpus": 0}, Machine())
FIRST = ExperimentProgress(
    entry=1, name="first", state="waiting", done=2, planned=6, left=TimeLeft(80, 100, 120), timing_runs=1
)
SECOND = ExperimentProgress(
    entry=2, name="second", state="waiting", done=0, planned=4, left=TimeLeft(32, 40, 48), timing_runs=1
)
RUNNING = replace(FIRST, state="running", position=3, specs=(SPEC,))


def board(*entries: ExperimentProgress) -> QueueModel:
    """One whose runner has begun with these entries."""
    made = QueueModel()
    made.begin()
    made.update(entries)
    return made


def test_entries_of_one_name_have_their_numbers_and_no_others() -> None:
    rows = board(FIRST, SECOND, replace(SECOND, entry=3)).state(0.0).rows
    assert [row.name for row in rows] == ["first", "second · entry 2", "second · entry 3"]
    assert [row.cells[NAME_COLUMN].text for row in rows] == [row.name for row in rows]


def test_an_empty_queue_shows_nothing() -> None:
    assert QueueModel().state(0.0).is_empty


def test_one_line_counts_the_runs_of_the_experiment_that_runs_and_names_it() -> None:
    queue = board(FIRST, SECOND, replace(SECOND, entry=3, state="paused", done=3))
    queue.handle(RUNNING, now_s=10.0)
    state = queue.state(40.0)
    assert (state.count, state.fraction) == ("2/6", 2 / 6)
    assert state.activity == "dummy TensorFlow train · CPU · batch 8"
    assert state.time_left == "50 to 90 s left, 1 to 3 min for all"
    queue.update(
        (replace(RUNNING, left=TimeLeft(81, 101, 121)), SECOND, replace(SECOND, entry=3, state="paused", done=3))
    )
    assert queue.state(40.0).time_left == state.time_left, "as the database has it"
    assert [row.cells[STATE_COLUMN].text for row in state.rows] == ["running", "waiting", "paused"]
    assert [(row.can_move_up, row.can_move_down) for row in state.rows] == [(False, True), (True, True), (True, False)]
    assert state.pause_action == "pause"
    assert not state.can_skip_wait


def test_progress_begins_at_nothing_with_each_experiment_and_counts_all_that_are_paused_where_none_runs() -> None:
    paused, new = replace(FIRST, state="paused"), replace(SECOND, state="running")
    queue = board(paused, SECOND)
    queue.handle(new, now_s=0.0)
    assert (queue.state(0.0).count, queue.state(0.0).fraction) == ("0/4", 0.0)
    queue.handle(replace(new, state="complete", done=4), now_s=0.0)
    assert queue.state(0.0).count == "2/6"
    queue.finish()
    queue.update((paused, replace(SECOND, state="paused")))
    assert queue.state(0.0).count == "2/10"
    elsewhere = QueueModel()
    elsewhere.update((new, FIRST, paused))
    assert elsewhere.state(0.0).count == "0/4"


def test_while_the_machine_is_waited_for_that_is_said_and_can_be_skipped_and_no_time_passes() -> None:
    queue = board(FIRST)
    queue.handle(replace(RUNNING, waiting_for="GPU 0 at 61 °C"), now_s=0.0)
    state = queue.state(30.0)
    assert state.activity == "Waiting: GPU 0 at 61 °C"
    assert state.can_skip_wait
    assert state.time_left == "1 to 2 min left"


def test_a_run_that_waits_for_another_one_to_end_says_so_and_can_run_anyway() -> None:
    queue = board(FIRST)
    queue.handle(replace(RUNNING, specs=(), message="Waiting for another run.", waits_for_device=True), now_s=0.0)
    state = queue.state(0.0)
    assert (state.activity, state.can_skip_wait) == ("Waiting for another run.", True)


def test_what_begins_after_a_single_run_is_not_said_to_be_paused() -> None:
    queue = QueueModel()
    queue.waits_for_run = True
    queue.update((FIRST,))
    state = queue.state(0.0)
    assert (state.activity, state.pause_action) == ("Waiting for the current run to end", "pause")
    queue.update((replace(FIRST, state="paused"),))
    state = queue.state(0.0)
    assert (state.activity, state.pause_action) == ("Paused", "go on")


def test_paused_entries_are_not_in_the_time_left() -> None:
    queue = board(FIRST, replace(SECOND, state="paused"))
    assert queue.state(0.0).time_left == "1 to 2 min left"
    queue.update((FIRST, SECOND))
    assert queue.state(0.0).time_left == "1 to 3 min left"


def test_an_entry_paused_during_its_run_pauses_when_that_ends() -> None:
    queue = board(replace(FIRST, state="paused"))
    queue.handle(RUNNING, now_s=0.0)
    state = queue.state(0.0)
    (row,) = state.rows
    assert (row.cells[STATE_COLUMN].text, row.pause_action, state.pause_action) == ("pausing", "resume", "go on")


def test_an_entry_that_another_program_makes_is_said_to_be_and_not_to_be_paused_here() -> None:
    queue = QueueModel()
    queue.update((replace(FIRST, state="running"),))
    state = queue.state(0.0)
    assert (state.activity, state.pause_action) == ("Running in another program", "")
    assert (state.rows[0].cells[STATE_COLUMN].text, state.rows[0].pause_action) == ("running elsewhere", "")


def test_what_ended_is_told_with_its_verdict_and_listed_until_it_is_dismissed() -> None:
    queue = board(FIRST, SECOND)
    queue.handle(replace(FIRST, state="complete", done=6, experiment=9), now_s=0.0)
    queue.set_verdict(2, VerdictText(sentence="Of another entry."))
    queue.set_verdict(1, VerdictText(sentence="B is 2× as fast as A.", rest="C is slower."))
    state = queue.state(0.0)
    assert state.count == "0/4"
    assert [(row.name, row.cells[STATE_COLUMN].text, row.in_queue) for row in state.rows] == [
        ("second", "waiting", True),
        ("first", "complete", False),
    ]
    assert state.ended is not None
    assert state.ended.text == "B is 2× as fast as A."
    assert state.ended.detail == "“first” is complete: 6 of 6 runs done. C is slower."
    assert [act for act, _ in state.ended.actions] == ["show", "dismiss"]
    queue.mark_seen(2)
    assert queue.state(0.0).ended is not None
    queue.mark_seen(1)
    assert queue.state(0.0).ended is None
    queue.dismiss_ended()
    assert queue.state(0.0).ended is None
    assert len(queue.state(0.0).rows) == 1


def test_runs_without_a_result_are_told() -> None:
    queue = board(FIRST, SECOND)
    queue.handle(replace(FIRST, state="failed", done=5, experiment=9), now_s=0.0)
    state = queue.state(0.0)
    assert state.ended is not None
    assert (state.ended.text, state.ended.tone) == (
        "“first” has ended: 5 of 6 runs gave a result.",
        "bad",
    )


def test_one_with_its_time_spent_is_told_of_and_in_the_queue_once() -> None:
    queue = board(FIRST)
    queue.handle(replace(FIRST, state="out of budget"), now_s=0.0)
    queue.update((replace(FIRST, state="paused"),))
    queue.finish()
    state = queue.state(0.0)
    assert [row.cells[STATE_COLUMN].text for row in state.rows] == ["paused"]
    assert state.ended is not None
    assert "has used its time limit" in state.ended.text


def test_one_that_was_stopped_or_removed_is_not_told_of() -> None:
    queue = board(FIRST, SECOND)
    queue.handle(replace(FIRST, state="stopped"), now_s=0.0)
    queue.handle(replace(SECOND, state="removed"), now_s=0.0)
    state = queue.state(0.0)
    assert state.ended is None
    assert [row.name for row in state.rows] == ["first"]


def test_unfinished_experiments_are_offered_and_the_line_waits_for_the_answer() -> None:
    queue = QueueModel()
    queue.update((replace(FIRST, name="article-c", state="paused", done=12, planned=40),))
    queue.offer_resume()
    state = queue.state(0.0)
    assert state.offer is not None
    assert state.offer.text == "“article-c” is unfinished: 12 of 40 runs done."
    assert [label for _, label in state.offer.actions] == ["Resume", "Not now", "Remove"]
    assert (state.count, state.pause_action) == ("", "")
    queue.withdraw_offer()
    state = queue.state(0.0)
    assert (state.offer, state.count, state.activity, state.pause_action) == (None, "12/40", "Paused", "go on")


def test_what_another_program_begins_is_no_longer_offered() -> None:
    queue = QueueModel()
    queue.update((FIRST,))
    queue.offer_resume()
    queue.update((replace(FIRST, state="running"),))
    state = queue.state(0.0)
    assert (state.offer, state.activity) == (None, "Running in another program")


def test_several_unfinished_experiments_are_one_offer() -> None:
    queue = QueueModel()
    queue.update((FIRST, replace(SECOND, message="3 of its runs come from another machine.")))
    queue.offer_resume()
    offer = queue.state(0.0).offer
    assert offer is not None
    assert offer.text == ("2 experiments are unfinished: 2 of 10 runs done. 3 of its runs come from another machine.")
    assert [label for _, label in offer.actions] == ["Resume", "Not now", "Show them"]
    queue.begin()
    assert queue.state(0.0).offer is None


def test_entries_stand_in_their_new_order_at_once() -> None:
    queue = board(FIRST, SECOND)
    assert queue.move(2, -1) == 1
    state = queue.state(0.0)
    assert [(row.name, row.can_move_up) for row in state.rows] == [("second", False), ("first", True)]


def test_a_long_name_is_told_by_its_first_words() -> None:
    matrix = "cnn10 layout=NCHW,NHWC gpus=1,2 batch_size=128,256,512,1024,2048 precision=float32,bfloat16"
    for name, banner in (
        (matrix, "cnn10 layout=NCHW,NHWC gpus=1,2 …"),
        ("a" * 70, f"{'a' * 60} …"),
        ("a" * 60, "a" * 60),
    ):
        found = board(replace(FIRST, name=name))
        found.offer_resume()
        offer = found.state(0.0).offer
        assert offer is not None
        assert offer.text == f"“{banner}” is unfinished: 2 of 6 runs done."


def test_an_entry_has_a_cell_a_column_and_a_bar_below_its_runs() -> None:
    (row,) = board(replace(FIRST, host="gpu1", interpreters=("/opt/tf", "tf216"))).state(0.0).rows
    cells = row.cells
    assert len(cells) == len(QUEUE_COLUMNS) == len(WIDEST_CELLS)
    assert [cell.text for cell in cells] == ["first", "gpu1", "/opt/tf, tf216", "waiting", "2/6", "1 to 2 min"]
    assert [cell.bar for cell in cells if cell.bar] == [Bar(2 / 6, leads=True)]
