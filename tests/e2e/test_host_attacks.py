"""What befalls a host, with real processes: its owner wants it, it is frozen, its agent is killed, its files are far.

One fleet for the whole module: a controller, one host, a tiny model with a long context, automatic mode. Every test
leaves it usable for the next.
"""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import psutil
import pytest

from examples.demo.client import Front
from examples.demo.stage import Stage
from tests.builders.tiny_gguf import Shape
from tests.e2e.office import AUTOMATIC, Office, opened

HOST = "alpha"
LONG = Shape(context=65_536)
"""Requests can be made to last."""
PROTECTION = """\
apiVersion: gridops/v1
kind: Protection
classes:
  dedicated:
    thermal: {throttle: 140, pause: 150, recover: 130}
    memory: {throttle: 99%, pause: 100%}
    unknown_sensor: ignore
    recovery: 1s
    drain_grace: 2s
    retry_after: 7s
"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    def founded(stage: Stage) -> None:
        (stage.fleet / "policies/protection.yaml").write_text(PROTECTION)
        planning = stage.fleet / "policies/planning.yaml"
        planning.write_text(planning.read_text().replace("stale_after: 15s", "stale_after: 3s"))
        (stage.fleet / "policies/mode.yaml").write_text(AUTOMATIC)

    with opened(tmp_path_factory.mktemp("models"), (HOST,), founded, LONG) as fleet:
        fleet.context = LONG.context
        yield fleet


def agent(fleet: Office, *words: str) -> str:
    """A command of a person at the host."""
    return fleet.stage.run("gridops-agent", *words, "--state", str(fleet.stage.agent_state(HOST)))


def seen(fleet: Office) -> dict[str, Any]:
    """What that person sees."""
    found: dict[str, Any] = json.loads(agent(fleet, "status", "-o", "json"))
    return found


def kill(fleet: Office) -> None:
    fleet.stage.stop(f"agent-{HOST}", signal.SIGKILL)


def only(fleet: Office) -> psutil.Process:
    (engine,) = fleet.story.engines().values()
    return engine


@dataclass
class Reader(threading.Thread):
    """A streamed completion that goes on until `leave`."""

    front: Front
    read: int = 0
    error: str = ""
    ended: threading.Event = field(default_factory=threading.Event)
    _gone: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        body = {"model": "tiny", "messages": [{"role": "user", "content": "go on"}], "max_tokens": 60_000}
        body |= {"stream": True, "ignore_eos": True}
        url, headers = f"{self.front.url}/v1/chat/completions", self.front.headers(with_key=True)
        try:
            with (
                httpx.Client(verify=self.front.tls(), timeout=120, trust_env=False) as client,
                client.stream("POST", url, headers=headers, json=body) as answer,
            ):
                for chunk in answer.iter_bytes():
                    self.read += len(chunk)
                    if self._gone.is_set():
                        return
        except httpx.HTTPError as error:
            self.error = f"{type(error).__name__}: {error}"
        finally:
            self.ended.set()

    def leave(self) -> None:
        self._gone.set()


@contextlib.contextmanager
def reading(fleet: Office, front: Front) -> Iterator[Reader]:
    reader = Reader(front)
    reader.start()
    try:
        fleet.stage.until("the stream to begin", lambda: reader.read)
        yield reader
    finally:
        reader.leave()
        reader.join(20)


def goes_on(fleet: Office, reader: Reader) -> None:
    before = reader.read
    fleet.stage.until("the stream to go on", lambda: reader.read > before)
    assert not reader.error


def test_a_person_has_the_machine_while_a_stream_runs_and_the_word_outlives_the_agent(fleet: Office) -> None:
    fleet.settle(tiny=1)
    front, engine = fleet.story.front(HOST), only(fleet)
    with reading(fleet, front) as reader:
        agent(fleet, "pause", "--reason", "mine", "--for", "10m")
        # Asked any sooner, a request would be let in and wait for the one lane as long as the stream goes on.
        fleet.stage.until("the word to be heeded", lambda: seen(fleet)["state"] in ("draining", "paused"))
        refused = front.ask("tiny", "hi", tokens=2)
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "7")
        assert refused.json()["error"]["code"] in ("host_draining", "host_paused")
        # The grace of two seconds is over, and what runs is not cut: the memory waits for it.
        fleet.stage.until("the pause", lambda: seen(fleet)["state"] == "paused")
        goes_on(fleet, reader)
        fleet.stage.until(
            "it is said", lambda: any(a.startswith("drain_timeout: tiny/1") for a in seen(fleet)["alarms"])
        )
        assert engine.is_running()
        assert front.ask("tiny", "hi", tokens=2).json()["error"]["code"] == "host_paused"
    fleet.stage.until("its memory to be given back", lambda: not fleet.story.engines())
    for how in (signal.SIGTERM, signal.SIGKILL):
        fleet.stage.stop(f"agent-{HOST}", how)
        fleet.story.start_agent(HOST)
        fleet.stage.until("the agent", lambda: seen(fleet).get("running") and seen(fleet)["state"] == "paused")
        assert front.ask("tiny", "hi", tokens=2).json()["error"]["code"] == "host_paused"
        assert not fleet.story.engines()
    (word,) = (r for r in seen(fleet)["reasons"] if r.startswith("local_override"))
    assert "mine, 9m" in word, "its time went on"
    agent(fleet, "resume")
    fleet.stage.until("the model to come back", lambda: fleet.is_so(tiny=1), 60)
    assert front.ask("tiny", "hi", tokens=2).status_code == 200


@pytest.mark.parametrize("verb", ["drain", "quarantine"])
def test_a_word_said_while_no_agent_runs_holds_from_its_first_look(fleet: Office, verb: str) -> None:
    fleet.settle(tiny=1)
    front, engine = fleet.story.front(HOST), only(fleet)
    kill(fleet)
    agent(fleet, verb, "--reason", "smoke", "--for", "5m")
    fleet.story.start_agent(HOST)
    wanted = {"drain": "draining", "quarantine": "quarantined"}[verb]
    fleet.stage.until("the agent to heed it", lambda: seen(fleet).get("running") and seen(fleet)["state"] == wanted)
    assert front.ask("tiny", "hi", tokens=2).status_code == 503
    assert only(fleet).pid == engine.pid, "nothing is touched"
    agent(fleet, "resume")
    fleet.stage.until("it takes work again", lambda: front.ask("tiny", "hi", tokens=2).status_code == 200)
    assert only(fleet).pid == engine.pid


def test_what_is_frozen_and_thawed_was_never_dead(fleet: Office) -> None:
    """The engine, its agent, and both: as long as it takes to be called silent."""
    fleet.settle(tiny=1)
    stage, front, engine = fleet.stage, fleet.story.front(HOST), only(fleet)
    runs = psutil.Process(stage.running[f"agent-{HOST}"].pid)
    before = standing(fleet)
    with reading(fleet, front) as reader:
        for victims in ((engine,), (runs,), (runs, engine)):
            with frozen(*victims):
                if runs in victims:
                    stage.until("the host to be called silent", lambda: not heard(fleet))
                else:
                    time.sleep(3)  # several looks at it by its agent
                    assert standing(fleet) == before
            stage.until("it to be heard again", lambda: heard(fleet))
            goes_on(fleet, reader)
            assert only(fleet).pid == engine.pid
    stage.until("nothing changed", lambda: fleet.is_so(tiny=1) and standing(fleet) == before)


@contextlib.contextmanager
def frozen(*victims: psutil.Process) -> Iterator[None]:
    for victim in victims:
        victim.suspend()
    try:
        yield
    finally:
        for victim in victims:
            victim.resume()


def standing(fleet: Office) -> list[tuple[Any, ...]]:
    """What a person at the host sees of its models, but for what is in flight."""
    rows = seen(fleet)["residencies"]
    return [tuple(r.get(key) for key in ("replica", "state", "incarnation", "restarts", "code")) for r in rows]


def heard(fleet: Office) -> bool:
    host = next(h for h in fleet.story.status()["hosts"] if h["host"] == HOST)
    return bool(host["heard"])
