"""Routes: verdicts on what an engine expanded itself, and the list of routes out of a source tree."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from ropecheck.adapters.protocol import PromptTables
from ropecheck.adapters.sglang_routes.media import joined, message
from ropecheck.adapters.sglang_routes.sources import Watch, listed
from ropecheck.conformance.families.case import Case, expected, step
from ropecheck.conformance.families.cases import film, words
from ropecheck.conformance.families.fields import MARKERS
from ropecheck.conformance.families.layout import Segment
from ropecheck.conformance.families.routes import BUILDERS, PREFIX, ROUTES
from ropecheck.conformance.reference_engine import tensor
from ropecheck.conformance.routes.cases import BACK_END, DRIVEN, cases, pairs, routed
from ropecheck.conformance.routes.kinds import sent_kinds
from ropecheck.conformance.routes.verdict import judge
from ropecheck.reference.prompt_tables import delta, prompt_table
from ropecheck.spec.families import FAMILIES
from ropecheck.spec.history import History, OutOfDomain, image, text, video
from ropecheck.spec.prefix import Hit, agreeing, alike, identity


def case_of(name: str) -> Case:
    return next(case for case in cases("sglang") if case.name == name)


def answered(case: Case, history: History | None = None, cut: int = 0, words: tuple[int, ...] = ()) -> PromptTables:
    """words: how many each stretch of text begins with."""
    table = expected(case).tables[0] if history is None else prompt_table(FAMILIES[case.family], history)
    kinds = sent_kinds(case)
    if history is not None:
        left = iter(words)
        runs = [[_code(run.kind)] * _tokens(case, run) for run in history]
        for run in (one for one in runs if not one[0]):
            many = next(left)
            run[:many] = [4] * many
        kinds = tuple(code for run in runs for code in run)
    behind = 0 if case.family == "glm_image" else delta(table)
    return PromptTables(tensor(table), tensor(np.array([[behind]])), None, "fake", kinds[cut:])


def _code(kind: str) -> int:
    return ("text", "image", "video", "audio").index(kind)


def _tokens(case: Case, run: object) -> int:
    from ropecheck.spec.history import run_length

    return run_length(FAMILIES[case.family], run)  # type: ignore[arg-type]


def test_every_route_has_cases_and_every_case_is_legal() -> None:
    found = list(cases("sglang"))
    assert {case.builder for case in found} == set(BUILDERS)
    assert {case.family for case in found} == set(DRIVEN)
    assert len({case.id for case in found}) == len(found)
    assert not list(cases("transformers")) and not list(routed("hunyuan_vl"))
    for case in (case for case in found if len(case.prompts) == 1):
        assert judge(case, answered(case)).state == "pass", case.name


def test_the_layout_of_timestamps_is_the_engines() -> None:
    case = case_of("qwen3_vl: one clip (client)")
    other = (text(9), video(1, 4, 6), text(12), video(1, 4, 6), text(4))
    assert judge(case, answered(case, other, words=(4, 0, 2))).state == "pass"


def test_a_word_moved_across_an_item_is_told() -> None:
    """As many tokens as were sent, and every item whole. A frame's time takes as many tokens as it takes."""
    clip = (text(9), video(1, 4, 6), text(12), video(1, 4, 6), text(4))
    told: list[tuple[str, History, tuple[int, ...]]] = [
        ("qwen2_vl: one picture (client)", (text(4), image(1, 4, 6), text(3)), (3, 2))
    ]
    told += [("qwen3_vl: one clip (client)", clip, words) for words in ((3, 0, 3), (4, 1, 1), (5, 0, 1))]
    for name, prompt, counts in told:
        (failure,) = judge(case_of(name), answered(case_of(name), prompt, words=counts)).failures
        assert failure.rule == "families.route_layout"


def test_an_item_lost_or_in_another_order_is_told() -> None:
    case = case_of("qwen2_vl: a picture, then a clip (client)")
    (failure,) = judge(case, answered(case, (text(3), video(2, 4, 4), text(3)), words=(2, 1))).failures
    assert failure.rule == "families.route_layout"
    short = judge(case_of("qwen2_vl: one picture (client)"), answered(case_of("qwen2_vl: one picture (client)"), cut=1))
    assert [one.rule for one in short.failures] == ["families.route_layout"]


@pytest.mark.parametrize(
    ("seconds", "shape"), [(1 / 12, "every interval 1/12 second"), (1.0, "every interval 1 second")]
)
def test_an_assumed_interval_is_named(seconds: float, shape: str) -> None:
    case = case_of("qwen2_5_vl: a slow clip (client)")
    wrong = (text(2), video(2, 4, 4, seconds), text(3))
    assert [one.signature for one in judge(case, answered(case, wrong, words=(1, 2))).failures] == [shape]
    other = judge(case, answered(case, (text(2), video(2, 4, 4, 2.5), text(3)), words=(1, 2))).failures
    assert other and "every interval" not in other[0].signature


SOURCE = """
class Processor:
    def tabulate(self, ids):
        return MRotaryEmbedding.get_rope_index(ids)

    async def process(self, request):
        return Output(mrope_positions=self.tabulate(request), mrope_position_delta=None)

    def forget(self, request):
        request.mrope_positions = None

    def read(self, request):
        return request.mrope_positions


def put(mm, table):
    mm.mrope_positions = table
"""


def test_routes_come_from_the_source(tmp_path: Path) -> None:
    folder = tmp_path / "multimodal" / "processors"
    folder.mkdir(parents=True)
    (folder / "new_model.py").write_text(SOURCE)
    assert listed(tmp_path) == {
        "multimodal/processors/new_model.py:Processor.tabulate": "calls get_rope_index",
        "multimodal/processors/new_model.py:Processor.process": "sets mrope_positions",
        "multimodal/processors/new_model.py:put": "sets mrope_positions",
    }


def test_what_ran_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "managers"
    folder.mkdir()
    path = folder / "new_model.py"
    path.write_text(SOURCE)
    from ropecheck.adapters.sglang_routes import sources

    monkeypatch.setattr(sources, "package", lambda: tmp_path)
    names: dict[str, object] = {}
    exec(compile(SOURCE, str(path), "exec"), names)
    watch, mm = Watch(), type("Mm", (), {})()
    with watch:
        names["put"](mm, 1)  # type: ignore[operator]
    assert watch.fresh() == ("managers/new_model.py:put",)
    assert watch.fresh() == ()
    assert set(watch.places) - {"managers/new_model.py:put"}


def test_the_back_end_is_a_route() -> None:
    assert BACK_END in ROUTES


def paired(case: Case, hit: int) -> list[str]:
    table, width = expected(case).tables[0], np.zeros((2, 1), np.int64)
    both = PromptTables(tensor(np.stack([table, table], axis=1)), tensor(width), None, "fake", None, hit)
    return [failure.message for failure in judge(case, both).failures]


def test_a_hit_is_no_longer_than_the_columns_agree() -> None:
    """Equal tokens, equal pixels, 0.5 and 2.0 seconds per step: the first column that differs is that of index 4."""
    segments = [(words(2), Segment(kind="video", grid=(3, 2, 2), seconds=seconds), words(2)) for seconds in (0.5, 2.0)]
    case = Case("x", "qwen2_5_vl", (segments[0], segments[1]), BUILDERS[-1])
    first, second = ([tuple(c) for c in prompt_table(FAMILIES[case.family], laid.history).T] for laid in case.laid)
    assert [column[0] for column in first] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [column[0] for column in second] == [0, 1, 2, 3, 7, 11, 12, 13, 14]
    assert agreeing(second, first) == 4
    assert identity(Hit(own=second, other=first, tokens=4, alike=9)) is None
    assert identity(Hit(own=second, other=first, tokens=5, alike=9)) is not None
    assert paired(case, 4) == []
    assert paired(case, 9) == ["the second request is served 9 of 9 tokens; 4 are as the first one's"]


def test_a_hit_ends_before_another_item() -> None:
    """A sound's columns are those of text, so that they agree for as long as the shorter one lasts: its marker and 16
    tokens. The items differ from index 1 on."""
    case = next(case for case in pairs("qwen3_omni") if case.name.startswith("qwen3_omni: two sounds"))
    assert paired(case, 1) == []
    assert paired(case, 2) == ["the second request is served 2 of 72 tokens; 1 are as the first one's"]
    family, flat, tall = FAMILIES["qwen2_vl"], (text(3), image(1, 4, 6)), (text(3), image(1, 6, 4), text(1))
    assert alike(family, flat, tall) == alike(family, tall, flat) == 9
    assert alike(family, (text(3),), (text(2),)) == 2


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_a_message_in_two_turns_is_cut_behind_an_item(family: str) -> None:
    first, second = film(1, 4, 4, 1.0), film(3, 4, 6, 2.0)
    case = Case("x", family, ((words(1), first, words(2), second, words(1)),), PREFIX + "second turn")
    whole, (one, other) = step(case), step(case).parts
    assert one.ids[0] + other.ids[0] == whole.ids[0] and one.kinds[0] + other.kinds[0] == whole.kinds[0]
    assert ((one.video_grids or ()) + (other.video_grids or ())) == whole.video_grids
    assert len(one.items) == 1 and len(one.items) + len(other.items) == len(whole.items)
    moved = [msgspec.structs.replace(item, start=item.start + len(one.ids[0])) for item in other.items]
    assert [item.start for item in (*one.items, *moved)] == [item.start for item in whole.items]
    assert other.ids[0][0] not in other.markers
    with pytest.raises(OutOfDomain, match="words behind an item"):
        step(Case("x", family, ((words(1), first),), PREFIX + "second turn"))


def test_two_requests_are_two_messages() -> None:
    case = next(pairs("qwen2_5_vl"))
    assert [part.ids for part in step(case).parts] == [(laid.ids,) for laid in case.laid]
    assert step(msgspec.structs.replace(case, builder=PREFIX + "client")).parts == ()


def test_a_pictures_crops_and_a_clips_frames_are_one_thing_to_send() -> None:
    prompt = (words(1), Segment(kind="image", pixels=(896, 560)), words(1), Segment(kind="video", grid=(2, 8, 8)))
    case = Case("x", "minicpm_v4_7", (prompt,), builder=BUILDERS[0])
    sent = joined(step(case), set(MARKERS))
    assert [(one.kind, one.parts) for one in sent] == [("image", 3), ("video", 2)]


def test_text_that_a_client_writes_is_the_text_of_the_case() -> None:
    """Markers are the processor's; every other token is a word."""
    case = case_of("qwen3_omni: a sound, then a clip (client)")
    marks = {"audio": "(sound)", "video": "(clip)"}
    sent = message(step(case), 16, 2, marks, object)
    assert sent.text == "w(sound)w(clip)w"
    assert [len(one.samples) for one in sent.sounds] == [80 * 160]
    assert [(len(one), one.avg_fps) for one in sent.videos] == [(4, 1.0)]
