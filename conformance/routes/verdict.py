"""The verdict on a route's table: what the client sent says the items, the expanded prompt says where they stand."""

from __future__ import annotations

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.families import verdict as of_builders
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.layout import Laid
from ropecheck.conformance.judge.outcome import Difference, Failure, Outcome
from ropecheck.conformance.routes.canvas import canvases
from ropecheck.conformance.routes.kinds import KINDS
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7
from ropecheck.spec.families.prompt import Prompt, history_of
from ropecheck.spec.history import History, OutOfDomain, Run, run_length
from ropecheck.spec.prefix import agreeing, identity

LAYOUT = "families.route_layout"


def judge(case: Case, result: protocol.Result) -> Outcome:
    """Every rule that a route's case checks."""
    if isinstance(result, protocol.PromptTables) and result.hit is not None:
        return judge_pair(case, result, result.hit)
    if not isinstance(result, protocol.PromptTables) or result.kinds is None:
        return of_builders.judge(case, result)
    history, problem = laid_out(case, result.kinds)
    if problem:
        failure = of_builders.failure(case, LAYOUT, "prompt laid out otherwise", problem)
        return of_builders.outcome(case, {LAYOUT}, [failure])
    routed = with_laid(case, placed(case, history, result.kinds))
    right = prompt_table(FAMILIES[case.family], history)
    table, got = of_builders.array(result.table), of_builders.array(result.delta)
    failures: list[Failure] = []
    if (result.table.dtype, result.delta.dtype, got.size) != ("int64", "int64", 1) or table.ndim != 2:
        shape = f"table {result.table.dtype} {list(table.shape)}, delta {result.delta.dtype} {list(got.shape)}"
        failures.append(of_builders.failure(routed, "families.dtype_and_shape", "wrong shape", shape))
    if table.ndim == 2:
        failures += [named(one, case, history, table) for one in of_builders.judge_table(routed, right, table, 0)]
    if got.size == 1 and not failures and of_builders.number_of(got.reshape(-1)[0]) != delta(right):
        value = of_builders.number_of(got.reshape(-1)[0])
        difference = Difference(axis="delta", request=0, expected=delta(right), observed=value)
        message = f"delta {value}, not {delta(right)}"
        failures.append(of_builders.failure(routed, "families.delta", "other value", message, difference))
    rules = {case.rule, LAYOUT, "families.delta", "families.dtype_and_shape", "families.text_rows_equal"}
    return of_builders.outcome(case, rules | {"families.table_width"}, failures)


def judge_pair(case: Case, result: protocol.PromptTables, hit: int) -> Outcome:
    """Of two requests: how much the second may use of what the first has cached. Their tables are judged elsewhere."""
    first, second = (prompt_table(FAMILIES[case.family], laid.history).T.tolist() for laid in case.laid)
    own, other = ([tuple(column) for column in table] for table in (second, first))
    failures = []
    if not identity(own, other, hit):
        most = agreeing(own, other)
        message = f"the second request is served {hit} of {len(own)} tokens; its columns agree for {most}"
        difference = Difference(axis="hit", column=most, request=1, expected=most, observed=hit)
        failures.append(of_builders.failure(case, "prefix.identity", "hit across other columns", message, difference))
    return of_builders.outcome(case, {"prefix.identity"}, failures)


def laid_out(case: Case, kinds: tuple[int, ...]) -> tuple[History, str]:
    """The history of the expanded prompt with the client's items, and what is wrong with it ("" for nothing)."""
    (laid,) = case.laid
    if case.family == MINICPM_V4_7.name:
        return canvases(laid.history, kinds)
    prompt = Prompt(
        kinds=tuple(KINDS[kind] for kind in kinds),
        image_grids=laid.image_grids,
        video_grids=laid.video_grids,
        seconds_per_grid=laid.seconds if laid.video_grids else None,
        audio_tokens=tuple(run.tokens for run in laid.history if run.kind == "audio"),
    )
    try:
        history = history_of(FAMILIES[case.family], prompt)
    except OutOfDomain as error:
        return (), str(error)
    sent = [run.kind for run in laid.history if not run.is_text]
    found = [run.kind for run in history if not run.is_text]
    if sent != found:
        return (), f"the prompt has {', '.join(found)}; the client sent {', '.join(sent)}"
    if not FAMILIES[case.family].frames_apart and len(kinds) != len(laid.kinds):
        return (), f"the prompt has {len(kinds)} tokens, the client's message {len(laid.kinds)}"
    return history, ""


def placed(case: Case, history: History, kinds: tuple[int, ...]) -> Laid:
    """The layout that the engine made."""
    spans = []
    at = 0
    for run in history:
        size = run_length(FAMILIES[case.family], run)
        if not run.is_text:
            spans.append((at, at + size))
        at += size
    return msgspec.structs.replace(
        case.laid[0], history=history, ids=tuple(kinds), kinds=tuple(kinds), media=tuple(spans), targets=()
    )


def with_laid(case: Case, laid: Laid) -> Case:
    """The same case, laid out in another way."""
    routed = msgspec.structs.replace(case)
    vars(routed)["laid"] = (laid,)
    return routed


def named(failure: Failure, case: Case, history: History, table: of_builders.Array) -> Failure:
    """A wrong table that is right for one other interval of all videos says so."""
    if not FAMILIES[case.family].absolute_time:
        return failure
    for name, seconds in INTERVALS.items():
        other = tuple(_at(run, seconds) for run in history)
        try:
            table_of = prompt_table(FAMILIES[case.family], other)
        except OutOfDomain:  # between two positions of a family that does not round
            continue
        if np.array_equal(table_of, table):
            return msgspec.structs.replace(failure, signature=f"every interval {name}", rule="families.absolute_time")
    return failure


INTERVALS = {"1 second": 1.0, "2 seconds": 2.0, "1/12 second": 1 / 12}
"""What an engine may assume: one second; two frames of a clip of one frame a second, and of 24."""


def _at(run: Run, seconds: float) -> Run:
    return Run(kind="video", grid=run.grid, seconds_per_grid=seconds) if run.kind == "video" else run
