"""Watch an SGLang at work: its classes' functions note what passes and go on as before.

| spec field | adapter field | engine field |
| --- | --- | --- |
| events of a scheduler's process | `Recorder` | one `Scheduler` object and its runners |
| the graph's tables | events.Forward.positions, .rows | the decode graph runner's static buffers, after the replay |

Nothing is faked. Forwards before the scheduler is built (warm-up, graph capture) are not recorded.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from typing import Any

from ropecheck.adapters import events
from ropecheck.adapters.family_configs import CLASSES
from ropecheck.adapters.recording import Pending
from ropecheck.adapters.sglang.meter import is_broken_context, raised
from ropecheck.adapters.sglang.recorder import arrivals, outputs, tables

FAMILY = {module: family for family, (module, _) in reversed(CLASSES.items())}
"""A configuration's model_type -> the specification's family."""


class Sink:
    """Where events go. A recorder calls nothing else."""

    looks = False
    """It looks at forwards itself, where their tables are (`look`); nothing is copied for it."""

    def look(self, mode: str, batch: Any, positions: Any, rows: Any) -> None:
        """One forward of the target's network."""
        raise NotImplementedError

    def passes(self, batch: Any) -> bool:
        """Whether it does without a forward that is about to begin."""
        return False

    def put(self, entry: events.Event | Pending) -> object:
        """Take an event."""
        raise NotImplementedError

    def settle(self) -> None:
        """Some events became complete. May raise, to stop the engine."""

    def close(self) -> None:
        """The engine's loop has ended."""

    def failed(self, error: Exception) -> None:
        """The recorder itself failed; nothing more will come."""


class Stop(Exception):
    """What `Sink.settle` raises to stop the engine."""


PREFILL_GRAPHS = ("prefill_cuda_graph_runner", "piecewise_cuda_graph_runner")
DECODE_GRAPHS = ("decode_cuda_graph_runner", "graph_runner")
"""A runner's attributes by release."""

Open = Callable[[events.TraceHeader], Sink]
"""What a process calls when it has built its scheduler."""


class Recorder:
    """One process's scheduler."""

    def __init__(self, scheduler: Any, sink: Sink) -> None:
        self.scheduler, self.sink = scheduler, sink
        self._runs: list[tables.Given] = []
        """Forwards of the batch that is being run."""
        self._open: list[tuple[Any, list[tables.Given], Any]] = []
        """Results that have not been processed: result, its forwards, a copy of its tokens on the way."""
        self._busy = False
        """Something happened since the last rest."""
        self._mode = ""
        """The forward mode that a runner is in the middle of."""
        self._draft = False
        self._batch: Any = None
        self._looked = False
        self._held: tuple[Any, Any, int | None, Any, Any] | None = None
        """The last forward's tables, their width, and what `_cut` left of them."""
        self._seen: tables.Given | None = None
        self._step = 0
        self._wrapped: set[int] = set()

    def put(self, entry: events.Event | Pending) -> None:
        """Pass an event on."""
        self._busy = True
        self.sink.put(entry)

    # ------------------------------------------------------------ forwards

    def enter(self, runner: Any, batch: Any) -> bool:
        """A runner's forward begins; False inside of another one, and for a draft whose model reads no three rows."""
        if self._mode or (runner.is_draft_worker and not three_rows(runner)):
            return False
        self._mode, self._seen, self._batch = batch.forward_mode.name, None, batch  # mixed ones are relabelled inside
        self._looked = False
        self._draft = bool(runner.is_draft_worker)
        self._step = self._step + 1 if self._draft and self._mode == "DECODE" else 0
        self._eager(runner.model)
        return True

    def leave(self) -> None:
        """It ends."""
        self._mode, self._batch = "", None

    def replayed(self, runner: Any, batch: Any, result: Any) -> None:
        """Where no network was called a graph was replayed: what it read."""
        if self._seen is None and not self._looked and (found := _static(runner, batch, result)) is not None:
            self.given(*found)

    def given(self, positions: Any, rows: Any) -> None:
        """The network's own arguments, without what pads them."""
        batch = self._batch
        positions, rows = self._cut(positions, rows, batch.positions)
        mode = tables.MODES.get(self._mode) or self._mode.lower()
        if self.sink.looks:
            self._looked = True
            if not self._draft:
                self.sink.look(mode, batch, positions, rows)
            return
        step = max(0, self._step - 1)
        running = self.scheduler.running_batch
        self._seen = tables.given(mode, batch, positions, rows, running=running, draft=self._draft, step=step)
        if not self._draft:
            self._runs.append(self._seen)
        self.put(self._seen)

    def _cut(self, positions: Any, rows: Any, real: Any) -> tuple[Any, Any]:
        """As many columns as the batch has itself. A graph's buffers are the same tensors again and again."""
        width = None if real is None else real.shape[0]
        held = self._held
        if held is None or held[0] is not positions or held[1] is not rows or held[2] != width:
            narrow = None if positions is None else positions[:width]
            held = self._held = (positions, rows, width, narrow, None if rows is None else rows[:, :width])
        return held[3], held[4]

    def _eager(self, model: Any) -> None:
        """Watch the network that a runner calls when it replays no graph."""
        if id(model) in self._wrapped:
            return
        self._wrapped.add(id(model))
        inner = model.forward

        @functools.wraps(inner)
        def forward(input_ids: Any, positions: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            if self._mode and self._seen is None and not self._looked:
                with GUARDED:
                    self.given(positions, forward_batch.mrope_positions)
            return inner(input_ids, positions, forward_batch, *args, **kwargs)

        model.forward = forward

    # ------------------------------------------------------------ answers

    def begin(self) -> None:
        """A batch is about to run."""
        self._runs = []

    def ran(self, result: Any) -> None:
        """It was launched: its forwards' answers come with its result."""
        ids = getattr(result, "next_token_ids", None)
        on_device = ids is not None and hasattr(ids, "device") and ids.device.type != "cpu"
        self._open.append((result, self._runs, tables.HostCopies(ids=ids) if on_device else None))
        self._runs = []

    def processed(self, result: Any) -> None:
        """The engine is about to read a result: its forwards are complete, and so are those of earlier ones."""
        if (done := getattr(result, "copy_done", None)) is not None:
            done.synchronize()  # which the engine does next
        for at, (one, forwards, copied) in enumerate(self._open):
            if one is result:
                _answer(result, forwards, copied)
            for given in forwards:
                given.settled = True  # last of all: a thread may write it the next moment
            if one is result:
                del self._open[: at + 1]
                break
        self.sink.settle()

    # ------------------------------------------------------------ ends

    def idle(self) -> None:
        """Nothing runs; say so once, if nothing waits either."""
        if self._busy and not self._open and self.scheduler.is_fully_idle():
            self.put(events.Rest())
            self._busy = False
            self.sink.settle()

    def died(self, error: BaseException) -> None:
        """The loop raised. Where a kernel has failed, whoever asks next meets the error: no line is blamed."""
        if is_broken_context(error):
            return
        for _, forwards, _ in self._open:
            for given in forwards:
                given.settled = True
        for given in self._runs:
            given.settled = True
        said = raised(error)
        message = (said.message.splitlines() or [""])[0][:300]
        self.put(events.Died(error=said.type, message=message, where=said.where))


def _answer(result: Any, forwards: list[tables.Given], copied: tables.HostCopies | None) -> None:
    """The tokens that a result gives each request, to the target's last forward in it."""
    ids, lens = result.next_token_ids, getattr(result, "accept_lens", None)
    if not forwards or ids is None:
        return
    given = forwards[-1]
    if copied is not None:
        copied.wait()
        ids = copied.values("ids")
    values = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if given.mode != "target_verify":
        if given.mode == "beam_decode" or len(values) == len(given.reqs):
            given.answers = tuple(tuple(one) if isinstance(one, list) else (int(one),) for one in values)
        return
    if lens is None:
        return
    taken = lens.tolist()
    stride = len(values) // max(1, len(taken))
    given.answers = tuple(tuple(values[row * stride : row * stride + n]) for row, n in enumerate(taken))


def _static(runner: Any, batch: Any, result: Any) -> tuple[Any, Any] | None:
    """What a replayed graph read: its own buffers, before anything is loaded into them again. None: no graph ran."""
    if not getattr(result, "can_run_graph", False):
        return None
    mode = batch.forward_mode
    prefill = mode.is_extend() and not mode.is_target_verify()
    for name in PREFILL_GRAPHS if prefill else DECODE_GRAPHS:
        graph = getattr(runner, name, None)
        positions = _buffer(graph, "positions")
        if positions is not None:
            return positions, None if batch.mrope_positions is None else _buffer(graph, "mrope_positions")
    return None


def _buffer(graph: Any, name: str) -> Any:
    """A graph runner's static tensor, from its registry or its namespace; None for none."""
    registry = getattr(graph, "buffer_registry", None)
    if registry is not None and registry.has_slot(name):
        return registry.get_slot(name).buffer
    return getattr(getattr(graph, "buffers", None), name, None)


def three_rows(runner: Any) -> bool:
    """Whether a runner's model reads three rows; by release the runner knows, or its model's configuration."""
    knows = runner if hasattr(runner, "model_is_mrope") else getattr(runner, "model_config", None)
    return bool(getattr(knows, "model_is_mrope", True))


# ---------------------------------------------------------------- the engine's classes

_active: list[Recorder] = []
"""The process's recorder; the last scheduler built has it."""


def install(scheduler_module: Any, open_sink: Open) -> None:
    """Watch the classes of an imported engine. open_sink: called once a scheduler is built."""
    scheduler = scheduler_module.Scheduler
    request = import_module("sglang.srt.managers.schedule_batch").Req
    sender = import_module("sglang.srt.managers.scheduler_components.output_sender").SenderWrapper
    runner = import_module("sglang.srt.model_executor.model_runner").ModelRunner

    def built(inner: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        inner(self, *args, **kwargs)
        if getattr(self.model_config, "model_is_mrope", True):
            _active[:] = [Recorder(self, open_sink(header(self.model_config)))]

    _wrap(scheduler, "__init__", built)
    _note(scheduler, "handle_generate_request", lambda r, message: r.put(arrivals.arrive(message)))
    _note(scheduler, "abort_request", lambda r, m: r.put(events.Aborted(req="" if m.abort_all else m.rid)))
    _note(scheduler, "open_session", lambda r, m: r.put(_opened(m)))
    controller = getattr(scheduler_module, "SessionController", None)
    if "_close" in vars(controller or object):  # also for a session that times out
        _note(controller, "_close", lambda r, session: r.put(events.Closed(session=session)))
    else:
        _note(scheduler, "close_session", lambda r, m: r.put(events.Closed(session=m.session_id)))
    _note(scheduler, "pause_generation", lambda r, m: r.put(events.Control(what=f"pause {m.mode}")))
    _note(scheduler, "continue_generation", lambda r, *_: r.put(events.Control(what="continue")))
    _note(scheduler, "flush_cache", lambda r, *_: r.put(events.Control(what="flush")))
    _note(sender, "send_output", lambda r, output, *_: [r.put(event) for event in outputs.told(output)])
    _note(request, "reset_for_retract", lambda r, req: r.put(events.Retracted(req=req.rid)), itself=True)
    _wrap(scheduler, "process_batch_result", _processed)
    _note(scheduler, "on_idle", lambda r: r.idle(), after=True)
    _wrap(scheduler, "run_batch", _run_batch)
    _wrap(scheduler, "run_event_loop", _loop)
    _wrap(runner, "forward", _forward)


def _run_batch(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    if not _active or _active[0].sink.looks:  # who looks needs no answers
        return inner(self, *args, **kwargs)
    recorder = _active[0]
    recorder.begin()
    result = inner(self, *args, **kwargs)
    with GUARDED:
        recorder.ran(result)
    return result


def _processed(inner: Any, self: Any, batch: Any, result: Any, *args: Any, **kwargs: Any) -> Any:
    if _active and not _active[0].sink.looks:
        with GUARDED:
            _active[0].processed(result)
    return inner(self, batch, result, *args, **kwargs)


def _forward(inner: Any, self: Any, forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
    recorder = _active[0] if _active else None
    if (
        recorder is None
        or not forward_batch.rids
        or recorder.sink.passes(forward_batch)
        or not recorder.enter(self, forward_batch)
    ):
        return inner(self, forward_batch, *args, **kwargs)
    try:
        result = inner(self, forward_batch, *args, **kwargs)
        with GUARDED:
            recorder.replayed(self, forward_batch, result)
        return result
    finally:
        recorder.leave()


def _loop(inner: Any, self: Any) -> Any:
    try:
        return inner(self)
    except Exception as error:
        for recorder in _active:
            with GUARDED:
                recorder.died(error)
        raise
    finally:
        for recorder in _active:
            recorder.sink.close()


class _Guarded:
    """A fault of the recorder's own ends the recording, not the engine. What asks the engine to stop passes. After a
    kernel has failed every call fails: that is no fault of the recorder's, and the engine meets the error itself."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if not isinstance(error, Exception) or isinstance(error, Stop):
            return False
        for recorder in _active:
            recorder.sink.close() if is_broken_context(error) else recorder.sink.failed(error)
        _active.clear()
        return True


GUARDED = _Guarded()


def _note(owner: Any, name: str, note: Callable[..., object], itself: bool = False, after: bool = False) -> None:
    """note(recorder, *arguments) before the method, or after it; with itself, of the object that it belongs to."""

    def watched(inner: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if after:
            result = inner(self, *args, **kwargs)
        if _active:
            with GUARDED:
                note(_active[0], *((self,) if itself else (*args, *kwargs.values())))
        return result if after else inner(self, *args, **kwargs)

    _wrap(owner, name, watched)


def _wrap(owner: Any, name: str, watched: Callable[..., Any]) -> None:
    """watched(inner, self, ...) in the place of a method that this release has."""
    inner = owner.__dict__.get(name)
    if inner is None:
        return

    @functools.wraps(inner)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return watched(inner, self, *args, **kwargs)

    setattr(owner, name, method)


def _opened(message: Any) -> events.Opened:
    return events.Opened(session=message.session_id, streaming=bool(getattr(message, "streaming", False)))


def header(config: Any) -> events.TraceHeader:
    """Which model, which release."""
    kind = str(getattr(config.hf_config, "model_type", ""))
    return events.TraceHeader(
        version=events.VERSION, family=FAMILY.get(kind, kind), engine="sglang", engine_version=version("sglang")
    )
