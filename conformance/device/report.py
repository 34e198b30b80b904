"""What the runs of several targets on one host come to: summary.md, costs.md and summary.json from their report.json
and device.json.

    python -m ropecheck.conformance.device.report DIR
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ropecheck.conformance.device.checks import DeviceReport
from ropecheck.conformance.report.json_file import Report
from ropecheck.conformance.store.files import pretty, write_atomic

KERNELS = ("triton ", "clamp_position_cuda", "sgl_build_tree", "build_tree_kernel_efficient", "sgl_kernel")
"""Parts of the names that are kernels; the rest are the callers that chose them."""


class TargetFolder(msgspec.Struct, frozen=True, kw_only=True):
    """One target's folder."""

    name: str
    report: Report | None
    device: DeviceReport | None


def read(folder: Path) -> Iterator[TargetFolder]:
    """The targets of a bundle's output folder, in its order of names."""
    for path in sorted(folder.iterdir()):
        report, device = path / "report.json", path / "device.json"
        if report.is_file() or device.is_file():
            yield TargetFolder(
                name=path.name,
                report=msgspec.json.decode(report.read_bytes(), type=Report) if report.is_file() else None,
                device=msgspec.json.decode(device.read_bytes(), type=DeviceReport) if device.is_file() else None,
            )


def costs(found: list[TargetFolder]) -> str:
    """The cost table of every target, as Markdown."""
    lines = ["# What building a forward costs", ""]
    lines += ["Copies from host to device, copies back, and waits for it, inside the engine's own functions.", ""]
    for target in found:
        if target.device is None:
            continue
        lines += [f"## {target.device.target} on {target.device.device}", ""]
        lines += ["| forward | batch | copies (at most) | back | waits (at most) | where |", "|---" * 6 + "|"]
        for row in target.device.costs:
            if row.copies is None:
                cells = ["-", "-", "-", row.note or row.unrun]
            else:
                mark = "" if row.within else " **over**"
                waits = f"{row.syncs} ({row.sync_budget})" if row.method == "cuda" else "-"
                where = ", ".join(dict.fromkeys(short(line) for line in (*row.lines, *row.sync_lines) if line))
                cells = [f"{row.copies} ({row.budget}){mark}", str(row.to_host), waits, where]
            lines.append(f"| {row.forward} | {row.batch} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines) + "\n"


def short(line: str) -> str:
    """ "forward_batch_info.py:1547" of an engine line."""
    return line.partition(" ")[0].rpartition("/")[2]


def summary(found: list[TargetFolder], host: dict[str, Any]) -> str:
    """One table of all targets, then findings and kernels of each, as Markdown."""
    about = ", ".join(str(host[key]) for key in ("name", "memory") if host.get(key)) or "CPU"
    lines = [
        "# Results",
        "",
        f"{about}; driver {host.get('driver') or '-'}, CUDA {host.get('cuda') or '-'}, torch {host.get('torch', '-')}, "
        f"Python {host.get('python', '-')}; {host.get('suite', '')}; {host.get('date', '')}",
        "",
        "| target | scenarios | forwards | failed | expected | not offered | could not run | forwards/s | comparing | "
        "other checks | wrong |",
        "|---" * 11 + "|",
    ]
    for target in found:
        cells = ["-"] * 8
        if target.report is not None:
            t = target.report.totals
            rate = f"{t.forwards / t.seconds:.0f}" if t.seconds else "-"
            counts = (t.scenarios, t.forwards, t.failed, t.expected, t.not_offered, t.could_not_run)
            share = t.compare_seconds / (t.seconds * t.workers) if t.seconds and t.workers else 0.0
            cells = [*map(str, counts), rate, f"{share:.1%}"]
        device = target.device
        if device is None:
            cells += ["-", "-"]
        else:
            wrong = sum(bool(c.problem) for c in device.checks) + sum(not row.within for row in device.costs)
            cells += [str(len(device.checks) + len(device.costs)), str(wrong)]
        lines.append(f"| {target.name} | {' | '.join(cells)} |")
    for target in found:
        lines += ["", f"## {target.name}", ""]
        if target.report is not None:
            for finding in target.report.findings:
                state = "known" if finding.known else "NEW"
                lines.append(
                    f"- {state}: `{finding.rule}`, {finding.mode}: {finding.signature} ({finding.count}); "
                    f"witness {finding.witness.id}"
                )
        if target.device is not None:
            lines += [f"- {c.rule}: {c.what}: {c.problem}" for c in target.device.checks if c.problem]
            lines += [
                f"- {row.rule}: {row.forward}, {row.batch}: {row.copies} copies, {row.syncs} waits"
                for row in target.device.costs
                if not row.within
            ]
        lines += kernels(target)
    return "\n".join(lines) + "\n"


def kernels(target: TargetFolder) -> list[str]:
    """Which kernels are known to have run in each mode, as a Markdown table. The callers that chose them are left
    out."""
    ran: dict[str, set[str]] = {}
    for kernel in target.report.kernels if target.report else ():
        if any(part in kernel.name for part in KERNELS):
            ran.setdefault(kernel.mode, set()).add(kernel.name)
    rows = [f"| {mode} | {', '.join(f'`{name}`' for name in sorted(names))} |" for mode, names in sorted(ran.items())]
    return ["", "| mode | kernels that ran |", "|---|---|", *rows] if rows else []


def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1 or not Path(given[0]).is_dir():
        print("device_report: name the folder that a bundle's run.py wrote", file=sys.stderr)
        return 2
    folder = Path(given[0])
    found = list(read(folder))
    host_file = folder / "host.json"
    host = json.loads(host_file.read_text(encoding="utf-8")) if host_file.is_file() else {}
    write_atomic(folder / "summary.md", summary(found, host).encode())
    write_atomic(folder / "costs.md", costs(found).encode())
    write_atomic(folder / "summary.json", pretty({"host": host, "targets": found}))
    print(f"device_report: {folder / 'summary.md'}, {folder / 'costs.md'}")
    return 0 if found else 4


if __name__ == "__main__":
    sys.exit(main())
