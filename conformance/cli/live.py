"""`ropecheck live`: a toy-model server of the target, played and judged."""

from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.cli.options import (
    KNOWN,
    DeviceOption,
    KnownOption,
    ReportOption,
    TargetOption,
    console,
    limit_for,
    reports_for,
    say,
    target_for,
)
from ropecheck.conformance.errors import UsageError, meant
from ropecheck.conformance.live import run as live_run
from ropecheck.conformance.live.scripts import names as scripts
from ropecheck.conformance.report.terminal import Terminal
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.targets.registry import DEFAULT

SHORT = ("overlap",)
LONG = {
    "cpu": ("overlap", "overlap_mixed", "pages", "session_cache", "retracting_overlap"),
    "cuda": ("overlap", "overlap_mixed", "retracting_overlap", "standalone"),
}


def live(
    target: TargetOption = DEFAULT,
    device: DeviceOption = "cpu",
    family: Annotated[str, typer.Option("--family", help="Model family of the toy.")] = "qwen2_5_vl",
    server: Annotated[
        list[str] | None, typer.Option("--server", help="Way to start the server (data/servers.toml); may be repeated.")
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", help="Thousands of forwards, more servers, asked afresh apart.")
    ] = False,
    script: Annotated[
        list[str] | None, typer.Option("--script", help="Play only the script of that name; may be repeated.")
    ] = None,
    eager: Annotated[bool, typer.Option("--eager", help="Start the servers without CUDA graphs.")] = False,
    via: Annotated[
        str, typer.Option("--via", help="http: the engine's own server; engine: its Engine class.")
    ] = "http",
    start_time: Annotated[float, typer.Option("--start-time", help="Seconds for a server to come up.")] = 600.0,
    out: Annotated[Path, typer.Option("--out", help="Folder for reports, streams and logs.")] = Path(".ropecheck/live"),
    report: ReportOption = "junit,json",
    known: KnownOption = KNOWN,
) -> int:
    """Start the target's server with a toy model, let clients play, and judge every table and every answer."""
    if family not in live_run.PATCH:
        close = meant(family, live_run.PATCH)
        raise UsageError(f"no toy of family {family!r}{close}; there is: {', '.join(live_run.PATCH)}")
    names = tuple(server or (LONG[device] if long and device in LONG else SHORT))
    for name in names:
        if name not in servers():
            raise UsageError(f"--server {name!r}{meant(name, servers())}; known: {', '.join(servers())}")
    for name in script or ():
        if name not in scripts():
            raise UsageError(f"--script {name!r}{meant(name, scripts())}; known: {', '.join(scripts())}")
    settings = live_run.LiveSettings(
        target=target_for(target, device),
        device=device,
        family=family,
        names=names,
        fresh="no_prefix_cache" if long else "",
        long=long,
        out=out,
        known_folder=known,
        eager=eager,
        only=tuple(script or ()),
        via=one_way(via),
        start_seconds=limit_for(start_time, "--start-time"),
        say=lambda line: say(f"live: {line}"),
    )
    return live_run.run(settings, [*reports_for(report, out), Terminal(console())]).exit_code


def one_way(via: str) -> str:
    """Raises UsageError for an unknown one."""
    if via not in ("http", "engine"):
        raise UsageError(f"--via {via!r}: http or engine")
    return via
