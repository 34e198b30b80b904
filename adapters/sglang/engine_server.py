"""`sglang.Engine` behind the paths of the engine's own HTTP server that clients' scripts use: for hosts that lack what
the HTTP server imports, and for those who use the engine in their own process.

| spec field | adapter field | engine field |
| --- | --- | --- |
| a client's request | POST /generate | `GenerateReqInput`, through `TokenizerManager.generate_request` |
| session operations, abort, pause | POST of the same names | the request objects of `io_struct` |

Faked: the HTTP server alone. Started by `serve`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ropecheck.adapters.sglang.serve import RENAMED

PATIENCE = 600.0


class Doors:
    """The engine's functions by path. Each takes the decoded body and gives what is sent back."""

    def __init__(self, engine: Any) -> None:
        from sglang.srt.managers import io_struct

        self._manager, self._io = engine.tokenizer_manager, io_struct
        self._loop = engine.loop
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        """Raises ValueError for what the engine refuses, KeyError for an unknown path."""
        doors = {
            "/generate": self.generate,
            "/open_session": self.open_session,
            "/close_session": self.close_session,
            "/abort_request": self.abort,
            "/pause_generation": self.pause,
            "/continue_generation": self.go_on,
            "/flush_cache": self.flush,
        }
        return asyncio.run_coroutine_threadsafe(doors[path](body), self._loop).result(PATIENCE)

    async def generate(self, body: dict[str, Any]) -> Any:
        """The last answer of a request that does not stream."""
        asked = self._manager.generate_request(self._io.GenerateReqInput(**body), None)
        return [answer async for answer in asked][-1]

    async def open_session(self, body: dict[str, Any]) -> Any:
        """The session's id."""
        return await self._manager.open_session(self._io.OpenSessionReqInput(**body), None)

    async def close_session(self, body: dict[str, Any]) -> None:
        """Nothing."""
        await self._manager.close_session(self._io.CloseSessionReqInput(**body), None)

    async def abort(self, body: dict[str, Any]) -> None:
        """Nothing."""
        self._manager.abort_request(**body)

    async def pause(self, body: dict[str, Any]) -> None:
        """Nothing."""
        await self._manager.pause_generation(self._io.PauseGenerationReqInput(**body))

    async def go_on(self, body: dict[str, Any]) -> None:
        """Nothing."""
        await self._manager.continue_generation(self._io.ContinueGenerationReqInput(**body))

    async def flush(self, _: dict[str, Any]) -> None:
        """Nothing."""
        await self._manager.flush_cache()


class Handler(BaseHTTPRequestHandler):
    """One request. `doors` is set once the engine is up."""

    doors: Doors

    def do_GET(self) -> None:
        """Health: the engine is up when this server is."""
        self._send(200, None)

    def do_POST(self) -> None:
        """Anything else."""
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        try:
            self._send(200, self.doors.answer(self.path, json.loads(body or b"{}")))
        except (ValueError, TypeError) as error:
            self._send(400, {"error": f"{type(error).__name__}: {error}"})
        except KeyError:
            self._send(404, None)

    def _send(self, status: int, value: Any) -> None:
        data = b"" if value is None else json.dumps(value, default=str).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


class EngineServer(ThreadingHTTPServer):
    """Many clients at once."""

    request_queue_size = 128
    daemon_threads = True


def renamed(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments as this release's `ServerArgs` calls them."""
    from sglang.srt.server_args import ServerArgs

    known = set(inspect.signature(ServerArgs).parameters)
    return {name if name in known else RENAMED.get(name, name): value for name, value in arguments.items()}


def main() -> None:
    """Arguments: the port, and the engine's own as JSON."""
    import sglang

    port, arguments = int(sys.argv[1]), renamed(json.loads(sys.argv[2]))
    Handler.doors = Doors(sglang.Engine(**arguments))
    EngineServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
