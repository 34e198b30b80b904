"""`ropecheck bundle`: one archive to run on a GPU host without a network."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ropecheck.conformance.bundle import pack as bundle
from ropecheck.conformance.bundle import runner as bundle_runner
from ropecheck.conformance.cli.options import say
from ropecheck.conformance.errors import GaveUp, UsageError
from ropecheck.conformance.targets.pip_overlay import ProvisionError


def make(
    targets: Annotated[str, typer.Option("--targets", help="Releases, by commas: sglang==0.5.17,sglang==0.5.23.")],
    out: Annotated[Path, typer.Option("--out", help="Archive to write, like bundle.tar.xz.")],
    python: Annotated[str, typer.Option("--python", help="The host's Python, like 3.12.")] = "3.12",
    torch: Annotated[
        str, typer.Option("--torch", help="The host's torch, like 2.11: releases that pin it bring their kernels.")
    ] = "",
    arch: Annotated[
        str, typer.Option("--arch", help="The host's GPU: compute capability, 90 for an H100 or H200.")
    ] = "90",
    host_has: Annotated[
        list[str] | None,
        typer.Option("--host-has", help="Package that the host has, or a file of names; may be repeated."),
    ] = None,
    level: Annotated[int, typer.Option("--level", min=1, max=9, help="Compression: 1 is fast, 9 is small.")] = 3,
    max_size: Annotated[float, typer.Option("--max-size", help="Largest archive in MB; 0: any.")] = 0.0,
) -> int:
    """Pack the suite, releases and what a host without a network lacks; `run.py` inside runs them there."""
    if not re.fullmatch(r"3\.\d+", python):
        raise UsageError(f"--python {python!r}: like 3.12")
    if torch and not re.fullmatch(r"\d+\.\d+", torch):
        raise UsageError(f"--torch {torch!r}: like 2.11")
    if not re.fullmatch(r"\d{2,3}", arch):
        raise UsageError(f"--arch {arch!r}: like 90")
    names = tuple(name.strip() for name in targets.split(",") if name.strip())
    if not names:
        raise UsageError("--targets: name at least one release")
    options = bundle.PackOptions(
        targets=names,
        python=python,
        torch=torch,
        arch=arch,
        host_has=packages_of(host_has or ()),
        max_megabytes=max_size,
        level=level,
    )
    try:
        made = bundle.make(options, out, say=say)
    except ProvisionError as error:
        raise UsageError(str(error)) if error.exit_code == 2 else GaveUp(str(error)) from error
    say(
        f"{out}: {made.megabytes:.1f} MB ({made.unpacked:.0f} MB unpacked, {made.files} files, {made.links} shared)",
        f"on the host: tar xf {out.name} && python3 {bundle_runner.ROOT}/run.py --out results",
    )
    return 0


def packages_of(given: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Package names, by commas or one a line in a file. Raises UsageError."""
    names: list[str] = []
    for word in given:
        path = Path(word)
        text = path.read_text(encoding="utf-8") if path.is_file() else word
        names += [name.split("==")[0] for name in re.split(r"[,\s]+", text) if name]
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise UsageError(f"--host-has {name!r}: not a package name")
    return tuple(names)
