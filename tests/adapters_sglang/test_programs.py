"""Triton's whole-number programs on numpy: the same memory as Triton's interpreter leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def test_a_worker_imports_neither_torch_nor_triton_before_it_says_how() -> None:
    """Threads that torch starts before a fork are waited for in it for ever."""
    text = "import sys, ropecheck.adapters.sglang.worker; print({'torch', 'triton'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.engine
@pytest.mark.xdist_group("scheduler")
def test_programs_leave_what_tritons_interpreter_leaves() -> None:
    pytest.importorskip("sglang")
    command = [sys.executable, "-m", "tests.adapters_sglang.programs_both_ways"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == [
        "_arithmetic",
        "_reconstruct_tree_mask_kernel",
        "assign_draft_cache_locs_contiguous",
        "sgl_build_tree_kernel_efficient_triton",
    ]
