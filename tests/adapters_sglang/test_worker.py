"""The worker process in small: what it becomes, what it forks, what it says, and jobs over plain streams. The engine
and the forks are fakes; other tests run real ones."""

from __future__ import annotations

import io
import os
import socket
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import forking, protocol
from ropecheck.adapters.sglang import (
    absent_packages,
    boot,
    bytecode,
    capabilities,
    coverage,
    faults,
    jobs,
    kernels,
    mends,
    more_modes,
    outside,
    plant,
    worker,
)
from ropecheck.adapters.sglang.scheduler import hosts
from ropecheck.adapters.sglang_routes import models

pytestmark = pytest.mark.engine

# ---------------------------------------------------------------- what a process becomes


@pytest.mark.parametrize(
    ("arguments", "device", "done"),
    [
        (["--in-fd", "5", "--out-fd", "6"], "cpu", "talks"),
        (["--in-fd", "5", "--out-fd", "6", "--device", "cuda"], "cuda", "talks"),
        (["--fork-fd", "7"], "cpu", "forks engines"),
        (["--engine-fd", "7", "--device", "cuda"], "cuda", "forks workers"),
    ],
)
def test_what_a_process_becomes(arguments: list[str], device: str, done: str, monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    monkeypatch.setattr(boot, "prepare_environment", lambda device: did.append(("prepared", device)))
    monkeypatch.setattr(boot, "release_standard_input", lambda: did.append("no input"))
    monkeypatch.setattr(socket, "socket", lambda fileno: f"socket {fileno}")
    monkeypatch.setattr(worker, "fork_engines", lambda requests: did.append(("forks engines", requests)))
    monkeypatch.setattr(
        worker, "fork_workers", lambda requests, device: did.append(("forks workers", requests, device))
    )
    monkeypatch.setattr(worker, "loaded", lambda device, again, *descriptors: (device, again, descriptors))
    monkeypatch.setattr(worker, "talk", lambda *given: did.append(("talks", *given)))
    assert worker.main(arguments) == 0
    again = ["--in-fd", "5", "--out-fd", "6", "--device", device]
    assert did[:2] == [("prepared", device), "no input"]
    assert (
        did[2:]
        == {
            "talks": [("talks", 5, 6, (device, again, (5, 6)))],
            "forks engines": [("forks engines", "socket 7")],
            "forks workers": [("forks workers", "socket 7", device)],
        }[done]
    )


# ---------------------------------------------------------------- what it forks


def test_of_versions_that_are_edited_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request goes to the process of its version; what a server forks for a version is the version's own life."""
    lives: list[tuple[Any, Any]] = []
    closed: list[int] = []
    served: list[Any] = []

    def start(life: Callable[[Any], None], keep: Any) -> tuple[int, Any]:
        number = len(lives)
        lives.append((life, keep))
        return number, SimpleNamespace(number=number, close=lambda: closed.append(number))

    monkeypatch.setattr(boot, "warm", lambda: served.append("warm"))
    monkeypatch.setattr(forking, "start", start)
    monkeypatch.setattr(forking, "serve", lambda *given: served.append(given))
    worker.fork_engines("requests")  # type: ignore[arg-type]
    assert served[0] == "warm"
    requests, child, route = served[1]
    assert requests == "requests"
    asked = [route(note, [1, 2, 8]).number for note in (b"a", b"b", b"a", b"c", b"b", b"a")]
    assert asked == [0, 1, 0, 2, 1, 3] and closed == [0, 1]
    life, keep = lives[1]
    assert (life.func, life.args, keep) == (worker.fork_version, (b"b", 8), (8,))
    with pytest.raises(AssertionError):
        child(b"a", [1, 2, 8])


@pytest.mark.parametrize(
    ("note", "path", "after"), [(b"/edited\nkey", "/before", "/edited:/before"), (b"/edited", None, "/edited")]
)
def test_a_version_is_imported_from_its_folder(
    note: bytes, path: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[Any] = []
    monkeypatch.setattr(sys, "path", ["/first"])
    monkeypatch.setattr(os, "environ", {} if path is None else {"PYTHONPATH": path})
    monkeypatch.setattr(forking, "printing", lambda output: did.append(("prints", output)))
    monkeypatch.setattr(bytecode, "keep", lambda folder: did.append(("keeps", folder)))
    monkeypatch.setattr(worker, "fork_workers", lambda *given: did.append(given))
    worker.fork_version(note, 8, "requests")  # type: ignore[arg-type]
    assert did == [("prints", 8), ("keeps", "/edited"), ("requests", "cpu")]
    assert sys.path == ["/edited", "/first"] and os.environ == {"PYTHONPATH": after}
    did.clear()
    worker.fork_version(b"\nkey", 8, "requests")  # type: ignore[arg-type]
    assert did == [("prints", 8), ("requests", "cpu")] and sys.path == ["/edited", "/first"]


def test_a_worker_has_a_group_and_an_output_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    monkeypatch.setattr(worker, "loaded", lambda *given: did.append(given) or "serving")  # type: ignore[func-returns-value]
    monkeypatch.setattr(hosts, "descriptors", lambda: (3, 4))
    monkeypatch.setattr(forking, "serve", lambda requests, child, keep: did.append((requests.fileno(), child, keep)))
    monkeypatch.setattr(os, "setsid", lambda: did.append("a group"))
    monkeypatch.setattr(forking, "printing", lambda output: did.append(("prints", output)))
    monkeypatch.setattr(worker, "talk", lambda *given: did.append(given))
    requests: Any = SimpleNamespace(fileno=lambda: 9)
    worker.fork_workers(requests, "cuda")
    (load, (asked, child, keep)) = did
    assert load == ("cuda", ["--engine-fd", "9", "--device", "cuda"], 9) and (asked, keep) == (9, (3, 4))
    did.clear()
    child(b"note", [5, 6, 7])
    assert did == ["a group", ("prints", 7), (5, 6, "serving")]


# ---------------------------------------------------------------- what it loads


def loading(monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> list[Any]:
    """What a load asks for, in its order."""
    did: list[Any] = []

    def engine() -> str:
        if error is not None:
            raise error
        return "the engine"

    def load(device: str, imported: Any) -> None:
        did.append(("loads", device, imported.func is hosts.fork, imported.args))

    monkeypatch.setattr(boot, "load", load)
    monkeypatch.setattr(boot, "settle", lambda: did.append("settles"))
    monkeypatch.setattr(capabilities, "Engine", engine)
    for module in (kernels, more_modes, outside):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, "install", lambda *given, name=name: did.append((name, *given)))
    monkeypatch.setattr(faults, "install", lambda engine: ("a fault",))
    monkeypatch.setattr(mends, "install", lambda: ("a mend",))
    monkeypatch.setattr(coverage, "Coverage", lambda: "lines")
    monkeypatch.setattr(worker, "hello", lambda engine, device, faked: faked)
    return did


@pytest.mark.parametrize("cover", ["", "1"])
def test_a_loaded_engine_is_steered_and_said_so(cover: str, monkeypatch: pytest.MonkeyPatch) -> None:
    did = loading(monkeypatch)
    monkeypatch.setenv(coverage.VARIABLE, cover)
    serving: Any = worker.loaded("cpu", [])
    assert did == [("loads", "cpu", True, ("cpu",)), ("kernels", "cpu"), ("more_modes",), ("outside",), "settles"]
    assert (serving.engine, serving.device, serving.cover) == ("the engine", "cpu", "lines" if cover else None)
    assert serving.hello == (*jobs.FAKED, "a fault", "a mend")


def test_a_package_that_may_be_stood_in_for_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(absent_packages.VARIABLE, "decord")
    loading(monkeypatch, ImportError("x", name="vllm.part"))
    handed: list[Any] = []
    became: list[Any] = []

    class Became(Exception):
        pass

    def become(*given: Any) -> None:
        became.extend(given)
        raise Became

    monkeypatch.setattr(os, "set_inheritable", lambda *given: handed.append(given))
    monkeypatch.setattr(os, "execv", become)
    with pytest.raises(Became):
        worker.loaded("cpu", ["--in-fd", "5"], 5, 6)
    assert handed == [(5, True), (6, True)] and os.environ[absent_packages.VARIABLE] == "decord,vllm"
    assert became == [sys.executable, [sys.executable, "-m", worker.__name__, "--in-fd", "5"]]
    loading(monkeypatch, ImportError("y", name="json"))
    with pytest.raises(ImportError, match="y"):
        worker.loaded("cpu", [], 5)


# ---------------------------------------------------------------- jobs over streams

HELLO = protocol.Hello(
    protocol=protocol.PROTOCOL,
    target="sglang",
    version="0",
    device="cpu",
    torch="2",
    python="3",
    pid=0,
    modes={},
    covered={},
    uncovered={},
    capabilities={},
)


def served(requests: bytes, cover: Any = None, outgoing: Any = None) -> list[Any]:
    """What a worker answers to these bytes."""
    answers = outgoing or io.BytesIO()
    worker.serve(io.BytesIO(requests), answers, worker.Serving("the engine", "cpu", cover, HELLO))
    answers.seek(0)
    decoder, found = msgspec.msgpack.Decoder(protocol.Response), []
    while (body := protocol.receive(answers)) is not None:
        found.append(decoder.decode(body))
    return found


def frames(*messages: Any) -> bytes:
    stream = io.BytesIO()
    for one in messages:
        protocol.send(stream, one)
    return stream.getvalue()


@pytest.fixture
def echo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are answered with their id, and what they were given."""

    def answer(engine: Any, job: protocol.Job, device: str) -> protocol.JobAnswer:
        assert (engine, device) == ("the engine", "cpu")
        return protocol.JobAnswer(job.id, (), 0, 0)

    monkeypatch.setattr(jobs, "answer", answer)


def test_a_worker_says_hello_answers_and_ends_when_it_is_told(echo: None) -> None:
    job = protocol.Job("one", ())
    hello, answer = served(frames(job, protocol.Shutdown(), job))
    assert hello == msgspec.structs.replace(HELLO, pid=os.getpid()) and answer == protocol.JobAnswer("one", (), 0, 0)
    assert len(served(frames(job, job))) == 3
    assert len(served(frames(job) + frames(job)[:-1])) == 2, "a parent that died inside a frame"


def test_a_worker_tells_the_lines_of_each_job(echo: None) -> None:
    started: list[str] = []
    cover = SimpleNamespace(start=lambda: started.append("start"), stop=lambda: {"rows.py": (len(started),)})
    _, one, two = served(frames(protocol.Job("one", ()), protocol.Job("two", ())), cover)
    assert (one.covered, two.covered) == ({"rows.py": (1,)}, {"rows.py": (2,)})


def test_a_worker_ends_when_nobody_reads(echo: None) -> None:
    class Closed(io.BytesIO):
        def write(self, data: Any) -> int:
            if self.tell():
                raise BrokenPipeError
            return super().write(data)

    assert len(served(frames(protocol.Job("one", ())), outgoing=Closed())) == 1


def test_a_worker_talks_over_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []
    monkeypatch.setattr(boot, "publish_process_groups", lambda: did.append("groups"))

    def serve(incoming: Any, outgoing: Any, serving: Any) -> None:
        outgoing.write(incoming.read() + serving)

    monkeypatch.setattr(worker, "serve", serve)
    (asked, ask), (answered, answer) = os.pipe(), os.pipe()
    os.write(ask, b"asked")
    os.close(ask)
    worker.talk(asked, answer, b" answered")  # type: ignore[arg-type]
    assert os.read(answered, 99) == b"asked answered" and did == ["groups"]
    os.close(answered)


# ---------------------------------------------------------------- planted edits


def test_edits_are_counted_made_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[Any] = []

    def make(*given: Any) -> str:
        did.append(given)
        if given[-1] > 5:
            raise LookupError("there are 5 places")
        return "line 3"

    monkeypatch.setattr(models.engine_processor, "cache_clear", lambda: did.append("forgets"))
    monkeypatch.setattr(plant, "count", lambda *given: {"sign": len(given)})
    monkeypatch.setattr(plant, "restore", lambda: did.append("restores"))
    monkeypatch.setattr(plant, "plant", make)
    request = protocol.Plant(module="m", function="f", edit="sign", nth=4)
    counted, made, failed, restored = served(
        frames(
            msgspec.structs.replace(request, count=True),
            request,
            msgspec.structs.replace(request, nth=9),
            protocol.Plant(),
        )
    )[1:]
    assert counted == protocol.Planted(counts={"sign": 2}) and made == protocol.Planted("line 3")
    assert failed == protocol.Planted(problem="LookupError: there are 5 places") and restored == protocol.Planted()
    edit = ("m", "f", "sign")
    assert did == ["forgets", "forgets", (*edit, 4), "forgets", (*edit, 9), "restores", "forgets", "restores"]


# ---------------------------------------------------------------- who is here


@pytest.mark.parametrize(("device", "name"), [("cpu", "cpu"), ("cuda", "H200")])
def test_who_is_here_and_what_it_can_do(device: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = ModuleType("sglang")
    monkeypatch.setitem(sys.modules, "sglang", package)
    monkeypatch.setattr(worker, "version_of", lambda found: "0.5.23" if found is package else "another")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: ["H200"][number])
    monkeypatch.setattr(jobs, "watch", lambda: SimpleNamespace(places={"route": "place"}))
    modes = {"EXTEND": 1, "PREBUILT": 2, "NEW": 3}
    engine = SimpleNamespace(modes=modes, found={"Req": "there"}, lost=("Session",))
    said = worker.hello(engine, device, ("all of it",))
    assert (said.protocol, said.target, said.version) == (protocol.PROTOCOL, "sglang", "0.5.23")
    assert (said.device, said.torch, said.pid) == (name, str(torch.__version__), os.getpid())
    assert (said.modes, said.covered) == (modes, {"EXTEND": "extend"}) and set(said.uncovered) == {"PREBUILT"}
    assert (said.capabilities, said.lost) == ({"Req": "there"}, ("Session",))
    assert (said.faked, said.routes) == (("all of it",), {"route": "place"})
    assert said.not_driven == capabilities.NOT_DRIVEN and sys.version.startswith(said.python)


@pytest.mark.parametrize(
    ("files", "installed", "version"),
    [
        ({"_version.py": "from x import y"}, "elsewhere", "0.5.23"),
        ({"version.py": '__version__ = "0.5.6"'}, "elsewhere", "0.5.23"),
        ({"version.py": "import importlib"}, "elsewhere", "unknown"),
        ({}, "elsewhere", "unknown"),
        ({}, "here", "0.5.23"),
        ({}, None, "0.5.23"),
    ],
)
def test_a_source_tree_answers_with_its_own_version_or_none(
    files: dict[str, str], installed: str | None, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here" / "sglang"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)

    def distribution(name: str) -> Any:
        assert name == "sglang"
        if installed is None:
            raise metadata.PackageNotFoundError(name)
        return SimpleNamespace(locate_file=lambda part: tmp_path / installed / part)

    monkeypatch.setattr(metadata, "distribution", distribution)
    package = SimpleNamespace(__file__=str(folder / "__init__.py"), __version__="0.5.23")
    assert worker.version_of(package) == version
