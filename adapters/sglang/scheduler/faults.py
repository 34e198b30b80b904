"""Faults planted in the engine's own source, in memory, to see that the suite catches them in a real scheduler: a
function's text is changed and compiled again.

| spec field | adapter field | engine field |
| --- | --- | --- |
| - | play.ServerConfig.environment["ROPECHECK_SCHEDULER_PATCH"] | the function whose text is changed |

Nothing is changed unless the variable is set.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import os
import textwrap
from dataclasses import dataclass
from typing import Any

VARIABLE = "ROPECHECK_SCHEDULER_PATCH"
BATCH = "sglang.srt.managers.schedule_batch"
POLICY = "sglang.srt.managers.schedule_policy"
SCHEDULER = "sglang.srt.managers.scheduler"
FORWARD = "sglang.srt.model_executor.forward_batch_info"
STAGES = "sglang.srt.managers.scheduler_pp_mixin"
SESSION = "sglang.srt.session.session_controller"


@dataclass(frozen=True, slots=True)
class Patch:
    """One change. old must stand exactly once in the function's text."""

    about: str
    module: str
    function: str
    """"Class.method" or "function"."""
    old: str
    new: str


FAULTS: dict[str, Patch] = {
    "rows after a filter": Patch(
        "filter_batch keeps the first rows' media instead of the kept rows'",
        BATCH,
        "ScheduleBatch.filter_batch",
        "[self.multimodal_inputs[i] for i in keep_indices]",
        "self.multimodal_inputs[: len(keep_indices)]",
    ),
    "delta by slot": Patch(
        "a decode keeps the delta that the first request in a row of the batch had",
        FORWARD,
        "ForwardBatch._compute_mrope_positions_decode",
        "deltas_list[i] = mm.mrope_position_delta.item() if mm is not None else 0",
        "deltas_list[i] = globals().setdefault('_kept', {}).setdefault(\n"
        "                    i, mm.mrope_position_delta.item() if mm is not None else 0)",
    ),
    "top-up per attempt": Patch(
        "a retracted request's table grows with every attempt to schedule it",
        BATCH,
        "Req.init_next_round_input",
        "self.multimodal_inputs.mrope_positions, len(self.output_ids)",
        "self.multimodal_inputs.mrope_positions[:, : len(self.origin_input_ids) - 1], len(self.output_ids)",
    ),
    "length not committed": Patch(
        "after a verify that took drafts the length is one short",
        "sglang.srt.speculative.ngram_worker",
        "NGRAMWorker.forward_batch_generation",
        "new_seq_lens = batch.seq_lens + accept_lens",
        "new_seq_lens = batch.seq_lens + accept_lens - (accept_lens > 1).to(accept_lens.dtype)",
    ),
    "halves swapped": Patch(
        "a mixed batch's prefixes are those of the running requests first",
        BATCH,
        "ScheduleBatch.mix_with_running",
        "self.prefix_lens = self.prefix_lens + running_prefix_lens",
        "self.prefix_lens = running_prefix_lens + self.prefix_lens",
    ),
    "prefix counted twice": Patch(
        "a window's columns start at twice its prefix",
        FORWARD,
        "ForwardBatch._compute_mrope_positions_extend",
        "extend_prefix_len : extend_prefix_len + extend_seq_len,\n                ]",
        "2 * extend_prefix_len : 2 * extend_prefix_len + extend_seq_len,\n                ]",
    ),
    "second half as the first": Patch(
        "of a forward that runs as two halves, the second is given the first one's columns",
        "sglang.srt.batch_overlap.two_batch_overlap",
        "TboForwardBatchPreparer.filter_batch",
        ":, start_token_index:end_token_index",
        ":, : end_token_index - start_token_index",
    ),
    "table shared after a merge": Patch(
        "requests that join a batch get the media of its first one",
        BATCH,
        "ScheduleBatch.merge_batch",
        "self.multimodal_inputs = self.multimodal_inputs + other.multimodal_inputs",
        "self.multimodal_inputs = self.multimodal_inputs + [\n"
        "                self.multimodal_inputs[0] or one for one in other.multimodal_inputs]",
    ),
    "abort not told": Patch(
        "a request that is aborted while it waits ends without a word to its client",
        SCHEDULER,
        "Scheduler.abort_request",
        "self.send_abort_output(\n"
        "                _make_abort_req(req, finished_reason=recv_req.finished_reason), req\n            )",
        "pass",
    ),
    "another name": Patch(
        "a request runs under another name than its client gave it",
        SCHEDULER,
        "Scheduler._create_generation_req",
        "return Req(*args, **kwargs)",
        "made = Req(*args, **kwargs)\n        made.rid += '-'\n        return made",
    ),
    "prompt cut short": Patch(
        "the last two tokens of a prompt are not prefilled",
        POLICY,
        "PrefillAdder._commit_prefill_admission",
        "req.extend_end = admission.prefix_len + admission.extend_len",
        "req.extend_end = admission.prefix_len + max(admission.extend_len - 2, 1)",
    ),
    "session closed too early": Patch(
        "a streaming session is closed although its turn still runs",
        SESSION,
        "SessionController._close",
        "if has_unfinished_request:",
        "if False:",
    ),
    "stage's tree one on": Patch(
        "a stage lays the tree that went round one token further on",
        STAGES,
        "SchedulerPPMixin._pp_spec_rebuild_verify_input",
        "positions=positions,",
        "positions=positions + 1,",
    ),
    "stage's answers changed": Patch(
        "what the last stage answered is other tokens when it has gone round",
        STAGES,
        "SchedulerPPMixin._pp_prep_batch_result",
        'next_token_ids=pp_outputs["next_token_ids"],',
        'next_token_ids=pp_outputs["next_token_ids"] + 1,',
    ),
    "sampled drafts two on": Patch(
        "where drafts are sampled, each stands two tokens behind the last",
        "sglang.srt.speculative.eagle_worker_v2",
        "EagleDraftWorker.draft_forward",
        "draft_probs_list.append(probs)\n                    forward_batch.positions.add_(1)",
        "draft_probs_list.append(probs)\n                    forward_batch.positions.add_(2)",
    ),
    "table moved in a chunk": Patch(
        "a request that is retracted before its first answer gets other columns",
        "sglang.srt.managers.mm_utils",
        "extend_mrope_positions_for_retracted_request",
        "return mrope_positions\n",
        "return mrope_positions + 1\n",
    ),
    "memory kept": Patch(
        "a request's last part of the cache is not given back",
        "sglang.srt.mem_cache.base_prefix_cache",
        "BasePrefixCache.free_kv_row",
        "coalesce_ranges(ranges)]",
        "coalesce_ranges(ranges[:-1])]",
    ),
    "reply left out": Patch(
        "an appended turn forgets the reply that it continues",
        SESSION,
        "Session._concat_token_arrays",
        "input_ids = last_req.origin_input_ids + out_tail",
        "input_ids = last_req.origin_input_ids + out_tail[:-1]",
    ),
}


def install() -> None:
    """Plant the fault that the environment names, if any; "module:function" is called. Raises KeyError for an unknown
    name, LookupError when the release's text is another."""
    module, _, function = os.environ.get(VARIABLE, "").partition(":")
    if function:
        getattr(importlib.import_module(module), function)()
    elif module:
        apply(FAULTS[module])


def apply(patch: Patch) -> tuple[Any, str, Any]:
    """Change one function in memory; what stood there: (module or class, name, value)."""
    module: Any = importlib.import_module(patch.module)
    holder, _, name = patch.function.rpartition(".")
    owner = getattr(module, holder) if holder else module
    held = inspect.getattr_static(owner, name)
    function = held.__func__ if isinstance(held, staticmethod | classmethod) else held
    text = textwrap.dedent(inspect.getsource(function))
    indent = len(inspect.getsource(function)) - len(inspect.getsource(function).lstrip())
    old, new = (part.replace("\n" + " " * indent, "\n") for part in (patch.old, patch.new))
    if text.count(old) != 1:
        raise LookupError(f"{patch.function}: the text to change stands there {text.count(old)} times")
    space: dict[str, Any] = {}
    flags = __future__.annotations.compiler_flag  # names of annotations may exist for type checkers alone
    code = compile(text.replace(old, new), f"<{patch.function}, changed>", "exec", flags, dont_inherit=True)
    exec(code, vars(module), space)
    made = space[name]
    setattr(owner, name, type(held)(made) if isinstance(held, staticmethod | classmethod) else made)
    return owner, name, held
