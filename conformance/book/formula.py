"""Python expressions as formulas in MathML: what a mode's function returns, what a rule's predicate says."""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from markupsafe import Markup

from ropecheck.spec.modes.declaration import NOBODY, Mode

COMPARED = {
    ast.Eq: "=",
    ast.NotEq: "≠",
    ast.Lt: "<",
    ast.LtE: "≤",
    ast.Gt: ">",
    ast.GtE: "≥",
    ast.In: "∈",
    ast.NotIn: "∉",
    ast.Is: "=",
    ast.IsNot: "≠",
}
BINARY = {ast.Add: ("+", 2), ast.Sub: ("−", 2), ast.Mult: ("·", 3), ast.Mod: ("mod", 3), ast.BitAnd: ("∩", 3)}
NAMES = {"delta": "δ", "None": "none", "True": "true", "False": "false", "pi": "π", "INT64": "int64"}
FENCES = {"len": ("|", "|"), "abs": ("|", "|"), "floor": ("⌊", "⌋"), "ceil": ("⌈", "⌉"), "set": ("{", "}")}
"""Functions that are written as brackets."""
SILENT = {"tuple", "list", "bool", "int", "frozenset", "sorted", "enumerate", "map"}
"""Functions that change nothing that a formula speaks of."""


def formula(node: ast.expr) -> Markup:
    """A whole formula, as a block; empty for an expression that none is known of."""
    try:
        return Markup('<math display="block">{}</math>').format(_of(node, 0))
    except ValueError:
        return Markup("")


def returned(function: Callable[..., Any]) -> ast.expr | None:
    """What a function returns, where its body is returns and ifs of returns behind the docstring; else None."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        return None
    body = [one for one in tree.body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    last = body.pop()
    if not isinstance(last, ast.Return) or last.value is None or (not body and isinstance(last.value, ast.Name)):
        return None
    value = last.value
    for one in reversed(body):
        if not (
            isinstance(one, ast.If) and not one.orelse and len(one.body) == 1 and isinstance(one.body[0], ast.Return)
        ):
            return None
        inner = one.body[0].value
        if inner is None:
            return None
        value = ast.IfExp(one.test, inner, value)
    return value


def tokens_formula(mode: Mode, prefix: str = "") -> Markup:
    """Which token a row of the mode reads at its k-th place; empty where the function is more than one expression."""
    value = None if mode.composite or mode.reads == NOBODY else returned(mode.tokens)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name) or len(value.args) != 2:
        return Markup("")
    first, second = value.args
    k, until = _mi("k"), Markup("")
    once = isinstance(second, ast.Constant) and second.value == 1
    match value.func.id:
        case "span" | "repeated" if once:
            token = _of(first, 0)
        case "span":
            token = _row(_of(first, 2), _mo("+"), k)
            until = _row(_mi("k"), _mo("="), _mn("0"), _mo("…"), _of(second, 2), _mo("−"), _mn("1"))
        case "repeated":
            token = _of(first, 0)
            until = _row(_mi("k"), _mo("="), _mn("0"), _mo("…"), _of(second, 2), _mo("−"), _mn("1"))
        case "at":
            token = _row(_of(first, 2), _mo("+"), Markup("<msub>{}{}</msub>").format(_of(second, 9), k))
        case _:
            return Markup("")
    left = _mi("token") if once else Markup("<msub>{}{}</msub>").format(_mi("token"), k)
    parts = [_text(prefix), left, _mo("="), token]
    if until:
        parts += [_mo(","), Markup('<mspace width="1em"/>'), until]
    return Markup('<math display="block">{}</math>').format(_row(*parts))


def _of(node: ast.expr, outer: int) -> Markup:
    """One expression; in brackets where it binds less than what stands around it."""
    match node:
        case ast.Name(id=name):
            return _mi(name)
        case ast.Constant(value=value):
            return (
                _mn(str(value))
                if isinstance(value, int | float) and not isinstance(value, bool)
                else _text("nothing" if value in ("", ()) else NAMES.get(str(value), str(value)))
            )
        case ast.Attribute(value=ast.Name() | ast.Attribute(attr="place"), attr=name):
            return _mi(name)
        case ast.Attribute(value=value, attr=name):
            return _row(_mi(name), _mo("("), _of(value, 0), _mo(")"))
        case ast.Subscript(value=value, slice=ast.Slice() as part):
            return Markup("<msub>{}{}</msub>").format(_of(value, 9), _slice(part))
        case ast.Subscript(value=value, slice=index):
            return Markup("<msub>{}{}</msub>").format(_of(value, 9), _of(index, 0))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _row(_mo("¬"), _of(operand, 4))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _row(_mo("−"), _of(operand, 4))
        case ast.BinOp(op=ast.Div(), left=left, right=right):
            return Markup("<mfrac>{}{}</mfrac>").format(_of(left, 0), _of(right, 0))
        case ast.BinOp(op=ast.FloorDiv(), left=left, right=right):
            fraction = Markup("<mfrac>{}{}</mfrac>").format(_of(left, 0), _of(right, 0))
            return _row(_mo("⌊"), fraction, _mo("⌋"))
        case ast.BinOp(op=op, left=left, right=right):
            sign, strength = BINARY[type(op)]
            return _fenced(_row(_of(left, strength), _mo(sign), _of(right, strength + 1)), strength < outer)
        case ast.Compare(left=left, ops=ops, comparators=others):
            parts = [_of(left, 2)]
            for relation, other in zip(ops, others, strict=True):
                parts += [_mo(COMPARED[type(relation)]), _of(other, 2)]
            return _fenced(_row(*parts), outer > 1)
        case ast.BoolOp(op=joined, values=values):
            sign = "∧" if isinstance(joined, ast.And) else "∨"
            inner = [_of(value, 2 if isinstance(value, ast.BoolOp) else 1) for value in values]
            return _fenced(_joined(inner, sign), outer > 0)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _row(_of(body, 1), _text(" if "), _of(test, 1), _text(", else "), _of(other, 0))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return _row(_mo("("), _joined([_of(part, 0) for part in parts], ","), _mo(")"))
        case ast.Starred(value=value):
            return _row(_of(value, 0), _mo("…"))
        case ast.Set(elts=parts):
            return _row(_mo("{"), _joined([_of(part, 0) for part in parts], ","), _mo("}"))
        case ast.GeneratorExp(elt=body, generators=loops) | ast.SetComp(elt=body, generators=loops):
            return _row(_mo("{"), _of(body, 0), _mo("|"), *_loops(loops), _mo("}"))
        case ast.Call():
            return _call(node, outer)
    raise ValueError(f"no formula for {ast.unparse(node)}")


def _call(node: ast.Call, outer: int) -> Markup:
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    args = node.args
    if name in ("all", "any") and isinstance(args[0], ast.GeneratorExp):
        sign = "∀" if name == "all" else "∃"
        made = _row(_mo(sign), *_loops(args[0].generators), _mo(":"), _of(args[0].elt, 1))
        return _fenced(made, outer > 0)
    if name == "range":
        first, last = (ast.Constant(0), args[0]) if len(args) == 1 else args[:2]
        return _row(_mo("["), _of(first, 0), _mo(","), _of(last, 0), _mo(")"))
    if name in SILENT and len(args) == 1:
        return _of(args[0], outer)
    if name in FENCES:
        left, right = FENCES[name]
        return _row(_mo(left), _of(args[0], 0), _mo(right))

    return _row(_mi(name), _mo("("), _joined([_of(arg, 0) for arg in args], ","), _mo(")"))


def _loops(loops: Iterable[ast.comprehension]) -> list[Markup]:
    parts: list[Markup] = []
    for loop in loops:
        if parts:
            parts.append(_mo(","))
        parts += [_of(loop.target, 0), _mo("∈"), _of(loop.iter, 2)]
        for test in loop.ifs:
            parts += [_mo(","), _of(test, 0)]
    return parts


def _slice(part: ast.Slice) -> Markup:
    first = _mn("0") if part.lower is None else _of(part.lower, 0)
    last = Markup("") if part.upper is None else _of(part.upper, 0)
    return _row(_mo("["), first, _mo(","), last, _mo(")"))


def _joined(parts: list[Markup], sign: str) -> Markup:
    found: list[Markup] = []
    for part in parts:
        found += [_mo(sign), part] if found else [part]
    return _row(*found)


def _fenced(inner: Markup, needed: bool) -> Markup:
    return _row(_mo("("), inner, _mo(")")) if needed else inner


def _row(*parts: Markup) -> Markup:
    return Markup("<mrow>{}</mrow>").format(Markup("").join(parts))


def _mi(name: str) -> Markup:
    shown = NAMES.get(name, name.strip("_"))
    return (
        Markup("<mi>{}</mi>").format(shown)
        if len(shown) == 1
        else Markup('<mi mathvariant="normal">{}</mi>').format(shown)
    )


def _mo(sign: str) -> Markup:
    return Markup("<mo>{}</mo>").format(sign)


def _mn(number: str) -> Markup:
    return Markup("<mn>{}</mn>").format(number)


def _text(text: str) -> Markup:
    return Markup("<mtext>{}</mtext>").format(text) if text else Markup("")
