"""small-server: the server that docs/howto/add-an-engine.md writes an adapter for. Stands alone."""

from __future__ import annotations

import argparse
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RUNNING: set[int] = set()


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser(prog="small-server", allow_abbrev=False)
    for name in ("--model", "--name", "--key-file", "--host"):
        flags.add_argument(name, required=True)
    for name in ("--port", "--context", "--lanes"):
        flags.add_argument(name, type=int, required=True)
    flags.add_argument("--threads", type=int, default=1)
    flags.add_argument("--sampling", choices=("greedy", "random"), default="greedy")
    return flags


class Answers(BaseHTTPRequestHandler):
    given: argparse.Namespace
    key: str

    def log_message(self, *_: Any) -> None:
        return

    def say(self, status: int, what: object) -> None:
        raw = json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def allowed(self) -> bool:
        if self.headers.get("Authorization") == f"Bearer {self.key}":
            return True
        self.say(401, {"error": "no valid key"})
        return False

    def do_GET(self) -> None:
        if not self.allowed():
            return
        if self.path == "/v1/models":
            self.say(200, {"data": [{"id": self.given.name, "context": self.given.context}]})
        elif self.path == "/work":
            self.say(200, {"running": len(RUNNING)})
        else:
            self.say(404, {"error": "unknown path"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not self.allowed():
            return
        RUNNING.add(threading.get_ident())
        try:
            if asked.get("max_tokens", 0) > 100:
                self.connection.recv(1)  # a long answer lasts until its client goes
            self.say(200, {"choices": [{"message": {"content": "hi"}}]})
        finally:
            RUNNING.discard(threading.get_ident())


if __name__ == "__main__":
    given = parser().parse_args()
    assert Path(given.model).is_file()
    Answers.given, Answers.key = given, Path(given.key_file).read_text()
    ThreadingHTTPServer((given.host, given.port), Answers).serve_forever()
