"""One client of a server: a script's actions as HTTP requests, and what came back."""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from ropecheck.conformance.judge.outcome import Failure
from ropecheck.conformance.live.media import ClientPrompt, prompt_of
from ropecheck.conformance.scripts.script import (
    Action,
    Arrive,
    Close,
    Continue,
    Flush,
    GiveUp,
    OpenSession,
    Pause,
    Script,
    Step,
)
from ropecheck.spec.session import afresh, continued, reply_tokens, without_reply

MOMENT = 0.05
"""Seconds that a script's Step stands for: some forwards of a toy model."""
PATIENCE = 120.0
"""Seconds for one answer."""


class ServerGone(Exception):
    """The server does not answer."""


@dataclass(slots=True)
class Completion:
    """What a request was answered with."""

    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    finished: str = ""
    """"length", "stop", "abort", or "refused"."""
    message: str = ""


@dataclass(slots=True)
class SentRequest:
    """A request, the whole history that it stands for, and its answer."""

    name: str
    action: Arrive
    history: ClientPrompt | None
    """None: what it continues has no one history (cut at an offset, or its parent was given up)."""
    answer: Completion = field(default_factory=Completion)
    done: threading.Event = field(default_factory=threading.Event)
    compared: bool = False
    """It was asked afresh."""
    wrong: Failure | None = None
    """How its answer differs from the fresh one's."""


@dataclass(slots=True)
class Connection:
    """Where a server listens."""

    port: int
    logprobs: bool = True
    """Whether probabilities are asked for; releases that draft do not all give them."""

    def post(self, path: str, body: dict[str, Any], seconds: float = PATIENCE) -> tuple[int, Any]:
        """(status, decoded answer). Raises Gone."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        try:
            link.request("POST", path, json.dumps(body).encode(), {"content-type": "application/json"})
            reply = link.getresponse()
            data = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServerGone(f"{path}: {type(error).__name__}: {error}") from error
        finally:
            link.close()
        try:
            return reply.status, json.loads(data) if data else None
        except ValueError:
            return reply.status, data.decode("utf-8", "replace")

    def generate(self, name: str, prompt: ClientPrompt, limit: int, **more: Any) -> Completion:
        """Ask at temperature 0. Raises Gone."""
        body: dict[str, Any] = {
            "rid": name,
            "input_ids": list(prompt.ids),
            "sampling_params": {"max_new_tokens": limit, "temperature": 0.0},
            **({"return_logprob": True, "top_logprobs_num": 2} if self.logprobs else {}),
            **more,
        }
        if prompt.pictures:
            body["image_data"] = list(prompt.pictures)
        status, reply = self.post("/generate", body)
        if status != 200 or not isinstance(reply, dict):
            return Completion(finished="refused", message=str(reply)[:300])
        about = reply["meta_info"]
        reason = about.get("finish_reason") or {}
        best = about.get("output_top_logprobs") or []
        return Completion(
            tokens=tuple(reply.get("output_ids") or ()),
            logprobs=tuple(one[0] for one in about.get("output_token_logprobs") or ()),
            margins=tuple(two[0][0] - two[1][0] for two in best if two and len(two) > 1),
            finished=str(reason.get("type", "")),
            message=str(reason.get("message") or ""),
        )


class Client:
    """Plays one script. Requests run side by side; a turn waits for the one that it continues."""

    def __init__(self, script: Script, link: Connection, patch: int) -> None:
        self.script, self._link, self._patch = script, link, patch
        self.asked: dict[int, SentRequest] = {}
        self._last: dict[int, int] = {}
        """Session -> its last turn."""
        self._threads: list[threading.Thread] = []
        self.lost: str = ""
        """Why the server was found gone."""

    def name(self, req: int) -> str:
        """A request's name on the server: the engine aborts by a name's beginning, so it ends with a dot."""
        return f"{self.script.id}.r{req}."

    def play(self) -> None:
        """All of it; returns when every request has been answered."""
        try:
            for action in self.script.actions:
                self._do(action)
        except ServerGone as error:
            self.lost = str(error)
        for thread in self._threads:
            thread.join(PATIENCE)

    def _do(self, action: Action) -> None:
        match action:
            case Arrive():
                self._arrive(action)
            case Step(times=times):
                time.sleep(MOMENT * times)
            case GiveUp(req=req):
                name = "" if req is None else self.name(req)
                self._link.post("/abort_request", {"rid": name, "abort_all": req is None})
            case OpenSession(session=session, streaming=streaming):
                body = {"capacity_of_str_len": 1 << 20, "session_id": self._session(session), "streaming": streaming}
                self._link.post("/open_session", body)
            case Close(session=session):
                self._link.post("/close_session", {"session_id": self._session(session)})
            case Pause(mode=mode):
                self._link.post("/pause_generation", {"mode": mode})
            case Continue():
                self._link.post("/continue_generation", {})
            case Flush():
                self._link.post("/flush_cache", {})

    def _session(self, session: int) -> str:
        return f"{self.script.id}.s{session}"

    def _arrive(self, action: Arrive) -> None:
        new = prompt_of(action.prompt, action.content, self._patch)
        more: dict[str, Any] = dict(action.more)
        history: ClientPrompt | None = new
        if action.session is not None:
            parent = action.parent if action.parent is not None else self._last.get(action.session)
            before = self.asked.get(parent) if parent is not None else None
            if before is not None:
                before.done.wait(PATIENCE)
            history = whole(before, action, new)
            self._last[action.session] = action.req
            params: dict[str, Any] = {"id": self._session(action.session)}
            if action.parent is not None:
                params["rid"] = self.name(action.parent)
            for field_ in ("offset", "replace", "drop_previous_output"):
                if (value := getattr(action, field_)) is not None and value is not False:
                    params[field_] = value
            more["session_params"] = params
        asked = self.asked[action.req] = SentRequest(self.name(action.req), action, history)

        def ask() -> None:
            try:
                asked.answer = self._link.generate(asked.name, new, action.max_new_tokens, **more)
            except ServerGone as error:
                self.lost = self.lost or str(error)
            finally:
                asked.done.set()

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        self._threads.append(thread)


def whole(before: SentRequest | None, action: Arrive, new: ClientPrompt) -> ClientPrompt | None:
    """The history of a turn; None where it has none that a client could send."""
    if before is None or (action.replace and action.parent is None):
        return ClientPrompt(afresh(new.ids), new.pictures)
    if action.offset is not None or before.history is None or before.answer.finished not in ("length", "stop"):
        return None
    said = before.answer.tokens
    reply = said[: reply_tokens(len(said), before.action.max_new_tokens)]
    ids = (
        without_reply(before.history.ids, new.ids)
        if action.drop_previous_output
        else continued(before.history.ids, reply, new.ids)
    )
    return ClientPrompt(ids, before.history.pictures + new.pictures)
