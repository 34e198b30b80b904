"""A rule's formula says what its body decides, on every view that chosen scenarios make of right and of wrong answers,
and on drawn ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import Markup

from ropecheck.conformance.book.examples import load, run
from ropecheck.conformance.book.formula import formula, tokens_formula
from ropecheck.conformance.book.predicates import PREDICATES, predicate_of
from ropecheck.conformance.families import verdict as of_builders
from ropecheck.conformance.judge import ask as asking
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.routes import verdict as of_routes
from ropecheck.conformance.selftest import builder
from ropecheck.conformance.selftest.mutants import MUTANTS
from ropecheck.spec import live, scheduling
from ropecheck.spec.modes import all_modes
from ropecheck.spec.rules import all_rules, rules_of

DECODE = st.just("decode")
STATES = ("live", "unknown", "gone")

DRAWN = {
    scheduling.Window: st.builds(
        scheduling.Window,
        mode=st.just("extend"),
        start=st.integers(-1, 6),
        count=st.integers(0, 4),
        computed=st.integers(0, 6),
        total=st.integers(0, 8),
        free=st.booleans(),
    ),
    scheduling.Newest: st.builds(
        scheduling.Newest, mode=st.just("decode"), computed=st.integers(0, 4), total=st.integers(0, 4)
    ),
    scheduling.Member: st.builds(
        scheduling.Member, mode=st.just("decode"), req=st.just("a"), state=st.sampled_from(["live", "unknown", "gone"])
    ),
    scheduling.TokenCount: st.builds(
        scheduling.TokenCount, mode=st.just("decode"), seq_len=st.integers(0, 3), right=st.integers(0, 3)
    ),
    scheduling.Reply: st.builds(
        scheduling.Reply,
        got=st.lists(st.integers(0, 1), max_size=3).map(tuple),
        before=st.integers(0, 3),
        answered=st.lists(st.integers(0, 1), max_size=5).map(tuple),
        limit=st.integers(0, 5),
    ),
    live.Replayed: st.builds(
        live.Replayed,
        got=st.lists(st.integers(0, 1), max_size=3).map(tuple),
        right=st.lists(st.integers(0, 1), max_size=3).map(tuple),
        got_logprobs=st.lists(st.sampled_from([-1.0, -1.5]), max_size=3).map(tuple),
        right_logprobs=st.lists(st.sampled_from([-1.0, -1.5]), max_size=3).map(tuple),
        margins=st.lists(st.sampled_from([0.0, 0.5]), max_size=3).map(tuple),
        tolerance=st.just(0.01),
    ),
    scheduling.AtRest: st.builds(
        scheduling.AtRest,
        retained=st.sampled_from([(), ("a",)]),
        leak=st.sampled_from(["", "a page"]),
        unanswered=st.sampled_from([(), ("b",)]),
    ),
}


@given(st.one_of(*DRAWN.values()))
@settings(max_examples=400, deadline=None)
def test_on_drawn_views(view: object) -> None:
    for rule in rules_of(type(view)):
        assert bool(PREDICATES[rule.id](view)) == (rule.check(view) is None), (rule.id, view)


def test_on_views_of_answers_with_planted_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[tuple[str, bool]] = Counter()
    inner = asking.ask

    def ask(tally: ScenarioTally, mode: str, view: object) -> object:
        for rule in rules_of(type(view)):
            if (rule.when is None or rule.when(view)) and (predicate := predicate_of(rule)) is not None:
                kept = rule.check(view) is None
                assert bool(predicate(view)) == kept, (rule.id, view)
                seen[rule.id, kept] += 1
        return inner(tally, mode, view)

    for module in _modules_that_ask():
        monkeypatch.setattr(module, "ask", ask)
        if hasattr(module, "_settled"):  # what tests before this one were answered would not be asked again
            monkeypatch.setattr(module, "_settled", asking.Settled())
    for example in load().examples.values():
        run(MUTANTS[example.fault], example.scenario)
    both = {rule for rule, kept in seen if not kept} & {rule for rule, kept in seen if kept}
    assert len(both) > 35, sorted(both)


def _modules_that_ask() -> Iterator[object]:
    from ropecheck.conformance.judge import laws, states, tables, verdict

    yield from (one for one in (laws, states, tables, verdict) if hasattr(one, "ask"))


WITHOUT = {
    "families.absolute_time",
    "families.audio_in_video",
    "families.frame_per_run",
    "families.glm_image.tabulated_ahead",
    "families.minicpm_v4_7.canvas",
    "families.route_layout",
    "families.temporal_merge",
    "families.text_after_media",
    "families.text_rows_equal",
    "rotary.alternating_sections",
    "rotary.contiguous_sections",
    "rotary.every_row_counts",
    "rotary.interleaved_sections",
    "rotary.readers_bound",
    "rotary.rotation",
    "rotary.scaling",
    "rotary.view_is_a_copy",
}
"""Rules that walk over runs or pairs: their bodies say it better than one expression would."""


def test_every_rule_has_a_formula_or_a_body_to_read() -> None:
    assert {rule for rule in all_rules() if not _drawn(rule)} == WITHOUT


def test_on_answers_of_builders_with_planted_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[tuple[str, bool]] = Counter()

    def ask(tally: ScenarioTally, mode: str, view: object) -> object:
        for rule in rules_of(type(view)):
            if (rule.when is None or rule.when(view)) and (predicate := PREDICATES.get(rule.id)) is not None:
                kept = rule.check(view) is None
                assert bool(predicate(view)) == kept, (rule.id, view)
                seen[rule.id, kept] += 1
        return inner(tally, mode, view)

    inner = asking.ask
    for module in (of_builders, of_routes):
        monkeypatch.setattr(module, "ask", ask)
    some = [case for case in builder.every_case() if len(case.laid[0].ids) < 100]
    for slip in builder.SLIPS:
        for case in some:
            if (wrong := slip.answer(case)) is not None:
                failures = of_routes.judge(case, wrong).failures
                if slip.rule in {failure.rule for failure in failures}:
                    of_routes.judge(case, builder.right(case))
                    break
    both = {rule for rule, kept in seen if not kept} & {rule for rule, kept in seen if kept}
    assert both == {rule for rule in PREDICATES if rule.startswith(("families.", "prefix."))}


def _drawn(rule: str) -> Markup:
    predicate = predicate_of(all_rules()[rule])
    return Markup("") if predicate is None else formula(predicate.says)


def test_every_mode_of_one_expression_has_a_formula() -> None:
    without = {mode.name for mode in all_modes().values() if not tokens_formula(mode)}
    assert without == {"idle", *(mode.name for mode in all_modes().values() if mode.composite)}
