"""`ropecheck prove`: the laws for all sizes, by z3."""

import difflib
import importlib.util
import time
from typing import Annotated

import typer
from rich.text import Text

from ropecheck.conformance.cli import interrupts
from ropecheck.conformance.cli.options import say
from ropecheck.conformance.errors import GaveUp, UsageError
from ropecheck.conformance.prove.theorems import OUT_OF_REACH, THEOREMS
from ropecheck.spec.aliases import todays


def prove(
    laws: Annotated[list[str] | None, typer.Argument(metavar="[LAW]...", help="Rule ids; default: all.")] = None,
) -> int:
    """Prove the laws for all sizes with z3, on the specification's own functions, or show a small counterexample."""
    with interrupts.at_once():
        return _prove(_chosen(laws or []))


def _prove(chosen: list[str]) -> int:
    if importlib.util.find_spec("z3") is None:
        raise GaveUp("prove needs z3, which is not installed: pip install z3-solver")
    from ropecheck.conformance.prove.prover import AXES, Prover, z3_version  # not where only `explain` is wanted
    from ropecheck.conformance.prove.text import counterexample_lines

    prover, started = Prover(), time.monotonic()
    counts = dict.fromkeys(("proved", "refuted", "unanswered", "out of reach"), 0)
    limited = False
    for rule in chosen:
        if rule in OUT_OF_REACH:
            counts["out of reach"] += 1
            say(f"out of reach  {rule}: {OUT_OF_REACH[rule]}")
            continue
        found = prover.prove(THEOREMS[rule])
        counts[found.state] += 1
        if found.counterexample:
            say(Text(f"REFUTED       {rule}", style="bold red"))
            for line in counterexample_lines(found.counterexample):
                say(f"  {line}")
        elif found.reason:
            say(Text(f"UNANSWERED    {rule}: {found.reason}", style="bold red"))
        else:
            limits = f"; limits: {THEOREMS[rule].limits}" if THEOREMS[rule].limits else ""
            limited = limited or bool(limits)
            say(f"proved        {rule}: {found.paths} cases, {found.queries} queries{limits}")
    totals = ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "proved")
    rows = " and ".join(map(str, AXES))
    seconds = time.monotonic() - started
    within = " within the limits named" if limited else ""
    summary = f"{totals}, for all sizes{within} and tables of {rows} rows, by z3 {z3_version()} in {seconds:.0f} s"
    say(summary)
    if counts["refuted"]:
        return 1
    if counts["unanswered"]:
        return 3
    return 0 if counts["proved"] else 4


def _chosen(names: list[str]) -> list[str]:
    """Rule ids, each once. Raises UsageError for what is none, with what comes close."""
    known = [*THEOREMS, *OUT_OF_REACH]
    names = [todays(name)[0] for name in names]
    for name in names:
        if name not in known:
            parts = [rule for rule in known if name in rule]
            close = list(dict.fromkeys([*parts, *difflib.get_close_matches(name, known, cutoff=0.5)]))
            hint = f" (did you mean {' or '.join(close[:3])}?)" if close else f"; known: {', '.join(known)}"
            raise UsageError(f"no law {name!r} to prove{hint}")
    return list(dict.fromkeys(names)) or sorted(known)
