"""A prompt table that a family's builder made, put to the rules of families."""

from collections.abc import Callable, Mapping, Sequence

from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import failure_of
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.runs import columns_of, history_of
from ropecheck.spec.families import family as find_family
from ropecheck.spec.families.rules import BuiltTable, BuiltTensor
from ropecheck.spec.history import Column, length

MODE = "prompt_table"


def prompt_judge(value: v.PromptTableInput) -> Callable[[ScenarioTally, Mapping[str, v.Answer]], None]:
    """Asks every rule that speaks of the prompt."""
    family, history = find_family(value.family), history_of(value.runs)
    right = (family.axes, length(family, history))

    def ask_rules(tally: ScenarioTally, answered: Mapping[str, v.Answer]) -> None:
        answer = answered.get("")
        rows, delta = (None, None) if answer is None else (answer.rows, answer.delta)
        if rows is not None:
            widths = {len(row) for row in rows}
            shape = (len(rows), *widths) if len(widths) < 2 else (len(rows),)
            tensor = BuiltTensor(name="table", dtype="int64", shape=shape, right=(right,))
            if _report(tally, tensor):
                return
        columns = None if rows is None else columns_of(rows)
        built = BuiltTable(family=family, history=history, columns=columns, delta=delta)
        _report(tally, built, built.right)

    return ask_rules


def _report(tally: ScenarioTally, view: object, right: Sequence[Column] = ()) -> bool:
    """Whether a rule is broken."""
    broken = ask(tally, MODE, view)
    for rule, found in broken:
        shape = found.shape
        if isinstance(view, BuiltTable) and not shape:
            shape = _shape(right, view.columns or ())
        message = found.message if found.at is None else f"token {found.at}: {found.message}"
        tally.fail(failure_of(rule.id, MODE, found, 0, signature=shape, message=message))
    return bool(broken)


def _shape(right: Sequence[Column], seen: Sequence[Sequence[int | float]]) -> str:
    """What became of a table as a whole."""
    pairs = zip(right, seen, strict=True)
    shifts = {got - want for one, other in pairs for want, got in zip(one, other, strict=True)}
    if len(shifts) > 1:
        return "other values"
    return "off by one" if shifts <= {1, -1} else "shifted by a constant"
