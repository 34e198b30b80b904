"""A whole server of the engine: the command line that starts it, and the paths of the one that stands in for HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters.sglang import absent_packages, engine_server, serve

# ---------------------------------------------------------------- the command line


class Became(Exception):
    """In place of an exec: (program, arguments)."""


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str, release: str = "0.5.23", **environment: str) -> Any:
    """(the words that the process would become, its environment)."""

    def become(*command: Any) -> None:
        raise Became(*command)

    monkeypatch.setattr(os, "execv", become)
    monkeypatch.setattr(os, "environ", dict(environment))
    monkeypatch.setattr(serve, "version", lambda package: {"sglang": release}[package])
    monkeypatch.setattr(sys, "argv", ["serve", "--model", "toy", "--port", "7", *arguments])
    with pytest.raises(Became) as became:
        serve.main()
    program, words = became.value.args
    assert program == words[0] == sys.executable
    return words[1:], os.environ


def given(words: list[str]) -> dict[str, str | None]:
    """Option -> its value; None for a switch."""
    found: dict[str, str | None] = {}
    for word in words:
        if word.startswith("--"):
            found[name := word] = None
        else:
            found[name] = word
    return found


def test_a_command_line_leaves_out_what_is_off() -> None:
    words = serve.options({"dtype": "float32", "skip_it": True, "not_this": False, "nor_that": None, "seed": 0})
    assert words == ["--dtype", "float32", "--skip-it", "--seed", "0"]


def test_a_server_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    words, environment = started(monkeypatch, "--arguments", '{"dtype": "bfloat16", "schedule_policy": "fcfs"}')
    assert words[:2] == ["-m", "sglang.launch_server"]
    options = given(words[2:])
    assert options["--model-path"] == "toy" and (options["--host"], options["--port"]) == ("127.0.0.1", "7")
    assert options["--device"] == "cpu" and options["--dtype"] == "bfloat16"
    assert options["--schedule-policy"] == "fcfs" and options["--disable-cuda-graph"] is None
    assert environment["TRITON_INTERPRET"] == "1" and environment["HF_HUB_OFFLINE"] == "1"
    assert environment["ROPECHECK_EMPTY"].split(",") == list(absent_packages.EMPTY)
    assert absent_packages.VARIABLE not in environment


@pytest.mark.parametrize(
    ("release", "option"), [("0.5.19", "--cuda-graph-max-bs"), ("0.5.20", "--cuda-graph-max-bs-decode")]
)
def test_a_server_on_a_gpu(release: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words, environment = started(monkeypatch, "--device", "cuda", release=release)
    assert given(words[2:])[option] == "8" and given(words[2:])["--device"] == "cuda"
    assert environment["ROPECHECK_NATIVE"] == "1" and "TRITON_INTERPRET" not in environment
    assert absent_packages.VARIABLE not in environment


@pytest.mark.parametrize(("release", "there", "needed"), [("0.5.17", False, True), ("0.5.17", True, False)])
def test_a_sampler_that_asks_for_flashinfer_gets_a_stand_in(
    release: str, there: bool, needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if there or name != "flashinfer" else None)
    held = {absent_packages.VARIABLE: "decord"}
    _, environment = started(monkeypatch, "--device", "cuda", release=release, **held)
    assert environment[absent_packages.VARIABLE] == ("decord,flashinfer" if needed else "decord")
    assert environment.get("SGLANG_IS_FLASHINFER_AVAILABLE") == ("false" if needed else None)
    _, environment = started(monkeypatch, "--device", "cpu", release=release, **held)
    assert environment[absent_packages.VARIABLE] == "decord"
    assert not started(monkeypatch, "--device", "cuda", release="0.5.18")[1].get(absent_packages.VARIABLE)


def test_the_engine_itself_has_no_address_and_no_log_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    words, _ = started(monkeypatch, "--via", "engine")
    assert words[:3] == ["-m", engine_server.__name__, "7"]
    arguments = json.loads(words[3])
    assert arguments["model_path"] == "toy" and arguments["dtype"] == "float32"
    assert not {"host", "port", "log_level_http"} & set(arguments)


# ---------------------------------------------------------------- paths without an HTTP server of the engine's

REQUESTS = ("GenerateReqInput", "OpenSessionReqInput", "CloseSessionReqInput")
MORE = ("PauseGenerationReqInput", "ContinueGenerationReqInput")


class Manager:
    """A tokenizer manager that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    async def generate_request(self, request: Any, http: Any) -> Any:
        assert http is None
        if request[1].get("refused"):
            raise ValueError("too long")
        for number in (1, 2):
            yield {"answer": number, "to": request}

    def __getattr__(self, name: str) -> Any:
        if name == "abort_request":
            return lambda **body: self.asked.append((name, body))

        async def asked(*given: Any) -> str:
            self.asked.append((name, given))
            return "s1"

        return asked


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An engine whose request objects are (name, fields)."""
    io = ModuleType("sglang.srt.managers.io_struct")
    for name in (*REQUESTS, *MORE):
        setattr(io, name, lambda name=name, **fields: (name, fields))
    managers = ModuleType("sglang.srt.managers")
    vars(managers)["io_struct"] = io
    for module in (ModuleType("sglang"), ModuleType("sglang.srt"), managers, io):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(engine_server, "PATIENCE", 20.0)
    loop = asyncio.new_event_loop()
    yield SimpleNamespace(tokenizer_manager=Manager(), loop=loop)
    loop.call_soon_threadsafe(loop.stop)


def test_every_path_asks_the_engines_own_function(engine: Any) -> None:
    doors, asked = engine_server.Doors(engine), engine.tokenizer_manager.asked
    request = ("GenerateReqInput", {"text": "a"})
    assert doors.answer("/generate", {"text": "a"}) == {"answer": 2, "to": request}
    assert doors.answer("/open_session", {"capacity": 5}) == "s1"
    for path in ("close_session", "abort_request", "pause_generation", "continue_generation", "flush_cache"):
        assert doors.answer(f"/{path}", {"given": path}) is None
    assert asked == [
        ("open_session", (("OpenSessionReqInput", {"capacity": 5}), None)),
        ("close_session", (("CloseSessionReqInput", {"given": "close_session"}), None)),
        ("abort_request", {"given": "abort_request"}),
        ("pause_generation", (("PauseGenerationReqInput", {"given": "pause_generation"}),)),
        ("continue_generation", (("ContinueGenerationReqInput", {"given": "continue_generation"}),)),
        ("flush_cache", ()),
    ]


def sent(url: str, body: Any = None) -> tuple[int, Any]:
    """(status, decoded answer) of a request; a body is posted."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data), timeout=20) as answer:
            status, said = answer.status, answer.read()
            assert answer.headers["content-length"] == str(len(said))
    except urllib.error.HTTPError as error:
        status, said = error.code, error.read()
    return status, json.loads(said) if said else None


def test_a_client_sees_answers_refusals_and_unknown_paths(
    engine: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Through the process's own entry: the port it is told, and the engine's arguments by this release's names."""
    up = threading.Event()
    servers: list[Any] = []
    made: list[dict[str, Any]] = []

    class Server(engine_server.EngineServer):
        def __init__(self, address: tuple[str, int], handler: Any) -> None:
            assert address == ("127.0.0.1", 7)
            super().__init__((address[0], 0), handler)
            servers.append(self)
            up.set()

    package, arguments = sys.modules["sglang"], ModuleType("sglang.srt.server_args")

    def engine_of(**given: Any) -> Any:
        made.append(given)
        return engine

    vars(package)["Engine"] = engine_of
    vars(arguments)["ServerArgs"] = lambda model, cuda_graph_max_bs_decode: None
    monkeypatch.setitem(sys.modules, arguments.__name__, arguments)
    monkeypatch.setattr(engine_server, "EngineServer", Server)
    monkeypatch.setattr(sys, "argv", ["engine_server", "7", '{"model": "toy", "cuda_graph_max_bs": 8, "odd": 1}'])
    thread = threading.Thread(target=engine_server.main, daemon=True)
    thread.start()
    assert up.wait(20)
    server = servers[0]
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert made == [{"model": "toy", "cuda_graph_max_bs_decode": 8, "odd": 1}]
        assert server.daemon_threads and server.request_queue_size > 5
        assert sent(f"{url}/health") == (200, None)
        assert sent(f"{url}/open_session", {"capacity": 5}) == (200, "s1")
        assert sent(f"{url}/flush_cache", {}) == (200, None)
        assert sent(f"{url}/generate", {"refused": True}) == (400, {"error": "ValueError: too long"})
        assert sent(f"{url}/no_such_path", {}) == (404, None)
        assert sent(f"{url}/generate", {"text": "a"})[1]["answer"] == 2
    finally:
        server.shutdown()
        server.server_close()
    thread.join(20)
    assert capfd.readouterr() == ("", "")
