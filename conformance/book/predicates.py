"""What rules say, as one expression each (`data/predicates.toml`): the rule book draws it as a formula."""

import ast
from pathlib import Path
from typing import Any

from ropecheck.conformance.errors import toml_of
from ropecheck.spec.held import INT64
from ropecheck.spec.history import delta_of
from ropecheck.spec.ownership import cached_deltas, fill
from ropecheck.spec.prefix import agreeing
from ropecheck.spec.retraction import history
from ropecheck.spec.rules import Rule
from ropecheck.spec.session import afresh, continued, must_refuse, without_reply
from ropecheck.spec.views import Readings

FILE = Path(__file__).parents[1] / "data" / "predicates.toml"

_NAMES: dict[str, Any] = {
    known.__name__: known
    for known in (delta_of, cached_deltas, fill, agreeing, history, afresh, continued, must_refuse, without_reply)
} | {"INT64": INT64}
"""What expressions may name."""


class Predicate:
    """Whether a view keeps a rule: called as a function, drawn from its tree."""

    def __init__(self, text: str) -> None:
        code = f"(lambda {text.strip()})"
        tree = ast.parse(code, mode="eval").body
        assert isinstance(tree, ast.Lambda)
        self.view = tree.args.args[0].arg
        """What the expression calls its view."""
        self.says = tree.body
        self._keeps = eval(code, _NAMES)

    def __call__(self, *view: Any) -> Any:
        return self._keeps(*view)


def _read() -> dict[str, Predicate]:
    found = toml_of(FILE, dict[str, dict[str, str]])
    _NAMES.update((name, Predicate(text)) for name, text in found["helpers"].items())
    return {rule: one for rules, text in found["rules"].items() for one in [Predicate(text)] for rule in rules.split()}


PREDICATES = _read()
"""Rule id -> whether a view keeps the rule."""


def predicate_of(rule: Rule) -> Predicate | None:
    """What the rule says as one expression; None where its body is all that there is."""
    agree: Predicate = _NAMES["agree"]
    return PREDICATES.get(rule.id, agree if rule.view is Readings else None)
