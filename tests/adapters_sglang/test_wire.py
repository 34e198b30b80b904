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
