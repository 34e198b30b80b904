"""A server that is no engine: its answers are a function of the whole history. It ends where it is told to by the
environment, or answers turns as if they had no history."""

from __future__ import annotations

import json
import os
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from ropecheck.adapters import events

FAULT = os.environ.get("STUB_FAULT", "")
turns: dict[str, list[int]] = {}


def answer(body: dict[str, Any]) -> dict[str, Any]:
    ids = list(body["input_ids"])
    session = body.get("session_params") or {}
    if session.get("replace") and "ends" in FAULT:
        os._exit(9)
    if (parent := session.get("rid")) and "forgets" not in FAULT:
        ids = turns[parent] + ids
    said: list[int] = []
    for _ in range(body["sampling_params"]["max_new_tokens"]):
        said.append(10 + zlib.crc32(bytes(str(ids + said), "ascii")) % 400)
    turns[body["rid"]] = ids + said
    about = {
        "finish_reason": {"type": "length"},
        "output_token_logprobs": [[-1.0, token, None] for token in said],
        "output_top_logprobs": [[[-1.0, token, None], [-2.0, 5, None]] for token in said],
    }
    return {"output_ids": said, "meta_info": about}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._send({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        self._send(answer(body) if self.path == "/generate" else {})

    def _send(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    if "start" in FAULT:
        print("OSError: no such device")
        sys.exit(1)
    folder = Path(os.environ["ROPECHECK_RECORD"])
    folder.mkdir(parents=True)
    header = events.TraceHeader(version=events.VERSION, family="qwen2_5_vl")
    (folder / "scheduler-1.0000.ndjson").write_bytes(events.line(header) + events.line(events.Rest()))
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
