"""Several runs at once in the model of the Run screen: which is shown, and what is kept of the others."""

from app.values.events import Outcome, RunEnded, RunStarted, Summary
from app.viewmodels.run.live import LiveModel
from tests.unit.viewmodels.events import DEVICES, GPU_INVENTORY, ns, samples
from workloads.catalog import complete
from workloads.protocol import Block

HOST = DEVICES[-1]


def model_with(*runs: RunStarted) -> LiveModel:
    model = LiveModel()
    model.handle(GPU_INVENTORY)
    model.set_queue_running(True)
    for run in runs:
        model.handle(run, run.run)
    return model


def started(run: int, *gpus: int, at: float = 0.0, batch_size: int = 64) -> RunStarted:
    spec = complete("cnn10", {"gpus": len(gpus), "batch_size": batch_size}, GPU_INVENTORY.machine)
    devices = (*(DEVICES[n] for n in gpus), HOST)
    return RunStarted(run=run, spec=spec, t_ns=ns(at), utc_ns=0, devices=devices)


def ended(run: int) -> RunEnded:
    return RunEnded(run=run, t_ns=ns(9.0), outcome=Outcome(name="completed"), summary=Summary(throughput=100.0 * run))


def block(loss: float) -> Block:
    return Block(phase="measure", first_step=0, steps=1, examples=100, start_ns=ns(1.0), end_ns=ns(2.0), loss=loss)


def tabs(model: LiveModel) -> list[str]:
    return [tab.label for tab in model.state().runs]


def test_one_run_after_another_leaves_nothing_to_choose() -> None:
    model = model_with(started(1, 0))
    model.handle(ended(1), 1)
    model.handle(started(2, 1), 2)
    assert tabs(model) == []
    assert model.state().run == 2


def test_runs_at_once_are_named_by_card_number_and_what_tells_them_apart() -> None:
    model = model_with(started(2, 1, batch_size=128), started(3, 0))
    assert tabs(model) == ["GPU 0 · run 3 · Batch size 64", "GPU 1 · run 2 · Batch size 128"]
    assert model.state().run == 2, "the one that is looked at stays"
    assert tabs(model_with(started(2, 1), started(3, 0))) == ["GPU 0 · run 3", "GPU 1 · run 2"]


def test_events_go_to_their_run_and_samples_to_the_runs_on_their_device() -> None:
    model = model_with(started(1, 0), started(2, 1))
    model.handle(block(1.5), 1)
    model.handle(block(0.5), 2)
    model.handle(block(9.9), 99)
    for sample in samples(0, 2):
        model.handle(sample)
    for run, loss, power_w in ((1, 1.5, 600.0), (2, 0.5, 601.0)):
        model.show_run(run)
        panels = {panel.key: panel for panel in model.state().plots.panels}
        assert panels["loss"].curves[0].y[-1] == loss
        (power,) = panels["power_mw"].curves
        assert (power.y[-1], len(power.y)) == (power_w, 20)


def test_the_newest_that_goes_on_follows_one_that_ended_and_a_tab_is_its_cards_newest_run() -> None:
    model = model_with(started(1, 0), started(2, 1, at=1.0))
    model.handle(ended(1), 1)
    assert model.state().run == 2
    assert tabs(model) == ["✔ GPU 0 · run 1", "GPU 1 · run 2"]
    model.handle(started(3, 0, at=10.0), 3)
    assert tabs(model) == ["GPU 0 · run 3", "GPU 1 · run 2"]
    model.handle(started(4, 0, 1, at=20.0), 4)
    assert (tabs(model), model.state().run) == ([], 4)


def test_an_ended_run_someone_looks_at_stays_until_its_card_has_another() -> None:
    model = model_with(started(1, 0), started(2, 1))
    model.toggle_pause()
    model.handle(ended(1), 1)
    assert model.state().run == 1, "its plots are held"
    model.follow()
    model.show_run(1)
    model.handle(ended(2), 2)
    model.handle(started(3, 1, at=10.0), 3)
    assert model.state().run == 1, "it was turned to"
    model.handle(started(4, 0, at=11.0), 4)
    assert model.state().run == 4


def test_when_the_queue_rests_nothing_is_said_to_go_on_and_what_it_made_next_begins_anew() -> None:
    model = model_with(started(1, 0), started(2, 1))
    model.handle(ended(1), 1)
    model.set_queue_running(False)
    assert "Ready" in model.state().status.title, "run 2 was left without an end"
    model = model_with(started(1, 0), started(2, 1), started(3))
    model.handle(ended(1), 1)
    model.show_run(1)
    model.set_queue_running(False)
    assert (tabs(model), model.state().run) == ([], 1)
    model = model_with(started(1, 0), started(2, 1))
    for run in (1, 2):
        model.handle(ended(run), run)
    model.set_queue_running(False)
    assert tabs(model) == ["✔ GPU 0 · run 1", "✔ GPU 1 · run 2"]
    model.set_queue_running(True)
    model.handle(started(3, 0), 3)
    assert tabs(model) == []


def test_nothing_of_before_stands_over_what_begins() -> None:
    model = model_with(started(1, 0))
    model.handle(ended(1), 1)
    model.set_queue_running(False)
    assert model.state().run == 1, "the result stays while nothing else begins"
    model.set_queue_running(True)
    state = model.state()
    assert (state.run, state.throughput, state.status.title) == (None, "", "Starting the next run …")
    model.handle(started(2, 0), 2)
    model.set_queue_running(True)
    assert model.state().run == 2, "a run that goes on stays"
