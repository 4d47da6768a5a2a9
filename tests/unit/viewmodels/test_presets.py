"""Prepared experiments as the window lists them."""

from app.viewmodels.presets import PresetLine

LINE = PresetLine(key="k", name="layouts", title="Both layouts", size="4 variants, 12 runs", time="About 2 min.")


def test_how_much_a_preset_is_begins_with_its_name_where_its_title_is_another() -> None:
    assert LINE.amount == "layouts · 4 variants, 12 runs. About 2 min."
    own = PresetLine(key="k", name="mine", title="mine", size="2 variants, 6 runs")
    assert own.amount == "2 variants, 6 runs"
    assert PresetLine(key="k", name="mine", title="mine", problem="It has no [gpu].").amount == ""
