"""The language of forward modes: what a declaration is made into, and what is no declaration."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from ropecheck.spec import modes
from ropecheck.spec.history import OutOfDomain
from ropecheck.spec.modes import all_modes, composed, load, mode_of
from ropecheck.spec.modes.declaration import (
    DECLARED,
    PREFILLING,
    CommittedLen,
    ExtendLen,
    Field,
    Parents,
    PrefixLen,
    SeqLen,
    Step,
    Tokens,
    Tree,
    Whole,
    at,
    composite,
    depths,
    mode,
    repeated,
    span,
)


def test_indices() -> None:
    assert list(span(3, 2)) == [3, 4] and list(repeated(3, 2)) == [3, 3] and list(at(3, (0, 2, 1))) == [3, 5, 4]
    assert list(Tokens(3, 3, step=2)) == [3, 5, 7] and list(Tokens(3, 2, step=-1)) == [3, 2] and list(span(3, 0)) == []
    assert at(3, (0, 2, 1)).count == 3


def test_depths_of_a_tree() -> None:
    assert depths(()) == (0,) and depths((0, 1, 2)) == (0, 1, 2, 3) and depths((0, 0, 1, 0, 4)) == (0, 1, 1, 2, 1, 2)
    for parents, reason in (((0, 2), "node 2 has parent 2"), ((-1,), "node 1 has parent -1"), ((1,), "node 1 has")):
        with pytest.raises(OutOfDomain, match=reason):
            depths(parents)


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """What a test declares is gone behind it."""
    before = dict(DECLARED)
    yield
    DECLARED.clear()
    DECLARED.update(before)


def test_a_declaration_is_its_function() -> None:
    @mode("made", reads=PREFILLING, emits=2, carries={"spare": Whole(1, 2)}, source="here")
    def made(
        prefix: PrefixLen,
        extend: ExtendLen,
        length: SeqLen,
        step: Step,
        width: Annotated[int, "words", Whole(1, 4)],
        own: Annotated[int, Whole(0, 4, each=True)],
        parents: Annotated[Parents, Tree(nodes="width")],
    ) -> Tokens:
        """One sentence
        on two lines.

        And more.
        """
        return span(prefix + 10 * extend + 100 * length + 1000 * step + 10000 * width + 100000 * own, len(parents))

    assert DECLARED["made"] is made is mode_of("made") and all_modes()["made"] is made
    assert (made.name, made.title, made.source, made.emits) == ("made", "One sentence on two lines.", "here", 2)
    assert made.doc.endswith("And more.") and made.stated.startswith(f"{__name__}:") and made.stated.endswith("made")
    assert made.parts == (made,)
    assert made.fields == (
        Field("prefix", "prefix_len"),
        Field("extend", "extend_len"),
        Field("length", "seq_len"),
        Field("step", "step"),
        Field("width", "chosen", Whole(1, 4)),
        Field("own", "chosen", Whole(0, 4, each=True)),
        Field("parents", "chosen", Tree(nodes="width")),
        Field("spare", "chosen", Whole(1, 2)),
    )
    assert [known.name for known in made.fields if known.each] == [
        "prefix",
        "extend",
        "length",
        "step",
        "own",
        "parents",
    ]
    assert [known.name for known in made.chosen] == ["width", "own", "parents", "spare"]
    batch: dict[str, Any] = {
        "prefix": (8, 1),
        "extend": (8, 2),
        "length": (8, 3),
        "width": 5,
        "own": (8, 6),
        "parents": ((), (0, 0)),
        "spare": 1,
    }
    assert made.row(batch, 1, step=4) == span(654321, 2) and made.row(batch, 0).first == 858888 - 8000
    assert made.loops(batch) == 1
    with pytest.raises(ValueError, match="forward mode made is declared twice"):
        mode("made", source="here")(lambda: span(0, 0))


def test_what_says_nothing_is_no_declaration() -> None:
    def of_a_number(number: int) -> Tokens:
        return span(number, 1)

    def of_words(number: Annotated[int, "words"]) -> Tokens:
        return span(number, 1)

    def of_nothing(number) -> Tokens:  # type: ignore[no-untyped-def]
        return span(number, 1)

    for function in (of_a_number, of_words, of_nothing):
        with pytest.raises(ValueError, match="forward mode odd: nothing says what number counts"):
            mode("odd", source="here")(function)
    assert "odd" not in DECLARED


def test_a_composed_batch_is_its_parts() -> None:
    extend, decode = mode_of("extend"), mode_of("decode")
    both = composite("both", decode, extend, source="here", doc="A batch\nof two.\n\nMore.", emits=3)
    assert (both.title, both.doc, both.source, both.emits) == (
        "A batch of two.",
        "A batch\nof two.\n\nMore.",
        "here",
        3,
    )
    assert both.stated == f"{__name__}:both" and both.parts == (decode, extend) and both.composite
    assert composed(("decode", "extend")) is both is mode_of("both") and both.reads == "" and both.fields == ()
    assert both.prefills and both.running is decode
    with pytest.raises(OutOfDomain, match="read by their own modes"):
        both.tokens()


def test_facts_that_follow() -> None:
    known = {**all_modes(), **{name: mode_of(name) for name in ("beam_members", "draft_block", "draft_context")}}

    def which(fact: str) -> set[str]:
        return {name for name, one in known.items() if getattr(one, fact)}

    assert which("composite") == {"mixed", "unified", "beam_decode"}
    assert which("prefills") == {"extend", "split_prefill", "mixed", "unified", "draft_context"}
    assert which("verifies") == {"target_verify", "ragged_verify"} and which("packed") == {"ragged_verify"}
    assert which("either_lengths") == {"draft_extend_v2"}  # an extend's are on the host
    for name, running in (("mixed", "decode"), ("unified", "decode"), ("beam_decode", "decode"), ("decode", "decode")):
        assert mode_of(name).running is mode_of(running)
    for name in ("extend", "idle", "beam_members"):
        with pytest.raises(LookupError, match=f"no row of {name} reads a running request"):
            mode_of(name).running  # noqa: B018
    assert mode_of("draft_decode").loops({"num_steps": 4, "topk": 1}) == 3 and mode_of("decode").loops({}) == 1


def test_what_batches_can_be_built_in_by_name() -> None:
    names = list(all_modes())
    assert names == sorted(names) and {"decode", "mixed", "idle"} < set(names)
    assert not {"beam_members", "draft_block", "draft_context"} & set(names) and "draft_block" in DECLARED
    with pytest.raises(OutOfDomain, match=r"unknown forward mode 'dec'; known: beam_decode, .*, widened_draft_extend$"):
        mode_of("dec")
    with pytest.raises(OutOfDomain, match="no mode has rows of extend, then extend"):
        composed(("extend", "extend"))


MADE = """
from ropecheck.spec.modes.declaration import SeqLen, Tokens, mode, span
@mode("from_{}", source="a file")
def made(seq_len: SeqLen) -> Tokens:
    "A row reads its newest token."
    return span(seq_len - 1, 1)
"""


def test_modes_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(MADE.format("one") + MADE.format("two"))
    assert [one.name for one in load(file)] == ["from_one", "from_two"] and "from_one" in all_modes()
    for text, reason in (("x = 1", "declares no mode"), ("x =", "SyntaxError"), (MADE.format("one"), "declared twice")):
        file.write_text(text)
        with pytest.raises(OutOfDomain, match=f"^{file}: .*{reason}"):
            load(file)
    for nowhere in (tmp_path / "none.py", tmp_path):
        with pytest.raises(OutOfDomain, match="no Python file"):
            load(nowhere)


@pytest.mark.parametrize(
    "ask",
    [
        all_modes,
        lambda: mode_of("decode"),
        lambda: composed(("decode",)),
        lambda: load(Path("nowhere.py")),
    ],
)
def test_whoever_asks_first_has_all_modes_imported(ask: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    modes._files.cache_clear()
    with contextlib.suppress(OutOfDomain):
        ask()
    assert {one.stated.partition(":")[0] for one in DECLARED.values()} <= set(imported)
    modes._files.cache_clear()


def test_committed_tokens_are_those_without_the_newest() -> None:
    @mode("newest", source="here")
    def newest(seq_len: CommittedLen) -> Tokens:
        """It reads the newest token."""
        return span(seq_len, 1)

    assert newest.fields == (Field("seq_len", "committed_len"),)
