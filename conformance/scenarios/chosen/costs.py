"""Host-to-device copies while a forward is built."""

from collections.abc import Iterator

from ropecheck.conformance.scenario.operations import MeasureCost, Scenario
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, verify
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, chain, running, scenario


def scenarios() -> list[Scenario]:
    return list(_all())


def _all() -> Iterator[Scenario]:
    for name, prompts in (("text", ("text", "text")), ("media", ("image", "text", "video"))):
        reqs = tuple(range(len(prompts)))
        start = running(*(PROMPTS[prompt] for prompt in prompts))
        yield scenario(
            f"copies, {name}",
            "What each speculative forward copies from the host.",
            start,
            MeasureCost(verify(reqs, tuple(chain(4) for _ in reqs), path="direct")),
            MeasureCost(draft(reqs, num_steps=2, path="direct")),
            MeasureCost(draft_extend(reqs, 4, host_lengths=False, path="direct")),
            MeasureCost(draft_extend(reqs, 4, host_lengths=True, path="direct")),
            MeasureCost(decode(reqs)),
        )
