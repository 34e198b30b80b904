"""Every rule that a default run asks of scenarios catches a fault in a function of the real engine."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from ropecheck.conformance.judge.outcome import Outcome
from ropecheck.conformance.judge.verdict import judge
from ropecheck.conformance.plan.planner import plan
from ropecheck.conformance.run import baseline
from ropecheck.conformance.scenario import dimensions
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenarios.chosen import chosen, laws
from tests.adapters_sglang.engine_faults import FAULTS
from tests.adapters_sglang.support import Worker

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("planted")]

SCENARIOS = {
    "prefix hit at the image's start": (
        "table.present",
        "table.dtype",
        "table.three_rows",
        "table.width",
        "table.index",
        "table.inside_table",
        "table.past_table",
        "ownership.batch_is_read_only",
        "laws.same_step_twice",
    ),
    "prefix hits of unequal length": ("table.text_only",),
    "any mode: decode, graph buffer": ("padding.live_columns", "padding.harmless_fill"),
    "ragged verify, text padded to a tier": ("padding.tail",),
    "law: one row branches to text": (
        "ownership.others_unchanged",
        "ownership.parent_unchanged",
        "laws.branch_is_its_own_history",
        "freshness.delta_cache",
        "session.append",
        "session.branch",
        "session.replace_all",
        "session.abort_and_retry",
        "session.refused",
        "session.table",
        "session.delta",
        "session.media_spans",
    ),
    "any mode: draft_decode, copies of text": ("cost.device_values", "cost.text_only"),
    "any mode: draft_decode, copies of media": ("cost.media",),
    "law: image alone cut at 1": ("laws.chunked_prefill_is_one_prefill",),
    "law: image last drafted, verified and decoded": (
        "laws.verify_chain_is_decodes",
        "laws.speculation_places_the_same",
        "laws.draft_extend_is_verify_chain",
        "laws.draft_step_is_a_decode",
        "table.forwards",
    ),
    "any mode: target_verify, its law": ("laws.one_token_one_column",),
    "law: image alone then image": ("laws.append_is_a_fresh_request",),
    "law: one row retracted and resumed": (
        "laws.retract_and_resume",
        "freshness.fill_ids",
        "freshness.padded_media",
        "request.aborted",
        "request.delta",
        "request.media_spans",
        "request.outputs",
        "request.pad_values",
        "request.prompt",
        "request.table",
        "retraction.same_history",
        "retraction.table",
        "retraction.refused_attempts",
    ),
    "law: image and text, order": ("laws.batch_order",),
    "law: image last and video, alone": ("laws.batch_split",),
    "law: text cut at 4": ("laws.text_rows_are_the_index",),
    "any mode: split_prefill, later": ("request.prefix_len",),
    "streaming, text then image": ("session.streaming_append",),
    "session, replace after a turn with text": ("session.replace_with_parent",),
    "session, offset before the image then text": ("session.offset",),
    "session, drop_previous_output then image": ("session.drop_previous_output",),
    "session, reply cut to its limit": ("session.reply_that_counts",),
    "rotary partial, two images": (
        "rotary.rotation",
        "rotary.contiguous_sections",
        "rotary.every_row_counts",
        "rotary.table_is_read_only",
        "rotary.view_is_a_copy",
    ),
    "rotary uneven interleaved, two images": ("rotary.interleaved_sections",),
    "rotary alternating, two images": ("rotary.alternating_sections",),
    "rotary scaled interleaved, two images": ("rotary.scaling",),
    "rotary short, the last position": ("rotary.readers_bound",),
    "graph decode and verify, exactly full": ("padding.width",),
    "any mode: extend, copies of text": ("cost.host_lengths",),
    "law: one row after a hit": ("laws.extend_composes",),
}
"""A chosen scenario -> the rules whose faults it shows."""


@cache
def scenarios() -> dict[str, Scenario]:
    """The chosen ones and those of laws, by name."""
    return {one.name: one for one in (*chosen(), *laws.scenarios())}


def outcome(planted_worker: Worker, name: str, fault: str = "") -> Outcome:
    """Of a scenario, on the engine as it is or with a fault."""
    planned = plan(scenarios()[name])
    job = msgspec.structs.replace(planned.job, id=f"fault:{fault}") if fault else planned.job
    return judge(planned, planted_worker.run(job))


@pytest.mark.parametrize("name", SCENARIOS)
def test_each_rule_catches_a_fault_of_the_engines(planted_worker: Worker, name: str) -> None:
    usual = {failure.rule for failure in outcome(planted_worker, name).failures}
    for rule in SCENARIOS[name]:
        found = {failure.rule for failure in outcome(planted_worker, name, rule).failures}
        assert rule in found - usual


def test_there_is_a_fault_for_every_rule_that_a_run_reaches() -> None:
    """What the baseline says of the engine's release, but for prompt tables and schedules, which other tests plant."""
    known = baseline.load("sglang", "0.5.23", "cpu")
    assert known is not None
    reached = {rule for phase in known.phases.values() for rule in phase} - {dimensions.PREFIX}
    mine = {rule for rule in reached if rule.split(".")[0] not in ("families", "prefix", "schedule")}
    assert mine == set(FAULTS) == {rule for rules in SCENARIOS.values() for rule in rules}
