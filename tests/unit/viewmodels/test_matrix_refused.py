"""What of a matrix cannot run, in words."""

from app.viewmodels.matrix_refused import RefusedGroup, refused_words

GROUPS = tuple(
    RefusedGroup(count=count, what=what, reason="It does not fit.")
    for count, what in ((1200, "XLA on"), (30, ""), (4, "2 GPUs"))
)


def test_the_first_reasons_are_told_and_how_many_more_there_are() -> None:
    words = refused_words(GROUPS, 5000, every=False)
    assert words.told == (
        "1,234 of 5,000 combinations cannot run here and are left out:\n"
        "1,200 ×  XLA on: It does not fit.\n"
        "30 ×  It does not fit."
    )
    assert words.others == "1 more reason …"


def test_every_reason_is_told_when_asked_for() -> None:
    words = refused_words(GROUPS, 5000, every=True)
    assert words.told.endswith("\n4 ×  2 GPUs: It does not fit.")
    assert words.others == "Fewer reasons"


def test_there_are_no_others_where_all_reasons_are_told_at_once() -> None:
    assert refused_words(GROUPS[:2], 5000, every=False).others == ""
    assert refused_words((), 5000, every=False) == ("", "")
