"""A server's process: started as users start it, recorded, watched, ended."""

import contextlib
import hashlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ropecheck.adapters
from ropecheck import record
from ropecheck.conformance.live.client import Connection
from ropecheck.conformance.run.reaper import reaper
from ropecheck.conformance.targets.registry import Target

SERVE = "ropecheck.adapters.sglang.serve"
TOYS = "ropecheck.adapters.toys"


class NotUp(Exception):
    """The server does not come up; the message is its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How a server is to be started."""

    target: Target
    device: str
    model: Path
    arguments: dict[str, Any]
    environment: dict[str, str]
    folder: Path
    """For its log and its streams."""
    name: str
    via: str = "http"
    """"http": the engine's own server; "engine": `Engine` in a process of its own, behind the same paths."""
    mode: str = "log"
    """Of the recorder; "off" records nothing."""


class LiveServer:
    """One server."""

    def __init__(self, start: Start) -> None:
        """Launch it; `wait` says when it is up."""
        self.start = start
        self.port = free_port()
        self.link = Connection(self.port, logprobs="speculative_algorithm" not in start.arguments)
        start.folder.mkdir(parents=True, exist_ok=True)
        self.streams = start.folder / f"{start.name}.trace"
        self.log = start.folder / f"{start.name}.log"
        command = [start.target.argv[0], "-m", SERVE, "--model", str(start.model), "--port", str(self.port)]
        command += ["--device", start.device, "--via", start.via, "--arguments", json.dumps(start.arguments)]
        env = reaper.environment(start.target.env)
        if start.mode == "off":
            env |= record.environment(self.streams, path=env.get("PYTHONPATH", "")) | {record.FOLDER: ""}
        else:
            env |= record.environment(self.streams, start.mode, path=env.get("PYTHONPATH", ""))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command,
                env=env | start.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait(self, seconds: float) -> float:
        """Until it answers; returns how long it took. Raises NotUp."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if self.process.poll() is not None:
                raise NotUp(self.last_words())
            link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                link.request("GET", "/health")
                if link.getresponse().status == 200:
                    return time.monotonic() - began
            except (OSError, http.client.HTTPException):
                pass
            finally:
                link.close()
            time.sleep(0.2)
        raise NotUp(f"not up after {seconds:g} s: {self.last_words()}")

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self.process.poll() is None

    def wait_for_end(self, seconds: float) -> None:
        """Give a server that no longer answers the time to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def last_words(self) -> str:
        """The last line of its log that says something."""
        lines = self.log.read_text("utf-8", "replace").splitlines() if self.log.exists() else []
        errors = [line.strip() for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        return (errors[-1:] or [line.strip() for line in lines if line.strip()][-1:] or ["it said nothing"])[0][:400]

    def stop(self) -> None:
        """End it and all that it started: its recorder has written what it has by the next look at its queue."""
        time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def free_port() -> int:
    """A port that nobody has at this moment. The engine takes others above it for itself."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def toy(target: Target, family: str, folder: Path) -> Path:
    """The family's toy checkpoint, made once for what makes it. Raises NotUp."""
    maker = Path(ropecheck.adapters.__path__[0]) / "toys"
    made_by = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(maker.glob("*.py")))).hexdigest()[:8]
    place = folder / f"{family}-{made_by}"
    if not (place / "config.json").exists():
        env = os.environ | dict(target.env) | {"CUDA_VISIBLE_DEVICES": ""}
        command = [target.argv[0], "-m", TOYS, family, str(place)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotUp(f"no toy {family}: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")
    return place
