"""Prompt tables of every family against a target: cases, the step that a worker is sent, and the expected tables."""

import hashlib
from functools import cached_property

import msgspec

from ropecheck.adapters.protocol import Item, PromptTable
from ropecheck.conformance.families.fields import CONFIG, MARKERS, OMNI, PAD
from ropecheck.conformance.families.layout import Laid, Segment, lay_out
from ropecheck.conformance.families.routes import PREFIX, TURN, TWICE
from ropecheck.conformance.families.torn import tear
from ropecheck.reference.blocks import Table
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.families.glm_image import written_history
from ropecheck.spec.history import OutOfDomain

TARGETS = ("sglang", "transformers")

NAMES = {"sglang": "SGLang", "transformers": "transformers"}

ABSENT: dict[tuple[str, str], str] = {
    ("qwen2_5_omni", "sglang"): "SGLang has no Qwen2.5-Omni model: get_rope_index refuses its model_type",
    ("hunyuan_vl", "sglang"): "SGLang has no HunYuan-VL model and no table of four rows",
    ("cohere_compass", "sglang"): "SGLang has no Cohere Compass model: get_rope_index refuses its model_type",
    ("qwen3_asr", "transformers"): "transformers' Qwen3-ASR has one row of positions and no get_rope_index",
}
"""(family, target) -> why the target does not offer it."""

NOT_COVERED: dict[str, str] = {
    "intern_s2_preview, interns2_mobius": "branches of Qwen3-VL's builder in SGLang; the models' own code is on their "
    "hub page, in no release of transformers",
    "bailing_moe_v3_vl, bailing": "SGLang's own rotary embedding builds the table; the models' own code is in no "
    "release of transformers, and no paper gives positions",
    "mimo_v2, mimo_v2_asr": "Qwen2.5-VL's builder on one route of SGLang, a module that its wheel lacks on the other",
    "moss_vl": "a picture is one token of the prompt, and cross-attention reads a table of its patches; the models' "
    "own code is in no release of transformers, and no paper gives positions",
    "interns1_pro": "SGLang's processor builds no table of three rows of its own",
}
"""Families that a target builds and this suite does not check."""


class Case(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """One call of a builder: a prompt, or a batch of prompts padded on the left."""

    name: str
    family: str
    prompts: tuple[tuple[Segment, ...], ...]
    builder: str = "rope_index"
    torn: str = ""
    """A processor's mistake planted in the input, which must be refused: a name in `torn.TEARS`."""

    @cached_property
    def id(self) -> str:
        """12 hex digits of the hash of the content; the name does not count."""
        body = msgspec.json.encode((self.family, self.prompts, self.builder, self.torn), order="deterministic")
        return hashlib.sha256(body).hexdigest()[:12]

    @cached_property
    def laid(self) -> tuple[Laid, ...]:
        return tuple(lay_out(self.family, segments) for segments in self.prompts)

    @property
    def mode(self) -> str:
        """What reports file it under."""
        return f"prompt_table.{self.family}"


class Expected(msgspec.Struct, frozen=True):
    """What the builder must answer, prompt by prompt."""

    tables: tuple[Table, ...]
    """int64 [axes, P] each; with GLM-Image's columns ahead."""
    deltas: tuple[int, ...]
    width: int
    """Columns of the padded batch."""


def offered(family: str, target: str) -> str:
    """ "checked", or the reason why the target does not offer the family."""
    if target not in TARGETS:
        return f"no adapter of prompt tables for {target}"
    return ABSENT.get((family, target), "checked")


def families_of(target: str) -> tuple[str, ...]:
    """The families whose prompt tables a target builds."""
    return tuple(family for family in FAMILIES if offered(family, target) == "checked")


def support_table() -> list[tuple[str, str, str, str]]:
    """(family, source, status in SGLang, status in transformers) for `ropecheck list families` and docs/families.md."""
    return [
        (name, family.source, offered(name, "sglang"), offered(name, "transformers"))
        for name, family in FAMILIES.items()
    ]


def expected(case: Case) -> Expected:
    """The family's tables."""
    family = FAMILIES[case.family]
    tables = []
    deltas = []
    for laid in case.laid:
        history = written_history(laid.history, laid.targets) if laid.targets else laid.history
        tables.append(prompt_table(family, history))
        deltas.append(0 if case.family == "glm_image" else delta(tables[-1]))
    return Expected(tuple(tables), tuple(deltas), max(len(laid.ids) for laid in case.laid))


def parts(case: Case) -> tuple[Case, ...]:
    """The messages that a route sends one after the other: two requests, or a prompt up to the first words behind an
    item, and the rest as a turn of its own. Of any other route none. Raises OutOfDomain where there are no such words.
    """
    route = case.builder.removeprefix(PREFIX)
    prompts = case.prompts if route.startswith(TWICE) else ()
    if route.startswith(TURN):
        (prompt,) = case.prompts
        kinds = [segment.kind for segment in prompt]
        item = next((at for at, kind in enumerate(kinds) if kind != "text"), len(kinds))
        if "text" not in kinds[item:]:
            raise OutOfDomain("a second turn begins with the words behind an item")
        cut = kinds.index("text", item)
        prompts = (prompt[:cut], prompt[cut:])
    return tuple(msgspec.structs.replace(case, prompts=(one,), builder=PREFIX + "client") for one in prompts)


def step(case: Case) -> PromptTable:
    """What the worker is sent."""
    laid = case.laid
    width = max(len(one.ids) for one in laid)
    padded = any(len(one.ids) != width for one in laid)
    ids = tuple((PAD,) * (width - len(one.ids)) + one.ids for one in laid)
    kinds = tuple((0,) * (width - len(one.ids)) + one.kinds for one in laid)
    mask = tuple((0,) * (width - len(one.ids)) + (1,) * len(one.ids) for one in laid)
    images = tuple(grid for one in laid for grid in one.image_grids)
    videos = tuple(grid for one in laid for grid in one.video_grids)
    seconds = tuple(value for one in laid for value in one.seconds)
    features = tuple(value for one in laid for value in one.features)
    pixels = tuple(size for one in laid for size in one.pixels)
    timed = FAMILIES[case.family].absolute_time
    built = PromptTable(
        family=case.family,
        ids=ids,
        kinds=kinds,
        config=CONFIG[case.family],
        mask=mask if padded or case.family in OMNI else None,
        image_grids=images or None,
        video_grids=videos or None,
        seconds_per_grid=seconds if timed and videos else None,
        audio_features=features or None,
        audio_in_video=any(segment.kind == "track" for prompt in case.prompts for segment in prompt),
        images_per_prompt=tuple(len(one.image_grids) for one in laid) if case.family == "glm_image" else None,
        image_pixels=pixels if any(pixels) else None,
        markers=MARKERS if case.builder.startswith(PREFIX) else (),
        items=tuple(Item(*item) for item in laid[0].items),
        builder=case.builder,
        parts=tuple(map(step, parts(case))),
    )
    return tear(built, case.torn)
