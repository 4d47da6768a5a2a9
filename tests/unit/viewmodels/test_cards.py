"""Names of cards, and how many there are of each."""

from app.viewmodels.cards import card_name, counted_cards

MIXED = ("NVIDIA H200", "NVIDIA GeForce RTX 4090", "NVIDIA H200")


def test_a_card_is_called_without_its_maker_and_brand() -> None:
    assert [card_name(name) for name in MIXED[:2]] == ["H200", "RTX 4090"]


def test_cards_of_each_name_are_counted_in_the_order_they_come() -> None:
    assert counted_cards(MIXED) == "2× H200, 1× RTX 4090"
    assert counted_cards(()) == ""


def test_a_single_card_may_go_without_its_count() -> None:
    assert counted_cards(MIXED, between=" + ", one="") == "2× H200 + RTX 4090"
