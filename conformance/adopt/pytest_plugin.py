"""One test per rule for an engine's adapter: `pytest --ropecheck-adapter my_engine.adapter:Adapter`.

A rule that no scenario reached is skipped with the reason, never passed. Without the option (or the ini value
`ropecheck_adapter`) the plugin does nothing and imports nothing of the suite.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ropecheck.conformance.adopt.ledger import AdoptLedger

_LEDGER = pytest.StashKey["AdoptLedger"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The adapter, the phases and the modes."""
    group = parser.getgroup("ropecheck")
    for name, text in (
        ("adapter", "module:object with forward(batch); a class is called without arguments"),
        ("phases", "phases to run, by commas (default: chosen)"),
        ("modes", "forward modes to ask for, by commas (default: all)"),
    ):
        group.addoption(f"--ropecheck-{name}", default=None, metavar=name.upper(), help=text)
        parser.addini(f"ropecheck_{name}", text, default="")


def _option(config: pytest.Config, name: str) -> str:
    given = config.getoption(f"ropecheck_{name}")
    return str(given if given is not None else config.getini(f"ropecheck_{name}"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add one item per rule, before others select among the items."""
    if _option(config, "adapter"):
        _adapter(config)  # a name that leads nowhere is one error, not one per rule
        items.extend(Rules.from_parent(session, name="ropecheck", nodeid="ropecheck").collect())


class Rules(pytest.Collector):
    """All rules of the specification."""

    def collect(self) -> Iterable[RuleItem]:
        """One item per rule."""
        from ropecheck.spec.rules import all_rules

        return [RuleItem.from_parent(self, name=rule) for rule in all_rules()]


class RuleItem(pytest.Item):
    """One rule; the first one to run checks all."""

    def runtest(self) -> None:
        """Fail, skip or pass by what the survey says of this rule."""
        from ropecheck.conformance.adopt.ledger import explained

        ledger = _ledger(self.config)
        if ledger.of_rule(self.name) or ledger.unrun_of(self.name):
            raise RuleBroken(explained(ledger, self.name))
        if not ledger.checked.get(self.name):
            pytest.skip(ledger.why_not(self.name))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """A broken rule is told without a traceback: nothing in it is the reader's code."""
        if isinstance(excinfo.value, RuleBroken | pytest.UsageError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Where the rule is stated."""
        import ropecheck
        from ropecheck.spec.rules import all_rules

        rule = all_rules()[self.name]
        file = rule.stated.partition(":")[0].replace(".", "/") + ".py"
        return Path(ropecheck.__file__).parents[1] / file, rule.line - 1, f"rule {self.name}"


class RuleBroken(Exception):
    """The engine breaks a rule, or its adapter could not run; the message is one screen."""


def _ledger(config: pytest.Config) -> AdoptLedger:
    """What the adapter came to; driven once per process."""
    if _LEDGER not in config.stash:
        from ropecheck.conformance.adopt import survey
        from ropecheck.conformance.errors import UsageError

        phases = [name.strip() for name in (_option(config, "phases") or "chosen").split(",")]
        modes = [name.strip() for name in _option(config, "modes").split(",") if name.strip()]
        try:
            config.stash[_LEDGER] = survey(_adapter(config), phases=phases, modes=modes or None)
        except UsageError as error:
            raise pytest.UsageError(f"ropecheck: {error}") from error
    return config.stash[_LEDGER]


def _adapter(config: pytest.Config) -> Any:
    """The adapter that the option names. Raises pytest.UsageError when there is none."""
    name = _option(config, "adapter")
    module, colon, attribute = name.partition(":")
    if not colon:
        raise pytest.UsageError(f"--ropecheck-adapter {name!r}: must be module:object")
    if str(config.rootpath) not in sys.path:
        sys.path.insert(0, str(config.rootpath))  # as `python -m pytest` from there would
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise pytest.UsageError(f"--ropecheck-adapter {name!r}: {error}") from error
    return found() if isinstance(found, type) else found
