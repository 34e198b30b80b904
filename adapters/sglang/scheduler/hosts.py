"""The worker's side of the scheduler's processes, asked by a `Play` step.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | protocol.PlayStep.body | a script for a process that holds a `Scheduler` |

Faked: nothing here.
"""

from __future__ import annotations

import os

from ropecheck.adapters import protocol
from ropecheck.adapters.sglang.scheduler.host import Hosts

_HOSTS: list[Hosts] = []


def fork(device: str) -> None:
    """Fork the process that will start schedulers: after the imports, before anything is published or patched. On a GPU
    nothing is forked: each will be started when it is asked for."""
    if hasattr(os, "fork") and not _HOSTS:
        _HOSTS.append(Hosts(alone="" if device == "cpu" else device))


def descriptors() -> tuple[int, ...]:
    """What a fork of this process must keep to be able to play."""
    return tuple(number for one in _HOSTS for number in one.descriptors)


def play(step: protocol.PlayStep, traced: bool = False) -> protocol.Result:
    """One script's trace, or why there is none."""
    if not _HOSTS:
        return protocol.NotOfferedAnswer("no process for schedulers was forked")
    told = _HOSTS[0].play(step.body, traced)
    if not told.problem:
        return protocol.Played(told.trace, told.functions, told.ran)
    if told.stage == "not offered":
        return protocol.NotOfferedAnswer(told.problem)
    return protocol.Raised(stage=told.stage, type="SchedulerProcess", message=told.problem, where="")
