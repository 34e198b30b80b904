"""Lint finds every planted fault, and says where."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.vectors import lint, store
from ropecheck.spec.rules import Violation, replaced
from tests.vectors.conftest import COMMITTED, Json, only


def _set(*path: str | int, to: object) -> Callable[[Json], None]:
    def change(vector: Json) -> None:
        at = vector
        for key in path[:-1]:
            at = at[key]  # type: ignore[index]
        at[path[-1]] = to  # type: ignore[index]

    return change


def _drop(*path: str | int) -> Callable[[Json], None]:
    def change(vector: Json) -> None:
        at = vector
        for key in path[:-1]:
            at = at[key]  # type: ignore[index]
        del at[path[-1]]  # type: ignore[arg-type]

    return change


FIELDS = ("input", "batch", "parts", 0, "fields")

HUGE = {"kind": "image", "grid": [100_000, 100_000, 100_000]}

FAULTS: list[tuple[str, Callable[[Json], None], int, str]] = [
    ("decode", _set("expected", 0, "rows", 1, 0, to=99), 1, "expected[0].rows[1][0]: 99, the specification derives"),
    ("decode", _set("expected", 0, "positions", 0, to=99), 1, "expected[0].positions[0]: 99, the spec"),
    ("decode", _set("expected", 0, "positions", to=[]), 1, "expected[0].positions: 0 columns, the spec"),
    ("decode", _drop("expected", 0, "rows"), 1, "expected[0].rows: no rows, the specification derives 3"),
    ("decode", _set("expected", 0, "label", to="step 1"), 1, "expected: labels ['step 1'], the spec"),
    ("decode", _set("expected", to=[]), 1, "expected: labels [], the spec"),
    ("decode", _set("id", to="0" * 16), 1, "id: 0000000000000000, its input hashes to"),
    ("decode", _set(*FIELDS, "seq_len", 0, to=500), 1, "its input hashes to"),
    ("decode", _set(*FIELDS, "seq_len", to=[]), 1, "not legal: decode.seq_len: 0 values for "),
    ("decode", _set(*FIELDS, "seq_len", to=9), 1, "not legal: decode.seq_len: must be one value per row"),
    ("decode", _set(*FIELDS, "seq_len", 0, to=0), 1, "not legal: decode.seq_len: row 0 has 0, not in "),
    (
        "decode",
        _set(*FIELDS, "seq_len", 0, to=1 << 40),
        1,
        "not legal: decode.seq_len: row 0 has 1099511627776, not in",
    ),
    ("decode", _set(*FIELDS, "topk", to=2), 1, "not legal: decode: carries seq_len, topk, must carry seq_len"),
    ("decode", _drop(*FIELDS, "seq_len"), 1, "not legal: decode: carries no fields, must carry seq_len"),
    ("decode", _set(*FIELDS[:-1], "mode", to="extend"), 1, "not legal: decode: rows of extend, must be decode"),
    ("decode", _set(*FIELDS[:-1], "reqs", 0, to=7), 1, "not legal: decode.reqs: [7"),
    ("decode", _set("input", "batch", "mode", to="decoding"), 1, "not legal: unknown forward mode 'decoding'; known: "),
    ("target_verify", _set(*FIELDS, "num_draft_tokens", to=99), 1, "nodes, num_draft_tokens is 99"),
    (
        "unified",
        _drop("input", "batch", "parts", 1),
        1,
        "unified: rows of extend, ragged_verify, must be extend, decode",
    ),
    ("decode", _set("input", "requests", 0, "delta", to=7), 1, "input: not legal: a request's delta is 7"),
    ("decode", _set("input", "requests", 0, "table", 0, 0, to=7), 1, "a request's table is not that of its runs"),
    ("decode", _set("input", "requests", 0, "tabulated", to=9999), 1, "tabulated is 9999"),
    ("decode", _set("input", "family", to="qwen9"), 1, "input: not legal: unknown family 'qwen9'"),
    ("decode", _set("provenance", "rules", to=["table.width"]), 1, "provenance.rules: ['table.width'], the vector"),
    ("extend", _set(*FIELDS, "extend_len", 0, to=0), 1, "not legal: extend.extend_len: row 0 has 0, not in 1"),
    ("draft_decode", _drop("expected", -1), 1, "expected: labels"),
    ("padding", _set("expected", 0, "free", to=[[0, 1]]), 1, "expected[0].free: ((0, 1),), the specification"),
    ("padding", _set("input", "capacity", to=1), 1, "in a buffer of 1"),
    ("session", _set("expected", 0, "tokens", to=99), 1, "expected[0].tokens: 99, the specification derives"),
    ("session", _set("expected", 0, "delta", to=99), 1, "expected[0].delta: 99, the specification derives"),
    ("session", _set("expected", 0, "refused", to=True), 1, "expected[0].refused: True, the specification derives"),
    ("session", _set("expected", 1, "optional_from", to=0), 1, "expected[1].optional_from: 0, the spec"),
    ("session", _set("input", "events", 1, "delta", to=99), 1, "turn 0: table or delta is not that of its runs"),
    ("session", _drop("input", "events", 0), 1, "input: not legal: no request or session 0"),
    ("retraction", _set("input", "retractions", 0, "outputs", to=99), 1, "expected[0].rows[0]: "),
    ("prompt_table", _set("expected", 0, "delta", to=99), 1, "expected[0].delta: 99, the specification derives"),
    ("decode", _drop("input", "batch", "mode"), 2, "missing required field `mode` - at `$.input.batch`"),
    ("decode", _drop("expected"), 2, "missing required field `expected` - at `$`"),
    ("decode", _set("input", "batch", "seq_len", to=[3]), 2, "unknown field `seq_len` - at `$.input.batch`"),
    ("decode", _set(*FIELDS, "seq_len", 0, to="9"), 2, "got `str` - at `$.input.batch.parts[0].fields[...][0]`"),
    ("decode", _set("input", "requests", 0, "tabulated", to=1 << 40), 2, "at `$.input.requests[0].tabulated`"),
    ("prompt_table", _set("input", "runs", 0, to=HUGE), 1, "not legal: a run of 1000000000000000 patches"),
    ("decode", _set("schema", to="ropecheck.vector/1"), 2, "at `$.schema`"),
]


@pytest.mark.parametrize(("folder", "change", "code", "says"), FAULTS, ids=[f"{f[0]}: {f[3][:40]}" for f in FAULTS])
def test_a_planted_fault_is_named(
    folder: str,
    change: Callable[[Json], None],
    code: int,
    says: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = only(folder, lambda vector: folder != "session" or len(vector["expected"]) > 1)
    vector = json.loads(path.read_text())
    change(vector)
    copy = tmp_path / folder / path.name
    copy.parent.mkdir()
    copy.write_text(json.dumps(vector))
    assert cli.execute(["vectors", "lint", str(tmp_path)]) == code
    lines = [line for line in capsys.readouterr().out.splitlines() if says in line]
    assert len(lines) == 1 and lines[0].startswith(f"{copy}: ")


def test_a_sound_folder_has_no_problems(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["vectors", "lint", str(some)]) == 0
    assert capsys.readouterr().out.endswith(" 0 problems\n")


def test_torn_json_does_not_hide_the_others(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torn, wrong = sorted(some.rglob("decode/*.json"))[:2]
    torn.write_text(torn.read_text()[:200])
    wrong.write_text(wrong.read_text().replace('"reason"', '"raisin"'))
    assert cli.execute(["vectors", "lint", str(some)]) == 2
    out = capsys.readouterr().out
    assert f"{torn}: not JSON: Input data was truncated - at `$`" in out
    assert f"{wrong}: Object contains unknown field `raisin` - at `$.provenance`" in out


def test_a_copy_under_another_name_or_folder(some: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted(some.rglob("decode/*.json"))[0]
    shutil.copy(path, some / "extend" / "0123456789abcdef.json")
    assert cli.execute(["vectors", "lint", str(some)]) == 1
    out = capsys.readouterr().out
    copy = some / "extend" / "0123456789abcdef.json"
    assert f"{copy}: id: {path.stem}, the file is named 0123456789abcdef.json" in out
    assert f"{copy}: input: belongs into the folder decode" in out
    assert f"id: the same as {path}" in out


def test_a_set_that_is_too_large(
    some: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lint, "MOST_BYTES", 1000)
    assert cli.execute(["vectors", "lint", str(some)]) == 1
    assert "bytes of vectors, at most 1000" in capsys.readouterr().out


def test_nothing_to_lint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["vectors", "lint", str(tmp_path)]) == 4
    assert cli.execute(["vectors", "lint", str(tmp_path / "nowhere")]) == 2
    assert "no such file or folder" in capsys.readouterr().err


def _nothing(*about: object) -> object:
    """A body that never speaks up; of a predicate, one that always holds."""
    return None if len(about) == 1 else True


def _always(*about: object) -> object:
    """A body that always does."""
    return Violation(axis="t", at=0, shape="nonsense") if len(about) == 1 else False


@pytest.mark.parametrize("body", [_nothing, _always])
def test_nonsense_in_a_rule_is_found(body: Callable[..., Any]) -> None:
    by_rule: dict[str, Path] = {}
    for path in store.paths(COMMITTED):
        for rule in store.read(path).provenance.rules:
            by_rule.setdefault(rule, path)
    assert len(by_rule) > 35
    for rule, path in by_rule.items():
        back = replaced(rule, body)
        try:
            problems = lint.problems_of(store.read(path), set())
        finally:
            back()
        assert any(rule in problem or "raises" in problem for problem in problems), (rule, path)
