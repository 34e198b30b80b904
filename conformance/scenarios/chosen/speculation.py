"""Speculative rounds: draft decode, target verify (chain, tree, ragged), draft extend."""

from collections.abc import Iterator

from ropecheck.conformance.scenario.operations import Accept, Scenario
from ropecheck.conformance.scenario.words import decode, draft, draft_extend, ragged_verify, verify
from ropecheck.conformance.scenarios.chosen.script import PROMPTS, chain, running, scenario, spec_round

BATCHES: dict[str, tuple[str, ...]] = {
    "text": ("text",),
    "image": ("image",),
    "image last": ("image last",),
    "image beside text": ("image", "text"),
    "text beside video": ("text", "video"),
    "unequal deltas": ("two images", "text", "long video", "image first"),
}

TREES: dict[str, tuple[int, tuple[int, ...]]] = {
    "wide": (2, (0, 0, 1, 1)),
    "lopsided": (2, (0, 0, 1, 3)),
    "three branches": (3, (0, 0, 0, 1, 2)),
}
"""topk and the parents of nodes 1.. ."""


def scenarios() -> list[Scenario]:
    return [*_batches(), *_trees(), *_ragged(), *_fused(), *_device_lengths(), *_several()]


def _batches() -> Iterator[Scenario]:
    for name, prompts in BATCHES.items():
        reqs = tuple(range(len(prompts)))
        start = running(*(PROMPTS[prompt] for prompt in prompts))
        accepted = [1 + (req * 2) % 4 for req in reqs]
        yield scenario(
            f"speculative rounds, {name}",
            "Two rounds with unequal accept lengths; the second starts from the first's.",
            start,
            spec_round(reqs, 3, accepted),
            spec_round(reqs, 3, reversed(accepted)),
        )
        yield scenario(
            f"verify chain given by hand, {name}",
            "The 1-D indices come from the caller, as NGRAM and DFLASH do.",
            start,
            verify(reqs, tuple(chain(5) for _ in reqs), path="direct"),
            draft(reqs, num_steps=2, path="direct"),
            draft(reqs, num_steps=2, topk=3, path="direct"),
        )
        yield scenario(
            f"draft extend on device lengths, {name}",
            "No CPU copy of the lengths.",
            start,
            draft_extend(reqs, 4, host_lengths=False),
            [Accept(req, 2) for req in reqs],
            draft_extend(reqs, 1, host_lengths=False),
        )
        yield scenario(
            f"draft extend given by hand, {name}",
            "Straight into the batch constructor.",
            start,
            draft_extend(reqs, 3, path="direct"),
            draft_extend(reqs, 2, host_lengths=False, path="direct"),
        )


def _trees() -> Iterator[Scenario]:
    for name, (topk, parents) in TREES.items():
        for prompt in ("text", "image", "image beside text"):
            prompts = BATCHES[prompt]
            reqs = tuple(range(len(prompts)))
            yield scenario(
                f"verify tree, {name}, {prompt}",
                "Rivals for one place share its position.",
                running(*(PROMPTS[p] for p in prompts)),
                draft(reqs, num_steps=3, topk=topk),
                verify(reqs, tuple(parents for _ in reqs), topk=topk),
                verify(reqs, tuple(parents for _ in reqs), topk=topk, path="direct"),
                [Accept(req, 2) for req in reqs],
                decode(reqs),
            )


def _several() -> Iterator[Scenario]:
    yield scenario(
        "draft of many steps",
        "Every step advances all rows by one.",
        running(PROMPTS["image"], PROMPTS["text"]),
        draft((0, 1), num_steps=6),
        draft((0, 1), num_steps=5, topk=2),
    )
    yield scenario(
        "speculation and plain decoding in turn",
        "Both place the same token at the same column.",
        running(PROMPTS["video"], PROMPTS["text"]),
        decode((0, 1)),
        spec_round((0, 1), 2, (3, 1)),
        decode((0, 1)),
        spec_round((0,), 2, (2,)),
        decode((1, 0)),
    )
    yield scenario(
        "verify of one node",
        "Nothing drafted: the root alone is a decode.",
        running(PROMPTS["image"]),
        verify((0,), ((),), path="direct"),
        decode((0,)),
    )


def _ragged() -> Iterator[Scenario]:
    for name, prompts, lens, tier in (
        ("media and text", ("image", "text"), (4, 2), 0),
        ("padded to a tier", ("image", "text", "video"), (1, 3, 2), 8),
        ("text padded to a tier", ("text", "text"), (3, 1), 6),
        ("text of unequal lengths", ("text", "text"), (3, 2), 0),
        ("lengths of one", ("image", "long video"), (1, 1), 0),
    ):
        reqs = tuple(range(len(prompts)))
        yield scenario(
            f"ragged verify, {name}",
            "Each request brings its own number of nodes, packed.",
            running(*(PROMPTS[p] for p in prompts)),
            ragged_verify(reqs, tuple(chain(n) for n in lens), tier),
        )


def _device_lengths() -> Iterator[Scenario]:
    """Overlapped scheduling knows a batch's lengths on the device alone."""
    for name, histories in (
        ("text", [PROMPTS["text"], PROMPTS["text"] + PROMPTS["text"]]),
        ("media", [PROMPTS["image"], PROMPTS["video"]]),
        ("mixed", [PROMPTS["image"], PROMPTS["text"]]),
    ):
        for path in ("direct", "caller", "fused"):
            yield scenario(
                f"lengths on the device, {path}, {name}",
                "No table may need the host's copy of the lengths.",
                running(*histories),
                draft((0, 1), num_steps=3, path=path, host_lengths=False),
                verify((0, 1), (chain(4), chain(4)), path=path, host_lengths=False),
                verify((0, 1), ((0, 0, 1), (0, 1, 1)), topk=2, path=path, host_lengths=False),
                draft_extend((0, 1), 4, path=path, host_lengths=False),
            )


def _fused() -> Iterator[Scenario]:
    """The engine's fused text-only kernels, steered to where a GPU would take them."""
    for name, prompts in (("text", ("text", "text only longer")), ("media", ("image", "text"))):
        histories = [PROMPTS.get(prompt, PROMPTS["text"] + PROMPTS["text"]) for prompt in prompts]
        start = running(*histories)
        yield scenario(
            f"fused draft, {name}",
            "The kernel that assigns cache slots also fills positions.",
            start,
            draft((0, 1), num_steps=3, path="fused"),
        )
        yield scenario(
            f"fused chain verify, {name}",
            "The kernel that builds a chain also fills positions.",
            start,
            verify((0, 1), (chain(4), chain(4)), path="fused"),
        )
        yield scenario(
            f"fused draft extend, {name}",
            "The kernel that lays a draft extend out fills positions.",
            start,
            draft_extend((0, 1), 4, host_lengths=False, path="fused"),
        )
