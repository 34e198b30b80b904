"""The cases of every family: a chosen list that names its points, and as many drawn ones as asked for.

Between two items stands at least their markers' text; `bare` segments touch what is beside them and go only to
families whose builder is told every token's kind.
"""

import random
from collections.abc import Iterator

import msgspec

from ropecheck.conformance.families.case import Case, offered
from ropecheck.conformance.families.fields import GLM, OMNI
from ropecheck.conformance.families.layout import Grid, Segment
from ropecheck.spec.families import FAMILIES

INTERVALS = (0.5, 1.0, 1.5, 4.0, 0.375, 2.25)
WHOLE_INTERVALS = (1.0, 2.0, 3.0, 4.0)
"""Qwen3-Omni: 13 positions per second, and no rounding."""

FAR = 70_000
"""Words before a picture: past what 16 bits hold."""
FAR_FAMILIES = ("qwen2_vl", "qwen3_omni", "glm4_1v", "ernie4_5_vl", "minicpm_v4_7")
"""One family for each builder."""

Prompt = tuple[Segment, ...]


def words(tokens: int) -> Segment:
    return Segment(kind="text", tokens=tokens)


def picture(h: int, w: int, bare: bool = False) -> Segment:
    return Segment(kind="image", grid=(1, h, w), bare=bare)


def film(t: int, h: int, w: int, seconds: float = 1.0, bare: bool = False) -> Segment:
    return Segment(kind="video", grid=(t, h, w), seconds=seconds, bare=bare)


def sound(features: int) -> Segment:
    return Segment(kind="audio", features=features)


def track(t: int, h: int, w: int, seconds: float, features: int) -> Segment:
    return Segment(kind="track", grid=(t, h, w), seconds=seconds, features=features)


def target(h: int, w: int) -> Segment:
    return Segment(kind="target", grid=(1, h, w))


def intervals(family: str) -> tuple[float, ...]:
    return WHOLE_INTERVALS if family == "qwen3_omni" else INTERVALS


def chosen(family: str) -> list[Case]:
    """The list of one family, simplest first."""
    made = [*_images(family), *_refused(family)]
    kinds = FAMILIES[family].kinds
    if "video" in kinds:
        made += _videos(family)
    if "audio" in kinds:
        made += _audio(family)
    if family == "glm_image":
        made += _targets(family)
    made = [_fitted(case) for case in made if _has_its_kinds(case)]
    return made + _canvases(family) if family == "minicpm_v4_7" else made


def merge_of(family: str) -> int:
    """Patches per token along a side; 2 where a family has no pictures."""
    return getattr(FAMILIES[family], "merge", 2)


def _has_its_kinds(case: Case) -> bool:
    """The lists are written for all families; a family without pictures, or without tracks, has fewer cases."""
    own = {"text", *FAMILIES[case.family].kinds, *(("track",) if case.family in OMNI else ())}
    own |= {"target"} if case.family == "glm_image" else set()
    return all(segment.kind in own for prompt in case.prompts for segment in prompt)


def _fitted(case: Case) -> Case:
    """The lists say patches for a merge of 2; a family that merges more gets as many tokens."""
    scale = merge_of(case.family) // 2
    if scale <= 1:
        return case

    def larger(segment: Segment) -> Segment:
        if segment.grid is None:
            return segment
        t, h, w = segment.grid
        return msgspec.structs.replace(segment, grid=(t, h * scale, w * scale))

    prompts = tuple(tuple(larger(segment) for segment in prompt) for prompt in case.prompts)
    return msgspec.structs.replace(case, prompts=prompts)


def _images(family: str) -> list[Case]:
    def case(name: str, *prompts: Prompt) -> Case:
        return Case(f"{family}: {name}", family, prompts)

    one = (words(3), picture(4, 6), words(2))
    return [
        case("text only", (words(5),)),
        case("one image", one),
        case("media first", (picture(4, 4), words(3))),
        case("media last", (words(3), picture(4, 4))),
        case("adjacent images", (words(1), picture(4, 4), picture(2, 8), words(1))),
        case("one line", (words(2), picture(2, 16), words(2))),
        case("one column", (words(2), picture(16, 2), words(2))),
        case("one token", (words(2), picture(2, 2), words(2))),
        case("many images", (*(s for i in range(8) for s in (words(i), picture(2 + 2 * (i % 3), 4))), words(1))),
        case("a large picture", (words(2), picture(132, 132), words(2))),
        *([case("a picture far behind", (words(FAR), picture(4, 6), words(2)))] if family in FAR_FAMILIES else ()),
        *([case("text only, far", (words(FAR + 1),))] if family in FAR_FAMILIES else ()),
        case("left-padded batch", one, (words(1), picture(2, 2), words(1)), (words(4),)),
    ]


def _videos(family: str) -> list[Case]:
    info = FAMILIES[family]

    def case(name: str, *prompt: Segment) -> Case:
        return Case(f"{family}: {name}", family, (prompt,))

    made = [
        case("one video", words(2), film(4, 4, 8), words(2)),
        case("video that is longer than wide", words(2), film(8, 2, 2), words(2)),
        case("many frames", words(1), film(64, 2, 4), words(1)),
        case("image, video, image", words(1), picture(4, 4), film(2, 4, 4), words(1), picture(2, 4), words(1)),
        case("video, image, video", film(2, 4, 4), words(1), picture(4, 4), film(4, 2, 4), words(1)),
        case("two videos", words(1), film(4, 2, 4), film(2, 4, 2), words(1)),
    ]
    if info.absolute_time:
        far = 187.0 if family == "qwen3_omni" else 187.5
        made.append(case("times far ahead of the tokens", words(2), film(384, 2, 2, far), words(3)))
        for seconds in intervals(family):
            made.append(case(f"{seconds} seconds per step", words(5), film(4, 4, 4, seconds), words(2)))
        first, second = intervals(family)[2:4]
        for rate in (25, 41) if family != "qwen3_omni" else ():
            made.append(case(f"{rate} frames per second", words(1), film(43, 2, 2, 2 / rate), words(1)))
        made.append(case("two intervals", words(1), film(2, 4, 4, first), words(1), film(2, 4, 4, second), words(1)))
    return made


def _audio(family: str) -> list[Case]:
    def case(name: str, *prompt: Segment) -> Case:
        return Case(f"{family}: {name}", family, (prompt,))

    return [
        Case(f"{family}: one word beside four", family, ((words(1),), (words(4),))),
        case("audio alone", words(3), sound(100), words(2)),
        case("long audio", words(3), sound(30000), words(2)),
        case("two audios", words(1), sound(40), words(1), sound(170), words(1)),
        case("audio and image", words(1), sound(40), picture(4, 4), words(1)),
        case("image, audio, image", picture(2, 2), sound(200), picture(4, 2), words(1)),
        case("audio and video apart", words(1), sound(140), film(2, 4, 4), words(1)),
        case("track in video", words(1), track(3, 4, 4, 2.0, 600), words(2)),
        case("track longer than video", words(1), track(1, 4, 4, 1.0, 500), words(2)),
        case("video longer than track", words(1), track(6, 4, 4, 1.0, 120), words(2)),
        case("interval longer than a chunk", words(1), track(3, 4, 4, 4.0, 1200), words(2)),
        case("wide frame, short track", words(1), track(1, 4, 40, 1.0, 40), words(2)),
        case("a frame later than its sound", words(1), track(2, 4, 6, 1.0, 48), words(1)),
        case("image, then track", picture(4, 4), words(1), track(2, 4, 4, 2.0, 400), words(2)),
        case("track, then track", track(2, 4, 4, 1.0, 200), words(1), track(2, 2, 4, 2.0, 400), words(2)),
        case("track, then audio", track(2, 4, 4, 1.0, 200), words(1), sound(100), words(2)),
    ]


def _targets(family: str) -> list[Case]:
    def case(name: str, *prompt: Segment) -> Case:
        return Case(f"{family}: {name}", family, (prompt,))

    return [
        case("writes one image", words(3), target(4, 4)),
        case("writes a preview, then the image", words(3), target(4, 6), target(2, 3)),
        case("edits an image", words(2), picture(3, 5), words(3), target(4, 4)),
        Case(f"{family}: text beside a target", family, ((words(4),), (words(2), target(4, 4)))),
        case("edits two images", picture(3, 3), words(1), picture(2, 4), words(1), target(4, 2), target(1, 2)),
    ]


def sliced(h: int, w: int, rows: int, cols: int, slice_h: int, slice_w: int) -> Segment:
    return Segment(kind="image", grid=(1, h, w), slices=(rows, cols, slice_h, slice_w))


NEWLINE = Segment(kind="newline")


def _canvases(family: str) -> list[Case]:
    def case(name: str, *prompt: Segment) -> Case:
        return Case(f"{family}: {name}", family, (prompt,))

    return [
        case("two markers", words(1), picture(8, 12), words(1)),
        case("a thumbnail and a row of two slices", words(1), sliced(4, 8, 1, 2, 4, 4), words(1)),
        case("two pictures side by side", words(1), picture(8, 12), picture(8, 12), words(1)),
        case("two rows of two slices", words(2), sliced(8, 12, 2, 2, 8, 4), words(2)),
        case("three rows of one", words(2), sliced(12, 4, 3, 1, 4, 8), words(2)),
        case("slices at the start", sliced(8, 8, 2, 3, 8, 8), words(1)),
        case("slices at the end", words(4), sliced(16, 8, 2, 3, 12, 16)),
        case("a thumbnail of one token", words(1), sliced(4, 4, 2, 2, 8, 8), words(1)),
        case("a newline after a picture", words(1), picture(8, 12), NEWLINE, words(1)),
        case("a newline between pictures", words(1), picture(8, 12), NEWLINE, picture(8, 12), words(1)),
        case(
            "slices, newlines, slices", sliced(8, 8, 1, 2, 8, 8), NEWLINE, NEWLINE, sliced(8, 8, 2, 1, 8, 8), words(1)
        ),
        case("a clip", words(1), film(4, 8, 12), words(1), picture(4, 8), words(1)),
    ]


DISAGREEING = ("grid missing", "grid left over", "run cut short", "run too long")
INTERVALS_TORN = ("intervals missing", "interval missing", "interval left over")
AUDIO_TORN = ("audio length missing", "audio length left over", "run cut short", "run too long")


def _refused(family: str) -> list[Case]:
    """Torn inputs, a placeholder or an entry of a list too few or too many, kind by kind."""
    info = FAMILIES[family]
    one = (words(2), picture(4, 6), words(1))
    two = (words(2), picture(4, 4), words(2), picture(4, 4), words(1))
    films = (words(2), film(2, 4, 8), words(2), film(2, 4, 8), words(1))
    sounds = (words(2), sound(100), words(2), sound(60), words(1))

    def torn(what: str, how: str, prompt: Prompt) -> Case:
        return Case(f"{family}: {what}{how}", family, (prompt,), torn=how)

    made = []
    for how in DISAGREEING:
        if not (family == "glm_image" and how == "grid left over"):  # there it is a target to write
            made.append(torn("", how, one if how == "run too long" else two))
        if "video" in info.kinds:
            made.append(torn("video, ", how, films))
    if "audio" in info.kinds:
        made += [torn("audio, ", how, (*sounds[:-1], picture(4, 4), words(1))) for how in AUDIO_TORN]
    if family != "glm_image":  # it merges nothing
        undivided = (words(2), picture(4, 6), words(2))
        made.append(torn("", "grid undivided", undivided))
    if info.absolute_time:
        made.append(torn("", "intervals missing", (words(2), film(2, 4, 8), words(2))))
        made += [torn("", how, films) for how in INTERVALS_TORN[1:]]
    return made


def from_items(family: str) -> list[Case]:
    """The same prompts through the processor's `compute_mrope_positions`, for targets that have it."""
    made = []
    for case in chosen(family):
        tracked = any(segment.kind == "track" for segment in case.prompts[0])
        if len(case.prompts) == 1 and not case.torn and not tracked:
            made.append(Case(f"{case.name} (from items)", family, case.prompts, "processor"))
    return made


def without_a_rate(family: str) -> list[Case]:
    """Pictures alone, as a processor asks that knows no positions per second (MiMo-V2's): no picture needs them."""
    if family != "qwen2_5_vl":
        return []
    one = (words(1), picture(4, 6), words(1))
    return [Case(f"{family}: one image (without a rate)", family, (one,), builder="rope_index without a rate")]


SHORT_CUT = ("qwen3_vl", "qwen3_5")
"""Families whose prompts of images alone SGLang's processor tabulates from the items' offsets."""


def from_offsets(family: str, seed: int, count: int) -> list[Case]:
    """Prompts of images alone through that short cut, chosen and drawn."""
    made = []
    for case in (*chosen(family), *drawn(family, seed, count, batches=False)):
        kinds = {segment.kind for prompt in case.prompts for segment in prompt}
        if len(case.prompts) == 1 and not case.torn and "image" in kinds and kinds <= {"text", "image"}:
            made.append(Case(f"{case.name} (from offsets)", family, case.prompts, "offsets"))
    return made


def drawn(family: str, seed: int, count: int, batches: bool = True) -> Iterator[Case]:
    """`count` prompts by chance: number and order of items, grids, intervals, lengths; one in five a batch."""
    source = random.Random(f"{family} {seed}")
    for number in range(count):
        batch = 1 + (source.random() < 0.2) * source.randint(1, 3)
        prompts = tuple(_prompt(family, source) for _ in range(batch))
        tracked = [any(segment.kind == "track" for segment in prompt) for prompt in prompts]
        if any(tracked):
            prompts = (prompts[tracked.index(True)],)  # a batch has one flag for all its videos
        elif not batches:
            prompts = prompts[:1]
        yield Case(f"{family}: drawn {seed}.{number}", family, prompts)


def _prompt(family: str, source: random.Random) -> Prompt:
    made: list[Segment] = [words(source.randint(0, 6))]
    kinds = [*FAMILIES[family].kinds]
    tracked = family in OMNI and source.random() < 0.4
    if tracked:
        kinds[kinds.index("video")] = "track"
    for _ in range(source.randint(0, 5)):
        made += [_item(family, source.choice(kinds), source), words(source.randint(0, 4))]
    if family == "glm_image" and source.random() < 0.7:
        made += [target(source.randint(1, 5), source.randint(1, 5)) for _ in range(source.randint(1, 2))]
    if not any(segment.tokens or segment.kind != "text" for segment in made):
        made.append(words(1))
    return tuple(made)


def _item(family: str, kind: str, source: random.Random) -> Segment:
    merge = merge_of(family)
    h, w = source.randint(1, 6) * merge, source.randint(1, 6) * merge
    if kind == "image" and family == "minicpm_v4_7" and source.random() < 0.5:
        rows, cols, high, wide = (source.randint(1, 4) for _ in range(4))
        return sliced(h, w, rows, cols, high * merge, wide * merge)
    if kind == "image":
        return picture(h, w)
    if kind == "audio":
        return sound(source.choice((4, 60, 99, 100, 101, 1000)))
    steps = source.randint(1, 6) * (2 if family == "ernie4_5_vl" else 1)
    grid: Grid = (steps, h, w)
    seconds = source.choice(intervals(family))
    if kind == "track":
        return track(*grid, seconds, source.choice((40, 200, 900)))
    return film(*grid, seconds)


def all_cases(target: str, seed: int = 0, count: int = 40) -> Iterator[Case]:
    """Everything that a run sends to a target, family by family."""
    for family in FAMILIES:
        yield from chosen(family)
        if target == "sglang" and offered(family, target) == "checked":
            yield from from_items(family)
            yield from without_a_rate(family)
        if target == "sglang" and family in SHORT_CUT:
            yield from from_offsets(family, seed, count)
        yield from drawn(family, seed, count, batches=target != "sglang")


__all__ = ["GLM", "all_cases", "chosen", "drawn", "from_items", "without_a_rate"]
