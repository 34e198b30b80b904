"""Other faults in the place of each known one: the engine's text changed in memory for one script.

A cause has at least three, which come out as another number, in another request, or at another step.
"""

from __future__ import annotations

from typing import Any

from ropecheck.adapters.sglang.scheduler import entered
from ropecheck.adapters.sglang.scheduler.faults import BATCH, FORWARD, SCHEDULER, SESSION, Patch, apply
from ropecheck.conformance.scripts.chosen import IMAGE, SHORT
from ropecheck.conformance.scripts.script import Arrive, Close, OpenSession, Script, Step

HERE = f"{__name__}:by_script"
CREATE, CLOSE = "Session.create_req", "SessionController._close"
EXTEND, DECODE = "ForwardBatch._compute_mrope_positions_extend", "ForwardBatch._compute_mrope_positions_decode"
STREAM, BEAMS = "sglang.srt.session.streaming_session", "sglang.srt.beam_search"
INHERITS = "new_req.multimodal_inputs = last_req.multimodal_inputs"
DELTA = "deltas_list[i] = mm.mrope_position_delta.item() if mm is not None else 0"
ROWS = f"{BEAMS}.coordinator", "BeamCoordinator._spawn_member_rows"
PAD, MISSING = "ForwardBatch._pad_tensor_to_size", "tensor.new_zeros(size - tensor.shape[0],"
LENGTH, NO_LENGTH = "if not abort and len(input_ids) == 0:", "TypeError(\"object of type 'NoneType' has no len()\")"
SPEC, RUN = "ForwardBatch.compute_spec_mrope_positions", "Scheduler.run_batch"
LEFT = "FrozenKVMTPDraftWorker._position_for_batch"
STACKED = "torch.stack(mrope_deltas, dim=0)"
FROZEN = "sglang.srt.speculative.frozen_kv_mtp_worker_v2"
TAKES_NONE = "FrozenKVMTPWorkerV2.forward_batch_generation() got an unexpected keyword argument 'pp_proxy_tensors'"
SHARE, CONCAT = "Session._share_token_arrays", "Session._concat_token_arrays"


def by_script() -> None:
    """Change what a script's header names, while it is played."""
    from ropecheck.adapters.sglang.scheduler.player import Player

    play: Any = Player.play

    def played(player: Player, script: Any) -> Any:
        before = [apply(patch) for patch in CHANGES.get(script.header.engine, ())]
        try:
            return play(player, script)
        finally:
            for owner, name, value in reversed(before):
                setattr(owner, name, value)

    changed: Any = Player
    changed.play = played
    entered.watch = lambda: None  # it puts other code into functions, whose text is wanted here


def change(module: str, function: str, old: str, new: str) -> Patch:
    return Patch("", module, function, old, new)


def raising(module: str, function: str, before: str, error: str, when: str = "True", indent: int = 8) -> Patch:
    """The function raises in front of this line."""
    return change(module, function, before, f"if {when}:\n{' ' * (indent + 4)}raise {error}\n{' ' * indent}{before}")


READS_FURTHER = change(FORWARD, EXTEND, "torch.cat(\n            mrope", "1 + torch.cat(\n            mrope")
"""All that is prefilled is off by one."""
DELTAS_FURTHER = change(FORWARD, DECODE, "deltas = torch.tensor(", "deltas = 5 + torch.tensor(")
"""All that is decoded beside media is off by five."""
LOSES = change(SESSION, CREATE, INHERITS, "new_req.multimodal_inputs = None")
"""Every turn loses the media before it."""
GONE = change(SCHEDULER, "Scheduler._maybe_clear_mm_inputs", "if req.session:", "if False:")
"""So does one whose parent ended well."""
ADDED = (
    "held = self.multimodal_inputs\n        if held is not None and held.mrope_positions is not None:\n"
    "            held.mrope_positions = held.mrope_positions + 7\n"
    "            held.mrope_position_delta = held.mrope_position_delta + 7\n"
    "            held.mrope_position_delta_repeated_cache = None"
)

OTHER_SESSION = Script(
    "another session is closed", "plain", (OpenSession(0), OpenSession(1), Arrive(0, IMAGE, 3, 1), Close(0))
)
CUT = Arrive(1, SHORT, 2, 0, offset=3)
STREAM_CUT = Script("a stream is cut", "plain", (OpenSession(0, True), Arrive(0, SHORT, 2, 0), Step(6), CUT))

CHANGES: dict[str, tuple[Patch, ...]] = {
    "all prefilled off by one": (READS_FURTHER,),
    "all decoded off by five": (DELTAS_FURTHER,),
    "media of turns before lost": (LOSES,),
    "media of turns that ended well lost": (GONE,),
    # a retracted request
    "nine behind the t row": (
        change(
            "sglang.srt.managers.mm_utils",
            "extend_mrope_positions_for_retracted_request",
            "start_pos = last_position[0] + 1",
            "start_pos = last_position[0] + 9",
        ),
    ),
    "behind the t row without a retraction": (
        change(
            FORWARD,
            DECODE,
            DELTA,
            DELTA.replace("mm.mrope_position_delta", "(mm.mrope_positions[0, -1] + 1 - mm.mrope_positions.shape[1])"),
        ),
    ),
    "a retraction moves the table": (
        change(
            BATCH,
            "release_req",
            "release_kv_cache(req, tree_cache, checkpoint=False)",
            "release_kv_cache(req, tree_cache, checkpoint=False)\n    if req.multimodal_inputs is not None:\n"
            "        req.multimodal_inputs.mrope_positions = req.multimodal_inputs.mrope_positions + 4",
        ),
    ),
    # drafts that are placed by delta
    "verifies' deltas five on": (
        change(FORWARD, SPEC, "torch.stack(mrope_deltas, dim=0)", "5 + torch.stack(mrope_deltas, dim=0)"),
    ),
    "drafts stand one to the left": (change(FROZEN, LEFT, "(batch)", "(batch) - 1"),),
    "packed deltas the other way round": (change(FORWARD, SPEC, STACKED, "torch.stack(mrope_deltas[::-1], dim=0)"),),
    "a verify raises with other words": (
        raising(FORWARD, SPEC, "batch_size = self.seq_lens.shape[0]", "RuntimeError('other words')"),
    ),
    # a worker in step with the scheduler
    "a worker takes other words": (raising(SCHEDULER, RUN, "self.forward_ct += 1", "TypeError('other words')"),),
    "a worker takes nothing": (raising(SCHEDULER, RUN, "self.forward_ct += 1", f"TypeError({TAKES_NONE!r})"),),
    # a turn that is cut
    "the parent's columns, one on": (
        change(
            SESSION,
            CREATE,
            INHERITS,
            f"{INHERITS}\n            if last_req.multimodal_inputs is not None:\n"
            "                moved = __import__('copy').copy(last_req.multimodal_inputs)\n"
            "                moved.mrope_positions = moved.mrope_positions + 1\n"
            "                new_req.multimodal_inputs = moved",
        ),
    ),
    "appended images get text columns": (
        change(
            BATCH,
            "Req._extend_session_image_inputs",
            "positions + next_position + text_len",
            "torch.arange(positions.shape[1]).expand(3, -1) + next_position + text_len",
        ),
    ),
    # a session that starts afresh
    "embeddings raise otherwise": (raising(SESSION, CREATE, LENGTH, "TypeError('another')", "input_ids is None"),),
    "an append has no length": (raising(SESSION, CREATE, "if not last_req.finished():", NO_LENGTH, indent=20),),
    "no turn has a length": (raising(SESSION, CREATE, LENGTH, NO_LENGTH),),
    "clearing raises otherwise": (
        raising(SESSION, CREATE, "for _, req_node in self.req_nodes.items():", "RuntimeError('another')", indent=16),
    ),
    "an append raises it": (
        raising(
            SESSION,
            CREATE,
            "if not last_req.finished():",
            "RuntimeError('dictionary changed size during iteration')",
            indent=20,
        ),
    ),
    "a first turn raises it": (
        raising(
            SESSION,
            CREATE,
            "session_params = req.session_params",
            "RuntimeError('dictionary changed size during iteration')",
            "not self.req_nodes",
        ),
    ),
    # further rows of a beam search
    "members' delta is five": (change(FORWARD, DECODE, "[0] * batch_size", "[5] * batch_size"),),
    "all deltas are lost": (change(FORWARD, DECODE, DELTA, "deltas_list[i] = 0"),),
    "any decode looks past the list": (
        raising(FORWARD, DECODE, "if not has_precomputed_mrope:", "IndexError('list index out of range')"),
    ),
    # refused turns
    "other last words": (
        change(STREAM, "StreamingSession.take", "already has a slot", "has a slot"),
        raising(
            BATCH, "Req._extend_session_image_inputs", "prefix = (", "RuntimeError('another')", "prefix_len < 0", 12
        ),
    ),
    "a first turn finds a record": (change(STREAM, "StreamingSession.take", "session_id not in self.slots", "False"),),
    "media of an accepted turn lie before it": (
        change(
            BATCH,
            "Req._extend_session_image_inputs",
            "text_len = prefix_len - prefix.shape[1]",
            "text_len = -5 if prefix_len else 0",
        ),
    ),
    "none is refused": (change(SESSION, CREATE, "if abort:", "if False:"),),
    # a close
    "a close moves the media": (
        change(
            SESSION,
            CLOSE,
            "node.req.multimodal_inputs = None",
            "if mm is not None:\n                mm.mrope_positions = mm.mrope_positions * 0\n"
            "                mm.mrope_position_delta = mm.mrope_position_delta + 3",
        ),
    ),
    "a close takes all sessions' media": (
        change(
            SESSION,
            CLOSE,
            "for node in session.req_nodes.values():",
            "for node in [node for other in self.sessions.values() for node in other.req_nodes.values()]:",
        ),
    ),
    # an abort
    "an abort moves the media": (
        change(BATCH, "Req.release_mm_inputs_on_abort", "self.multimodal_inputs = None", ADDED),
    ),
    "every end is an abort's": (
        change(
            SCHEDULER,
            "Scheduler._maybe_clear_mm_inputs",
            "isinstance(req.finished_reason, FINISH_ABORT)",
            "True",
        ),
    ),
    # a retracted turn of a stream
    "a shrunk prefix by other numbers": (
        change(
            STREAM,
            "StreamingSession.try_match_prefix",
            'f"streaming session prefix shrank: {prefix_len=} < "',
            'f"streaming session prefix shrank: prefix_len={prefix_len + 9} < "',
        ),
    ),
    "a prefix shrinks anywhere": (
        change(STREAM, "StreamingSession.try_match_prefix", "prefix_len >= slot.kv.cache_protected_len", "False"),
    ),
    "a turn in flight is not asked for": (change(SESSION, CREATE, "if self._inflight:", "if False:"),),
    # beam searches
    "a tail is never right": (change(BATCH, "strip_beam_tail", "n == len(batch.reqs)", "False"),),
    "a tail's other last words": (change(BATCH, "strip_beam_tail", "reqs changed while", "reqs differ while"),),
    "rows are never there": (change(*ROWS, "rows is not None", "False"),),
    "rows' other last words": (change(*ROWS, "{group.beam_width - 1}", "{group.beam_width + 1}"),),
    "padding to one less": (change(FORWARD, PAD, MISSING, "tensor.new_zeros(size - tensor.shape[0] - 1,"),),
    "padding to nothing": (change(FORWARD, PAD, MISSING, "tensor.new_zeros(-1,"),),
    "nothing is admitted": (
        change(
            SCHEDULER,
            "Scheduler.get_new_batch_prefill",
            "prefill_delayer_single_pass = None",
            "return NextBatchPlan(batch_to_run=None, running_batch=running_batch)",
        ),
    ),
    "preemption raises": (
        raising(
            "sglang.srt.managers.schedule_policy",
            "PrefillAdder.preempt_to_schedule",
            "priority_sign = 1 if",
            "RuntimeError('another')",
        ),
    ),
    # a turn that never came
    "refused for another reason": (
        change(SESSION, CREATE, "Streaming session already has an active request.", "Invalid request session id"),
    ),
    "an abort leaves its turn in flight": (change(SESSION, "Session.abort_req", "self._inflight = False", "pass"),),
    "an end leaves its turn in flight": (
        change(SESSION, "Session.finish_req", "self._inflight = False", "self._inflight = True"),
    ),
    # an offset of 0
    "what is appended is appended twice": (
        change(SESSION, SHARE, "    input_ids.extend(new_input_ids)", "    input_ids.extend(new_input_ids * 2)"),
        change(SESSION, CONCAT, "input_ids += req.input_ids", "input_ids += req.input_ids + req.input_ids"),
    ),
    "an append loses what was before": (
        change(SESSION, CONCAT, "input_ids += req.input_ids", "input_ids = req.input_ids"),
    ),
    "a stream takes any offset": (
        change(SESSION, CREATE, "elif session_params.offset and session_params.offset != 0:", "elif False:"),
    ),
}
"""Name -> what is changed."""

WITNESS = ""
"""The entry's own script."""

APPEND = "append (plain)"
PLACES: dict[str, tuple[tuple[str, str], ...]] = {
    "retraction-continues-from-t": (
        ("nine behind the t row", WITNESS),
        ("behind the t row without a retraction", WITNESS),
        ("a retraction moves the table", WITNESS),
    ),
    "text-is-drafted-from": (
        ("all prefilled off by one", WITNESS),
        ("verifies' deltas five on", WITNESS),
        ("verifies' deltas five on", "one image (frozen_kv)"),
        ("drafts stand one to the left", WITNESS),
    ),
    "packed-columns-in-equal-shares": (
        ("all prefilled off by one", "one image (dspark_compact)"),
        ("verifies' deltas five on", "one image (dspark_compact)"),
        ("packed deltas the other way round", "two images, one text (dspark_compact)"),
        ("a verify raises with other words", WITNESS),
    ),
    "worker-knows-no-stages": (
        ("a worker takes other words", WITNESS),
        ("a worker takes nothing", "one image (frozen_kv)"),
        ("a worker takes nothing", "one image (plain)"),
    ),
    "offset-keeps-the-parents-media": (
        ("the parent's columns, one on", WITNESS),
        ("appended images get text columns", APPEND),
        ("media of turns before lost", APPEND),
    ),
    "replace-all-changes-a-dict-in-a-loop": (
        ("clearing raises otherwise", WITNESS),
        ("an append raises it", APPEND),
        ("a first turn raises it", WITNESS),
    ),
    "members-have-no-delta": (
        ("members' delta is five", WITNESS),
        ("all deltas are lost", WITNESS),
        ("any decode looks past the list", "one image (plain)"),
        ("all prefilled off by one", WITNESS),
    ),
    "refused-turn-goes-on": (
        ("other last words", "5ba820e0b9c1"),
        ("other last words", "c4109d583fcc"),
        ("a shrunk prefix by other numbers", "72ea7325e216"),
        ("all prefilled off by one", "7e5c57a26d53"),
        ("a first turn finds a record", "streaming (plain)"),
        ("media of an accepted turn lie before it", APPEND),
        ("none is refused", "append to an unfinished turn (plain)"),
    ),
    "close-drops-the-media": (
        ("a close moves the media", WITNESS),
        ("a close takes all sessions' media", OTHER_SESSION.name),
        ("media of turns that ended well lost", APPEND),
    ),
    "abort-drops-the-media": (
        ("an abort moves the media", WITNESS),
        ("every end is an abort's", APPEND),
        ("media of turns before lost", APPEND),
    ),
    "retraction-ends-a-turn": (
        ("all prefilled off by one", WITNESS),
        ("a shrunk prefix by other numbers", "22f47aa3db17"),
        ("a prefix shrinks anywhere", "streaming (plain)"),
        ("a turn in flight is not asked for", "streaming, two at once (plain)"),
    ),
    "pause-retracts-a-search": (
        ("a tail's other last words", "e8991fcd4d68"),
        ("a tail is never right", "beams (plain)"),
        ("all prefilled off by one", WITNESS),
    ),
    "preemption-retracts-a-search": (
        ("nothing is admitted", "one image (priority)"),
        ("preemption raises", WITNESS),
        ("all prefilled off by one", WITNESS),
    ),
    "rows-are-promised-twice": (
        ("rows' other last words", WITNESS),
        ("rows are never there", "beams given up (plain)"),
        ("all prefilled off by one", WITNESS),
    ),
    "padding-counts-no-beams": (
        ("padding to one less", WITNESS),
        ("padding to nothing", "one image (two_batches)"),
        ("all prefilled off by one", WITNESS),
    ),
    "transferred-turn-has-a-record-too-many": (
        ("other last words", WITNESS),
        ("a first turn finds a record", WITNESS),
        ("all decoded off by five", "one image (decode_only)"),
    ),
    "failed-transfer-stays-in-flight": (
        ("refused for another reason", WITNESS),
        ("an abort leaves its turn in flight", "streaming, abort and retry (plain)"),
        ("an end leaves its turn in flight", "streaming (plain)"),
    ),
    "offset-zero-is-none": (
        ("what is appended is appended twice", WITNESS),
        ("an append loses what was before", APPEND),
        ("a stream takes any offset", STREAM_CUT.name),
    ),
    "too-long-a-turn-stays": (
        ("what is appended is appended twice", WITNESS),
        ("an append loses what was before", WITNESS),
        ("none is refused", "append to an unfinished turn (plain)"),
    ),
    "embeddings-are-no-turn": (
        ("embeddings raise otherwise", WITNESS),
        ("an append has no length", APPEND),
        ("no turn has a length", "streaming (plain)"),
    ),
}
"""Cause -> (what is changed, the script that shows it)."""
