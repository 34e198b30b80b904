"""A route's table, laid into views: what the client sent says the items, the expanded prompt says where they stand."""

from dataclasses import replace

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.families import verdict as of_builders
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.layout import Laid, lay_out
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import Difference, Outcome
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.routes.kinds import KINDS, sent_kinds, without_words
from ropecheck.reference.prompt_tables import prompt_table
from ropecheck.reference.timeline import laid
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.glm_image import written_history
from ropecheck.spec.families.prompt import Prompt, order
from ropecheck.spec.families.rules import ExpandedPrompt
from ropecheck.spec.history import History, OutOfDomain, Run
from ropecheck.spec.prefix import Hit, alike


def judge(case: Case, result: protocol.Result) -> Outcome:
    """Every rule that a route's case checks."""
    if not isinstance(result, protocol.PromptTables) or (result.hit is None and result.kinds is None):
        return of_builders.judge(case, result)
    tally = ScenarioTally()
    if result.hit is not None:
        _pair(tally, case, result.hit)
    elif result.kinds is not None:
        made = expanded(case, result.kinds)
        broken = ask(tally, case.mode, made)
        for rule, found in broken:
            shape = AS_TEXT if counted_on(case, result) else found.shape
            tally.fail(of_builders.failure(case, rule.id, shape, found.message))
        if not broken:
            _table(tally, case, made.history, result)
    return of_builders.outcome(case, tally)


AS_TEXT = "accepts, an item as one token of text"


def as_written(case: Case) -> tuple[int, ...]:
    """The kinds of a message as its client writes it: one placeholder for every item, and nothing that a processor
    adds."""
    (prompt,) = case.prompts
    written = lay_out(case.family, tuple(one for one in prompt if one.kind != "target")).history
    return tuple(kind for run in written for kind in [KINDS.index(run.kind)] * (run.tokens if run.is_text else 1))


def counted_on(case: Case, result: protocol.PromptTables) -> bool:
    """Whether the message is as its client wrote it, every token at its index, and the delta says so."""
    kinds = without_words(result.kinds or ())
    if kinds != as_written(case) or of_builders.array(result.delta).any():
        return False
    table = of_builders.array(result.table)
    return np.array_equal(table, np.tile(np.arange(len(kinds)), (len(table), 1)))


def pair(case: Case, hit: int) -> Hit:
    """Two requests, of which the second is served so many tokens from what the first has cached."""
    family, (one, other) = FAMILIES[case.family], (laid.history for laid in case.laid)
    first, second = (prompt_table(family, history).T.tolist() for history in (one, other))
    return Hit(own=second, other=first, tokens=hit, alike=alike(family, other, one))


def _pair(tally: ScenarioTally, case: Case, hit: int) -> None:
    """Of two requests: how much the second may use. Their tables are judged elsewhere."""
    for rule, found in ask(tally, case.mode, pair(case, hit)):
        difference = Difference(found.axis, found.at, 1, found.expected, found.observed)
        tally.fail(of_builders.failure(case, rule.id, found.shape, found.message, difference))


def expanded(case: Case, kinds: tuple[int, ...]) -> ExpandedPrompt:
    """The engine's prompt with the client's items."""
    (sent,) = case.laid
    pictures = len(sent.image_grids) - len(sent.targets)
    prompt = Prompt(
        kinds=tuple(KINDS[kind] for kind in without_words(kinds)),
        image_grids=sent.image_grids[:pictures],
        video_grids=sent.video_grids,
        seconds_per_grid=sent.seconds if sent.video_grids else None,
        audio_tokens=tuple(run.tokens for run in sent.history if run.kind == "audio"),
    )
    written, kept = (tuple(KINDS[kind] for kind in kinds) for kinds in (sent_kinds(case), kinds))
    return ExpandedPrompt(
        family=FAMILIES[case.family], sent=sent.history, prompt=prompt, written=order(written), kept=order(kept)
    )


def _table(tally: ScenarioTally, case: Case, history: History, result: protocol.PromptTables) -> None:
    routed = with_laid(case, placed(case, history, len(result.kinds or ())))
    targets = case.laid[0].targets
    right = prompt_table(FAMILIES[case.family], written_history(history, targets) if targets else history)
    table, delta = of_builders.array(result.table), of_builders.array(result.delta)
    of_builders.tensors(tally, routed, result, (right.shape,), ((1, 1), (1,)))
    if table.ndim != 2 or len(table) != len(right):
        return
    value = of_builders.number_of(delta.reshape(-1)[0]) if delta.size else None
    of_builders.one_table(tally, routed, right, table, value)
    name = as_though(case, history, table)
    timed = next((one for one in tally.failures if one.rule == "families.absolute_time"), None)
    if name and timed is not None:  # the delta follows from it
        others = [one for one in tally.failures if one.rule not in (timed.rule, "families.delta")]
        tally.failures = [*others, msgspec.structs.replace(timed, signature=name)]


def placed(case: Case, history: History, tokens: int) -> Laid:
    """The layout that the engine made."""
    spans = tuple((start, stop) for run, start, stop in laid(case.family, history) if not run.is_text)
    ids = (0,) * tokens
    return msgspec.structs.replace(case.laid[0], history=history, ids=ids, kinds=ids, media=spans)


def with_laid(case: Case, other: Laid) -> Case:
    """The same case, laid out in another way."""
    routed = msgspec.structs.replace(case)
    vars(routed)["laid"] = (other,)
    return routed


def as_though(case: Case, history: History, table: of_builders.Array) -> str:
    """The shape of a table that is right for one other interval of all videos; "" for any other."""
    if not FAMILIES[case.family].absolute_time:
        return ""
    for name, seconds in INTERVALS.items():
        other = tuple(_at(run, seconds) for run in history)
        try:
            table_of = prompt_table(FAMILIES[case.family], other)
        except OutOfDomain:  # between two positions of a family that does not round
            continue
        if np.array_equal(table_of, table):
            return f"every interval {name}"
    return ""


INTERVALS = {"1 second": 1.0, "2 seconds": 2.0, "1/12 second": 1 / 12}
"""What an engine may assume: one second; two frames of a clip of one frame a second, and of 24."""


def _at(run: Run, seconds: float) -> Run:
    return replace(run, seconds_per_grid=seconds) if run.kind == "video" else run
