"""The engines in this process, on one thread, and SGLang's `ForwardBatch.init_new` under a clock."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from ropecheck.adapters import protocol

MODES = {"extend": "extend", "verify": "target_verify", "draft extend": "draft_extend_v2"}

Ints = npt.NDArray[np.int64]


def boot() -> None:
    """Import SGLang as its adapter does, on the CPU, one thread."""
    from ropecheck.adapters.sglang import boot as sglang

    sglang.prepare_environment("cpu")
    sglang.load("cpu").set_num_threads(1)


class InitNew:
    """The same batch of requests, built by the SGLang adapter from real objects; `init_new` alone is timed."""

    def __init__(self, ids: tuple[int, ...], table: Ints, requests: int) -> None:
        """Odd requests have the image's table, even ones are text of the same length."""
        from ropecheck.adapters.sglang.capabilities import Engine

        self.engine = Engine()
        self.width = len(ids)
        self.requests = requests
        start = next(i for i, token in enumerate(ids) if token == 101)
        stop = len(ids) - 1 - next(i for i, token in enumerate(reversed(ids)) if token == 101) + 1
        packed = protocol.Tensor("int64", table.shape, np.ascontiguousarray(table).tobytes())
        media = protocol.Media(packed, int(table.max()) + 1 - len(ids), (protocol.Item("image", start, stop),))
        self.submits = [protocol.SubmitStep(n, ids, media if n % 2 else None) for n in range(requests)]
        self.times: list[float] = []
        self._watch()

    def _watch(self) -> None:
        cls = self.engine.ForwardBatch
        function = cls.init_new.__func__

        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter_ns()
            built = function(*args, **kwargs)
            self.times.append((time.perf_counter_ns() - start) / 1000)
            return built

        cls.init_new = classmethod(timed)

    def _run(self, mode: str, draft_tokens: int) -> protocol.TablesAnswer:
        from ropecheck.adapters.sglang import jobs

        several = tuple(range(self.requests))
        if mode == "extend":
            forward = protocol.BuildForward(
                mode="extend",
                reqs=several,
                seq_lens=(self.width,) * self.requests,
                prefix_lens=(16,) * self.requests,
                extend_lens=(self.width - 16,) * self.requests,
            )
        else:
            first = self.width + 7
            forward = protocol.BuildForward(
                mode=MODES[mode],
                reqs=several,
                seq_lens=(first,) * self.requests,
                positions=tuple(first + i for i in range(draft_tokens)) * self.requests if mode == "verify" else (),
                num_draft_tokens=draft_tokens,
                num_steps=draft_tokens - 1,
                parents=(tuple(range(draft_tokens - 1)),) * self.requests if mode == "verify" else (),
            )
        windows = (protocol.Schedule(n, hit=16) for n in several) if mode == "extend" else ()
        job = protocol.Job("bench", (*self.submits, *windows, forward))
        found = jobs.answer(self.engine, job).results[-1]
        if not isinstance(found, protocol.TablesAnswer):
            raise SystemExit(f"SGLang's {mode} did not run: {found}")
        return found

    def table(self, mode: str, draft_tokens: int) -> Ints:
        """The three-row table that SGLang builds."""
        made = self._run(mode, draft_tokens).tables[0].mrope
        if made is None:
            raise SystemExit(f"SGLang's {mode} left no table")
        return np.frombuffer(made.data, dtype=np.int64).reshape(made.shape)

    def best(self, mode: str, draft_tokens: int, repeats: int) -> float:
        """Microseconds of `init_new`, the least of several batches."""
        self.times.clear()
        for _ in range(repeats):
            self._run(mode, draft_tokens)
        return min(self.times)
