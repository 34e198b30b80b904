"""`pytest --ropecheck-target PATH`: a checkout of SGLang against its base, one test per forward mode.

A scenario belongs to the test of the last mode that it runs, so that no two tests run the same one and pytest-xdist
shares them out. `-k`, `-m ropecheck` and `--maxfail` work as ever. Each process starts both engines once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

NAMES = "--ropecheck-target"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options."""
    group = parser.getgroup("ropecheck")
    group.addoption(NAMES, dest="ropecheck_target", default="", help="A checkout of SGLang to check.")
    group.addoption(
        "--ropecheck-base", dest="ropecheck_base", default="", help="Git ref or release to compare with; `known`."
    )
    group.addoption(
        "--ropecheck-phase", dest="ropecheck_phase", action="append", default=[], help="Phase to run; may be repeated."
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker."""
    config.addinivalue_line("markers", "ropecheck: a forward mode of the checkout that --ropecheck-target names")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Add one test per mode, before -k and -m choose. Raises pytest.UsageError for a path without an engine."""
    path = config.getoption("ropecheck_target")
    if not path:
        return
    checked = _Checked(config, path)
    items.extend(_Mode.from_parent(session, name=f"ropecheck[{mode}]", mode=mode, checked=checked) for mode in checked)


class ModeFailed(Exception):
    """What a mode's test found, as text."""


class _Mode(pytest.Item):
    """One forward mode."""

    def __init__(self, *, mode: str, checked: _Checked, **more: Any) -> None:
        super().__init__(**more)
        self.mode, self.checked = mode, checked
        self.add_marker(pytest.mark.ropecheck)

    def runtest(self) -> None:
        self.checked.run(self.mode)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        return str(excinfo.value) if excinfo.errisinstance(ModeFailed) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[str, None, str]:
        return self.checked.path, None, self.name


class _Checked:
    """Both engines, started for the first test; the scenarios of each mode."""

    def __init__(self, config: pytest.Config, path: str) -> None:
        from ropecheck.conformance.cli import check
        from ropecheck.conformance.errors import UsageError
        from ropecheck.conformance.known.failures import FOLDER
        from ropecheck.conformance.targets.checkout import checkout_of, default_base, target_of

        self.path = path
        self._stack = ExitStack()
        config.add_cleanup(self._stack.close)
        try:
            checkout = checkout_of(Path(path))
            base = config.getoption("ropecheck_base") or default_base(checkout) or "known"
            self._beside = check.base_of(base, Path(path))
            phases = check.phases_of(config.getoption("ropecheck_phase"), False, FOLDER)
        except UsageError as error:
            raise pytest.UsageError(f"{NAMES}: {error}") from error
        self._target = target_of(checkout, path)
        self._out = Path(".ropecheck") / "pytest" / os.environ.get("PYTEST_XDIST_WORKER", "main")
        self._ready: Any = None
        self._scenarios = _by_mode(phases)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._scenarios))

    def run(self, mode: str) -> None:
        """Check the mode's scenarios. Raises ModeFailed for new failures and for what could not run."""
        from ropecheck.conformance.cards.build import cards
        from ropecheck.conformance.cards.render import as_text
        from ropecheck.conformance.cards.text import card_lines
        from ropecheck.conformance.run import session
        from ropecheck.conformance.run.phases import Phase

        settings, pool = self._started()
        scenarios = self._scenarios[mode]
        phase = Phase(name=mode, summary="", drive=lambda driver: driver.check_all(scenarios, total=len(scenarios)))
        summary = session.run(replace(settings, phases=(phase,)), [], warm=pool)
        new = [card for card in cards(summary) if card.state == "new"]
        texts = [as_text(card_lines(card)) for card in new]
        texts += [f"could not run: {one.name}: {why.stage}: {why.message}" for one, why, _ in summary.unrun]
        if summary.gave_up:
            texts.append(summary.gave_up)
        if texts:
            raise ModeFailed("\n\n".join(texts))

    def _started(self) -> Any:
        from ropecheck.conformance.cli import check
        from ropecheck.conformance.run import session
        from ropecheck.conformance.run.warm import Warm, can_fork

        if self._ready is None:
            settings = session.Settings(
                target=self._target, workers=1, out=self._out, witnesses=self._beside is None, complete=False
            )
            self._out.mkdir(parents=True, exist_ok=True)
            warm = Warm(self._target, self._out / "imports.log") if can_fork(self._target, settings.device) else None
            if warm is not None:
                self._stack.callback(warm.close)
            base = self._stack.enter_context(check.beside_it(self._beside, settings, warm))
            pool = self._stack.enter_context(session.pool_of(settings, warm=warm))
            pool.start()
            self._ready = replace(settings, base=base), pool
        return self._ready


def _by_mode(phases: Any) -> dict[str, list[Any]]:
    """The phases' scenarios, each under the last mode that it runs."""
    from ropecheck.conformance.run.choice import last_mode

    found: dict[str, list[Any]] = {}

    class Collector:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

        def check_all(self, scenarios: Any, total: int | None = None) -> None:
            for scenario in scenarios:
                found.setdefault(last_mode(scenario), []).append(scenario)

    for phase in phases:
        phase.drive(Collector())
    return found
