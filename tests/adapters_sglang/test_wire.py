"""Between tensors and bytes; and which functions ran."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine
torch = pytest.importorskip("torch")


def test_values_come_back_whatever_their_strides() -> None:
    from ropecheck.adapters.sglang.wire import pack, unpack

    table = torch.arange(12, dtype=torch.int64).reshape(4, 3).T
    packed = pack(table)
    assert packed is not None and (packed.dtype, packed.shape) == ("int64", (3, 4))
    back = unpack(packed)
    assert back.equal(table) and back.dtype == table.dtype
    table += 1
    assert not unpack(packed).equal(table), "a copy of what was there"
    back += 1  # writable
    assert pack(None) is None


def test_numbers_between_others_are_the_same_numbers() -> None:
    from ropecheck.adapters.sglang.wire import between_others

    for numbers in (torch.tensor([4, 5, 6]), torch.arange(6, dtype=torch.int32).reshape(2, 3)):
        found = between_others(numbers)
        assert found.equal(numbers) and found.dtype == numbers.dtype and found.stride()[-1] == 2
        assert found.as_strided(numbers.shape, found.stride(), 1).unique().tolist() == [-1]


def test_a_tensor_of_another_kind_or_place_is_packed_as_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    from ropecheck.adapters.sglang.kernels import OnGpu
    from ropecheck.adapters.sglang.wire import pack

    plain = torch.tensor([1, 2], dtype=torch.int32)
    assert pack(plain.as_subclass(OnGpu)) == pack(plain)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: plain)
    assert pack(torch.zeros(2, dtype=torch.int32, device="meta")) == pack(plain)
    packed = pack(plain)
    assert packed is not None and packed.dtype == "int32" and len(packed.data) == 8


@pytest.mark.parametrize("shape", [(3, 0), (0,)])
def test_nothing_has_a_shape(shape: tuple[int, ...]) -> None:
    from ropecheck.adapters.sglang.wire import pack, unpack

    packed = pack(torch.zeros(shape, dtype=torch.int32))
    assert packed is not None and packed.data == b""
    assert unpack(packed).shape == shape and unpack(packed).dtype == torch.int32


def test_the_engines_own_functions_are_noted_once(tmp_path: Path) -> None:
    from ropecheck.adapters.sglang import trace

    file = tmp_path / "sglang" / "srt" / "made.py"
    space: dict[str, object] = {}
    text = "class A:\n    def inner(self):\n        return [n for n in (1, 2)]\n\n"
    text += "def outer():\n    A().inner()\n    A().inner()\n"
    exec(compile(text, str(file), "exec"), space)
    before = sys.getprofile()
    with trace.functions() as ran:
        space["outer"]()  # type: ignore[operator]
        Path(tmp_path).exists()
    assert ran == ["sglang/srt/made.py:5 outer", "sglang/srt/made.py:2 A.inner"]
    assert sys.getprofile() is before
