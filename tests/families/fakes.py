"""Targets for the conformance tests: one that is right, and ways of being wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ropecheck.adapters.protocol import PromptTables, Raised, Result, Tensor
from ropecheck.conformance.families.case import Case, expected
from ropecheck.reference.blocks import Table

Edit = Callable[[Table], Table]


def tensor(array: npt.NDArray[np.generic]) -> Tensor:
    return Tensor(str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes())


def right(case: Case, edit: Edit | None = None) -> Result:
    """The family's own answer, batched and padded as transformers would; `edit` changes each prompt's table."""
    if case.torn:
        return Raised("engine", "ValueError", f"refused: {case.torn}", "")
    want = expected(case)
    rows = want.tables[0].shape[0]
    table = np.zeros((rows, len(want.tables), want.width), dtype=np.int64)
    ahead = max(full.shape[1] - len(one.ids) for full, one in zip(want.tables, case.laid, strict=True))
    later = np.zeros((len(want.tables), rows, ahead), dtype=np.int64)
    for number, (full, one) in enumerate(zip(want.tables, case.laid, strict=True)):
        made = full if edit is None else edit(full.copy())
        prompt = len(one.ids)
        table[:, number, want.width - prompt :] = made[:, :prompt]
        later[number, :, : made.shape[1] - prompt] = made[:, prompt:]
    delta = np.array(want.deltas, dtype=np.int64)[:, None]
    return PromptTables(tensor(table), tensor(delta), tensor(later) if ahead else None, "fake")
