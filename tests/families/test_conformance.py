"""Cases, verdicts and known differences of the families, without an engine."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ropecheck.adapters.protocol import NotOfferedAnswer, PromptTables, Raised, Tensor
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.families import case as families
from ropecheck.conformance.families.case import Case, expected, offered, step, support_table
from ropecheck.conformance.families.cases import all_cases, chosen, drawn, picture, words
from ropecheck.conformance.families.layout import Segment, lay_out
from ropecheck.conformance.families.torn import TEARS
from ropecheck.conformance.families.verdict import array, judge
from ropecheck.conformance.known.differences import ANY, CONDITIONS, load, witness
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.selftest.builder import right
from ropecheck.reference.blocks import Table
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.minicpm_v import Picture
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.prompt import Prompt, history_of
from ropecheck.spec.history import OutOfDomain, length

EVERY = [case for family in FAMILIES for case in (*chosen(family), *drawn(family, 7, 20))]
ONE = Case("one image", "qwen2_vl", ((words(3), picture(4, 6), words(2)),))


def test_layouts_agree_with_their_histories() -> None:
    kinds = ("text", "image", "video", "audio")
    for case in EVERY:
        family = FAMILIES[case.family]
        for laid in case.laid:
            assert len(laid.ids) == len(laid.kinds) == length(family, laid.history)
            if any(has_track(run) or isinstance(run, Picture) for run in laid.history) or laid.targets:
                continue  # their markers or order are not in the kinds
            prompt = Prompt(
                kinds=tuple(kinds[kind] for kind in laid.kinds),
                image_grids=laid.image_grids,
                video_grids=laid.video_grids,
                seconds_per_grid=laid.seconds,
                audio_tokens=tuple(run.tokens for run in laid.history if run.kind == "audio"),
            )
            read = history_of(family, prompt)
            assert [run.kind for run in read] == [run.kind for run in laid.history]
            np.testing.assert_array_equal(prompt_table(family, read), prompt_table(family, laid.history))


def test_case_names_are_unique_and_rules_exist() -> None:
    for target in families.TARGETS:
        names = [case.name for case in all_cases(target, count=3)]
        assert len(names) == len(set(names))


def test_drawn_cases_repeat_with_their_seed() -> None:
    assert list(drawn("qwen2_vl", 5, 30)) == list(drawn("qwen2_vl", 5, 30))
    assert list(drawn("qwen2_vl", 5, 30)) != list(drawn("qwen2_vl", 6, 30))


def test_a_right_target_passes() -> None:
    for case in EVERY:
        outcome = judge(case, right(case))
        assert not outcome.failures, (case.name, outcome.failures[0].message)
        assert outcome.checked


def changed(table: Table, axis: int, column: int, by: int) -> Table:
    table[axis, column:] += by
    return table


@pytest.mark.parametrize(
    ("axis", "column", "by", "rule", "signature"),
    [
        (slice(None), 10, -1, "families.text_after_media", "text starts too early"),
        (slice(None), 10, 2, "families.text_after_media", "text starts too late"),
        (0, 5, 1, "families.table", "media time too large"),
        (0, 4, -1, "families.text_after_media", "media time too small"),
        (1, 4, 1, "families.table", "media in another order"),
        (1, 10, 1, "families.text_rows_equal", "rows differ"),
    ],
)
def test_a_planted_fault_is_named(axis: int, column: int, by: int, rule: str, signature: str) -> None:
    outcome = judge(ONE, right(ONE, lambda table: changed(table, axis, column, by)))
    assert [failure.signature for failure in outcome.failures] == [signature]
    assert outcome.failures[0].rule == rule
    difference = outcome.failures[0].difference
    assert difference is not None and difference.column == column


def test_every_chosen_case_sees_a_fault_in_every_column() -> None:
    for case in EVERY:
        if case.torn:
            continue
        for column in {0, len(case.laid[0].ids) // 2, len(case.laid[0].ids) - 1}:
            outcome = judge(case, right(case, partial(changed, axis=0, column=column, by=1)))
            assert outcome.failures, (case.name, column)


def answer(**changes: object) -> PromptTables:
    good = right(ONE)
    assert isinstance(good, PromptTables)
    return msgspec.structs.replace(good, **changes)


def test_dtype_shape_width_and_delta() -> None:
    good = right(ONE)
    assert isinstance(good, PromptTables)
    table = array(good.table)
    cases: list[tuple[PromptTables, str, str]] = [
        (answer(table=tensor(table.astype(np.float32))), "families.dtype_and_shape", "table is float32"),
        (answer(delta=tensor(np.zeros(1, np.int64) - 3)), "families.dtype_and_shape", "delta shape"),
        (
            answer(delta=Tensor("float32", (1, 1), np.float32(-3).tobytes())),
            "families.dtype_and_shape",
            "delta is float32",
        ),
        (answer(delta=tensor(np.full((1, 1), 5, np.int64))), "families.delta", "other value"),
        (answer(table=tensor(table[:, :, 1:])), "families.table_width", "too few columns"),
        (answer(table=tensor(np.concatenate((table, table[:1])))), "families.dtype_and_shape", "wrong number of rows"),
        (answer(table=tensor(table.astype(np.float64) + 0.5)), "families.text_after_media", "text between positions"),
    ]
    for result, rule, signature in cases:
        found = {(failure.rule, failure.signature) for failure in judge(ONE, result).failures}
        assert (rule, signature) in found


def test_rows_are_not_told_as_columns() -> None:
    """Four rows for three, also where the builder keeps columns ahead."""
    for family in ("qwen2_vl", "glm_image"):
        case = next(case for case in chosen(family) if not case.torn and case.builder == "rope_index")
        good = right(case)
        assert isinstance(good, PromptTables)
        table = array(good.table)
        (failure,) = judge(
            case, msgspec.structs.replace(good, table=tensor(np.concatenate((table, table[:1]))))
        ).failures
        assert failure.signature == "wrong number of rows" and "is [4, 1," in failure.message


def test_exceptions_and_absent_families() -> None:
    engine = judge(ONE, Raised("engine", "IndexError", "index 1", "sglang/x.py:1 f"))
    assert [failure.signature for failure in engine.failures] == ["raises IndexError"]
    assert judge(ONE, Raised("adapter", "KeyError", "x", "")).state == "could_not_run"
    assert judge(ONE, NotOfferedAnswer("no such model")).state == "not_offered"


def test_torn_input_must_be_refused() -> None:
    torn = next(case for case in chosen("qwen2_vl") if case.torn == "run cut short")
    assert len(step(torn).ids[0]) == len(torn.laid[0].ids) - 1
    assert judge(torn, Raised("engine", "ValueError", "no", "")).state == "pass"
    accepted = judge(torn, right(ONE))
    assert [failure.signature for failure in accepted.failures] == ["accepts, and answers something else"]


def test_a_run_longer_than_its_grid() -> None:
    """The processor laid out eight placeholders for a grid of six tokens: to be refused, naming item, 8 and 6."""
    torn = next(
        case for case in chosen("qwen2_vl") if case.torn == "run too long" and case.prompts[0][1].kind == "image"
    )
    assert len(step(torn).kinds[0]) == 13 and sum(step(torn).kinds[0]) == 8
    kinds = ("text", "image")
    prompt = Prompt(kinds=tuple(kinds[kind] for kind in step(torn).kinds[0]), image_grids=((1, 4, 6),))
    with pytest.raises(OutOfDomain, match="image 0 has 8 placeholder tokens; its item has 6"):
        history_of(FAMILIES["qwen2_vl"], prompt)
    walked = np.array([[0, 1, 2, *[3] * 6, 6, 7, 8, 9], [0, 1, 2, 3, 3, 3, 4, 4, 4, 6, 7, 8, 9]])
    table = np.stack([walked[0], walked[1], [0, 1, 2, 3, 4, 5, 3, 4, 5, 6, 7, 8, 9]])[:, None, :]
    seen = PromptTables(tensor(table), tensor(np.array([[-3]])))
    assert [failure.signature for failure in judge(torn, seen).failures] == ["accepts, walks by the grid"]
    wrong = PromptTables(tensor(np.full_like(table, 424242)), tensor(np.array([[-3]])))
    assert [failure.signature for failure in judge(torn, wrong).failures] == ["accepts, and answers something else"]


@pytest.mark.parametrize("how", TEARS)
def test_every_tear_changes_what_some_family_sends(how: str) -> None:
    torn = [case for case in EVERY if case.torn == how]
    assert torn
    for case in torn:
        assert step(case) != step(msgspec.structs.replace(case, torn=""))


def test_a_prompt_left_unanswered_fails() -> None:
    for family in FAMILIES:
        batch = max(chosen(family), key=lambda case: len(case.prompts))
        good = right(batch)
        assert isinstance(good, PromptTables)
        table, delta = array(good.table), array(good.delta)
        assert len(batch.prompts) > 1
        cut = msgspec.structs.replace(good, table=tensor(table[:, :-1]), delta=tensor(delta[:-1]))
        found = {(failure.rule, failure.signature) for failure in judge(batch, cut).failures}
        assert {("families.table", "prompts unanswered"), ("families.delta", "delta missing")} <= found
        flat = msgspec.structs.replace(good, table=tensor(table.reshape(-1)))
        assert ("families.table", "prompts unanswered") in {(f.rule, f.signature) for f in judge(batch, flat).failures}


def test_known_differences_have_witnesses() -> None:
    entries = load()
    assert {entry.when for entry in entries} <= set(CONDITIONS)
    for entry in entries:
        case = witness(entry)
        assert case.family in entry.families
        assert CONDITIONS[entry.when](case)
        assert entry.target == ANY or offered(case.family, entry.target) == "checked"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('target = "transformers"', 'goal = "transformers"', "goal"),
        ('when = "a batch of prompts"', 'when = "on Mondays"', "on Mondays"),
        ('"families.delta"', '"families.gamma"', "families.gamma"),
        ('families = ["hunyuan_vl"]', 'families = ["yuan"]', "yuan"),
        ("[[difference]]", "[[difference", "families.toml"),
    ],
)
def test_a_broken_list_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    from ropecheck.conformance.known.differences import FILE

    path = tmp_path / "families.toml"
    path.write_text(FILE.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError, match=message):
        load(path)


def test_a_failure_carries_the_column_that_is_wrong() -> None:
    long = Case("long", "qwen2_vl", ((words(500), picture(4, 4)),))
    (failure,) = judge(long, right(long, lambda table: changed(table, 0, 400, 1))).failures
    assert failure.observed is not None and failure.observed.rows is not None
    assert failure.observed.rows[0][400] == 401


def test_support_table_covers_every_family() -> None:
    rows = support_table()
    assert [row[0] for row in rows] == list(FAMILIES)
    for place, target in ((2, "sglang"), (3, "transformers")):
        absent = {row[0] for row in rows if row[place] != "checked"}
        assert absent == {family for family, lacking in families.ABSENT if lacking == target}
    assert "no adapter" in offered("qwen2_vl", "vllm")


def test_layout_refusals() -> None:
    with pytest.raises(OutOfDomain, match="writes no images"):
        lay_out("qwen2_vl", (words(1), Segment(kind="target", grid=(1, 2, 2))))
    with pytest.raises(OutOfDomain, match="hears no audio"):
        lay_out("qwen2_vl", (Segment(kind="audio", features=40),))
    with pytest.raises(OutOfDomain, match="smell"):
        lay_out("qwen2_vl", (Segment(kind="smell"),))
    assert expected(ONE).deltas == (-3,)


def test_a_table_that_holds_no_numbers_is_a_failure_and_no_end_of_the_judge() -> None:
    """A float16 on the way: what is too large for it is infinite."""
    case = next(one for one in chosen("qwen2_vl") if one.name.endswith("one image"))
    must = expected(case)
    table = must.tables[0].astype(np.float64)[:, None, :]
    table[:, 0, -1] = np.inf
    failures = judge(case, PromptTables(tensor(table), tensor(np.array([[must.deltas[0]]])))).failures
    assert "text at no number" in {failure.signature for failure in failures}
