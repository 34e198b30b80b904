"""Between which two releases a rule changed."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence

from ropecheck.conformance.targets.pip_overlay import ProvisionError, version_key
from ropecheck.conformance.versions import is_version

Judge = Callable[[str], tuple[str, str]]
"""Version -> (state, why), as `matrix.state` says it."""


def releases(provisioned: Sequence[str]) -> list[str]:
    """Every release that pip knows of, in order; without a network, those that are provisioned.

    Post-releases count; pre-releases do not.
    """
    command = [sys.executable, "-m", "pip", "index", "versions", "sglang", "--disable-pip-version-check"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        found = re.search(r"Available versions: (.*)", done.stdout)
    except (OSError, subprocess.TimeoutExpired):
        found = None
    known = {version.strip() for version in found[1].split(",")} if found else set()
    known |= set(provisioned)
    return sorted(filter(is_version, known), key=version_key)


def between(known: Sequence[str], one: str, other: str) -> list[str]:
    """The releases from `one` to `other`, both included, oldest first. Raises ProvisionError for an unknown one."""
    for version in (one, other):
        if version not in known:
            raise ProvisionError(f"sglang=={version}: no such release; newest: {', '.join(known[-3:])}", 2)
    low, high = sorted((known.index(one), known.index(other)))
    return list(known[low : high + 1])


def bisect(versions: Sequence[str], good: str, judge: Judge, say: Callable[[str], None]) -> tuple[str, str]:
    """The two neighbours (older, newer) between which the rule changes; `good` is one of the two ends.

    A release that can say neither is skipped, as its neighbours can. Raises ProvisionError when an end is not what
    it was said to be.
    """

    def wanted(version: str, expected: str) -> None:
        found, why = judge(version)
        say(f"{version}: {found} ({why})")
        if found != expected:
            raise ProvisionError(f"{version} was said to be {expected}, and is not: {found} ({why})", 2)

    low, high = 0, len(versions) - 1
    at_low, at_high = ("pass", "fail") if versions[low] == good else ("fail", "pass")
    wanted(versions[low], at_low)
    wanted(versions[high], at_high)
    unclear: set[int] = set()
    while candidates := [i for i in range(low + 1, high) if i not in unclear]:
        middle = min(candidates, key=lambda i: abs(2 * i - low - high))
        found, why = judge(versions[middle])
        say(f"{versions[middle]}: {found} ({why})")
        if found == at_low:
            low = middle
        elif found == at_high:
            high = middle
        else:
            unclear.add(middle)
    return versions[low], versions[high]
