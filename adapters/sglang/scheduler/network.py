"""In the network's place: record what a forward is given, answer with the tokens that the script wants.

| spec field | adapter field | engine field |
| --- | --- | --- |
| columns of a forward | events.Forward | as `recorder.tables` reads them |

Faked: the forward of the target's and the draft's model. Everything around it (runner, buffers, attention backend's
planning, sampler) is the engine's.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput

from ropecheck.adapters.sglang.recorder import tables
from ropecheck.adapters.sglang.scheduler.build import HIDDEN, STOP, VOCABULARY

SURE = 1e4
"""A logit beside which the others are nothing: whoever draws takes this token, too."""


class Network:
    """The stand-in for one server's networks. `emit` takes forwards whose tables may be on their way to the host."""

    def __init__(self, scheduler: Any, emit: Callable[[tables.Given], None]) -> None:
        self._scheduler = scheduler
        self._emit = emit
        self.stops: dict[str, int] = {}
        """Request -> its `stop_every`."""
        self.accept = 1
        self.widest = 0
        """Of the script's beam searches; 0 without one."""
        self.forwards = 0
        self.failed: tables.Given | None = None
        """The forward that raised before its network was reached."""
        self._mode = ""
        self._step = 0
        self._last: tables.Given | None = None
        """The target's last forward."""
        self._rows: dict[int, str] = {}
        """Row of the cache -> the request that was prefilled there last."""

    def install(self, runner: Any, draft: bool = False) -> None:
        """Take the place of a model runner's network."""
        whole: Callable[..., Any] = runner.forward

        def noting(forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            # Mixed batches are relabelled inside; what the scheduler made is what is told.
            self._mode = forward_batch.forward_mode.name
            before = self.forwards
            try:
                return whole(forward_batch, *args, **kwargs)
            except Exception:
                if self.forwards == before:
                    self.failed = self._brought(forward_batch, draft)
                raise

        def network(input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:
            return self._forward(input_ids, positions, forward_batch, draft)

        runner.forward = noting
        runner.model.forward = network
        if draft and (layers := getattr(runner.model, "layers", None)):  # of a block draft
            self._watch_context(layers[0].self_attn.rotary_emb)

    def _watch_context(self, rotary: Any) -> None:
        """Record which positions the features of the target's last forward are rotated by, on their way into the
        draft's cache."""
        rotates = rotary.forward

        def noting(positions: Any, *args: Any, **kwargs: Any) -> Any:
            last = self._last
            assert last is not None
            tokens = last.tokens
            if last.mode not in ("extend", "mixed"):
                tokens = (len(positions) // len(last.reqs),) * len(last.reqs)
            self._emit(
                tables.Given(
                    mode="draft_context",
                    reqs=last.reqs,
                    tokens=tokens,
                    prefix_lens=(),
                    seq_lens=(),
                    draft=True,
                    step=0,
                    dtypes=(tables.dtype(positions), ""),
                    held=tables.HostCopies(positions=positions),
                    settled=True,
                )
            )
            return rotates(positions, *args, **kwargs)

        rotary.forward = noting

    def _forward(self, input_ids: Any, positions: Any, batch: Any, draft: bool) -> Any:
        self.forwards += 1
        mode = tables.MODES.get(self._mode, self._mode.lower())
        self._step = self._step + 1 if draft and mode == "decode" else 0
        step = max(0, self._step - 1)
        running = self._scheduler.running_batch
        if batch.rids is None:  # a block draft's batch, which says rows of the cache alone
            batch.rids = [self._rows[row] for row in batch.req_pool_indices.tolist()]
        elif not draft and mode in ("extend", "mixed"):
            self._rows |= zip(batch.req_pool_indices.tolist(), batch.rids, strict=False)
        read = _halves(batch) or (positions, batch.mrope_positions)
        given = tables.given(mode, batch, *read, running=running, draft=draft, step=step)
        given.settled = True
        if draft:
            self._emit(given)
            return self._draft(given, positions, batch)
        self._last = given
        if not given.seq_lens:  # the engine knows them on the device alone
            given.held.wait()
        if given.nodes:
            logits, answers = self._verify(batch, given)
        else:
            answers = [[self.token(req, n)] for req, n in zip(given.reqs, given.lengths(), strict=True)]
            logits = torch.zeros(len(given.reqs), VOCABULARY)
            for row, answer in enumerate(answers):
                logits[row, answer[-1]] = 1.0 if self.widest else SURE
                for rank in range(1, self.widest * 2):  # what other beams may take
                    logits[row, 12 + (answer[-1] + row + rank) % 440] = 1.0 - rank / 64
        given.answers = tuple(map(tuple, answers))
        self._emit(given)
        return output(logits, batch, positions)

    def _brought(self, batch: Any, draft: bool) -> tables.Given | None:
        """A forward that raised, as far as it can be read."""
        with contextlib.suppress(Exception):
            mode = tables.MODES.get(self._mode, self._mode.lower())
            running = self._scheduler.running_batch
            return tables.given(mode, batch, batch.positions, batch.mrope_positions, running=running, draft=draft)
        return None

    def _draft(self, given: tables.Given, positions: Any, batch: Any) -> Any:
        """The draft model's forward: its answers are drafts, which commit nothing."""
        last = given.mode in ("extend", "mixed") or getattr(batch.spec_info, "select_index", None) is not None
        count = len(given.reqs) if last else len(positions)
        logits = torch.zeros(count, VOCABULARY)
        ranks = torch.arange(8)
        places = 20 + (torch.arange(count)[:, None] * 31 + self._step * 57 + self.forwards + ranks * 3) % 400
        logits.scatter_(1, places, (8.0 - ranks).expand(count, -1))
        return output(logits, batch, positions, block=given.mode == "draft_block")

    def _verify(self, batch: Any, given: tables.Given) -> tuple[Any, list[list[int]]]:
        """Take some of the drafted tokens, then answer one more. Logits: one row per node."""
        given.held.wait()
        after, beside = given.held.values("next"), given.held.values("sibling")
        trees = None if after is None else tables.Trees(given.nodes, after, beside)
        drafted = batch.spec_info.draft_token.flatten().tolist()
        logits = torch.zeros(len(drafted), VOCABULARY)
        answers = []
        start = 0
        for row, (req, length, nodes) in enumerate(zip(given.reqs, given.lengths(), given.tokens, strict=True)):

            def children(node: int, row: int = row, nodes: int = nodes) -> list[int]:
                if trees is not None:
                    return trees.children(row, node)
                return [node + 1] if node + 1 < nodes else []

            tokens = drafted[start : start + nodes]
            wanted = (zlib.crc32(req.encode()) + length) * self.accept % (nodes + 1)
            node = 0
            said: list[int] = []
            while wanted > len(said) and (after_it := children(node)):
                token = tokens[after_it[length % len(after_it)]]
                logits[start + node, token] = SURE
                said.append(token)
                node = next(child for child in after_it if tokens[child] == token)
            rivals = {tokens[child] for child in children(node)}
            last = self.token(req, length + len(said))
            while last in rivals:
                last += 1
            logits[start + node, last] = SURE
            answers.append([*said, last])
            start += nodes
        return logits, answers

    def token(self, req: str, length: int) -> int:
        """The model's next token after `length` tokens: a function of the place alone, so that a request which is
        computed again gets the same answer."""
        every = self.stops.get(req, 0)
        if every and (length + 1) % every == 0:
            return STOP
        return 10 + (zlib.crc32(req.encode()) + length * 7) % 400


def _halves(batch: Any) -> tuple[Any, Any] | None:
    """(positions, rows) of a forward that runs as two, one behind the other, unpadded. None: it is one."""
    if not getattr(batch, "tbo_children", None):
        return None
    halves = [
        (half, slice(half.tbo_parent_token_range[1] - half.tbo_parent_token_range[0])) for half in batch.tbo_children
    ]
    positions = torch.cat([half.positions[own] for half, own in halves])
    return positions, torch.cat([half.mrope_positions[:, own] for half, own in halves], dim=1)


def output(logits: Any, batch: Any, positions: Any, block: bool = False) -> Any:
    """What a network returns, where its positions are: logits, and hidden states and logprobs where they are wanted.
    block: of a draft whose tokens the engine reads off its hidden states."""
    hidden = None
    logits = logits.to(positions.device)
    if block or getattr(batch.capture_hidden_mode, "name", "NULL") != "NULL":
        full = block or batch.capture_hidden_mode.name == "FULL"
        hidden = torch.zeros(len(positions) if full else len(logits), HIDDEN, device=positions.device)
        if block:  # so that drafts, and how sure it is of them, differ
            hidden += (positions % 5 - 2)[:, None] * 500
    asked = None
    if batch.return_logprob and batch.extend_logprob_start_lens_cpu is not None:  # of a prompt's tokens
        spans = zip(batch.extend_logprob_start_lens_cpu, batch.extend_seq_lens_cpu, strict=True)
        asked = torch.zeros(sum(stop - start for start, stop in spans), device=positions.device)
    return LogitsProcessorOutput(next_token_logits=logits, hidden_states=hidden, input_token_logprobs=asked)
