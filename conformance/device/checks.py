"""What no request leads to, or no table shows, checked on one worker: what each forward costs on its device, and
positions near the int32 limit and empty batches (function level).

    python -m ropecheck.conformance.device.checks --target T --device D --out DIR

writes DIR/device.json. Exit codes as ropecheck's.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.cli import targets as cli_targets
from ropecheck.conformance.device.limits import LimitCheck, limit_jobs
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.signature import raised_line
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.judge.verdict import copies
from ropecheck.conformance.plan.planner import CostCheck, plan
from ropecheck.conformance.run.ask import NoAnswer, StartedWorker
from ropecheck.conformance.scenario.operations import Build, MeasureCost, Scenario
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, verify
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, chain, running, scenario
from ropecheck.conformance.store.files import pretty, write_atomic
from ropecheck.conformance.targets.registry import DEFAULT, find

_REGISTER = cli_targets  # knows the provisioned targets


class CostRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the cost table."""

    forward: str
    batch: str
    rule: str
    budget: int
    copies: int | None = None
    """Host-to-device; None: not counted, `note` says why."""
    to_host: int = 0
    sync_budget: int = 0
    syncs: int = 0
    lines: tuple[str, ...] = ()
    to_host_lines: tuple[str, ...] = ()
    sync_lines: tuple[str, ...] = ()
    method: str = ""
    note: str = ""
    """Why the engine has no number; "" when it has."""
    unrun: str = ""
    """Why nothing was measured; "" when it was."""
    broken: tuple[str, ...] = ()
    """Rules that the count breaks."""

    @property
    def within(self) -> bool:
        """Whether the budget holds."""
        return not self.broken


class DeviceReport(msgspec.Struct, frozen=True, kw_only=True):
    """device.json."""

    target: str
    version: str
    device: str
    torch: str
    costs: tuple[CostRow, ...]
    checks: tuple[LimitCheck, ...]
    ran: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """1: something is wrong; 3: something could not run; 4: nothing was checked; 0 else."""
        done: tuple[LimitCheck | CostRow, ...] = (*self.checks, *self.costs)
        if any(check.problem for check in self.checks) or any(not row.within for row in self.costs):
            return 1
        if any(one.unrun for one in done):
            return 3
        return 0 if any(not one.note for one in done) else 4


_FORWARDS: tuple[tuple[str, Callable[[tuple[int, ...]], Build]], ...] = (
    ("target_verify, direct", lambda r: verify(r, tuple(chain(4) for _ in r), path="direct")),
    ("target_verify, chain", lambda r: verify(r, tuple(chain(4) for _ in r), path="fused")),
    ("target_verify, tree", lambda r: verify(r, tuple((0, 0, 1, 1) for _ in r), topk=2, path="caller")),
    ("draft_decode, direct", lambda r: draft(r, num_steps=3, path="direct")),
    ("draft_decode, topk 1", lambda r: draft(r, num_steps=3, path="fused")),
    ("draft_decode, topk 2", lambda r: draft(r, num_steps=3, topk=2, path="caller")),
    ("draft_extend_v2, device lengths, direct", lambda r: draft_extend(r, 4, host_lengths=False, path="direct")),
    ("draft_extend_v2, device lengths", lambda r: draft_extend(r, 4, host_lengths=False, path="fused")),
    ("draft_extend_v2, host lengths, direct", lambda r: draft_extend(r, 4, host_lengths=True, path="direct")),
    ("draft_extend_v2, host lengths", lambda r: draft_extend(r, 4, host_lengths=True, path="caller")),
    ("decode", lambda r: decode(r)),
)

_BATCHES = {"text": ("text", "text"), "media": ("image", "video"), "mixed": ("image", "text", "video")}


def cost_scenarios() -> Iterator[tuple[str, str, Scenario]]:
    """(forward, batch, scenario with one measurement)."""
    for batch, prompts in _BATCHES.items():
        reqs = tuple(range(len(prompts)))
        for name, make in _FORWARDS:
            start = running(*(PROMPTS[prompt] for prompt in prompts))
            yield name, batch, scenario(f"cost of {name}, {batch}", "", start, MeasureCost(make(reqs)))


def cost_rows(worker: StartedWorker) -> Iterator[CostRow]:
    """The cost table of a target. Without a device only the batch constructor is counted: the preparing callers launch
    kernels, which torch's meta device has not."""
    for name, batch, measured in cost_scenarios():
        if worker.device == "cpu" and not (name.endswith("direct") or name == "decode"):
            continue
        planned = plan(measured, worker.device)
        (check,) = (check for check in planned.checks if isinstance(check, CostCheck))
        row = CostRow(
            forward=name,
            batch=batch,
            rule=f"cost of {check.mode}",
            budget=check.allowed[check.has_media] + check.extra,
            sync_budget=int(check.has_media),
        )
        try:
            result = worker.ask(planned.job)[check.result]
        except NoAnswer as error:
            yield msgspec.structs.replace(row, unrun=str(error))
            continue
        if isinstance(result, protocol.Counted):
            yield msgspec.structs.replace(
                row,
                copies=result.copies,
                to_host=result.to_host,
                syncs=result.syncs,
                lines=result.lines,
                to_host_lines=result.to_host_lines,
                sync_lines=result.sync_lines,
                method=result.method,
                broken=tuple(rule.id for rule, _ in ask(ScenarioTally(), check.mode, copies(check, result))),
            )
        elif isinstance(result, protocol.NotOfferedAnswer):
            yield msgspec.structs.replace(row, note=result.reason)
        elif isinstance(result, protocol.Raised) and result.stage == "engine":
            yield msgspec.structs.replace(row, note=raised_line(result))
        elif isinstance(result, protocol.Raised):
            yield msgspec.structs.replace(row, unrun=f"{result.stage}: {raised_line(result)}")
        else:
            yield msgspec.structs.replace(row, unrun=f"answered with {type(result).__name__}")


def run(target: str, device: str, out: Path) -> DeviceReport:
    """All checks of a target. Raises UsageError and NoAnswer."""
    with StartedWorker(find(target, device), device, out / "device-worker.log") as worker:
        hello = worker.hello
        costs = tuple(cost_rows(worker))
        checks = tuple(limit_jobs(worker))
        report = DeviceReport(
            target=target,
            version=hello.version,
            device=hello.device,
            torch=hello.torch,
            costs=costs,
            checks=checks,
            ran=tuple(sorted(worker.ran)),
        )
    write_atomic(out / "device.json", pretty(report))
    return report


def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="ropecheck.conformance.device.checks", description="What tables do not show.")
    parser.add_argument("--target", default=DEFAULT)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    try:
        report = run(options.target, options.device, options.out)
    except (UsageError, OSError) as error:
        print(f"device_checks: {error}", file=sys.stderr)
        return 2
    except NoAnswer as error:
        print(f"device_checks: {error}", file=sys.stderr)
        return 3
    for row in report.costs:
        if not row.within:
            print(
                f"{row.rule}: {row.forward}, {row.batch}: {row.copies} copies (at most {row.budget}), "
                f"{row.syncs} waits (at most {row.sync_budget}): {', '.join((*row.lines, *row.sync_lines))}"
            )
    for check in report.checks:
        if check.problem:
            print(f"{check.rule}: {check.what}: {check.problem}")
    names = [(check.what, check.unrun) for check in report.checks]
    names += [(f"cost of {row.forward}, {row.batch}", row.unrun) for row in report.costs]
    for name, why in names:
        if why:
            print(f"could not run: {name}: {why}")
    bad = sum(bool(check.problem) for check in report.checks) + sum(not row.within for row in report.costs)
    print(f"{report.target} on {report.device}: {len(report.costs)} costs, {len(report.checks)} checks, {bad} wrong")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
