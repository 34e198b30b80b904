"""Processor time of this process and of all that it started, so that other work on a machine does not count."""

from __future__ import annotations

import os
from pathlib import Path

_USER, _CHILDREN_SYSTEM = 11, 15
"""Of /proc/PID/stat behind the name: user, system, and both of children that ended and were waited for."""


def cpu_seconds() -> float:
    """CPU seconds so far, of this process, its children and theirs; those that ended count where somebody waited for
    them. 0 where the system keeps no /proc."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[_USER:_CHILDREN_SYSTEM]))
    mine = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(ticks.get(pid, 0) for pid in mine) / os.sysconf("SC_CLK_TCK")
