"""A server that answers as llama-server does until a file says that it hangs; TERM never reaches it. Stands alone."""

from __future__ import annotations

import json
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

HANGS = Path("hangs")
"""In the working directory, which is the folder of its residency."""
FLAGS = "--model --alias --host --port --ctx-size --parallel --api-key-file --slots --metrics --threads"


def given(flag: str) -> str:
    return sys.argv[sys.argv.index(flag) + 1]


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        while HANGS.exists():
            time.sleep(0.05)
        lanes = int(given("--parallel"))
        slot = {"n_ctx": int(given("--ctx-size")) // lanes, "is_processing": False}
        page: object = {
            "/health": {"status": "ok"},
            "/v1/models": {"data": [{"id": given("--alias")}]},
            "/slots": [slot] * lanes,
        }.get(self.path)
        raw = b"llamacpp:requests_deferred 0\n" if page is None else json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def do_POST(self) -> None:
        time.sleep(3_600)


if __name__ == "__main__":
    if "--help" in sys.argv:
        sys.exit(print(FLAGS))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ThreadingHTTPServer((given("--host"), int(given("--port"))), Answers).serve_forever()
