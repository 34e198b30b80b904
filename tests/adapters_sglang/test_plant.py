"""Where edits of a function can be made and what each makes of its text; and whose code it is."""

from __future__ import annotations

import ast
import functools
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ropecheck.adapters.sglang import plant, spoil


def edits(body: str) -> list[tuple[str, int, str]]:
    """(kind, line of the body, the body with the edit) of every place, but for values on their way."""
    text = "def f(self, x, y):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")
    found = []
    for number in range(len(list(plant.places(ast.parse(text).body[0])))):
        tree = ast.parse(text)
        kind, make, where = list(plant.places(tree.body[0]))[number]
        make()
        if kind not in spoil.VALUES:
            edited = ast.unparse(ast.fix_missing_locations(tree)).splitlines()[1:]
            found.append((kind, int(where.removeprefix("line ")) - 1, textwrap.dedent("\n".join(edited))))
    return found


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("x + y", [("sign", 1, "x - y")]),
        ("x\ny - x", [("sign", 2, "x\ny + x")]),
        ("x * y", []),
        ("x += y", [("sign", 1, "x -= y")]),
        ("x < y", [("bound", 1, "x <= y")]),
        ("x <= y < self", [("bound", 1, "x < y < self")]),
        ("x > y", [("bound", 1, "x >= y")]),
        ("x >= y", [("bound", 1, "x > y")]),
        ("x == y", [("bound", 1, "x != y")]),
        ("x != y", [("bound", 1, "x == y")]),
        ("x is y", []),
        ("x = y.max()", [("call", 1, "x = y.min()")]),
        ("x = y.amax()", [("call", 1, "x = y.amin()")]),
        ("x.extend(y)", [("lost line", 1, "pass"), ("call", 1, "x.append(y)")]),
        ("x = y.sum()", []),
        ("x = max(y)", []),
        ("x = 0", [("number", 1, "x = 1")]),
        ("x = 99", [("number", 1, "x = 100")]),
        ("x = 100", []),
        ("x = True", []),
        ("x = 1.5", []),
        ("x = y if self else 'a'", [("condition", 1, "x = y if not self else 'a'")]),
        ("x = y == 'a'", [("bound", 1, "x = y != 'a'"), ("another name", 1, "x = y == 'a?'")]),
        (
            "x in ('a', 'b')",
            [("another name", 1, "x in ('a?', 'b')"), ("another name", 1, "x in ('a', 'b?')")],
        ),
        ("self.x = y", [("lost line", 1, "pass")]),
        ("x[y] = self", [("lost line", 1, "pass")]),
        ("x = y\nx(y)", [("lost line", 2, "x = y\npass")]),
        (
            "if x:\n    y(x)\nelse:\n    x(y)",
            [
                ("condition", 1, "if not x:\n    y(x)\nelse:\n    x(y)"),
                ("lost line", 2, "if x:\n    pass\nelse:\n    x(y)"),
                ("lost line", 4, "if x:\n    y(x)\nelse:\n    pass"),
            ],
        ),
    ],
)
def test_edits_of_a_line(body: str, expected: list[tuple[str, int, str]]) -> None:
    assert edits(body) == expected


def test_a_loop_may_end_after_the_first() -> None:
    ((kind, line, text),) = edits("for x in y:\n    pass")
    assert (kind, line) == ("first alone", 1) and text.startswith(
        "for x in __import__('ropecheck.adapters.sglang.spoil'"
    )
    assert text.endswith(".first(y):\n    pass")


@pytest.mark.parametrize(
    ("line", "spoilt"),
    [
        ("return x", True),
        ("return", False),
        ("seq_lens = x", True),
        ("self.delta = x", True),
        ("other = x", False),
        ("delta.x = y", False),
        ("x['delta'] = y", False),
    ],
)
def test_values_that_speak_of_places_are_spoilt_on_their_way(line: str, spoilt: bool) -> None:
    node = ast.parse(f"def f(x, y):\n    {line}\n").body[0]
    found = {kind: make for kind, make, where in plant.places(node) if kind in spoil.VALUES and where == "line 2"}
    assert list(found) == (list(spoil.VALUES) if spoilt else [])
    if spoilt:
        found["clamp at 4095"]()
        called = ast.unparse(ast.fix_missing_locations(node))
        assert called.endswith("fromlist=['_']).value('clamp at 4095', x)")


# ---------------------------------------------------------------- whose code it is

OWNER = """
import functools
import contextlib


def noted(function):
    @functools.wraps(function)
    def call(*args):
        return ("noted", function(*args))

    return call


class Table:
    number = 5

    def plain(self):
        return 1

    @staticmethod
    def static():
        return 1

    @classmethod
    def of_class(cls):
        return 1

    @property
    def asked(self):
        return 1

    @noted
    def wrapped(self):
        return 1

    class Inner:
        def deep(self):
            return 1


@functools.lru_cache
def kept():
    return 1


@contextlib.contextmanager
def managed():
    yield 1


def late():
    def inside():
        return 1

    return inside()
"""


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of functions of every kind."""
    (tmp_path / "plant_owner.py").write_text(OWNER)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "plant_owner", raising=False)
    module: Any = __import__("plant_owner")
    yield module
    plant.restore()
    del sys.modules["plant_owner"]


@pytest.mark.parametrize(
    ("name", "ask"),
    [
        ("Table.plain", lambda owner: owner.Table().plain()),
        ("Table.static", lambda owner: owner.Table.static()),
        ("Table.of_class", lambda owner: owner.Table.of_class()),
        ("Table.asked", lambda owner: owner.Table().asked),
        ("Table.wrapped", lambda owner: owner.Table().wrapped()[1]),
        ("Table.Inner.deep", lambda owner: owner.Table.Inner().deep()),
        ("kept", lambda owner: owner.kept.__wrapped__()),
        ("managed", lambda owner: owner.managed().__enter__()),
        ("late", lambda owner: owner.late()),
    ],
)
def test_the_function_that_runs_is_edited_and_restored(name: str, ask: Any, owner: Any) -> None:
    assert plant.count("plant_owner", name)["number"] == 1
    where = plant.plant("plant_owner", name, "number", 0)
    line = int(where.removeprefix("line "))
    assert OWNER.splitlines()[line - 1].strip() in ("return 1", "yield 1") and ask(owner) == 2
    plant.restore()
    assert ask(owner) == 1


def test_what_cannot_be_edited_says_so(owner: Any) -> None:
    for name in ("Table.nothing", "nothing", "Table.number"):
        with pytest.raises(LookupError, match=name):
            plant.function_in(plant.tree_of(owner), name)
        assert plant.count("plant_owner", name) == {}
    with pytest.raises(LookupError, match="number is a int"):
        plant._target(owner, "Table.number")
    with pytest.raises(LookupError, match="has 1 places for 'number'"):
        plant.plant("plant_owner", "late", "number", 1)
    with pytest.raises(LookupError, match="nothing"):
        plant._code_in(compile(OWNER, "owner", "exec"), "nothing")
    assert plant.count("no_such_module_at_all", "f") == {}


def test_several_edits_are_taken_back_in_turn(owner: Any) -> None:
    held = owner.late.__code__
    plant.plant("plant_owner", "late", "number", 0)
    plant._HELD.insert(0, (owner.Table.plain, owner.kept.__wrapped__.__code__))
    plant.restore()
    assert owner.late.__code__ is held and plant._HELD == []
    assert owner.Table.plain.__code__ is owner.kept.__wrapped__.__code__


def test_what_a_spoilt_value_holds_stays_what_it_is() -> None:
    torch = pytest.importorskip("torch")
    spoilt = functools.partial(spoil.value, "clamp at 4095")
    assert spoilt(5000) == 4095 and type(spoilt(5000)) is int and spoilt(True) is True
    assert spoilt([]) == [] and spoilt([5000, "a"]) == [5000, "a"] and spoilt((5000,)) == (5000,)
    pair = spoilt((torch.tensor([5000]), "a", 5000))
    assert isinstance(pair, tuple) and pair[0].tolist() == [4095] and pair[1:] == ("a", 4095)
    several = spoilt([torch.tensor([5000]), 3])
    assert isinstance(several, list) and several[0].tolist() == [4095]
    whole = torch.tensor([0.5, 40000.5])
    assert spoil.value("through int16", whole).tolist() == [0.5, 40000.5]
    assert spoil.value("through float16", torch.tensor([2049.0])).tolist() == [2048.0]
    assert spoil.value("through float32", torch.tensor([5], dtype=torch.int32)).dtype == torch.int32
    nine = torch.arange(18).reshape(9, 2)
    assert torch.equal(spoil.value("ninth as eighth", nine), nine)
    assert spoil.value("ninth as eighth", list(range(8))) == list(range(8))
    kept = torch.arange(9)
    assert spoil.value("ninth as eighth", kept).tolist() == [*range(8), 7] and kept.tolist() == list(range(9))
    assert spoil.first([3, 4]) == [3] and spoil.first(iter("ab")) == ["a"] and spoil.first([]) == []


def test_a_tree_is_of_the_modules_own_source(owner: Any) -> None:
    names = [one.name for one in plant.tree_of(owner).body if isinstance(one, ast.FunctionDef | ast.ClassDef)]
    assert names == ["noted", "Table", "kept", "managed", "late"] and isinstance(owner, ModuleType)
