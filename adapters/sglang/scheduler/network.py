"""In the network's place: record what a forward is given, answer with the tokens that the script wants.

| spec field | adapter field | engine field |
| --- | --- | --- |
| both tables | events.Forward.positions, .rows | the model's `positions`, `ForwardBatch.mrope_positions` |
| row order | events.Forward.reqs | `ForwardBatch.rids` |
| engine's counts | events.Forward.seq_lens, .prefix_lens | `ForwardBatch.seq_lens_cpu`, `.extend_prefix_lens_cpu` |

Faked: the forward of the target's and the draft's model. Everything around it (runner, buffers, attention backend's
planning, sampler) is the engine's.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput

from ropecheck.adapters import events
from ropecheck.adapters.sglang.scheduler.build import HIDDEN, STOP, VOCABULARY

MODES = {
    "EXTEND": "extend",
    "DECODE": "decode",
    "MIXED": "mixed",
    "IDLE": "idle",
    "TARGET_VERIFY": "target_verify",
    "DRAFT_EXTEND_V2": "draft_extend_v2",
    "DRAFT_EXTEND": "draft_extend",
    "SPLIT_PREFILL": "split_prefill",
    "DLLM_EXTEND": "dllm_extend",
    "PREBUILT": "prebuilt",
}
"""The engine's names of forward modes and the trace's."""


class Network:
    """The stand-in for one server's networks. `emit` takes the trace's events."""

    def __init__(self, emit: Callable[[events.Event], None]) -> None:
        self.emit = emit
        self.stops: dict[str, int] = {}
        """Request -> its `stop_every`."""
        self.accept = 1
        self.forwards = 0
        self._mode = ""
        self._step = 0

    def install(self, runner: Any, draft: bool = False) -> None:
        """Take the place of a model runner's network."""
        whole: Callable[..., Any] = runner.forward

        def noting(forward_batch: Any, *args: Any, **kwargs: Any) -> Any:
            # Mixed batches are relabelled inside; what the scheduler made is what is told.
            self._mode = forward_batch.forward_mode.name
            return whole(forward_batch, *args, **kwargs)

        def network(input_ids: Any, positions: Any, forward_batch: Any, *_: Any, **__: Any) -> Any:
            return self._forward(input_ids, positions, forward_batch, draft)

        runner.forward = noting
        runner.model.forward = network

    def _forward(self, input_ids: Any, positions: Any, batch: Any, draft: bool) -> Any:
        self.forwards += 1
        mode = MODES.get(self._mode, self._mode.lower())
        reqs = tuple(batch.rids)
        seq_lens = tuple(batch.seq_lens_cpu.tolist() if batch.seq_lens_cpu is not None else batch.seq_lens.tolist())
        windows = batch.extend_seq_lens_cpu if batch.forward_mode.is_extend() else None
        tokens = tuple(int(n) for n in windows) if windows else (1,) * len(reqs)
        prefix = tuple(int(n) for n in batch.extend_prefix_lens_cpu) if windows else ()
        rows = batch.mrope_positions
        parents: list[tuple[int, ...]] = []
        self._step = self._step + 1 if draft and mode == "decode" else 0
        if draft:
            return self._draft(mode, reqs, seq_lens, tokens, prefix, positions, batch)
        if mode == "target_verify":
            trees = Trees(batch, len(reqs))
            tokens = (trees.nodes,) * len(reqs)
            parents = [trees.parents(row) for row in range(len(reqs))]
            logits, answers = self._verify(trees, reqs, seq_lens)
        else:
            answers = [[self.token(req, length)] for req, length in zip(reqs, seq_lens, strict=True)]
            logits = torch.zeros(len(reqs), VOCABULARY)
            for row, answer in enumerate(answers):
                logits[row, answer[-1]] = 1.0
        self.emit(
            events.Forward(
                mode=mode,
                reqs=reqs,
                tokens=tokens,
                positions=None if positions is None else tuple(positions.tolist()),
                rows=None if rows is None else tuple(map(tuple, rows.tolist())),
                answers=tuple(map(tuple, answers)),
                draft=draft,
                parents=tuple(parents),
                seq_lens=seq_lens,
                prefix_lens=prefix,
                dtypes=(name(positions), name(rows)),
            )
        )
        return output(logits, batch, positions)

    def _draft(
        self,
        mode: str,
        reqs: tuple[str, ...],
        seq_lens: tuple[int, ...],
        tokens: tuple[int, ...],
        prefix: tuple[int, ...],
        positions: Any,
        batch: Any,
    ) -> Any:
        """The draft model's forward: its answers are drafts, which commit nothing."""
        if mode != "extend":
            tokens = (len(positions) // max(1, len(reqs)),) * len(reqs)
        rows = batch.mrope_positions
        self.emit(
            events.Forward(
                mode="draft_decode" if mode == "decode" else mode,
                reqs=reqs,
                tokens=tokens,
                positions=tuple(positions.tolist()),
                rows=None if rows is None else tuple(map(tuple, rows.tolist())),
                draft=True,
                step=max(0, self._step - 1),
                seq_lens=seq_lens,
                prefix_lens=prefix if mode == "extend" else (),
                dtypes=(name(positions), name(rows)),
            )
        )
        count = len(reqs) if mode == "extend" else len(positions)
        logits = torch.zeros(count, VOCABULARY)
        for row in range(count):
            for rank in range(8):
                logits[row, 20 + (row * 31 + self._step * 57 + self.forwards + rank * 3) % 400] = 8.0 - rank
        return output(logits, batch, positions)

    def _verify(self, trees: Trees, reqs: tuple[str, ...], seq_lens: tuple[int, ...]) -> tuple[Any, list[list[int]]]:
        """Take some of the drafted tokens, then answer one more. Logits: one row per node."""
        logits = torch.zeros(len(reqs) * trees.nodes, VOCABULARY)
        answers = []
        for row, (req, length) in enumerate(zip(reqs, seq_lens, strict=True)):
            wanted = (zlib.crc32(req.encode()) + length) * self.accept % (trees.nodes + 1)
            node = 0
            said: list[int] = []
            while True:
                children = trees.children(row, node)
                if wanted <= len(said) or not children:
                    break
                token = children[length % len(children)][1]
                logits[row * trees.nodes + node, token] = 1.0
                said.append(token)
                node = next(child for child, other in children if other == token)
            drafted = {token for _, token in trees.children(row, node)}
            last = self.token(req, length + len(said))
            while last in drafted:
                last += 1
            logits[row * trees.nodes + node, last] = 1.0
            answers.append([*said, last])
        return logits, answers

    def token(self, req: str, length: int) -> int:
        """The model's next token after `length` tokens: a function of the place alone, so that a request which is
        computed again gets the same answer."""
        every = self.stops.get(req, 0)
        if every and (length + 1) % every == 0:
            return STOP
        return 10 + (zlib.crc32(req.encode()) + length * 7) % 400


def output(logits: Any, batch: Any, positions: Any) -> Any:
    """What a network returns: logits, and hidden states where the engine wants them."""
    hidden = None
    if getattr(batch.capture_hidden_mode, "name", "NULL") != "NULL":
        full = batch.capture_hidden_mode.name == "FULL"
        hidden = torch.zeros(len(positions) if full else len(logits), HIDDEN)
    return LogitsProcessorOutput(next_token_logits=logits, hidden_states=hidden)


class Trees:
    """The drafted trees of a verify batch, as the engine's verify input links them."""

    def __init__(self, batch: Any, requests: int) -> None:
        info = batch.spec_info
        self.nodes = int(info.draft_token_num)
        shape = (requests, self.nodes)
        self._next = info.retrieve_next_token.reshape(shape).tolist()
        self._sibling = info.retrieve_next_sibling.reshape(shape).tolist()
        self._tokens = info.draft_token.reshape(shape).tolist()

    def children(self, row: int, node: int) -> list[tuple[int, int]]:
        """(node, token) of a node's children, in the order in which a verify tries them."""
        found = []
        child = self._next[row][node]
        while child >= 0:
            found.append((child, self._tokens[row][child]))
            child = self._sibling[row][child]
        return found

    def parents(self, row: int) -> tuple[int, ...]:
        """For each node after the root, its parent; -1 for a filler."""
        parents = [-1] * self.nodes
        for node in range(self.nodes):
            for child, _ in self.children(row, node):
                parents[child] = node
        return tuple(parents[1:])


def name(tensor: Any) -> str:
    """A tensor's dtype, "int64"; "" for none."""
    return "" if tensor is None else str(tensor.dtype).removeprefix("torch.")
