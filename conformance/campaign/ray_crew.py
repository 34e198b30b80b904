"""A crew of Ray actors: one per core (or GPU) of every node, here or in a cluster. The only module that knows Ray.

A node that is lost takes its actors with it: their blocks are lost and the driver gives them out again. Nodes that
join get actors. Nothing is kept in Ray that a driver would miss: a new driver needs the campaign's folder alone.
"""

import importlib
import logging
import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import ropecheck
from ropecheck.conformance.campaign.blocks import Block
from ropecheck.conformance.campaign.driver import LostBlock
from ropecheck.conformance.campaign.station import BlockDone, Station, identity
from ropecheck.conformance.errors import GaveUp, UsageError
from ropecheck.conformance.targets import provisioned, registry

STAFF_SECONDS = 1.0
"""How often nodes are counted."""

STORE_BYTES = 128 << 20
"""Ray's object store of an embedded cluster; a result is some 100 kB."""


def load() -> Any:
    """The ray module. Raises UsageError without it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(f"campaign: Ray is missing ({error}); pip install 'ropecheck[campaign]'") from error


class _Failure(msgspec.Struct, frozen=True, tag="failure"):
    why: str
    fatal: bool


class _Result(msgspec.Struct, frozen=True, tag="result"):
    done: BlockDone


class WorkerPlace:
    """The actor. Blocks and results cross as bytes, so that Ray need not know their types."""

    def __init__(self, known: str, time_limit: float, modules: tuple[str, ...]) -> None:
        registry.register_source(provisioned.targets)
        for module in modules:
            importlib.import_module(module)
        self._station = Station(Path(known), time_limit)

    def ready(self) -> str:
        return identity()

    def run(self, body: bytes) -> bytes:
        block = msgspec.msgpack.decode(body, type=Block)
        try:
            return msgspec.msgpack.encode(_Result(self._station.run(block)))
        except (GaveUp, UsageError) as error:
            return msgspec.msgpack.encode(_Failure(str(error), isinstance(error, UsageError)))
        except Exception as error:  # a bug of the suite's own costs a block, and is told
            return msgspec.msgpack.encode(_Failure(f"{type(error).__name__}: {error}", True))


_decoder = msgspec.msgpack.Decoder(_Result | _Failure)


class RayCrew:
    """The crew; as driver.Crew says. Raises UsageError when there is no cluster at `address`.

    address: of a running cluster, "" for one of its own on this machine. most: places at a time, 0 for all there are
    resources for. modules: imported in each place, for targets of your own.
    """

    def __init__(
        self,
        address: str,
        *,
        device: str,
        most: int,
        known: Path,
        time_limit: float,
        modules: tuple[str, ...] = (),
        warn: Callable[[str], None] = lambda message: None,
    ) -> None:
        self._ray = load()
        self._most, self._device, self._warn = most, device, warn
        self._own = not self._ray.is_initialized()
        if self._own:
            self._connect(address)
        options = {"num_cpus": 1, "num_gpus": 1 if device == "cuda" else 0, "max_restarts": 0}
        self._make = self._ray.remote(WorkerPlace).options(**options, scheduling_strategy="SPREAD")
        self._arguments = (str(known.resolve()), time_limit, modules)
        self._actors: dict[int, Any] = {}
        self._ready: set[int] = set()
        self._blocks: dict[int, list[Block]] = {}
        self._waiting: dict[Any, int] = {}
        self._made = 0
        self._counted = 0.0

    def _connect(self, address: str) -> None:
        root = str(Path(ropecheck.__file__).resolve().parents[1])
        path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
        options: dict[str, Any] = {
            "log_to_driver": False,
            "logging_level": logging.ERROR,
            "runtime_env": {"env_vars": {"PYTHONPATH": path}},
            "address": address or "local",
        }
        if not address:
            cores = self._most or len(os.sched_getaffinity(0))
            options |= {"num_cpus": cores, "object_store_memory": STORE_BYTES, "include_dashboard": False}
        before = signal.getsignal(signal.SIGTERM)
        try:
            _reachable(address)
            self._start(options)
        except (OSError, ValueError, RuntimeError) as error:
            raise UsageError(f"--ray {address or 'here'}: {_line(error)}") from error
        finally:
            signal.signal(signal.SIGTERM, before)  # Ray's own would leave with exit code 15

    def _start(self, options: dict[str, Any]) -> None:
        """Ray gives its own processes half a minute, which a busy machine may not have for them at once."""
        for last in (False, False, True):
            try:
                self._ray.init(**options)
                return
            except (OSError, ValueError, RuntimeError):
                raise
            except Exception as error:  # Ray's own kind, of no class
                self._ray.shutdown()
                if last:
                    raise GaveUp(f"Ray did not start: {_line(error)}") from error

    # ------------------------------------------------------------ as the driver sees it

    def places(self) -> list[int]:
        if time.monotonic() - self._counted > STAFF_SECONDS:
            self._staff()
        return sorted(self._ready)

    def held(self, place: int) -> int:
        return len(self._blocks.get(place, ()))

    def give(self, place: int, block: Block) -> None:
        self._blocks[place].append(block)
        self._waiting[self._actors[place].run.remote(msgspec.msgpack.encode(block))] = place

    def wait(self, seconds: float) -> list[BlockDone | LostBlock]:
        if not self._waiting:
            time.sleep(min(seconds, 0.2))
            return []
        refs = list(self._waiting)
        done, _ = self._ray.wait(refs, num_returns=1, timeout=seconds)
        if done:
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        ended: list[BlockDone | LostBlock] = []
        for ref in done:
            if ref in self._waiting:  # else its place was lost meanwhile
                ended += self._answer(ref)
        return ended

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()
        if self._own:
            self._ray.shutdown()

    # ------------------------------------------------------------ places

    def _slots(self) -> int:
        """Places that the living nodes have room for."""
        kinds = ("CPU", "GPU") if self._device == "cuda" else ("CPU",)
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        slots = sum(int(min(resources.get(kind, 0) for kind in kinds)) for resources in alive)
        return min(slots, self._most) if self._most else slots

    def _staff(self) -> None:
        """As many places as there is room for."""
        self._counted = time.monotonic()
        for _ in range(self._slots() - len(self._actors)):
            self._made += 1
            actor = self._make.remote(*self._arguments)
            self._actors[self._made] = actor
            self._waiting[actor.ready.remote()] = self._made

    def _answer(self, ref: Any) -> list[BlockDone | LostBlock]:
        place = self._waiting.pop(ref)
        try:
            body = self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            return list(self._lost(place, _line(error)))
        if place not in self._ready:
            if body != identity():
                raise GaveUp(f"a node has suite {body}, this driver {identity()}: install the same on both")
            self._ready.add(place)
            self._blocks[place] = []
            return []
        block = self._blocks[place].pop(0)  # an actor answers in order
        answer = _decoder.decode(body)
        return [answer.done] if isinstance(answer, _Result) else [LostBlock(block, answer.why, answer.fatal)]

    def _lost(self, place: int, why: str) -> list[LostBlock]:
        """The place is no more: so are its blocks."""
        was_ready = place in self._ready
        self._ready.discard(place)
        del self._actors[place]
        self._waiting = {ref: other for ref, other in self._waiting.items() if other != place}
        blocks = self._blocks.pop(place, [])
        if not was_ready:
            self._warn(f"place {place} did not start: {why}")
        return [LostBlock(block, f"place {place} is lost: {why}", gone=True) for block in blocks]


def _reachable(address: str) -> None:
    """Raises OSError for HOST:PORT where nobody listens, on which Ray would wait for minutes."""
    match = re.fullmatch(r"([^:/]+):(\d+)", address)
    if match:
        socket.create_connection((match[1], int(match[2])), timeout=10.0).close()


def _line(error: Exception) -> str:
    words = [line.strip() for line in str(error).splitlines() if line.strip()]
    return words[0][:200] if words else type(error).__name__
