"""An engine written from vectors/README.md alone: it imports nothing of this project and answers every vector but
those of prompt tables, which need the families' own rules. So the inputs hold all that an engine needs."""

from __future__ import annotations

import json
from typing import Any

from ropecheck.conformance.vectors import store
from tests.vectors.conftest import COMMITTED, Graded

Json = dict[str, Any]
Rows = list[list[int]]


def _free(table: Rows) -> int:
    return max((max(row, default=-1) for row in table), default=-1) + 1


def _after(table: Rows, own: Rows) -> Rows:
    start = _free(table)
    return [row + [start + value for value in more] for row, more in zip(table, own, strict=True)]


def _text(tokens: int) -> Rows:
    return [list(range(tokens)) for _ in range(3)]


def _column(request: Json, index: int) -> list[int]:
    """An engine that holds the first `tabulated` columns only."""
    if index < request["tabulated"]:
        return [row[index] for row in request["table"]]
    return [index + request["delta"]] * len(request["table"])


def _indices(mode: str, fields: Json, row: int, step: int) -> list[int]:
    """What the manual's table says of one row."""

    def of(name: str) -> Any:
        value = fields[name]
        return value[row] if isinstance(value, list) else value

    match mode:
        case "extend" | "split_prefill":
            return [of("prefix_len") + i for i in range(of("extend_len"))]
        case "decode":
            return [of("seq_len") - 1]
        case "beam_members":
            return [of("seq_len") - 1] * of("members")
        case "draft_decode":
            return [of("seq_len") + step] * of("topk")
        case "frozen_kv_draft":
            return [of("seq_len") - 1] * of("topk")
        case "draft_extend_v2":
            return [of("seq_len") + i for i in range(of("num_draft_tokens"))]
        case "widened_draft_extend":
            return [of("seq_len") + i for i in range(-of("num_front_tokens"), of("num_draft_tokens"))]
        case "dllm_extend":
            return [of("block_offset") + i for i in range(of("block_size"))]
        case "target_verify" | "ragged_verify":
            depths = [0]
            for parent in of("parents"):
                depths.append(depths[parent] + 1)
            return [of("seq_len") + depth for depth in depths]
        case _:
            raise LookupError(f"the manual has no rows of mode {mode}")


def _tables(requests: list[Json], batch: Json, step: int = 0, width: int = 0) -> Json:
    positions: list[int] = []
    rows: Rows = [[], [], []]
    for part in batch.get("parts", []):
        for row, req in enumerate(part["reqs"]):
            for index in _indices(part.get("mode", batch["mode"]), part["fields"], row, step):
                positions.append(index)
                for values, value in zip(rows, _column(requests[req], index), strict=True):
                    values.append(value)
    spare = [0] * (width - len(positions))
    if batch["mode"] == "dllm_extend":
        return {"positions": positions + spare}
    return {"positions": positions + spare, "rows": [values + spare for values in rows]}


def _forwards(batch: Json) -> int:
    """A draft's loop."""
    return batch["parts"][0]["fields"]["num_steps"] - 1 if batch["mode"] == "draft_decode" else 1


class Sessions:
    """Sessions as the manual tells them."""

    def __init__(self) -> None:
        self.open: dict[int, Json] = {}
        self.held: dict[int, Json] = {}
        self.answers: list[Json] = []

    def play(self, event: Json) -> None:
        match event["do"]:
            case "open":
                self.open[event["session"]] = {
                    "streaming": event.get("streaming", False),
                    "known": [],
                    "last": None,
                    "flight": False,
                }
            case "turn":
                self.turn(event)
            case "reply":
                self.held[event["request"]]["reply"] += event["tokens"]
            case "finish" | "abort":
                held = self.held[event["request"]]
                held["finished"] = event["do"] == "finish"
                session = self.open[held["session"]]
                session["flight"] = False
                if held["finished"]:
                    session["last"] = event["request"]

    def turn(self, event: Json) -> None:
        session, label = self.open[event["session"]], f"turn {event['request']}"
        replace, offset, drop = (event.get(name) for name in ("replace", "offset", "drop_previous_output"))
        parent = session["last"] if session["streaming"] else event.get("parent")
        if session["streaming"]:
            refused = session["flight"] or replace or offset or drop
        else:
            refused = parent is not None and (
                parent not in session["known"] or not (replace or self.held[parent]["finished"])
            )
        if refused:
            self.answers.append({"label": label, "refused": True})
            return
        table: Rows = [[], [], []]
        spans: list[list[int]] = []
        if parent is not None:
            up = self.held[parent]
            limit = up["limit"]
            reply = 0 if drop else up["reply"] if limit is None else min(up["reply"], limit)
            table, spans = _after(up["table"], _text(reply)), up["spans"]
        if offset:
            table = [row[:offset] for row in table]
            spans = [[start, min(stop, offset)] for start, stop in spans if start < offset]
        before = len(table[0])
        table = _after(table, event["table"])
        spans = spans + [[before + start, before + stop] for start, stop in self.own_spans(event)]
        if replace:
            gone = {number for number in session["known"] if parent is None}
            for number in session["known"]:
                if parent is not None and self.held[number]["parent"] in {parent, *gone}:
                    gone.add(number)
            session["known"] = [number for number in session["known"] if number not in gone]
        session["known"].append(event["request"])
        session["flight"] = True
        self.held[event["request"]] = {
            "session": event["session"],
            "parent": parent,
            "table": table,
            "spans": spans,
            "reply": 0,
            "limit": event.get("max_new_tokens"),
            "finished": False,
        }
        self.answers.append(
            {
                "label": label,
                "refused": False,
                "rows": table,
                "tokens": len(table[0]),
                "delta": _free(table) - len(table[0]),
                "media_spans": spans,
            }
        )

    def own_spans(self, event: Json) -> list[list[int]]:
        """Where the turn's media lie: between its stretches of text."""
        at, out = 0, []
        for run in event["runs"]:
            t, h, w = run.get("grid", (0, 0, 0))
            tokens = run.get("tokens", 0) + t * (h // 2) * (w // 2)
            if run["kind"] != "text":
                out.append([at, at + tokens])
            at += tokens
        return out


def _answer(vector: Json) -> list[Json]:
    value = vector["input"]
    match value["kind"]:
        case "forward":
            return [
                {
                    "label": f"step {step}" if step else "",
                    **_tables(value["requests"], value["batch"], step, value.get("tier", 0)),
                }
                for step in range(_forwards(value["batch"]))
            ]
        case "padding":
            load = value["load"]
            return [{"label": "padded", **_tables(load["requests"], load["batch"], width=load["padded_tokens"])}]
        case "session":
            sessions = Sessions()
            for event in value["events"]:
                sessions.play(event)
            return sessions.answers
        case "retraction":
            request = value["request"]
            return [
                {
                    "label": f"retraction {number}",
                    "rows": _after(request["table"], _text(one["outputs"])),
                    "tokens": len(request["table"][0]) + one["outputs"],
                }
                for number, one in enumerate(value["retractions"])
            ]
        case _:
            return []


def test_the_manual_is_enough_to_answer_every_vector(graded: Graded) -> None:
    vectors = [json.loads(path.read_text()) for path in store.paths(COMMITTED)]
    answers: dict[str, object] = {vector["id"]: _answer(vector) for vector in vectors}
    families = [vector["id"] for vector in vectors if vector["input"]["kind"] == "prompt_table"]
    answers.update({key: {"not_offered": "no builder of prompt tables"} for key in families})
    code, out = graded(COMMITTED, answers, "--without", "prompt_table")
    assert code == 0, out[-4000:]
    assert out.splitlines()[-1] == (
        f"{len(vectors) - len(families)} pass, 0 fail, {len(families)} not offered, 0 missing"
    )
