import threading

from pytestqt.qtbot import QtBot

from app.errors import UserError
from app.gui.background import Background
from workloads.catalog import UsageError

LIMIT_MS = 120_000


def fail_with(error: Exception) -> None:
    raise error


def unexpected(result: object) -> None:
    raise AssertionError(f"nobody waits for {result!r}")


def test_work_is_done_elsewhere_and_its_result_comes_here(qtbot: QtBot, background: Background) -> None:
    seen: list[tuple[threading.Thread, threading.Thread]] = []
    background.run(
        threading.current_thread, lambda worker: seen.append((worker, threading.current_thread())), unexpected
    )
    qtbot.waitUntil(lambda: bool(seen), timeout=LIMIT_MS)
    ((worker, here),) = seen
    assert here is threading.main_thread()
    assert worker is not here


def test_an_error_of_the_users_world_is_handed_over(qtbot: QtBot, background: Background) -> None:
    errors: list[UserError] = []
    background.run(lambda: fail_with(UserError("The disk is full.")), unexpected, errors.append)
    qtbot.waitUntil(lambda: bool(errors), timeout=LIMIT_MS)
    assert str(errors[0]) == "The disk is full."


def test_so_is_wrong_use(qtbot: QtBot, background: Background) -> None:
    errors: list[UserError] = []
    background.run(lambda: fail_with(UsageError("There is no preset called 'x'.")), unexpected, errors.append)
    qtbot.waitUntil(lambda: bool(errors), timeout=LIMIT_MS)
    assert [(type(error), str(error)) for error in errors] == [(UserError, "There is no preset called 'x'.")]


def test_a_bug_is_told_and_raised_on_the_gui_thread(qtbot: QtBot, background: Background) -> None:
    errors: list[UserError] = []
    with qtbot.capture_exceptions() as raised:
        background.run(lambda: fail_with(ZeroDivisionError("a bug")), unexpected, errors.append)
        qtbot.waitUntil(lambda: bool(raised), timeout=LIMIT_MS)
    assert [kind for kind, *_ in raised] == [ZeroDivisionError]
    assert [str(error) for error in errors] == [
        "VariantScope itself made a mistake (ZeroDivisionError: a bug); what is stored is kept. Please report it."
    ]


def test_nothing_is_delivered_after_closing(qtbot: QtBot) -> None:
    background, later = Background(), Background()
    background.run(lambda: 1, unexpected, unexpected)
    background.close()
    background.run(lambda: 1, unexpected, unexpected)
    seen: list[int] = []
    later.run(lambda: 2, seen.append, unexpected)
    qtbot.waitUntil(lambda: seen == [2], timeout=LIMIT_MS)
    later.close()
