"""Objects with the fields of an engine's batches and runners, and a GPU that is none: tensors that say they are on one,
copies that arrive when their event says so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from ropecheck.adapters import events
from ropecheck.adapters.recording import Pending
from ropecheck.adapters.sglang.recorder import watch

EXTENDS = ("EXTEND", "MIXED", "TARGET_VERIFY", "DRAFT_EXTEND_V2")


def batch(mode: str, *reqs: str, tokens: int = 1, at: int = 0, **fields: Any) -> Any:
    """A ForwardBatch of so many tokens a request; its columns are numbered through from `at`."""
    count = len(reqs) * tokens
    kind = SimpleNamespace(
        name=mode, is_extend=lambda: mode in EXTENDS, is_target_verify=lambda: mode == "TARGET_VERIFY"
    )
    windows = mode in EXTENDS
    plain: dict[str, Any] = {
        "rids": list(reqs),
        "forward_mode": kind,
        "positions": torch.arange(at, at + count),
        "mrope_positions": torch.arange(at, at + count).expand(3, -1).clone(),
        "seq_lens_cpu": torch.tensor([tokens] * len(reqs)),
        "extend_seq_lens_cpu": [tokens] * len(reqs) if windows else None,
        "extend_prefix_lens_cpu": [at] * len(reqs) if windows else None,
        "spec_info": SimpleNamespace(draft_token_num=tokens),
    }
    return SimpleNamespace(**plain | fields)


def runner(draft: bool = False, **more: Any) -> Any:
    """A model runner whose network returns what it was given."""
    network = SimpleNamespace(forward=lambda *args, **kwargs: (args, kwargs))
    return SimpleNamespace(is_draft_worker=draft, model=network, **more)


class Kept(watch.Sink):
    """A sink that keeps all it is given. looked: (mode, positions, rows) of what it looked at itself."""

    def __init__(self, looks: bool = False) -> None:
        self.looks = looks
        self.entries: list[Any] = []
        self.looked: list[tuple[str, Any, Any]] = []
        self.said: list[str] = []

    def look(self, mode: str, batch: Any, positions: Any, rows: Any) -> None:
        self.looked.append((mode, positions, rows))

    def put(self, entry: events.Event | Pending) -> object:
        self.entries.append(entry)
        return None

    def settle(self) -> None:
        self.said.append("settle")

    def close(self) -> None:
        self.said.append("close")

    def failed(self, error: Exception) -> None:
        self.said.append(f"failed: {error}")

    @property
    def forwards(self) -> list[events.Forward]:
        """What was told of forwards, as events."""
        return [entry.event() for entry in self.entries if hasattr(entry, "held")]


class OnGpu(torch.Tensor):  # type: ignore[misc]
    """A tensor of the host that says it is on a GPU."""

    device = SimpleNamespace(type="cuda")


class OnHost(torch.Tensor):  # type: ignore[misc]
    """A tensor of the host that can be pinned, and moved to a GPU that is none."""

    def pin_memory(self, *_: Any) -> Any:
        return self

    def to(self, device: Any, non_blocking: bool = False) -> Any:
        assert device is OnGpu.device and non_blocking, "who moves it must not wait"
        return self.as_subclass(OnGpu)


class Event:
    """A mark in a GPU's stream: reached when a test says so, or somebody waits."""

    reached = True
    waited = 0

    recorded = False

    def record(self) -> None:
        self.recorded = True

    def query(self) -> bool:
        return self.recorded and Event.reached

    def synchronize(self) -> None:
        Event.waited += 1


class Torch:
    """torch with that GPU. waits: how often the whole device was waited for."""

    def __init__(self) -> None:
        self.waits = 0
        self.cuda = SimpleNamespace(Event=Event, synchronize=self._wait)
        Event.reached, Event.waited = True, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def _wait(self) -> None:
        self.waits += 1

    def tensor(self, values: Any) -> Any:
        return torch.tensor(values).as_subclass(OnHost)

    def zeros(self, shape: Any, dtype: Any, device: Any = None, pin_memory: bool = False) -> Any:
        assert pin_memory == (device is None)
        made = torch.zeros(shape, dtype=dtype)
        return made if device is None else made.as_subclass(OnGpu)

    def empty(self, shape: Any, dtype: Any, pin_memory: bool) -> Any:
        assert pin_memory, "a copy into other memory waits"
        return torch.empty(shape, dtype=dtype)
