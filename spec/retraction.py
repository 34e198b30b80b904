"""Retraction: the scheduler takes a running request's memory back, and later prefills prompt and outputs again."""

from __future__ import annotations

from ropecheck.spec.history import Column, Family, History, prompt_table, text
from ropecheck.spec.rules import MROPE, rule

SCHEDULING = "definition: scheduling must not change what the model reads"
"""Where the rules come from."""


@rule("retraction.same_history", source=SCHEDULING)
def history(prompt: History, outputs: int) -> History:
    """A retracted request must be prefilled again over its prompt and the outputs so far, each at the index it had."""
    return (*prompt, text(outputs)) if outputs else prompt


@rule("retraction.table", source=MROPE, bugs=("sglang #20916",))
def table(family: Family, prompt: History, outputs: int) -> tuple[Column, ...]:
    """Every column that a retracted request's table gains for its outputs must be index + delta on all three rows.

    Also when the prompt ends with media, where the last column's rows differ: text continues after the largest.
    """
    return prompt_table(family, history(prompt, outputs))


@rule("retraction.refused_attempts", source=SCHEDULING)
def after_attempts(table_then: tuple[Column, ...], attempts: int) -> tuple[Column, ...]:
    """Being considered by the scheduler once more, after any number of refusals, must not change a column it had."""
    del attempts
    return table_then
