"""The lists by themselves: which entries apply, what becomes of one, and which explains a failure."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.families.case import Case
from ropecheck.conformance.families.cases import chosen as chosen_cases
from ropecheck.conformance.families.layout import Segment
from ropecheck.conformance.judge.outcome import Difference, Failure, Outcome, TableView, Unrun
from ropecheck.conformance.known import differences
from ropecheck.conformance.known.base import OnBase, alike, news, otherwise, same
from ropecheck.conformance.known.differences import CONDITIONS, KnownDifference, explaining, segments
from ropecheck.conformance.known.failures import (
    Check,
    Entry,
    Known,
    add,
    applying,
    check,
    check_difference,
    entries_for,
    load,
    match,
    nearest,
    remove,
    render,
    shared,
    shown,
)
from ropecheck.conformance.known.find import find_scenario
from ropecheck.conformance.known.model import AGAIN, FROM_T, OFFSET
from ropecheck.conformance.scenario.operations import Scenario
from ropecheck.conformance.scenario.words import idle
from ropecheck.conformance.scenarios.chosen import chosen
from ropecheck.conformance.scripts.chosen import all_scripts
from ropecheck.conformance.store.files import Stored, StoredCase, StoredScript, pretty

TODAY = datetime.date(2026, 3, 4)
TABLE = TableView(positions=(3,), rows=((4,),) * 3)
FAILURE = Failure(
    rule="table.index",
    mode="decode",
    signature="off by one",
    step=2,
    label="",
    message="index is 4 at file.py:7 f",
    difference=Difference("1d", 0, 1, 3, 4),
    observed=TABLE,
    where="file.py:7 f",
)
ENTRY = Entry(
    rule="table.index",
    mode="decode",
    signature="off by one",
    target="sglang",
    reason="3, not 4",
    link="https://example.org/1",
    first_seen=TODAY,
    witness="w.json",
)
WITNESS = Scenario(name="w", ops=(idle(0),) * 3)


def known(name: str = "a", **changed: object) -> Known:
    return Known(Path(f"{name}.toml"), replace(ENTRY, **changed), WITNESS)


# ---------------------------------------------------------------- two versions beside each other


@pytest.mark.parametrize(
    ("changed", "is_same", "is_alike"),
    [
        ({"where": "file.py:9 g", "message": "index is 4 at file.py:9 g"}, True, True),
        ({"message": "index is 5 at file.py:7 f"}, True, False),
        ({"expected": TABLE, "follows": "x", "causes": ("x",)}, True, True),
        ({"rule": "table.width"}, False, False),
        ({"mode": "extend"}, False, False),
        ({"signature": "all zero"}, False, False),
        ({"step": 3}, False, False),
        ({"label": "step 1"}, False, False),
        ({"difference": None}, False, False),
        ({"observed": None}, False, False),
    ],
)
def test_failures_that_are_the_same(changed: dict[str, object], is_same: bool, is_alike: bool) -> None:
    other = replace(FAILURE, **changed)
    assert same(FAILURE, other) is is_same and alike(FAILURE, other) is is_alike
    assert same(other, FAILURE) is is_same and alike(other, FAILURE) is is_alike


def test_what_is_new_beside_a_base() -> None:
    other = replace(FAILURE, signature="all zero", message="zeros")
    base = Outcome(scenario="x", name="x", failures=(other, replace(other, mode="extend")))
    both = Outcome(scenario="x", name="x", failures=(FAILURE, other))
    assert news(both, base) == (FAILURE,) and news(base, both) == (replace(other, mode="extend"),)
    assert otherwise(FAILURE, base) == "all zero: zeros"
    assert (
        otherwise(replace(FAILURE, rule="table.width"), base) == "" == otherwise(replace(FAILURE, mode="mixed"), base)
    )
    assert otherwise(replace(FAILURE, mode="extend"), base) == "all zero: zeros"
    stands = OnBase("0.5.22")
    assert stands.name == "base 0.5.22" and "number for number" in stands.reason and "not caused" in stands.link


# ---------------------------------------------------------------- entries


def test_which_entries_apply() -> None:
    entries = [
        known("a"),
        known("b", target="other"),
        known("c", device="cuda"),
        known("d", device="cpu"),
        known("e", versions=">=1.2"),
        known("f", versions="<1.2"),
    ]
    assert [one.name[0] for one in applying(entries, "sglang", "1.3", "cpu")] == ["a", "d", "e"]
    assert [one.name[0] for one in applying(entries, "sglang", "1.1", "cuda")] == ["a", "c", "f"]


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (None, ""),
        (Difference("delta", None, 1, -2, -3), "delta: -3, must be -2"),
        (Difference("h", 0, 1, 5, 6), "h column 0: 6, must be 5"),
    ],
)
def test_a_failure_in_a_line(difference: Difference | None, words: str) -> None:
    assert shown(replace(FAILURE, difference=difference)) == words


def outcome(*failures: Failure, **more: object) -> Outcome:
    return replace(Outcome(scenario="x", name="x", failures=failures), **more)


OTHER = replace(FAILURE, signature="all zero")
DEAD = (Unrun(stage="run", message="gone"), Unrun(stage="send", message="later"))
CHECKED = {"checked": {"table.index": 1}}


@pytest.mark.parametrize(
    ("entry", "found", "state", "message"),
    [
        (known(), outcome(FAILURE), "open", "fails as expected"),
        (known(), outcome(OTHER, FAILURE, unrun=DEAD), "open", "fails as expected"),
        (known(shows="1d column 0: 4, must be 3"), outcome(FAILURE), "open", "fails as expected"),
        (
            known(shows="1d column 0: 9, must be 3"),
            outcome(FAILURE),
            "changed",
            "its witness shows '1d column 0: 4, must be 3', not '1d column 0: 9, must be 3'",
        ),
        (
            known(shows="1d column 0: 9, must be 3"),
            outcome(FAILURE, replace(FAILURE, difference=Difference("1d", 0, 1, 3, 9))),
            "open",
            "fails as expected",
        ),
        (known(expires=TODAY), outcome(FAILURE), "open", "fails as expected"),
        (
            known(expires=datetime.date(2026, 3, 3)),
            outcome(FAILURE),
            "expired",
            "expired on 2026-03-03 and still fails",
        ),
        (known(), outcome(OTHER, unrun=DEAD), "unrun", "its witness could not run (run: gone)"),
        (known(), outcome(OTHER), "changed", "its witness fails otherwise: table.index / decode / all zero"),
        (known(), outcome(**CHECKED), "stale", "its witness passes: the bug is fixed, remove the entry"),
        (known(), outcome(checked={"table.width": 1}), "stale", "its witness does not check the rule here"),
        (
            known(),
            outcome(not_offered=(("decode", "too old"), ("idle", "no"))),
            "stale",
            "its witness does not check the rule here: too old",
        ),
    ],
)
def test_what_became_of_an_entry(entry: Known, found: Outcome, state: str, message: str) -> None:
    assert check(entry, found, TODAY) == Check(entry, state, message)


def test_in_code_that_is_no_release_what_passes_is_gone() -> None:
    assert check(known(), outcome(**CHECKED), TODAY, released=False) == Check(
        known(), "gone", "its witness passes here"
    )
    assert check(known(), outcome(), TODAY, released=False).state == "stale"
    assert check(known(), outcome(OTHER), TODAY, released=False).state == "changed"


CAUSED = known("caused", cause=FROM_T)
PREDICTED = replace(FAILURE, where="elsewhere", message="index is 4 at elsewhere")


def test_an_entry_explains_its_shape_and_what_its_cause_gives() -> None:
    plain = known("plain")
    assert match(FAILURE, [known(mode="extend"), plain]) is plain and match(OTHER, [plain]) is None
    assert match(FAILURE, [CAUSED]) is None and match(FAILURE, [CAUSED], [OTHER]) is None
    assert match(FAILURE, [CAUSED], [OTHER, PREDICTED]) is CAUSED
    assert match(FAILURE, [CAUSED, plain]) is plain
    assert match(FAILURE, [CAUSED], [replace(PREDICTED, causes=(AGAIN, FROM_T))]) is CAUSED
    assert match(FAILURE, [CAUSED], [replace(PREDICTED, causes=(AGAIN,))]) is None


def test_what_several_bugs_show_alike() -> None:
    entries = [CAUSED, known(cause=AGAIN), known(cause=AGAIN), known(cause=FROM_T, mode="extend"), known()]
    assert shared(entries) == {FAILURE.key: (FROM_T, AGAIN)}
    assert shared([CAUSED, known(cause="close-drops-the-media")]) == {}  # a scheduler's


def test_the_entry_that_is_closest() -> None:
    """Of those whose cause is at work: rule and mode before the shape, and the shape before the rule."""
    far = known("far", cause=FROM_T, rule="table.width", mode="extend")
    shape = known("shape", cause=FROM_T, rule="table.width", signature="all zero")
    here = known("here", cause=FROM_T)
    none = known("none", cause=OFFSET, signature="all zero")
    must = [replace(OTHER, causes=(FROM_T,))]
    assert nearest(OTHER, [far, shape, here, none], must) is here
    assert nearest(OTHER, [far, shape, none], must) is shape and nearest(OTHER, [far, none], must) is far
    mode = known("mode", cause=FROM_T, mode="extend", signature="all zero")
    rule = known("rule", cause=FROM_T, rule="table.width", signature="all zero")
    assert nearest(OTHER, [rule, mode], must) is mode and nearest(OTHER, [mode, rule], must) is mode
    assert nearest(OTHER, [none], must) is None and nearest(OTHER, [far, here], []) is None
    assert nearest(OTHER, [here, none], [OTHER]) is none  # of no cause in particular
    assert nearest(OTHER, [known(cause="")], [OTHER]) is None


def test_a_consequence_is_expected_with_what_it_follows() -> None:
    cause = replace(FAILURE, rule="session.table", mode="session", signature="columns of the parent")
    after = replace(FAILURE, follows="session.table", signature="follows from session.table")
    plain = known("plain", rule="session.table", mode="session", signature="columns of the parent")
    assert entries_for([cause, after], [plain]) == [plain, plain]
    assert entries_for([after, cause], [plain]) == [plain, plain]
    assert entries_for([after], [plain]) == [None]
    new = replace(cause, mode="decode")
    assert entries_for([cause, new, after], [plain]) == [plain, None, None]  # each of them must be expected
    assert entries_for([cause, replace(after, follows="session.delta")], [plain]) == [plain, None]
    assert entries_for([replace(cause, follows="x"), after], [plain]) == [plain, None]
    modelled = replace(plain, entry=replace(plain.entry, cause=FROM_T))
    assert entries_for([cause, after], [modelled], [cause]) == [modelled, None]
    assert entries_for([cause, after], [modelled], [cause, after]) == [modelled, modelled]
    assert entries_for([cause, OTHER], [plain, known("own", signature="all zero")])[1] == known(
        "own", signature="all zero"
    )


def test_an_entry_is_written_read_and_removed(tmp_path: Path) -> None:
    path = add(tmp_path, replace(ENTRY, signature="Off by -- ONE!"), WITNESS)
    assert path.name == "sglang-table-index-decode-off-by-one.toml" and (tmp_path / "w.json").exists()
    with pytest.raises(UsageError, match="an entry for this failure already"):
        add(tmp_path, replace(ENTRY, signature="off by one"), WITNESS)
    second = add(tmp_path, replace(ENTRY, mode="extend"), WITNESS)
    entries = load(tmp_path)
    assert [one.path for one in entries] == sorted([path, second]) and entries[0].witness == WITNESS
    assert (entries[0].rule, entries[0].reason, entries[0].link) == (ENTRY.rule, ENTRY.reason, ENTRY.link)
    remove(entries[0], entries)
    assert (tmp_path / "w.json").exists() and not entries[0].path.exists()
    remove(entries[1], entries)
    assert not list(tmp_path.iterdir())
    remove(entries[1], entries)  # nothing is left to remove


def test_an_entry_as_text() -> None:
    text = render(replace(ENTRY, reason='two "words"\nDEL \x7f', expires=datetime.date(2027, 1, 2)))
    assert text.splitlines()[:3] == ['rule = "table.index"', 'mode = "decode"', 'signature = "off by one"']
    assert 'reason = "two \\"words\\"\\nDEL \\u007f"\n' in text and "expires = 2027-01-02\n" in text
    assert "versions" not in text and "cause" not in text and text.endswith('witness = "w.json"\n')


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"link": " "}, "link is empty"),
        ({"signature": " "}, "signature is empty"),
        ({"mode": "dec*"}, "wildcards are not allowed"),
        ({"signature": "*"}, "wildcards are not allowed"),
        ({"rule": "table.idex"}, "unknown rule"),
        ({"cause": "retraction-continues-from"}, "unknown cause .*did you mean"),
        ({"versions": "new"}, "versions: 'new'"),
        ({"witness": "../w.json"}, "no name of a file beside the entry"),
        ({"witness": ".."}, "no name of a file beside the entry"),
        ({"witness": "none.json"}, "none.json"),
    ],
)
def test_an_entry_that_is_wrong(changed: dict[str, str], words: str, tmp_path: Path) -> None:
    (tmp_path / "w.json").write_bytes(pretty(WITNESS))
    (tmp_path / "one.toml").write_text(render(replace(ENTRY, **changed)))
    with pytest.raises(UsageError, match=words):
        load(tmp_path)


def test_a_list_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        load(tmp_path / "none")
    (tmp_path / "w.json").write_bytes(pretty(WITNESS))
    for name, more in (("a", {}), ("b", {"cause": FROM_T}), ("c", {"device": "cpu"}), ("d", {"rule": "decode.index"})):
        (tmp_path / f"{name}.toml").write_text(render(replace(ENTRY, **more)))
    with pytest.raises(UsageError, match=r"d\.toml: says the same as a\.toml"):  # by its old name
        load(tmp_path)
    (tmp_path / "d.toml").unlink()
    assert [one.name for one in load(tmp_path)] == ["a.toml", "b.toml", "c.toml"]
    case = Case("c", "qwen2_vl", ((Segment(kind="text", tokens=1),),))
    (tmp_path / "w.json").write_bytes(pretty(case))
    with pytest.raises(UsageError, match="a prompt-table case, not a scenario"):
        load(tmp_path)


# ---------------------------------------------------------------- differences of prompt tables


def case(*segments: Segment, family: str = "qwen2_vl", more: tuple[tuple[Segment, ...], ...] = (), **rest: str) -> Case:
    return replace(Case("c", family, (segments, *more)), **rest)


def item(kind: str, *grid: int, **more: object) -> Segment:
    return replace(Segment(kind=kind), grid=grid or None, **more)


WORDS = Segment(kind="text", tokens=2)
IMAGE, CLIP, TRACK, SOUND = item("image", 1, 4, 6), item("video", 2, 8, 8), item("track", 2, 4, 4), item("audio")
NEWLINE = item("newline")


@pytest.mark.parametrize(
    ("when", "so", "otherwise"),
    [
        ("always", [case(WORDS)], []),
        ("media", [case(IMAGE), case(CLIP), case(TRACK)], [case(WORDS, SOUND)]),
        (
            "a video outlasts its frame",
            [
                case(item("video", 3, 4, 4)),  # three steps beside two tokens
                case(WORDS, CLIP, item("video", 3, 4, 4)),
                case(item("video", 2, 4, 4, seconds=1.0), family="qwen2_5_vl"),  # at 0 and 2
                case(item("video", 6, 4, 4), family="ernie4_5_vl"),
            ],
            [
                case(item("video", 2, 4, 4)),
                case(item("video", 3, 4, 6)),
                case(item("video", 3, 6, 4)),
                case(item("video", 2, 4, 4, seconds=0.5), family="qwen2_5_vl"),
                case(item("video", 4, 4, 4), family="ernie4_5_vl"),
                case(item("image", 1, 2, 2)),
                case(item("video", 9, 2, 2), family="qwen3_omni"),
            ],
        ),
        (
            "a picture on its side",
            [
                case(IMAGE, more=((item("image", 1, 6, 4),),)),
                case(WORDS, IMAGE, more=((WORDS, item("image", 1, 2, 12)),)),
            ],
            [
                case(IMAGE, more=((IMAGE,),)),
                case(IMAGE, more=((item("image", 1, 6, 6),),)),
                case(IMAGE, item("image", 1, 6, 4)),
                case(IMAGE, more=((WORDS, item("image", 1, 6, 4)),)),
                case(CLIP, more=((item("video", 2, 4, 16),),)),
            ],
        ),
        (
            "a clip at two rates",
            [
                case(CLIP, item("video", 2, 4, 4, seconds=2.0)),
                case(CLIP, more=((item("video", 2, 4, 4, seconds=2.0),),)),
            ],
            [case(CLIP), case(CLIP, CLIP), case(CLIP, item("track", 2, 4, 4, seconds=2.0))],
        ),
        ("a video", [case(CLIP)], [case(IMAGE), case(TRACK)]),
        ("a picture beside a clip", [case(CLIP, IMAGE)], [case(CLIP), case(IMAGE), case(IMAGE, TRACK)]),
        ("clips alone", [case(CLIP, WORDS)], [case(CLIP, IMAGE), case(WORDS)]),
        ("two sounds beside a picture", [case(SOUND, SOUND, IMAGE)], [case(SOUND, IMAGE), case(SOUND, SOUND)]),
        ("a batch of prompts", [case(WORDS, more=((WORDS,),))], [case(WORDS, WORDS)]),
        ("a track", [case(TRACK)], [case(CLIP, SOUND)]),
        (
            "a track whose interval is longer than a chunk",
            [case(item("track", 2, 4, 4, seconds=2.5))],
            [case(item("track", 2, 4, 4, seconds=2.0)), case(item("video", 2, 4, 4, seconds=2.5))],
        ),
        (
            "an interval that is no binary fraction",
            [case(item("video", 2, 4, 4, seconds=0.1)), case(item("track", 2, 4, 4, seconds=1 / 3))],
            [case(item("video", 2, 4, 4, seconds=1 / 1024)), case(CLIP), case(item("image", 1, 4, 4, seconds=0.1))],
        ),
        (
            "a video whose interval is not one second",
            [case(CLIP, item("video", 2, 4, 4, seconds=2.0))],
            [case(CLIP), case(item("track", 2, 4, 4, seconds=2.0))],
        ),
        ("several items of one kind", [case(IMAGE, WORDS, IMAGE), case(CLIP, CLIP)], [case(IMAGE, CLIP), case(IMAGE)]),
        (
            "a newline after a picture",
            [
                case(IMAGE, NEWLINE),
                case(CLIP, NEWLINE),
                case(WORDS, NEWLINE, NEWLINE),
                case(WORDS, more=((WORDS, IMAGE, NEWLINE),)),
            ],
            [case(NEWLINE, IMAGE), case(WORDS, NEWLINE), case(IMAGE, WORDS, NEWLINE), case(IMAGE)],
        ),
        ("torn", [case(WORDS, torn="run cut short")], [case(WORDS)]),
        ("run cut short", [case(WORDS, torn="run cut short")], [case(WORDS), case(WORDS, torn="grid undivided")]),
    ],
)
def test_when_a_difference_applies(when: str, so: list[Case], otherwise: list[Case]) -> None:
    holds = CONDITIONS[when]
    assert [holds(one) for one in so] == [True] * len(so)
    assert [holds(one) for one in otherwise] == [False] * len(otherwise)


def test_the_segments_of_a_case() -> None:
    assert segments(case(IMAGE, WORDS, CLIP, more=((CLIP,),)), "video", "text") == [WORDS, CLIP, CLIP]


DIFFERENCE = KnownDifference(
    id="one",
    families=("qwen2_vl", "qwen3_vl"),
    target="transformers",
    versions=">=5",
    rules=("families.table", "families.delta"),
    signatures=("other value", "shifted"),
    when="a video",
    gives="",
    kind="choice",
    right="nobody",
    reason="because",
    witness="a name",
)
HERE = replace(FAILURE, rule="families.delta", mode="prompt_table.qwen2_vl", signature="shifted")


@pytest.mark.parametrize(
    ("entry", "one", "target", "version", "so"),
    [
        (DIFFERENCE, case(CLIP), "transformers", "5.1", True),
        (DIFFERENCE, case(CLIP), "sglang", "5.1", False),
        (replace(DIFFERENCE, target="any"), case(CLIP), "sglang", "5.1", True),
        (DIFFERENCE, case(CLIP), "transformers", "4.9", False),
        (replace(DIFFERENCE, versions=""), case(CLIP), "transformers", "4.9", True),
        (DIFFERENCE, case(IMAGE), "transformers", "5.1", False),
        (DIFFERENCE, case(CLIP, family="qwen2_5_vl"), "transformers", "5.1", False),
        (DIFFERENCE, case(CLIP, builder="other"), "transformers", "5.1", False),
        (replace(DIFFERENCE, builder=("other", "more")), case(CLIP, builder="more"), "transformers", "5.1", True),
        (replace(DIFFERENCE, builder=("other", "more")), case(CLIP), "transformers", "5.1", False),
    ],
)
def test_a_difference_applies(entry: KnownDifference, one: Case, target: str, version: str, so: bool) -> None:
    assert entry.applies(one, target, version) is so and entry.explains(one, HERE, target, version) is so
    assert not entry.explains(one, replace(HERE, rule="families.table_width"), target, version)
    assert not entry.explains(one, replace(HERE, signature="all zero"), target, version)
    assert (entry.name, entry.rule, entry.link) == ("one", "families.table", "choice; right: nobody")
    assert entry.path == differences.FILE


def test_a_difference_explains_what_it_gives() -> None:
    gives = replace(DIFFERENCE, gives="tables and deltas are float32")
    at = (case(CLIP), HERE)
    assert explaining(*at, [], [DIFFERENCE, gives], "transformers", "5.1") == [DIFFERENCE]
    assert explaining(*at, [HERE], [DIFFERENCE, gives], "transformers", "5.1") == [DIFFERENCE, gives]
    assert explaining(*at, [HERE], [gives], "sglang", "5.1") == []
    applies = differences.applying([DIFFERENCE, replace(DIFFERENCE, target="sglang")], "transformers", "5.1")
    assert applies == (DIFFERENCE,)
    absent = replace(DIFFERENCE, families=("qwen3_asr",))
    assert differences.applying([absent, DIFFERENCE], "transformers", "4.1") == ()
    assert differences.applying([absent, replace(DIFFERENCE, versions="")], "transformers", "4.1") == (
        replace(DIFFERENCE, versions=""),
    )


@pytest.mark.parametrize(
    ("entry", "found", "state", "message"),
    [
        (DIFFERENCE, outcome(HERE, unrun=DEAD), "open", "differs as expected"),
        (DIFFERENCE, outcome(unrun=DEAD), "unrun", "its witness could not run (run: gone)"),
        (replace(DIFFERENCE, kind="unsettled"), outcome(**CHECKED), "open", "answered by the paper here"),
        (replace(DIFFERENCE, kind="unsettled"), outcome(), "stale", ""),
        (
            DIFFERENCE,
            outcome(FAILURE),
            "changed",
            "its witness 'c' fails otherwise: table.index / decode / off by one",
        ),
        (
            DIFFERENCE,
            outcome(not_offered=(("x", "too old"),)),
            "stale",
            "its witness 'c' is not offered here: too old",
        ),
        (DIFFERENCE, outcome(**CHECKED), "stale", "its witness 'c' passes: the difference is gone, remove the entry"),
    ],
)
def test_what_became_of_a_difference(entry: KnownDifference, found: Outcome, state: str, message: str) -> None:
    checked = check_difference(entry, case(CLIP), found, "transformers", "5.1")
    assert checked.state == state and checked.message.startswith(message) and checked.known is entry


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('families = ["qwen9_vl"]', "unknown family qwen9_vl"),
        ('rules = ["families.tabel"]', "unknown rule families.tabel"),
        ('when = "never"', "unknown condition 'never'"),
        ('gives = "roses"', "gives: nothing is known of 'roses'"),
        ('gives = "ValueError: roses"', "gives: nothing is known of"),
        ('kind = "bug"', "unknown kind 'bug'"),
    ],
)
def test_a_difference_that_is_wrong(line: str, words: str, tmp_path: Path) -> None:
    right = (
        'id = "one"\nfamilies = ["qwen2_vl"]\ntarget = "transformers"\nrules = ["families.table"]\n'
        'signatures = ["raises KeyError"]\nwhen = "a video"\ngives = "KeyError: x"\nkind = "choice"\nright = "r"\n'
        'reason = "r"\nwitness = "w"\n'
    )
    file = tmp_path / "families.toml"
    file.write_text(f"[[difference]]\n{right}")
    assert [one.id for one in differences.load(file)] == ["one"]
    other = "".join(f"{one}\n" for one in right.splitlines() if not one.startswith(line.split(" ")[0])) + line
    file.write_text(f"[[difference]]\n{other}\n")
    with pytest.raises(UsageError, match=f"entry one: {words}"):
        differences.load(file)
    file.write_text(f"[[difference]]\n{right}[[difference]]\n{right}")
    with pytest.raises(UsageError, match="entry one: its id is taken"):
        differences.load(file)


def test_a_witness_is_of_a_family_that_the_target_offers() -> None:
    (name,) = {one.witness for one in differences.load() if one.id == "video-advances-by-its-frame-only"}
    entry = replace(DIFFERENCE, families=("qwen3_vl", "qwen2_vl"), witness=name)
    assert differences.witness(entry).name == name and differences.witness(entry, "sglang").family == "qwen2_vl"
    asr = replace(DIFFERENCE, target="any", families=("qwen2_5_omni", "qwen3_omni"))
    first = next(one for one in chosen_cases("qwen2_5_omni"))
    asr = replace(asr, witness=first.name)
    assert differences.witness(asr) == first and differences.witness(asr, "transformers") == first
    elsewhere = differences.witness(asr, "sglang")  # it has no Qwen2.5-Omni
    assert elsewhere.family == "qwen3_omni"
    assert elsewhere.name.removeprefix("qwen3_omni") == first.name.removeprefix("qwen2_5_omni")
    far = next(one for one in chosen_cases("qwen2_5_omni") if one.name.endswith("left-padded batch"))
    asr = replace(asr, witness=far.name, families=("qwen3_omni", "qwen2_5_omni"))
    assert differences.witness(asr, "transformers") == far
    assert differences.witness(asr, "sglang").name == "qwen3_omni: left-padded batch"
    with pytest.raises(UsageError, match="no case of its families is named 'roses'"):
        differences.witness(replace(entry, witness="roses"))


# ---------------------------------------------------------------- a scenario by its name


def test_a_scenario_by_its_file_id_or_name(tmp_path: Path) -> None:
    none = tmp_path / "none"
    none.mkdir()
    file = tmp_path / "own.json"
    file.write_bytes(pretty(WITNESS))
    found = find_scenario(str(file), tmp_path, none)
    assert isinstance(found, Stored) and found.scenario == WITNESS
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / "abc.json").write_bytes(pretty(WITNESS))
    assert find_scenario("abc", tmp_path, none) == found
    script, scenario, one = all_scripts()[0], chosen()[0], chosen_cases("qwen2_vl")[0]
    for name in (script.id, script.name):
        assert find_scenario(name, tmp_path, none) == StoredScript(script=script, target="", version="", device="")
    for name in (scenario.id, scenario.name):
        assert find_scenario(name, tmp_path, none) == Stored(scenario=scenario, target="", version="", device="")
    for name in (one.id, one.name):
        assert find_scenario(name, tmp_path, none) == StoredCase(case=one, target="", version="", device="")
    add(none, ENTRY, WITNESS)
    for name in (WITNESS.id, WITNESS.name):
        assert find_scenario(name, tmp_path / "empty", none) == found
    with pytest.raises(UsageError, match=rf"no scenario '{scenario.name}x' in .*; close: .*{scenario.name}"):
        find_scenario(f"{scenario.name}x", tmp_path, none)
    with pytest.raises(UsageError, match=r"known failures' witnesses$"):
        find_scenario("%%%", tmp_path, none)
    with pytest.raises(UsageError, match=r"^elsewhere/abc"):
        find_scenario("elsewhere/abc", tmp_path, none)
