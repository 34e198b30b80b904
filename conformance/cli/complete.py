"""What a shell offers for a word that has been begun. Nothing here may fail: a shell shows no errors."""

from collections.abc import Callable, Iterable


def of(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Those of the names that begin so."""

    def begun(incomplete: str) -> list[str]:
        try:
            return [name for name in names() if name.startswith(incomplete)]
        except Exception:
            return []

    return begun


def rules() -> Iterable[str]:
    from ropecheck.spec.rules import all_rules

    return all_rules()


def modes() -> Iterable[str]:
    from ropecheck.spec.modes import all_modes

    return all_modes()


def phases() -> Iterable[str]:
    from ropecheck.conformance.run.phases import all_phases

    return all_phases()


def targets() -> Iterable[str]:
    from ropecheck.conformance.targets.registry import all_targets

    return all_targets()


def explainable() -> Iterable[str]:
    """Whatever `explain` knows."""
    from ropecheck.conformance.cards.shapes import PLACES, SHAPES, STATES

    return [*rules(), *modes(), *SHAPES, *STATES, *PLACES]
