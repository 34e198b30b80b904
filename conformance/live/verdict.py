"""From a server's streams and its clients' answers to outcomes, one per script."""

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ropecheck.adapters import events
from ropecheck.conformance.judge.ask import ask
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun, failure_of
from ropecheck.conformance.judge.tally import ScenarioTally
from ropecheck.conformance.known.endings import SILENT
from ropecheck.conformance.known.stream import expected, named
from ropecheck.conformance.live.client import Client, Completion, SentRequest
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.trace.check import Checked, check_files
from ropecheck.conformance.trace.judge import Judge
from ropecheck.conformance.trace.verdict import PREFIX, each, ordered
from ropecheck.spec.live import Replayed
from ropecheck.spec.modes import mode_of
from ropecheck.spec.rules import all_rules

TOLERANCE = 0.01
"""Of log-probabilities: float32 networks of two layers differ by less than 1e-4 from batch to batch; a token at a
wrong position changes them by tenths."""
MODE = "live"


@dataclass(slots=True)
class ServerVerdict:
    """What one server came to."""

    name: str
    server: str
    """Its configuration."""
    folder: Path
    """Of its streams."""
    clients: list[Client] = field(default_factory=list)
    died: str = ""
    """Its last words, if it ended by itself."""
    died_in: str = ""
    """Id of the script that was played then."""
    left_out: list[tuple[Script, Unrun]] = field(default_factory=list)

    @property
    def first(self) -> str:
        """Id of the first script."""
        return self.clients[0].script.id if self.clients else ""

    def leave_out(self, scripts: Iterable[Script], why: Unrun) -> None:
        """These could not be played."""
        self.left_out += [(script, why) for script in scripts]


def owner(failure: Failure) -> str:
    """Id of the script whose request a failure speaks of; "" for none."""
    match = re.match(r"request ([0-9a-f]{12})\.r\d+\.", failure.message)
    return match[1] if match else ""


def judge_streams(paths: Sequence[Path]) -> Checked:
    """Every failure; what the stepped scheduler shows is known under the same names."""
    return check_files(paths, PREFIX, kind=each)


def predicted(paths: Sequence[Path], failures: Sequence[Failure], bugs: Collection[str], server: str) -> list[Failure]:
    """Those of a server's failures that these bugs give; an answer is wrong behind tables that they make wrong."""
    if not failures:
        return []
    found = expected(_events(paths), failures, bugs, servers()[server].arguments)
    causes = {named(one): one.causes for one in found}
    return [
        *found,
        *(
            msgspec.structs.replace(one, causes=causes[named(one)])
            for one in failures
            if one.follows and one.rule.startswith("live.") and named(one) in causes
        ),
    ]


def compare(asked: SentRequest, fresh: Completion) -> Failure | None:
    """An answer beside that to the same history asked afresh."""
    got = asked.answer
    view = Replayed(
        got=got.tokens,
        right=fresh.tokens,
        got_logprobs=got.logprobs,
        right_logprobs=fresh.logprobs,
        margins=fresh.margins,
        tolerance=TOLERANCE,
    )
    broken = ask(ScenarioTally(), MODE, view)
    if not broken:
        return None
    rule, wrong = broken[0]
    return failure_of(rule.id, MODE, wrong, message=f"request {asked.name}: {wrong.message}")


def _events(paths: Iterable[Path]) -> Iterator[events.Event]:
    """Those of whole lines; the last may be torn."""
    decode = msgspec.json.Decoder(events.Event).decode
    for path in paths:
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                yield decode(line)


def situations(paths: Iterable[Path], compared: Iterable[SentRequest], server: str) -> dict[str, int]:
    """What had happened to the requests whose answers were compared."""
    had: dict[str, set[str]] = {}
    windows: dict[str, int] = {}
    for event in _events(paths):
        match event:
            case events.Retracted(req=req):
                had.setdefault(req, set()).add("retracted")
            case events.Forward(draft=False) if mode_of(event.mode).prefills:
                for req, start in zip(event.reqs, event.prefix_lens, strict=False):
                    if windows.get(req) and start:
                        had.setdefault(req, set()).add("chunked")
                    elif start:
                        had.setdefault(req, set()).add("prefix hit")
                    windows[req] = windows.get(req, 0) + 1
            case events.Forward() if mode_of(event.mode).verifies:
                for req in event.reqs:
                    had.setdefault(req, set()).add("speculation")
            case _:
                pass
    found: dict[str, int] = {}
    for asked in compared:
        marks = had.get(asked.name, set()) | ({"turn"} if asked.action.session is not None else set())
        for mark in marks or {"undisturbed"}:
            key = f"answer x {mark} ({server})"
            found[key] = found.get(key, 0) + 1
    return found


def outcomes(played: ServerVerdict, paths: Sequence[Path], checked: Checked | None) -> list[tuple[Script, Outcome]]:
    """One per script; what was counted over the whole server stands with the first."""
    failures = checked.failures if checked is not None else []
    stray = played.died_in or played.first
    found: list[tuple[Script, Outcome]] = []
    for client in played.clients:
        script = client.script
        mine = [one for one in failures if (owner(one) or stray) == script.id]
        mine += _answers(client, mine)
        if played.died and script.id == stray and not any(one.rule == "schedule.survives" for one in mine):
            mine.append(_ended(played.died))
        compared = [asked for asked in client.asked.values() if asked.compared]
        outcome = Outcome(
            scenario=script.id,
            name=f"{played.name}: {script.name}",
            checked={"live.same_answer": len(compared)} if compared else {},
            failures=tuple(ordered(mine)),
            situations=situations(paths, compared, played.server),
        )
        if not found and checked is not None:
            outcome = counted(outcome, checked.judge, played.server)
        found.append((script, outcome))
    found += [(one, Outcome(scenario=one.id, name=one.name, unrun=(why,))) for one, why in played.left_out]
    return found


def counted(outcome: Outcome, judge: Judge, server: str) -> Outcome:
    """The outcome, and what was counted over a server's whole stream."""
    return msgspec.structs.replace(
        outcome,
        checked=dict(Counter(outcome.checked) + Counter(judge.checked)),
        modes=dict(Counter(outcome.modes) + Counter(judge.modes)),
        forwards=outcome.forwards + judge.forwards,
        situations=outcome.situations | {f"{name} ({server}, live)": n for name, n in judge.situations.items()},
    )


def _answers(client: Client, tables: Sequence[Failure]) -> list[Failure]:
    """What is wrong with a client's answers. Where the request's tables were wrong it is their consequence."""
    cause = {named(one): one.rule for one in reversed(tables)}
    wrong = [asked.wrong for asked in client.asked.values() if asked.wrong is not None]
    return [msgspec.structs.replace(one, follows=cause.get(named(one), "")) for one in wrong]


def _ended(words: str) -> Failure:
    """A server that ended without an exception that its recorder saw."""
    rule = all_rules()["schedule.survives"].id
    return Failure(rule=rule, mode="scheduler", signature=SILENT, step=0, label="", message=words)
