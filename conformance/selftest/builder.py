"""The reference as a builder of prompt tables, and slips that are planted in what it answers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec
import numpy as np

from ropecheck.adapters.protocol import PromptTables, Raised, Result
from ropecheck.conformance.families.case import TARGETS, Case, expected
from ropecheck.conformance.families.cases import chosen
from ropecheck.conformance.families.routes import PREFIX, TWICE
from ropecheck.conformance.families.verdict import array
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.routes.cases import cases as routed
from ropecheck.conformance.routes.kinds import sent_kinds
from ropecheck.reference.blocks import Table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.omni import has_track
from ropecheck.spec.families.released import released_table
from ropecheck.spec.history import prompt_table
from ropecheck.spec.prefix import agreeing, alike

Edit = Callable[[Table], Table]


def right(case: Case, edit: Edit | None = None) -> Result:
    """The family's own answer, batched and padded as transformers would; `edit` changes each prompt's table."""
    if case.torn:
        return Raised("engine", "ValueError", f"refused: {case.torn}", "")
    want = expected(case)
    tables = [table if edit is None else edit(table.copy()) for table in want.tables]
    if case.builder.startswith(PREFIX + TWICE):
        first, second = (table.T.tolist() for table in tables)
        same = alike(FAMILIES[case.family], *(laid.history for laid in case.laid))
        hit = min(agreeing(second, first), same)
        return PromptTables(tensor(tables[1]), tensor(np.zeros((1, 1), np.int64)), hit=hit)
    if case.builder.startswith(PREFIX):
        return PromptTables(tensor(tables[0]), tensor(np.array([want.deltas])), None, "reference", sent_kinds(case))
    axes = tables[0].shape[0]
    table = np.zeros((axes, len(tables), want.width), dtype=np.int64)
    ahead = max(full.shape[1] - len(one.ids) for full, one in zip(want.tables, case.laid, strict=True))
    later = np.zeros((len(tables), axes, ahead), dtype=np.int64)
    for number, (made, one) in enumerate(zip(tables, case.laid, strict=True)):
        prompt = len(one.ids)
        table[:, number, want.width - prompt :] = made[:, :prompt]
        later[number, :, : made.shape[1] - prompt] = made[:, prompt:]
    delta = np.array(want.deltas, dtype=np.int64)[:, None]
    return PromptTables(tensor(table), tensor(delta), tensor(later) if ahead else None, "reference")


def every_case() -> Iterator[Case]:
    """The chosen cases of every family, and those of the routes."""
    for family in FAMILIES:
        yield from chosen(family)
    for target in TARGETS:
        yield from routed(target)


@dataclass(frozen=True, slots=True)
class BuilderSlip:
    """Something small that is wrong in a builder's answer. answer: what it gives instead; None: the case has nothing
    that it could be planted in."""

    name: str
    says: str
    rule: str
    """The rule that has to name it in one case at least."""
    answer: Callable[[Case], Result | None]
    like: str = "slip"


def _cells(where: Callable[[Case], tuple[int, int] | None], by: int = 1) -> Callable[[Case], Result | None]:
    """One cell of the first prompt's table: (row, column)."""

    def answer(case: Case) -> Result | None:
        place = None if case.torn or len(case.prompts) > 1 else where(case)
        if place is None:
            return None

        def edit(table: Table) -> Table:
            table[place] += by
            return table

        return right(case, edit)

    return answer


def _inside(row: int, kind: str = "", last: bool = False) -> Callable[[Case], tuple[int, int] | None]:
    """The second token of the first item, or its last one. kind: of the families' segments, "" for any."""

    def where(case: Case) -> tuple[int, int] | None:
        segments = [one for one in case.prompts[0] if one.kind not in ("text", "newline", "target")]
        spans = case.laid[0].media
        if not spans or len(segments) != 1 or kind not in ("", segments[0].kind):
            return None
        start, stop = spans[0]
        column = stop - 1 if last else start + 1
        return (row, column) if stop - start > 1 else None

    return where


def _last_text(case: Case) -> tuple[int, int] | None:
    laid = case.laid[0]
    return (1, len(laid.ids) - 1) if laid.history[-1].is_text and not laid.targets else None


def _ahead(case: Case) -> tuple[int, int] | None:
    return (2, expected(case).tables[0].shape[1] - 1) if case.laid[0].targets else None


def _text_late(case: Case) -> Result | None:
    """Text after the last item starts one late."""
    laid = case.laid[0]
    if case.torn or len(case.prompts) > 1 or not laid.media or not laid.history[-1].is_text or laid.targets:
        return None

    def edit(table: Table) -> Table:
        table[:, laid.media[-1][1] :] += 1
        return table

    return right(case, edit)


def _changed(change: Callable[[PromptTables], PromptTables]) -> Callable[[Case], Result | None]:
    def answer(case: Case) -> Result | None:
        given = right(case)
        return None if not isinstance(given, PromptTables) or given.hit is not None else change(given)

    return answer


def _narrow(given: PromptTables) -> PromptTables:
    return msgspec.structs.replace(given, table=tensor(array(given.table)[..., 1:]))


def _float(given: PromptTables) -> PromptTables:
    return msgspec.structs.replace(given, table=tensor(array(given.table).astype(np.float32)))


def _other_delta(given: PromptTables) -> PromptTables:
    return msgspec.structs.replace(given, delta=tensor(array(given.delta).astype(np.int64) + 1))


def _two_answers(case: Case) -> Result | None:
    """The released code's table beside the paper's delta."""
    (laid, *more), family = case.laid, FAMILIES[case.family]
    if case.torn or more or not any(map(has_track, laid.history)):
        return None
    released = np.array(released_table(family, laid.history), dtype=np.int64).T
    paper = np.array(prompt_table(family, laid.history), dtype=np.int64).T
    return None if np.array_equal(released, paper) else right(case, lambda _table: released)


def _accepts(case: Case) -> Result | None:
    return right(msgspec.structs.replace(case, torn="")) if case.torn else None


def _moves_a_word(case: Case) -> Result | None:
    """The word before the first item stands behind the last."""
    given = right(case)
    if not isinstance(given, PromptTables) or given.kinds is None or 4 not in given.kinds:
        return None
    at = given.kinds.index(4)
    kinds = (*given.kinds[:at], *given.kinds[at + 1 :], 4)
    return None if kinds == given.kinds else msgspec.structs.replace(given, kinds=kinds)


def _long_hit(case: Case) -> Result | None:
    given = right(case)
    if not isinstance(given, PromptTables) or given.hit is None or given.hit == len(case.laid[1].ids):
        return None
    return msgspec.structs.replace(given, hit=given.hit + 1)


SLIPS = (
    BuilderSlip("prompt: media in another order", "one token's h is one more", "families.table", _cells(_inside(1))),
    BuilderSlip(
        "prompt: a text token's rows differ", "one row too far", "families.text_rows_equal", _cells(_last_text)
    ),
    BuilderSlip(
        "prompt: text after media one late", "one position is left free", "families.text_after_media", _text_late
    ),
    BuilderSlip("prompt: one column short", "the first token has none", "families.table_width", _changed(_narrow)),
    BuilderSlip("prompt: floats", "positions keep their fractions", "families.dtype_and_shape", _changed(_float)),
    BuilderSlip("prompt: another delta", "one more than the table's", "families.delta", _changed(_other_delta)),
    BuilderSlip("prompt: the last frame late", "a step", "families.absolute_time", _cells(_inside(0, "video", True))),
    BuilderSlip("prompt: two times in a frame", "a token later", "families.frame_per_run", _cells(_inside(0))),
    BuilderSlip("prompt: steps unmerged", "a token later", "families.temporal_merge", _cells(_inside(0, "video"))),
    BuilderSlip(
        "prompt: a track out of order", "one token moved", "families.audio_in_video", _cells(_inside(2, "track"))
    ),
    BuilderSlip(
        "prompt: the index row counts on", "a row", "families.hunyuan_vl.four_rows", _cells(_inside(0, "image"))
    ),
    BuilderSlip("prompt: the last column ahead", "one w late", "families.glm_image.tabulated_ahead", _cells(_ahead)),
    BuilderSlip(
        "prompt: a marker off its canvas", "a row", "families.minicpm_v4_7.canvas", _cells(_inside(1, last=True))
    ),
    BuilderSlip("prompt: two answers to what comes next", "paper and code", "families.one_continuation", _two_answers),
    BuilderSlip("prompt: disagreeing grids accepted", "as if whole", "families.refuses_disagreeing_grids", _accepts),
    BuilderSlip("prompt: an undivided grid accepted", "as if whole", "families.refuses_undivided_grid", _accepts),
    BuilderSlip("prompt: no interval accepted", "one second", "families.refuses_missing_intervals", _accepts),
    BuilderSlip("route: a word is moved", "it stands behind the last item", "families.route_layout", _moves_a_word),
    BuilderSlip("prefix: a hit one token too long", "another request's column", "prefix.identity", _long_hit),
)
"""One for each rule on prompt tables and what is made of them."""
