"""One live run: start servers, let clients play, ask everything afresh, judge, report as any other run does."""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ropecheck.adapters import protocol
from ropecheck.conformance.errors import GaveUp
from ropecheck.conformance.judge.outcome import Failure, Outcome, Unrun
from ropecheck.conformance.known import failures as known_list
from ropecheck.conformance.live import verdict
from ropecheck.conformance.live.client import PATIENCE, Client, Completion, Connection, ServerGone
from ropecheck.conformance.live.media import ClientPrompt
from ropecheck.conformance.live.scripts import Group, groups
from ropecheck.conformance.live.server import LiveServer, NotUp, Start, toy
from ropecheck.conformance.live.verdict import ServerVerdict
from ropecheck.conformance.run.events import Event, Header, Listener, PhaseStarted, RunEnded, RunStarted, ScenarioDone
from ropecheck.conformance.run.events import Summary as RunSummary
from ropecheck.conformance.run.tally import Tally
from ropecheck.conformance.scripts.script import Script
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.store.files import claimed, clear_failures, clear_reports
from ropecheck.conformance.targets.registry import Target
from ropecheck.conformance.trace.check import Checked
from ropecheck.conformance.trace.folder import streams
from ropecheck.conformance.trace.verdict import PREFIX

PATCH = {"qwen2_5_vl": 14, "qwen2_vl": 14, "qwen3_vl": 16, "glm4_1v": 14}
"""Pixels of a patch's side."""
DEATHS = 4
"""Servers of one configuration that may end by themselves before the rest of its scripts is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSettings:
    """What a live run needs to know."""

    target: Target
    device: str
    family: str
    names: tuple[str, ...]
    """Server configurations, of data/servers.toml."""
    fresh: str
    """The configuration that is asked afresh; "": each server itself, with a cache of its own for each prompt."""
    long: bool
    out: Path
    known_folder: Path
    start_seconds: float
    only: tuple[str, ...] = ()
    """Names of scripts; () for those of a short or long run."""
    eager: bool = False
    """Without graphs, so that every forward of a draft is seen."""
    via: str = "http"
    """As `Start.via` says."""
    say: Callable[[str], None] = field(default=lambda _: None)


def run(settings: LiveSettings, listeners: Iterable[Listener]) -> RunSummary:
    """Do it. Raises GaveUp when the target cannot be asked who it is or no toy can be made."""
    told = tuple(listeners)
    out = settings.out
    with claimed(out):
        clear_reports(out)
        clear_failures(out / "failures")
        hello = who(settings)
        entries = known_list.load(settings.known_folder)
        if (own := settings.known_folder / "live").is_dir():
            entries += known_list.load(own)
        header = Header(
            target=settings.target.name,
            hello=hello,
            device=settings.device,
            phases=("live",),
            out=out,
            known_folder=settings.known_folder,
            known=known_list.applying(entries, hello.target, hello.version, settings.device),
        )
        tally = Tally(header)
        tally.summary.totals.workers = 1

        def emit(event: Event) -> None:
            for listener in told:
                listener(event)

        emit(RunStarted(header))
        emit(PhaseStarted("live"))
        began = time.monotonic()
        shutil.rmtree(out / "servers", ignore_errors=True)
        try:
            model = toy(settings.target, settings.family, out / "toys")
            live = LiveRun(settings, model, frozenset(known.entry.cause for known in header.known))
            for script, outcome in live.everything():
                done = ScenarioDone("live", script, outcome, predicted=live.predicted)
                tally.add(done)
                emit(done)
            tally.summary.interrupted = live.interrupted
        except NotUp as error:
            tally.summary.gave_up = str(error)
        except KeyboardInterrupt:
            tally.summary.interrupted = True
        tally.summary.totals.seconds = time.monotonic() - began
        tally.summary.sort()
        emit(RunEnded(tally.summary))
    return tally.summary


class LiveRun:
    """The servers of one run."""

    def __init__(self, settings: LiveSettings, model: Path, bugs: frozenset[str]) -> None:
        self.settings, self.model, self.bugs = settings, model, bugs
        self.predicted: list[Failure] = []
        """What these bugs give, of what failed."""
        self.played: list[ServerVerdict] = []
        self._fresh: dict[tuple[ClientPrompt, int], Completion] = {}
        self._starts = 0
        self.interrupted = False

    def everything(self) -> list[tuple[Script, Outcome]]:
        """Every script's outcome."""
        trouble = ""
        try:
            for name in self.settings.names:
                self.play(name, groups(name, self.settings.family, self.settings.long, self.settings.only))
            trouble = self.ask_all() if self.settings.fresh else ""
        except KeyboardInterrupt:
            self.interrupted = True  # what was played is judged all the same
        found: list[tuple[Script, Outcome]] = []
        for played in self.played:
            paths = [path for parts in streams(played.folder).values() for path in parts]
            checked = verdict.judge_streams(paths) if paths else None
            outcomes = verdict.outcomes(played, paths, checked)
            failures = [one for _, outcome in outcomes for one in outcome.failures]
            self.predicted += verdict.predicted(paths, failures, self.bugs, played.server)
            found += outcomes
            for path in played.folder.glob("*.error.txt"):
                trouble = trouble or f"the recorder failed: {path.read_text('utf-8').strip()}"
            if checked is not None and not played.clients and found:  # nobody's script: with the first one's
                script, outcome = found[0]
                outcome = msgspec.structs.replace(outcome, failures=(*outcome.failures, *checked.failures))
                found[0] = (script, verdict.counted(outcome, checked.judge, played.server))
            self.settings.say(f"{played.name}: {_told(checked)}")
        if trouble and found:
            script, outcome = found[0]
            why = Unrun(stage="live", message=trouble)
            found[0] = (script, msgspec.structs.replace(outcome, unrun=(*outcome.unrun, why)))
        return found

    # ------------------------------------------------------------ servers

    def start(self, name: str, fresh: bool = False) -> LiveServer:
        """A server of that configuration, up; the one that is asked afresh runs without graphs. Raises NotUp."""
        settings = self.settings
        self._starts += 1
        arguments = dict(servers()[name].arguments)
        if settings.eager or (fresh and settings.device == "cuda"):
            arguments["disable_cuda_graph"] = True
        if draft := servers()[name].draft:
            arguments["speculative_draft_model_path"] = str(self.draft(draft))
            if draft != "standalone":
                arguments["speculative_draft_load_format"] = "dummy"
        server = LiveServer(
            Start(
                target=settings.target,
                device=settings.device,
                model=self.model,
                arguments=arguments,
                environment=servers()[name].environment,
                folder=settings.out / "servers",
                via=settings.via,
                name=f"{self._starts}-{name}",
            )
        )
        try:
            seconds = server.wait(settings.start_seconds)
        except BaseException:
            server.stop()
            raise
        settings.say(f"{name}: up after {seconds:.0f} s")
        return server

    def draft(self, name: str) -> Path:
        """A draft model's checkpoint; "standalone" drafts with the toy itself, which is nearly always taken."""
        return self.model if name == "standalone" else toy(self.settings.target, name, self.settings.out / "toys")

    def play(self, name: str, waiting: list[Group]) -> None:
        """Every group on servers of one configuration; a server that ends is replaced."""
        deaths = 0
        while waiting:
            played = ServerVerdict(server=name, name=name, folder=Path())
            self.played.append(played)
            try:
                server = self.start(name)
            except NotUp as error:
                for group in waiting:
                    played.leave_out(group.scripts, Unrun(stage="start", message=str(error)))
                return
            played.name, played.folder = server.start.name, server.streams
            try:
                waiting = self._serve(server, played, waiting)
            finally:
                server.stop()
            if played.died:
                self.settings.say(f"{played.name}: ended in {played.died_in}: {played.died}")
                deaths += 1
            if deaths >= DEATHS:
                for group in waiting:
                    why = f"{deaths} servers have ended by themselves"
                    played.leave_out(group.scripts, Unrun(stage="serve", message=why))
                return

    def _serve(self, server: LiveServer, played: ServerVerdict, waiting: list[Group]) -> list[Group]:
        """Play until the server is gone; returns what is left to play."""
        for at, group in enumerate(waiting):
            clients = [Client(script, server.link, PATCH[script.family]) for script in group.scripts]
            played.clients += clients
            threads = [threading.Thread(target=client.play, daemon=True) for client in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(2 * PATIENCE)
            if not self._dead(server, clients):
                continue
            played.died, played.died_in = server.last_words(), group.scripts[0].id
            rest = list(waiting[at + 1 :])
            if len(group.scripts) > 1:  # who did it comes out when each plays alone
                del played.clients[-len(clients) :]
                return [*(Group((script,)) for script in group.scripts), *rest]
            return rest
        if not self.settings.fresh:
            try:
                self.ask_afresh(server.link, played)
            except ServerGone as error:
                played.died, played.died_in = f"asked afresh: {error}; {server.last_words()}", played.first
        return []

    @staticmethod
    def _dead(server: LiveServer, clients: list[Client]) -> bool:
        """Whether the server is gone: its process has ended, or is about to."""
        if any(client.lost for client in clients):
            server.wait_for_end(10.0)
            return True
        return not server.alive

    # ------------------------------------------------------------ answers

    def ask_all(self) -> str:
        """Ask every history afresh on a server of its own; returns why that could not be, or ""."""
        try:
            server = self.start(self.settings.fresh, fresh=True)
        except NotUp as error:
            return f"the server that is asked afresh does not start: {error}"
        clients = list(self.played)
        self.played.append(ServerVerdict(name=server.start.name, server=self.settings.fresh, folder=server.streams))
        try:
            for played in clients:
                self.ask_afresh(server.link, played)
        except ServerGone as error:
            return f"asked afresh: {error}; {server.last_words()}"
        finally:
            server.stop()
        return ""

    def ask_afresh(self, link: Connection, played: ServerVerdict) -> None:
        """Send every request's whole history as a new request, one by one, with a cache of its own. Raises Gone."""
        for client in played.clients:
            for asked in client.asked.values():
                if asked.history is None or asked.answer.finished not in ("length", "stop"):
                    continue
                key = (asked.history, asked.action.max_new_tokens)
                if key not in self._fresh:
                    number, limit = len(self._fresh), asked.action.max_new_tokens
                    self._fresh[key] = link.generate(f"fresh.{number}.", asked.history, limit, extra_key=f"f{number}")
                asked.compared = True
                asked.wrong = verdict.compare(asked, self._fresh[key])


def who(settings: LiveSettings) -> protocol.Hello:
    """Which engine this is, asked of its own Python. Raises GaveUp."""
    command = [settings.target.argv[0], "-c", _WHO]
    env = os.environ | dict(settings.target.env)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    try:
        version, torch, python = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise GaveUp(f"target {settings.target.name}: {last}") from None
    hello = protocol.unheard("sglang")
    return msgspec.structs.replace(hello, version=version, torch=torch, python=python, device=settings.device)


_WHO = """
import json, platform
from importlib.metadata import version
print(json.dumps([version("sglang"), version("torch"), platform.python_version()]))
"""


def _told(checked: Checked | None) -> str:
    if checked is None:
        return "nothing was recorded"
    modes = ", ".join(f"{name.removeprefix(PREFIX)} {count}" for name, count in sorted(checked.judge.modes.items()))
    dropped = f", {checked.judge.dropped} events dropped" if checked.judge.dropped else ""
    return f"{checked.judge.forwards} forwards ({modes}){dropped}"
