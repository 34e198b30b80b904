"""An engine's answers are graded as a run would grade its tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ropecheck.conformance.vectors import store
from ropecheck.conformance.vectors.types import folders
from tests.vectors.conftest import COMMITTED, Graded, Json, answer_to, only


def _load(path: Path) -> Json:
    vector: Json = json.loads(path.read_text())
    return vector


def _media(vector: Json) -> bool:
    """The first request has media and a delta of its own."""
    requests = vector["input"]["requests"]
    return bool(requests) and requests[0]["delta"] != 0


def test_right_answers_pass(graded: Graded) -> None:
    vectors = [_load(path) for path in store.paths(COMMITTED)]
    code, out = graded(COMMITTED, {vector["id"]: answer_to(vector) for vector in vectors})
    assert code == 0
    assert out.splitlines()[-1] == f"{len(vectors)} pass, 0 fail, 0 not offered, 0 missing"


Change = Callable[[Json, list[Json]], None]


def _delta_left_out(vector: Json, answer: list[Json]) -> None:
    answer[0]["rows"] = [list(answer[0]["positions"]) for _ in range(3)]


def _one_cell(vector: Json, answer: list[Json]) -> None:
    answer[0]["rows"][1][0] += 5


def _wrong_index(vector: Json, answer: list[Json]) -> None:
    answer[0]["positions"] = [index + 1 for index in answer[0]["positions"]]


def _short(vector: Json, answer: list[Json]) -> None:
    answer[0]["positions"].pop()
    answer[0]["rows"] = [row[:-1] for row in answer[0]["rows"]]


def _no_rows(vector: Json, answer: list[Json]) -> None:
    del answer[0]["rows"]


def _two_rows(vector: Json, answer: list[Json]) -> None:
    answer[0]["rows"].pop()


def _uneven(vector: Json, answer: list[Json]) -> None:
    answer[0]["rows"][2].pop()


def _nothing(vector: Json, answer: list[Json]) -> None:
    answer.clear()


def _last_table(vector: Json, answer: list[Json]) -> None:
    answer.pop()


def _one_table_more(vector: Json, answer: list[Json]) -> None:
    answer.append({**answer[-1], "label": "step 77"})


def _fact(field: str, value: object) -> Change:
    def change(vector: Json, answer: list[Json]) -> None:
        answer[-1][field] = value

    return change


def _stale_fill(vector: Json, answer: list[Json]) -> None:
    """The last column between the live ones and the padded width."""
    answer[0]["rows"][0][vector["input"]["load"]["padded_tokens"] - 1] = 3


def _held_shifted(vector: Json, answer: list[Json]) -> None:
    answer[-1]["rows"] = [[value + 1 for value in row] for row in answer[-1]["rows"]]


FAULTS: list[tuple[str, Change, str, str]] = [
    ("decode", _delta_left_out, "table.past_table", "delta missing"),
    ("decode", _one_cell, "table.past_table", "row h wrong"),
    ("decode", _wrong_index, "table.index", "off by one"),
    ("decode", _short, "table.width", "columns"),
    ("decode", _no_rows, "table.present", "table missing"),
    ("decode", _two_rows, "table.three_rows", "wrong number of rows"),
    ("decode", _uneven, "table.three_rows", "wrong number of rows"),
    ("decode", _nothing, "table.present", "table missing"),
    ("mixed", _short, "table.width", "too few columns"),
    ("draft_decode", _delta_left_out, "table.past_table", "delta missing"),
    ("draft_decode", _last_table, "table.forwards", "too few forwards"),
    ("draft_decode", _one_table_more, "table.forwards", "too many forwards"),
    ("ragged_verify", _delta_left_out, "table.past_table", "delta missing"),
    ("padding", _stale_fill, "padding.harmless_fill", "fill not zero"),
    ("session", _fact("delta", 99), "session.delta", "another delta"),
    ("session", _fact("delta", None), "session.delta", "delta missing"),
    ("session", _fact("media_spans", [[0, 1]]), "session.media_spans", "items misplaced"),
    ("session", _fact("refused", True), "session.refused", "refused"),
    ("session", _fact("tokens", 1), "session.append", "too few tokens"),
    ("session", _held_shifted, "session.table", "shifted by a constant"),
    ("session", _last_table, "table.present", "table missing"),
    ("retraction", _held_shifted, "retraction.table", "shifted by a constant"),
    ("retraction", _fact("tokens", 1), "retraction.same_history", "too few tokens"),
    ("prompt_table", _held_shifted, "families.table", "off by one"),
    ("prompt_table", _fact("delta", 99), "families.delta", "other value"),
]


@pytest.mark.parametrize(
    ("folder", "change", "rule", "signature"), FAULTS, ids=[f"{f[0]}: {f[1].__name__} {f[3]}" for f in FAULTS]
)
def test_a_wrong_answer_fails_with_rule_and_signature(
    folder: str, change: Change, rule: str, signature: str, graded: Graded
) -> None:
    wanted: dict[str, Callable[[Json], bool]] = {
        "session": lambda vector: (
            vector["expected"][-1].get("rows") is not None
            and rule in (*vector["provenance"]["rules"], "table.present")
            and vector["input"]["events"][-1].get("parent") is not None
            and vector["expected"][-1]["media_spans"] != []
            and set(vector["provenance"]["rules"])
            <= {
                "session.append",
                "session.table",
                "session.delta",
                "session.media_spans",
                "session.refused",
                "session.replace_all",
                "table.present",
            }
        ),
        "draft_decode": lambda vector: _media(vector) and len(vector["expected"]) > 1,
        "padding": lambda vector: (
            vector["input"]["buffer"] == "graph"
            and "idle" not in str(vector["input"]["load"])
            and "padding.harmless_fill" in vector["provenance"]["rules"]
        ),
        "retraction": lambda vector: "optional_from" in vector["expected"][0],
        "prompt_table": lambda vector: True,
    }
    path = only(folder, wanted.get(folder, _media))
    vector = _load(path)
    answer = answer_to(vector)
    change(vector, answer)
    code, out = graded(path, {vector["id"]: answer})
    assert code == 1, out
    assert out.startswith("FAIL ")
    assert any(line.strip().startswith(f"{rule}  ") and line.endswith(signature) for line in out.splitlines()), out


def test_the_first_difference_is_shown(graded: Graded) -> None:
    path = only("decode", _media)
    vector = _load(path)
    answer = answer_to(vector)
    right = answer[0]["rows"][1][0]
    answer[0]["rows"][1][0] = 77
    _, out = graded(path, {vector["id"]: answer})
    assert f"first difference: h column 0 of request 0: expected {right}, got 77" in out


def test_free_columns_may_hold_anything_or_be_left_out(graded: Graded) -> None:
    path = only("padding", lambda vector: "free" in vector["expected"][0])
    vector = _load(path)
    ((start, stop),) = vector["expected"][0]["free"]
    answer = answer_to(vector)
    for row in (answer[0]["positions"], *answer[0]["rows"]):
        row[start:stop] = range(100, 100 + stop - start)
    assert graded(path, {vector["id"]: answer})[0] == 0
    for row in (answer[0]["positions"], *answer[0]["rows"]):
        del row[start + 1 :]
    assert graded(path, {vector["id"]: answer})[0] == 0
    for row in (answer[0]["positions"], *answer[0]["rows"]):
        del row[start - 1 :]
    assert graded(path, {vector["id"]: answer})[0] == 1


@pytest.mark.parametrize("folder", ["session", "retraction"])
def test_a_held_table_may_end_early_but_not_too_early(folder: str, graded: Graded) -> None:
    path = only(folder, lambda vector: vector["expected"][-1].get("optional_from", 0) > 0)
    vector = _load(path)
    stop = vector["expected"][-1]["optional_from"]
    for end, code in ((stop, 0), (stop - 1, 1)):
        answer = answer_to(vector)
        answer[-1]["rows"] = [row[:end] for row in answer[-1]["rows"]]
        assert graded(path, {vector["id"]: answer})[0] == code


def test_text_alone_needs_no_table(graded: Graded) -> None:
    path = only("retraction", lambda vector: vector["expected"][0].get("optional_from") == 0)
    vector = _load(path)
    answer = answer_to(vector)
    del answer[0]["rows"]
    assert graded(path, {vector["id"]: answer})[0] == 0


def test_missing_and_not_offered_are_no_pass(graded: Graded, some: Path) -> None:
    one, two, three = (_load(path) for path in sorted(some.rglob("decode/*.json")))
    answers: dict[str, object] = {one["id"]: answer_to(one), two["id"]: {"not_offered": "no such mode"}}
    code, out = graded(some / "decode", answers)
    assert code == 3
    assert f"missing      decode/{three['id']}" in out
    assert f"not offered  decode/{two['id']}" in out and ": no such mode" in out
    assert out.splitlines()[-1] == "1 pass, 0 fail, 1 not offered, 1 missing"
    answers[three["id"]] = {"not_offered": "no such mode"}
    code, out = graded(some / "decode", answers)
    assert code == 3 and "partly offered  decode: 1 of 3 vectors answered" in out
    answers[one["id"]] = {"not_offered": "no such mode"}
    assert graded(some / "decode", answers)[0] == 4
    assert graded(some / "decode", {})[0] == 4
    code, out = graded(some / "decode", {"ffff": [], one["id"]: answer_to(one)})
    assert out.splitlines()[-1].endswith(f"1 answers belong to no vector in {some / 'decode'}")


def test_what_an_engine_lacks_it_must_say(graded: Graded, some: Path) -> None:
    vectors = [_load(path) for path in sorted(some.rglob("*.json"))]
    declined: dict[str, object] = {vector["id"]: {"not_offered": "not yet"} for vector in vectors}
    (idle,) = (vector for vector in vectors if vector["input"].get("batch", {}).get("mode") == "idle")
    code, out = graded(some, declined | {idle["id"]: answer_to(idle)})
    assert code == 3, "one folder answered and all others declined is no success"
    assert "not offered     decode: 0 of 3 vectors answered" in out
    decoding = {path.stem for path in some.glob("decode/*")}
    decodes = {vector["id"]: answer_to(vector) for vector in vectors if vector["id"] in decoding}
    others = [name for folder in folders() if folder not in ("idle", "decode") for name in ("--without", folder)]
    assert graded(some, declined | decodes | {idle["id"]: answer_to(idle)}, *others)[0] == 0
    first = next(iter(decodes))
    code, out = graded(some, declined | decodes, *others, "--without", "idle", "--without", first)
    assert code == 3 and f"decode/{first}: answered, though --without names it" in out
    code, out = graded(some, declined, "--without", "decodes")
    assert code == 2 and "--without decodes: no folder and no vector; folders: beam_decode" in out


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ("{", "answers.json: not JSON: Input data was truncated"),
        ("[]", "answers.json: Expected `object`, got `array` - at `$`"),
        ('{"ID": [{"rows": []}]}', "answers.json: Object missing required field `label` - at `$[...][0]`"),
        ('{"ID": [{"label": "", "positons": []}]}', "unknown field `positons` - at `$[...][0]`"),
        ('{"ID": [{"label": "", "positions": [1.5]}]}', "Expected `int`, got `float` - at `$[...][0].positions[0]`"),
        ('{"ID": [{"label": "first"}]}', "answers.json: ID: unknown label 'first' - at `$[0].label`"),
        ('{"ID": [{"label": ""}, {"label": ""}]}', "answers.json: ID: label '' twice - at `$[1].label`"),
        ('{"ID": [{"label": "", "positions": [36893488147419103232]}]}', "answers.json"),
    ],
)
def test_bad_answers_are_one_line(answers: str, says: str, graded: Graded) -> None:
    path = only("decode", _media)
    name = path.stem
    code, out = graded(path, answers.replace("ID", name))
    assert code == 2
    assert says.replace("ID", name) in out and len(out.splitlines()) == 1


def test_an_unsound_vector_grades_nobody(graded: Graded, some: Path) -> None:
    path = sorted(some.rglob("decode/*.json"))[0]
    vector = _load(path)
    vector["expected"][0]["positions"][0] = 99
    path.write_text(json.dumps(vector))
    code, out = graded(some, {})
    assert code == 2 and f"{path}: expected[0].positions[0]: 99" in out
    path.write_text("{")
    code, out = graded(some, {})
    assert code == 2 and f"{path}: not JSON" in out


def test_no_such_files(graded: Graded, tmp_path: Path) -> None:
    code, out = graded(tmp_path / "nowhere", {})
    assert code == 2 and "no such file or folder" in out


def test_the_manuals_answers_are_answers(graded: Graded) -> None:
    shown = re.findall(r"```json\n(\{.*?\})\n```", (COMMITTED / "README.md").read_text(), re.DOTALL)[0]
    code, out = graded(COMMITTED, shown, "--quiet")
    assert code == 3
    assert out.splitlines()[-1].startswith("2 pass, 0 fail, 1 not offered, ") and "belong to no" not in out
