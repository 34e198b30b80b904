"""Laws on an engine's own answers: what its forwards read, token by token, without an oracle."""

from __future__ import annotations

from collections.abc import Callable

from ropecheck.adapters import protocol
from ropecheck.conformance.judge.outcome import Difference, Failure
from ropecheck.conformance.judge.tally import Tally
from ropecheck.conformance.plan.planner import LawCheck, Reading, decoded
from ropecheck.spec import laws
from ropecheck.spec.history import Column

Read = dict[int, Column]

TWO_SIDED: dict[str, Callable[[laws.Reading, laws.Reading], bool]] = {
    "laws.chunked_prefill_is_one_prefill": laws.chunked,
    "laws.extend_composes": laws.composes,
    "laws.verify_chain_is_decodes": laws.verified,
    "laws.draft_extend_is_verify_chain": laws.draft_extended,
    "laws.draft_step_is_a_decode": laws.drafted,
    "laws.append_is_a_fresh_request": laws.appended,
    "laws.branch_is_its_own_history": laws.branched,
    "laws.retract_and_resume": laws.resumed,
    "laws.batch_order": laws.permuted,
    "laws.batch_split": laws.split,
    "laws.speculation_places_the_same": laws.same_place,
}
"""Laws that compare two readings; laws.text_rows_are_the_index speaks of one."""


def judge_law(tally: Tally, check: LawCheck, answer: protocol.Answer) -> None:
    """Check one law. Says nothing where a forward has no readable table: its own rules have said so."""
    left = _read(check.left, answer)
    right = None if check.right is None else _read(check.right, answer)
    if left is None or (check.right is not None and right is None):
        return
    tally.check(check.law)
    if right is None:
        if not laws.text_rows(left):
            index = next(index for index, column in left.items() if any(p != index for p in column))
            _fail(tally, check, index, str((index,) * len(left[index])), str(left[index]), "rows differ from the index")
        return
    if not TWO_SIDED[check.law](left, right):
        shared = [index for index in left if index in right]
        wrong = next((index for index in shared if left[index] != right[index]), None)
        if wrong is None:
            _fail(tally, check, None, "a token in common", "none", "no token in common")
        else:
            _fail(tally, check, wrong, str(right[wrong]), str(left[wrong]), "two routes, two columns")


def _read(parts: tuple[Reading, ...], answer: protocol.Answer) -> Read | None:
    """Index -> column over several forwards; None when a table is missing, misshapen or contradicts itself in width."""
    out: Read = {}
    for part in parts:
        result = answer.results[part.result]
        if not isinstance(result, protocol.Tables):
            return None
        by_label = {table.label: table for table in result.tables}
        for label in part.labels:
            table = by_label.get(label)
            if table is None or table.positions is None or table.mrope is None:
                return None
            positions, rows = decoded(table.positions), decoded(table.mrope)
            if rows.ndim != 2 or positions.shape != rows.shape[1:] or positions.size < part.stop:
                return None
            for column in range(part.start, part.stop):
                out[int(positions[column])] = tuple(rows[:, column].tolist())
    return out


def _fail(tally: Tally, check: LawCheck, index: int | None, expected: str, observed: str, signature: str) -> None:
    """A law's failure follows from a rule that the same request broke at one of the same operations, if one did."""
    ops = {part.op for part in (*check.left, *(check.right or ()))}
    reqs = {part.req for part in (*check.left, *(check.right or ()))}
    causes = [
        failure.follows or failure.rule
        for failure in tally.failures
        if failure.step in ops and (failure.difference is None or failure.difference.request in reqs)
    ]
    causes += [tally.tainted[req] for req in sorted(reqs) if req in tally.tainted]
    follows = causes[0] if causes else ""
    tally.fail(
        Failure(
            rule=check.law,
            mode="laws",
            signature=f"follows from {follows}" if follows else signature,
            step=check.op,
            label="",
            message=f"token {index}: {observed} by one route, {expected} by the other",
            difference=Difference("token", index, check.req, expected, observed),
            follows=follows,
        )
    )
