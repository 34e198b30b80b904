"""Loops over sequences of unknown length: which may be run for one arbitrary element, and one step of those that carry
something from element to element.

Both read the source of the specification's own function; nothing is stated again.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from types import CodeType, FrameType
from typing import Any

from ropecheck.conformance.prove.explorer import Unanswered

_ADDS = ("append", "extend")


def check_caller() -> FrameType | None:
    """The frame of the specification whose `for` iterates now, if one does.

    Raises Unanswered when that loop carries something from element to element.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("ropecheck.spec."):
        frame = frame.f_back
    return frame if frame is not None and _check_line(frame.f_code, frame.f_lineno) else None


def check_all(function: Callable[..., Any]) -> None:
    """The same for every loop of a function."""
    code = inspect.unwrap(function).__code__
    for loop in _loops(code):
        _check_line(code, loop.lineno + code.co_firstlineno - 1)


@cache
def _check_line(code: CodeType, line: int) -> bool:
    """Whether a loop begins on the line. Raises Unanswered for one that carries something."""
    for loop in _loops(code):
        if line - code.co_firstlineno + 1 in range(loop.lineno, (loop.iter.end_lineno or loop.lineno) + 1):
            if why := _carries(loop):
                raise Unanswered(f"{code.co_filename.rpartition('/')[2]}:{line} {code.co_name}: a loop that {why}")
            return True
    return False


@cache
def _tree(code: CodeType) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError):  # a lambda or a generator: an expression carries nothing
        return ast.Module(body=[], type_ignores=[])


def _loops(code: CodeType) -> list[ast.For]:
    return [node for node in ast.walk(_tree(code)) if isinstance(node, ast.For)]


def _carries(loop: ast.For) -> str:
    """What the loop carries from one element to the next; "" for nothing.

    Allowed: names that each round assigns before it reads them, appends to a list that the body does not read, raise,
    and return (a path returns, or the arbitrary element does not make it return).
    """
    for node in (inner for statement in loop.body for inner in ast.walk(statement)):
        if isinstance(node, (ast.Break, ast.Continue, ast.While, ast.Global, ast.Nonlocal, ast.Delete, ast.NamedExpr)):
            return f"has a {type(node).__name__.lower()}"
        if isinstance(node, (ast.Subscript, ast.Attribute)) and not isinstance(node.ctx, ast.Load):
            return "changes a value in place"
        if isinstance(node, ast.AugAssign):
            return f"carries {ast.unparse(node.target)}"
    own = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    lists: set[str] = set()
    read = _read_first(loop.body, own, _names(loop.target), lists)
    if early := sorted(read):
        return f"carries {early[0]}"
    used = [node.id for statement in loop.body for node in ast.walk(statement) if isinstance(node, ast.Name)]
    for name in sorted(lists - own):
        if used.count(name) > sum(_added_to(node) == name for body in loop.body for node in ast.walk(body)):
            return f"reads {name}, which it fills"
    return ""


def _read_first(body: list[ast.stmt], own: set[str], known: set[str], lists: set[str]) -> set[str]:
    """Names of `own` that the statements may read before they assign them; `known` grows by what they assign."""
    early: set[str] = set()
    for statement in body:
        if isinstance(statement, ast.If):
            early |= _loaded(statement.test) & own - known
            branches = [set(known), set(known)]
            for names, part in zip(branches, (statement.body, statement.orelse), strict=True):
                early |= _read_first(part, own, names, lists)
            known |= branches[0] & branches[1]
        elif isinstance(statement, ast.For):
            early |= _loaded(statement.iter) & own - known
            early |= _read_first(statement.body, own, known | _names(statement.target), lists)
        else:
            early |= _loaded(statement) & own - known
            for node in ast.walk(statement):
                if name := _added_to(node):
                    lists.add(name)
            known |= {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return early


def _added_to(node: ast.AST) -> str:
    """`name` in name.append(...)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ADDS:
        return node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    return ""


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


def _loaded(node: ast.AST) -> set[str]:
    bound = {
        inner.id
        for c in ast.walk(node)
        if isinstance(c, ast.comprehension)
        for inner in ast.walk(c.target)
        if isinstance(inner, ast.Name)
    }
    loads = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return loads - bound


def definition(function: Callable[..., Any]) -> ast.FunctionDef:
    """The source of a function. Raises Unanswered for one that another one wraps, or without a source."""
    code = inspect.unwrap(function).__code__
    made = next((node for node in ast.walk(_tree(code)) if isinstance(node, ast.FunctionDef)), None)
    if made is None or any(ast.unparse(one).partition("(")[0] != "rule" for one in made.decorator_list):
        raise Unanswered(f"{function.__qualname__} cannot be read as it is written")
    return made


def statements_of(made: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function, without its documentation."""
    return made.body[1:] if ast.get_docstring(made) is not None else made.body


SHAPE = ("out = [0]", "for node, parent in enumerate(parents, start=1):", "return tuple(out)")
"""What a function of a tree's parents must be but for the loop's body, for one step of it to speak for all nodes."""

_PLAIN = (
    ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.IfExp, ast.Load,
    ast.operator, ast.unaryop, ast.boolop, ast.cmpop,
)  # fmt: skip


def step_of(function: Callable[..., Any]) -> Callable[..., dict[str, Any]]:
    """The body of the loop of a function of SHAPE, compiled from its own source: state -> state, both by name.

    Raises Unanswered for any other function. The body may raise, and adds one element to `out`: nothing else.
    """
    function = inspect.unwrap(function)
    body = _body(definition(function))
    if not body:
        raise Unanswered(f"{function.__qualname__} is not `{'; '.join(SHAPE)}` around one out.append")

    def step(**state: Any) -> dict[str, Any]:
        module = ast.parse(f"def step({', '.join(state)}):\n    return locals()")
        made = module.body[0]
        assert isinstance(made, ast.FunctionDef)
        made.body[:0] = body
        ast.fix_missing_locations(module)
        space: dict[str, Any] = {}
        exec(compile(module, f"<step of {function.__qualname__}>", "exec"), function.__globals__, space)
        after: dict[str, Any] = space["step"](**state)
        return after

    return step


def _body(made: ast.FunctionDef) -> list[ast.stmt]:
    """The body of the loop; nothing where the function is of another shape."""
    statements = statements_of(made)
    alike = tuple(ast.unparse(one).partition("\n")[0] for one in statements) == SHAPE
    if not alike or [one.arg for one in made.args.args] != ["parents"] or made.args.defaults:
        return []
    loop = statements[1]
    assert isinstance(loop, ast.For)
    *checks, last = loop.body
    call = last.value if isinstance(last, ast.Expr) else None
    added = call.args if isinstance(call, ast.Call) and _added_to(call) == "out" and not call.keywords else []
    raises = all(isinstance(one, ast.If) and not one.orelse and isinstance(one.body[0], ast.Raise) for one in checks)
    values = [*added, *(one.test for one in checks if isinstance(one, ast.If))]
    plain = all(isinstance(node, _PLAIN) for value in values for node in ast.walk(value))
    once = ast.unparse(last).startswith("out.append(") and len(added) == 1
    return loop.body if raises and plain and once and not loop.orelse else []
