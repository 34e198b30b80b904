"""Option values of the command line: what they mean, and one clear line for what they cannot mean."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from ropecheck.conformance.cli import complete
from ropecheck.conformance.errors import UsageError, visible
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.report import github as report_github
from ropecheck.conformance.report import html_page as report_html
from ropecheck.conformance.report import json_file as report_json
from ropecheck.conformance.report import junit as report_junit
from ropecheck.conformance.run.events import Listener
from ropecheck.conformance.store.files import REPORTS
from ropecheck.conformance.targets import registry as targets
from ropecheck.conformance.targets.checkout import checkout_of, target_of
from ropecheck.conformance.targets.registry import Target

ADAPTER = "ropecheck.adapters.sglang.worker"

DEVICES = ("cpu", "cuda")

LONGEST_SECONDS = 1e6

OUT = Path(".ropecheck") / "last"

TargetOption = Annotated[
    str,
    typer.Option(
        "--target", help="Engine to check; `ropecheck list targets`.", autocompletion=complete.of(complete.targets)
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
OutOption = Annotated[Path, typer.Option("--out", help="Folder for reports, failures and logs.")]
WorkersOption = Annotated[int, typer.Option("--workers", help="Worker processes; 0: one per core.")]
LimitOption = Annotated[float, typer.Option("--time-limit", help="Seconds for one scenario.")]
KnownOption = Annotated[Path, typer.Option("--known", help="Folder of known failures.")]
ReportOption = Annotated[str, typer.Option("--report", help="Reports: json, junit, html, github, sarif, by commas.")]

PhaseOption = Annotated[
    list[str] | None,
    typer.Option("--phase", help="Phase to run; may be repeated.", autocompletion=complete.of(complete.phases)),
]
CorpusOption = Annotated[
    Path | None, typer.Option("--corpus", help="Folder of kept scenarios to start from; see `ropecheck corpus`.")
]
CoverOption = Annotated[
    bool, typer.Option("--cover", help="Tell which lines of the engine's position code ran (slower).")
]

KNOWN = known_list.FOLDER

_REPORTS = {
    "json": report_json.listener,
    "junit": report_junit.listener,
    "html": report_html.listener,
    "github": report_github.listener,
    "sarif": report_github.sarif_listener,
}


class _Console(Console):
    """What it prints is text; only rich's own styles and control codes reach the terminal as such."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))

    def on_broken_pipe(self) -> None:
        """The reader left, as with `| head`: the exit code says so (rich would say 1, which means a failure here)."""
        raise BrokenPipeError


def console() -> Console:
    """Standard output; NO_COLOR and pipes are respected."""
    return _Console(highlight=False, markup=False, emoji=False)


def say(*lines: str | Text) -> None:
    """Whole lines on standard output, however long they are."""
    out = console()
    for line in lines:
        out.print(line, soft_wrap=True)


def target_for(name: str, device: str) -> Target:
    """The target of that name, or the checkout of SGLang at a path (with a slash in it).

    Raises UsageError for an unknown device or target.
    """
    if device not in DEVICES:
        raise UsageError(f"unknown device {device!r}; known: {', '.join(DEVICES)}")
    target = target_of(checkout_of(Path(name)), name) if "/" in name else targets.find(name, device)
    needs_packages(target)
    if target.source and not target.identity:
        return replace(target, identity=checkout_of(Path(target.source)).identity)
    return target


def needs_packages(target: Target) -> None:
    """Raises UsageError, saying what to install, for an engine that this Python cannot import."""
    if target.argv[0] != sys.executable or ADAPTER not in target.argv:
        return
    overlaid = "PYTHONPATH" in target.env
    missing = [one for one in ("torch", "sglang") if not (overlaid and one == "sglang") and find_spec(one) is None]
    if missing:
        raise UsageError(
            f"target {target.name} needs {' and '.join(missing)} in {sys.executable}: `make run` in a checkout of "
            "ropecheck sets up everything, `pip install sglang` the engine alone; `--target reference` needs neither"
        )


def workers_for(count: int) -> int:
    """0 means one per core that this process may use."""
    if count < 0:
        raise UsageError(f"--workers {count}: must be 0 or more")
    return count or len(os.sched_getaffinity(0))


def limit_for(seconds: float, option: str = "--time-limit") -> float:
    """Raises UsageError unless it is above zero."""
    if not 0 < seconds <= LONGEST_SECONDS:
        raise UsageError(f"{option} {seconds:g}: must be above 0 and at most {LONGEST_SECONDS:g} seconds")
    return seconds


def shard_for(text: str) -> tuple[int, int]:
    """ "2/8": the second of eight."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    index, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= index <= count:
        raise UsageError(f"--shard {text!r}: must be i/n with 1 <= i <= n")
    return index, count


def reports_for(text: str, out: Path) -> list[Listener]:
    """Listeners that write the named reports into `out`; report.json is always among them."""
    wanted = {name.strip() for name in text.split(",") if name.strip()} | {"json"}
    unknown = sorted(wanted - set(_REPORTS))
    if unknown:
        raise UsageError(f"--report: unknown {unknown[0]!r}; known: {', '.join(_REPORTS)}")
    return [partial(listener, out / REPORTS[name]) for name, listener in _REPORTS.items() if name in wanted]


def one_of(what: str, values: Iterable[str]) -> str:
    """The only value; "" for none. Raises UsageError when the files disagree."""
    found = sorted({value for value in values if value})
    if len(found) > 1:
        raise UsageError(f"the files come from different {what}s ({', '.join(found)}): say which with --{what}")
    return found[0] if found else ""
