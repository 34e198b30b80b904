"""The real builders, in their worker processes: every family, nothing unexpected, no stale entry."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

import msgspec
import pytest

from adapters import protocol
from conformance.families import offered
from conformance.family_run import Ask, run
from spec.families import FAMILIES

pytestmark = pytest.mark.engine


@contextmanager
def worker(module: str) -> Iterator[Ask]:
    """A worker process and a function that asks it."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    command = [sys.executable, "-m", module, "--in-fd", str(to_read), "--out-fd", str(from_write)]
    process = subprocess.Popen(command, pass_fds=(to_read, from_write), stdout=subprocess.DEVNULL)
    os.close(to_read)
    os.close(from_write)
    with os.fdopen(to_write, "wb") as outgoing, os.fdopen(from_read, "rb") as incoming:
        decoder = msgspec.msgpack.Decoder(protocol.Response)

        def ask(job: protocol.Job) -> protocol.Answer:
            protocol.send(outgoing, job)
            body = protocol.receive(incoming)
            assert body is not None, "the worker ended"
            found = decoder.decode(body)
            assert isinstance(found, protocol.Answer)
            return found

        hello = protocol.receive(incoming)
        assert hello is not None and isinstance(decoder.decode(hello), protocol.Hello)
        yield ask
        protocol.send(outgoing, protocol.Shutdown())
    process.wait(timeout=60)


@pytest.mark.parametrize("target", ["transformers", "sglang"])
def test_every_family(target: str) -> None:
    module = f"adapters.{target}.worker"
    try:
        release = version(target)
    except PackageNotFoundError:
        pytest.skip(f"{target} is not installed")
    assert find_spec(module) is not None
    with worker(module) as ask:
        report = run(ask, target, release, seed=0, count=5)
    assert not report.unrun, report.unrun[:3]
    assert not report.unexpected, report.unexpected[:3]
    assert not report.stale
    assert report.exit_code == 0
    checked = {mode.removeprefix("prompt_table.") for outcome in report.outcomes for mode in outcome.modes}
    assert checked == {family for family in FAMILIES if offered(family, target) == "checked"}
