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


def _indices(batch: Json, row: int, step: int) -> list[int]:
    match batch["mode"]:
        case "extend" | "split_prefill" | "mixed":
            return [batch["prefix_lens"][row] + i for i in range(batch["extend_lens"][row])]
        case "decode":
            return [batch["seq_lens"][row] - 1]
        case "draft_decode":
            return [batch["seq_lens"][row] + step] * batch["topk"]
        case "draft_extend_v2":
            return [batch["seq_lens"][row] + i for i in range(batch["num_draft_tokens"])]
        case _:
            depths = [0]
            for parent in batch["parents"][row]:
                depths.append(depths[parent] + 1)
            return [batch["seq_lens"][row] + depth for depth in depths]


def _tables(requests: list[Json], batch: Json, step: int = 0, width: int = 0) -> Json:
    if batch["mode"] == "dllm_extend":
        return {"positions": [offset + i for offset in batch["block_offsets"] for i in range(batch["block_size"])]}
    positions: list[int] = []
    rows: Rows = [[], [], []]
    for number, request in enumerate(requests):
        for index in _indices(batch, number, step):
            positions.append(index)
            for row, value in zip(rows, _column(request, index), strict=True):
                row.append(value)
    spare = [0] * (max(width, batch.get("ragged_tokens", 0)) - len(positions))
    return {"positions": positions + spare, "rows": [row + spare for row in rows]}


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
            batch = value["batch"]
            steps = batch["num_steps"] - 1 if batch["mode"] == "draft_decode" else 1
            return [
                {"label": f"step {step}" if step else "", **_tables(value["requests"], batch, step)}
                for step in range(steps)
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
                    "delta": request["delta"],
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
    code, out = graded(COMMITTED, answers)
    assert code == 0, out[-4000:]
    assert out.splitlines()[-1] == (
        f"{len(vectors) - len(families)} pass, 0 fail, {len(families)} not offered, 0 missing"
    )
