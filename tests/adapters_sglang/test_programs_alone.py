"""Programs on numpy, piece by piece: what a load, a store and a division give, and which programs are left to Triton.
That whole programs leave the same memory as Triton's interpreter is test_programs.py's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ropecheck.adapters.sglang import programs
from ropecheck.adapters.sglang.programs import LANGUAGE as tl
from ropecheck.adapters.sglang.programs import Pointer, Program

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")

TOO_LARGE = 1 << 31


def memory(*values: int, dtype: Any = np.int64) -> Pointer:
    """A tensor of these numbers."""
    return Pointer(np.array(values, dtype), np.int64(0))


def test_numbers_are_int32_where_they_fit() -> None:
    dtypes = {one: programs.value(one).dtype.name for one in (0, TOO_LARGE - 1, -TOO_LARGE, TOO_LARGE, -TOO_LARGE - 1)}
    assert list(dtypes.values()) == ["int32", "int32", "int32", "int64", "int64"]
    assert programs.value(True) is True and programs.value(None) is None and programs.value("a") == "a"


def test_a_load_takes_what_stands_there() -> None:
    table = memory(7, 8, 9)
    assert tl.load(table + 2) == 9 and tl.load(2 + table) == 9 and tl.load(table + 2 - 1) == 8
    at = table + np.arange(4)
    assert tl.load(at, mask=np.array([1, 0, 1, 0], bool)).tolist() == [7, 0, 9, 0]
    assert tl.load(at, np.array([1, 1, 0, 0], bool), -5).tolist() == [7, 8, -5, -5]
    assert tl.load(table + 9, mask=False, other=4) == 4 and tl.load(table, mask=True, other=4) == 7
    small = tl.load(memory(1, 2, dtype=np.int32) + np.arange(2), mask=np.array([True, False]))
    assert small.dtype == np.int32


def test_a_store_writes_where_the_mask_is_true() -> None:
    table = memory(0, 0, 0, 0)
    tl.store(table + 3, 5)
    tl.store(table + np.arange(5), np.arange(5) + 1, mask=np.arange(5) < 2)
    tl.store(table + 2, 9, mask=False)
    assert table.memory.tolist() == [1, 2, 0, 5]


@pytest.mark.parametrize("at", [-1, 3, np.array([0, 3]), np.array([-1, 0])])
def test_an_address_outside_is_an_error(at: Any) -> None:
    table = memory(1, 2, 3)
    for call in (lambda: tl.load(table + at), lambda: tl.store(table + at, 1)):
        with pytest.raises(IndexError, match="memory holds 3"):
            call()  # type: ignore[no-untyped-call]
    inside = np.array([0, 2])
    assert tl.load(table + inside).tolist() == [1, 3] and tl.load(table + np.arange(0)).tolist() == []


@pytest.mark.parametrize(("left", "right"), [(7, 2), (-7, 2), (7, -2), (-7, -2), (6, 3), (-6, 3), (0, 5)])
def test_divisions_go_towards_zero(left: int, right: int) -> None:
    """As C's, which Triton's are."""
    found = programs.quotient(np.int64(left), np.int64(right)), programs.remainder(np.int64(left), np.int64(right))
    assert found == (int(left / right), left - int(left / right) * right)
    assert tl.cdiv(7, 3) == 3 and tl.cdiv(6, 3) == 2


def test_sums_wrap_as_their_numbers_do_and_small_ones_are_widened() -> None:
    near = np.array([TOO_LARGE - 1, 1], np.int32)
    assert tl.sum(near) == -TOO_LARGE and tl.sum(near.astype(np.int64)) == TOO_LARGE
    assert tl.sum(np.array([100, 100], np.int8)) == 200 and tl.min(np.array([5], np.int16)).dtype == np.int32
    assert (
        tl.sum(np.array([40000, 40000], np.uint16)).dtype == np.int32
        and tl.max(np.array([True, False])).dtype == np.int32
    )
    assert tl.max(np.array([5], np.uint32)).dtype == np.uint32
    square = np.array([[1, 2], [3, 4]], np.int32)
    assert tl.sum(square, axis=1).tolist() == [3, 7] and tl.max(square, 0).tolist() == [3, 4]
    assert tl.min(square) == 1 and tl.sum(square) == 10
    assert programs.cast(np.array([300]), np.dtype(np.uint8)).tolist() == [44]
    assert tl.cast(np.int64(1 << 33), tl.int32) == 0 and np.ndim(tl.cast(5, tl.int64)) == 0


# ---------------------------------------------------------------- whole programs, launched

constexpr = int
"""By this name Triton's programs mark a parameter that stays what it is."""


def halves(given, out, N: constexpr, step=2):  # type: ignore[no-untyped-def]
    """Every program of the grid halves one number."""
    at = tl.program_id(0) * N + tl.program_id(1)
    more = 1
    more += 0
    tl.store(out + at, (tl.load(given + at).to(tl.int32) // step) % 5 + more - 1)


def counts(out):  # type: ignore[no-untyped-def]
    """How often it runs, and where last."""
    tl.store(out, tl.load(out) + 1)
    tl.store(out + 1, tl.program_id(0) * 100 + tl.program_id(1) * 10 + tl.program_id(2))


@pytest.mark.parametrize(
    ("grid", "times", "last"), [((3,), 3, 200), ((2, 3), 6, 120), ((2, 3, 4), 24, 123), ((0, 3), 0, 0)]
)
def test_a_grid_has_up_to_three_axes(grid: tuple[int, ...], times: int, last: int) -> None:
    out = torch.zeros(2, dtype=torch.int64)
    assert launched(counts, grid, out) and out.tolist() == [times, last]


def columns(width, out):  # type: ignore[no-untyped-def]
    """The widths of what is passed on: a number's, and that of a literal that is too large for it."""
    tl.store(out, width + 2147483647)
    large = 2147483648
    tl.store(out + 1, width + large)


def constant(number, out, N: constexpr):  # type: ignore[no-untyped-def]
    """What is marked is Python's own number and does not wrap."""
    tl.store(out, N + 2147483647)


def odd_cast(given, out):  # type: ignore[no-untyped-def]
    """A dtype of the tensor's own: here it wraps."""
    there = tl.load(given)
    tl.store(out, (there.to(tl.int32) + 65536).to(there.dtype))


def assigned(given, out):  # type: ignore[no-untyped-def]
    """What is kept under a name is computed as what is stored."""
    half = tl.load(given) // 2
    half += tl.load(given + 1) % 4
    tl.store(out, half)


def launched(function: Callable[..., Any], grid: tuple[int, ...], *args: Any, **named: Any) -> bool:
    return Program(function).launch(grid, args, named)


def test_a_program_runs_at_every_place_of_the_grid() -> None:
    given, out = torch.tensor([9, -9, 4, 21, 0, -1]), torch.zeros(6, dtype=torch.int64)
    assert launched(halves, (2, 3), given, out, 3, warps=4)
    assert out.tolist() == [4, -4, 2, 0, 0, 0]
    assert launched(halves, (1, 2), given, out, N=3, step=3)
    assert out.tolist() == [3, -3, 2, 0, 0, 0]


def test_names_and_dtypes_of_tensors() -> None:
    out = torch.zeros(1, dtype=torch.int64)
    assert launched(assigned, (1,), torch.tensor([-7, -5]), out) and out.tolist() == [-4]
    assert launched(odd_cast, (1,), torch.tensor([300], dtype=torch.int16), out) and out.tolist() == [300]


def test_a_part_of_a_tensor_is_read_from_where_it_begins() -> None:
    wide, out = torch.arange(12).reshape(3, 4), torch.zeros(2, dtype=torch.int64)
    assert launched(halves, (1, 1), wide[1, 2:], out[1:], 3) and out.tolist() == [0, 3]


def test_arguments_are_as_wide_as_tritons() -> None:
    out = torch.zeros(2, dtype=torch.int64)
    with np.errstate(over="ignore"):
        assert launched(columns, (1,), 1, out)
    assert out.tolist() == [-TOO_LARGE, TOO_LARGE + 1]
    assert launched(constant, (1,), 1, out, 1) and out.tolist()[0] == TOO_LARGE


def test_floats_and_what_is_not_on_the_host_are_left_to_triton() -> None:
    out = torch.zeros(2, dtype=torch.int64)
    assert not launched(columns, (1,), 1.5, out)
    assert not launched(columns, (1,), 1, torch.zeros(2, dtype=torch.float64))
    assert not launched(columns, (1,), 1, torch.zeros(2, dtype=torch.int64, device="meta"))
    assert out.tolist() == [0, 0]


def divides(a):  # type: ignore[no-untyped-def]
    tl.store(a, 4 / 2)


def halved(a):  # type: ignore[no-untyped-def]
    tl.store(a, 0.5)


def calls(a):  # type: ignore[no-untyped-def]
    halves(a, a, 1)


def unknown_word(a):  # type: ignore[no-untyped-def]
    tl.dot(a, a)


def other_attribute(a):  # type: ignore[no-untyped-def]
    tl.store(a, a.shape)


def divides_in_place(a):  # type: ignore[no-untyped-def]
    odd = 5
    odd //= 2
    tl.store(a, odd)


def waits(a):  # type: ignore[no-untyped-def]
    while tl.load(a):
        tl.store(a, 0)


REFUSED = (divides, halved, calls, unknown_word, other_attribute, divides_in_place, waits)


@pytest.mark.parametrize("function", [*REFUSED, len, lambda a: a], ids=lambda one: one.__name__)
def test_other_programs_are_left_to_triton(function: Any) -> None:
    assert programs.program(function) is None


def test_a_program_is_read_once() -> None:
    assert programs.program(halves) is programs.program(halves) is not None


def test_a_program_keeps_its_lines() -> None:
    """Of its file, so that a traceback tells where."""
    first = halves.__code__.co_firstlineno
    assert Program(halves)._function.__code__.co_firstlineno == first
    assert Program(halves)._function.__code__.co_filename == __file__


def test_launches_go_to_numpy_where_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Interpreted:
        def __init__(self, function: Any, hooks: Any = ()) -> None:
            self.fn, self.pre_run_hooks = function, hooks

        def run(self, *args: Any, grid: Any, warmup: bool, **named: Any) -> str:
            told.append((args, grid, warmup, named))
            return "Triton's"

    interpreter = ModuleType("triton.runtime.interpreter")
    vars(interpreter)["InterpretedFunction"] = Interpreted
    for module in (ModuleType("triton"), ModuleType("triton.runtime"), interpreter):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    programs.install()
    given, out = torch.tensor([9, 8, 7]), torch.zeros(3, dtype=torch.int64)
    call: Any = Interpreted(halves).run
    assert call(given, out, 3, grid=[1, 3], warmup=False) is None
    assert told == [] and out.tolist() == [4, 4, 3]
    for kernel, grid, warmup in (
        (Interpreted(halves), (1, 3), True),
        (Interpreted(halves), lambda meta: (1, 3), False),
        (Interpreted(halves, ["a hook"]), (1, 3), False),
        (Interpreted(divides), (1, 3), False),
    ):
        assert kernel.run(given, out, 3, grid=grid, warmup=warmup, step=2) == "Triton's"
        assert told.pop() == ((given, out, 3), grid, warmup, {"step": 2})
    assert Interpreted(columns).run(1.5, out, grid=(1,), warmup=False) == "Triton's"
    monkeypatch.setitem(sys.modules, "triton.runtime.interpreter", SimpleNamespace())
    programs.install()  # a Triton without an interpreter
