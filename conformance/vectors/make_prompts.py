"""Prompt-table vectors: the chosen cases of every family, their tables from the reference."""

from collections.abc import Iterator

from ropecheck.conformance.families import cases as family_cases
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.vectors import types as v
from ropecheck.conformance.vectors.wire import rows_of, runs_of
from ropecheck.reference import prompt_tables
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.glm_image import GLM_IMAGE
from ropecheck.spec.families.minicpm_v import MINICPM_V4_7

Found = tuple[Case, str, v.PromptTableInput, v.ExpectedTable]
"""Case, its name without the family's, input, expected table."""


def prompts() -> Iterator[Found]:
    """Every chosen prompt that is to be tabulated; prompts with images to be written (GLM-Image) are left out, since
    their tables go on past the prompt."""
    for name, family in FAMILIES.items():
        if family is MINICPM_V4_7:
            continue  # a vector's run has no slices
        for case in family_cases.chosen(name):
            if case.torn or case.builder != "rope_index":
                continue
            if " far " in case.name:
                continue  # a file of that size is no vector
            for laid in case.laid:
                if laid.targets:
                    continue
                table = prompt_tables.prompt_table(family, laid.history)
                delta = 0 if family is GLM_IMAGE else prompt_tables.delta(table)
                value = v.PromptTableInput(family=name, runs=runs_of(laid.history))
                yield (
                    case,
                    case.name.removeprefix(f"{name}: "),
                    value,
                    v.ExpectedTable(label="", rows=rows_of(table), delta=delta),
                )
