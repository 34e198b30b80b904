"""The engine's whole-number Triton programs, by Triton's interpreter and on numpy: prints each that ran on numpy, and
raises where the two leave different memory. A process of its own: Triton decides at its import whether it interprets.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ropecheck.adapters.sglang import boot

boot.prepare_environment("cpu")

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from ropecheck.adapters.sglang import absent_packages, programs  # noqa: E402
from ropecheck.adapters.sglang.scheduler import slots  # noqa: E402

ran: list[str] = []
number = random.Random(0).randint


@triton.jit  # type: ignore[untyped-decorator]
def _arithmetic(left, right, small, out, flags, moved, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums that wrap, division towards zero, masks, casts, reductions: what the engine's programs may come to need."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < N
    a = tl.load(left + row * N + at, mask=mask, other=7)
    b = tl.load(right + row * N + at, mask=mask, other=-3)
    c = tl.load(small + row * N + at, mask, 1)
    out += row * 12 * BLOCK
    tl.store(out + at, a + b)
    tl.store(out + BLOCK + at, a // b)
    tl.store(out + 2 * BLOCK + at, a % b)
    tl.store(out + 3 * BLOCK + at, tl.where(a > b, a, -1).to(tl.int64))
    tl.store(out + 4 * BLOCK + at, c * c + 2)
    tl.store(out + 5 * BLOCK + at, tl.maximum(a, b) - tl.minimum(c, 5))
    tl.store(out + 6 * BLOCK + at, tl.cast(a, tl.int32))
    tl.store(out + 7 * BLOCK + at, c + 2147483647)
    tl.store(out + 8 * BLOCK, tl.sum(c))
    tl.store(out + 9 * BLOCK, tl.max(a, axis=0) + tl.min(b, 0))
    tl.store(out + 10 * BLOCK, tl.sum((a > b).to(tl.int32), axis=0))
    square = (c[:, None] == c[None, :]) & (at[:, None] > at[None, :])
    tl.store(out + 11 * BLOCK + at, tl.sum(square.to(tl.int32), axis=1))
    tl.store(flags + row * BLOCK + at, (a == b) | ~mask)
    tl.debug_barrier()
    tl.store(moved + row * N + at, tl.load(moved + row * N + at, mask=mask), mask=mask & (at > 1))
    tl.store(moved + row * N, tl.load(moved + row * N + 1))
    odd = 0
    for step in tl.static_range(N):
        if tl.load(left + row * N + step) % 2 != 0:
            odd += 1
    tl.store(out + 8 * BLOCK + 1, odd)
    tl.store(out + 8 * BLOCK + 2, tl.cdiv(odd, 3))


def tensor(low: int, high: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Random whole numbers."""
    count = torch.Size(shape).numel()
    return torch.tensor([number(low, high) for _ in range(count)], dtype=dtype).reshape(shape)


def both(name: str, call: Callable[..., Any], *tensors: torch.Tensor) -> None:
    """Call it both ways with copies of the tensors and compare all of their memory."""
    known = programs.program
    whole = [one.clone() for one in tensors]
    call(*whole)
    vars(programs)["program"] = lambda function: None
    call(*tensors)
    vars(programs)["program"] = known
    for at, (mine, theirs) in enumerate(zip(whole, tensors, strict=True)):
        assert torch.equal(mine, theirs), f"{name}, tensor {at}: {mine.tolist()} is not {theirs.tolist()}"


def arithmetic() -> None:
    """Every piece of the language."""
    rows, count, block = 3, 5, 8
    near = 1 << 31
    given = (
        tensor(-9, 9, rows, count) + near * tensor(-1, 1, rows, count),
        tensor(1, 9, rows, count) * (1 - 2 * tensor(0, 1, rows, count)),
        tensor(-50000, 50000, rows, count, dtype=torch.int32),
    )
    out = torch.zeros(rows, 12 * block, dtype=torch.int64)
    flags = torch.zeros(rows, block, dtype=torch.bool)
    moved = tensor(-9, 9, rows, count) / 7
    both("arithmetic", lambda *own: _arithmetic[(rows,)](*own, count, block), *given, out, flags, moved)


def trees_of_masks(nodes: int) -> None:
    """N-gram trees from their masks."""
    from sglang.kernels.ops.speculative import reconstruct_tree

    rows = number(1, 3)
    mask = torch.zeros(rows, nodes, nodes, dtype=torch.bool)
    for row in range(rows):
        for node in range(nodes):
            if node:
                mask[row, node] = mask[row, number(0, node - 1)]
            mask[row, node, node] = True
    outs = [torch.full((rows, nodes), -1, dtype=torch.int64) for _ in range(4)]
    both(
        "reconstruct",
        lambda *own: reconstruct_tree.reconstruct_indices_from_tree_mask_triton(*own, rows, nodes),
        *(mask.flatten(), tensor(1, 99, rows), *(one.flatten() for one in outs)),
    )


def trees_of_drafts(topk: int, steps: int, nodes: int) -> None:
    """EAGLE's trees, of any parents."""
    from sglang.kernels.ops.speculative import spec_tree

    rows = number(1, 3)
    lengths = tensor(1, 20, rows)
    beams = tensor(-1, topk * steps, rows, topk * (steps - 1) + 1)
    picked = sorted(random.Random(number(0, 999)).sample(range(topk * steps), nodes - 1))
    chosen = torch.tensor(picked).repeat(rows, 1)
    mask = torch.ones(int(lengths.sum() * nodes + rows * nodes * nodes), dtype=torch.bool)
    outs = [torch.full((rows, nodes), -1, dtype=torch.int64) for _ in range(3)]
    both(
        "build tree",
        lambda *own: spec_tree.sgl_build_tree_kernel_triton(*own, topk, steps, nodes, 0),
        *(beams, chosen, lengths, mask, torch.zeros(rows * nodes, dtype=torch.int64), *outs),
    )


def slots_of_drafts(topk: int, steps: int) -> None:
    """Slots and positions of a chain of drafts."""
    from sglang.kernels.ops.speculative import cache_locs

    rows = number(1, 3)
    positions, mrope = torch.zeros(rows * topk, dtype=torch.int64), torch.zeros(3, rows * topk, dtype=torch.int64)

    def call(reqs: Any, table: Any, lengths: Any, out: Any, positions: Any, mrope: Any) -> None:
        cache_locs.assign_draft_cache_locs_contiguous_func(reqs, table, lengths, out, topk, steps, positions, mrope)

    both(
        "slots of drafts",
        call,
        *(tensor(0, 3, rows), tensor(0, 99, 4, 64, dtype=torch.int32), tensor(1, 20, rows)),
        *(torch.zeros(rows * topk * steps, dtype=torch.int64), positions, mrope),
    )


def main() -> None:
    """Both ways, a few times each."""
    absent_packages.install()
    slots.without_binaries()
    programs.install()
    launch = programs.Program.launch

    def noted(self: Any, *given: Any) -> bool:
        done = launch(self, *given)
        if done:
            ran.append(self._function.__name__)
        return done

    vars(programs)["Program"].launch = noted
    arithmetic()
    for nodes in (1, 2, 4, 6):
        trees_of_masks(nodes)
    for topk, steps, nodes in ((1, 2, 3), (2, 3, 5), (4, 3, 8)):
        trees_of_drafts(topk, steps, nodes)
        slots_of_drafts(topk, steps)
    print("\n".join(sorted(set(ran))))


if __name__ == "__main__":
    main()
