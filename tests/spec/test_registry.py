"""The registry of rules, and the names that rules once had."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from ropecheck.spec import rules
from ropecheck.spec.aliases import MODES, WORDS, todays
from ropecheck.spec.rules import ANY_DEVICE, Violation, all_rules, changes, replaced, rule, rules_of
from ropecheck.spec.views import Loop


@dataclass
class Thing:
    """A view that no rule knows."""

    size: int


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test states is gone behind it."""
    all_rules()
    yield
    for id in [id for id in rules._RULES if id.startswith("things.")]:
        del rules._RULES[id]
    rules._BY_VIEW.pop(Thing, None)
    rules._ASKED.clear()


def big(thing: Thing) -> Violation | None:
    """A thing must be
    small.

    Zero is
    small.
    """
    return Violation(axis="size") if thing.size > 1 else None


def test_a_rule_is_its_function() -> None:
    assert rules_of(Thing) == () and "things.small" not in all_rules()
    before = changes()
    assert rule("things.small", of=Thing, source="here", bugs=("one #1",), devices=("cuda",))(big) is big
    assert changes() > before
    (found,) = rules_of(Thing)
    assert found is all_rules()["things.small"]
    assert (found.must, found.note) == ("A thing must be small.", "Zero is small.")
    assert (found.id, found.topic, found.source, found.bugs) == ("things.small", "things", "here", ("one #1",))
    assert (found.stated, found.view, found.check, found.when) == (f"{__name__}:big", Thing, big, None)
    assert found.line == big.__code__.co_firstlineno and found.only_on == "seen on cuda only"
    rule("things.other", of=Thing, source="here", when=lambda thing: thing.size > 0)(big)
    assert [one.id for one in rules_of(Thing)] == ["things.small", "things.other"]
    assert all_rules()["things.other"].only_on == "" and all_rules()["things.other"].devices == ANY_DEVICE


def test_what_is_no_rule() -> None:
    rule("things.small", of=Thing, source="here")(big)
    with pytest.raises(ValueError, match=r"rule things\.small is stated twice"):
        rule("things.small", of=Thing, source="here")(big)

    def weak(thing: Thing) -> Violation | None:
        """A thing may be small. It musty be."""

    def silent(thing: Thing) -> Violation | None: ...

    for function in (weak, silent):
        with pytest.raises(ValueError, match="one sentence with 'must'"):
            rule("things.weak", of=Thing, source="here")(function)
    assert "things.weak" not in all_rules()


def test_another_body_for_a_while() -> None:
    right, before = all_rules()["table.forwards"], changes()
    wrong = Loop(mode="draft_decode", must=2, ran=1)
    back = replaced("table.forwards", lambda loop: None)
    assert changes() == before + 1
    assert [one.check(wrong) for one in rules_of(Loop)] == [None] and all_rules()["table.forwards"].must == right.must
    back()
    assert changes() == before + 2 and all_rules()["table.forwards"] is right
    assert [one.check(wrong) is None for one in rules_of(Loop)] == [False]


def test_all_rules_are_sorted_and_asked_in_the_order_of_their_statement() -> None:
    ids = list(all_rules())
    assert ids == sorted(ids) and rules_of(Loop) is rules_of(Loop)
    for view in {one.view for one in all_rules().values()}:
        lines = [(one.stated.split(":")[0], one.line) for one in rules_of(view)]
        assert all(here[1] < there[1] for here, there in pairwise(lines) if here[0] == there[0])
        assert {one.id for one in rules_of(view)} == {id for id, one in all_rules().items() if one.view is view}


@pytest.mark.parametrize("ask", [all_rules, lambda: rules_of(Thing)])
def test_whoever_asks_first_has_the_whole_specification_imported(
    ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    rules._everything.cache_clear()
    ask()
    assert {one.stated.partition(":")[0] for one in rules._RULES.values()} <= set(imported)
    rules._everything.cache_clear()


def test_old_names_are_read_as_todays() -> None:
    assert todays("decode.no_columns") == ("table.width", "decode")
    assert todays("ragged_verify.tail") == ("padding.tail", "ragged_verify")
    assert todays("table.width") == ("table.width", "") and todays("decode.unheard") == ("decode.unheard", "")
    assert todays("unified.width") == ("unified.width", "") and todays("cost.decode") == ("cost.media", "decode")
    assert set(WORDS.values()) <= set(all_rules()) and len(MODES) == 10
