"""What somebody who means harm, or bad luck, does to a running fleet: each is held off, and nothing healthy is lost.

One fleet for the whole module: a controller, two hosts, a tiny model, automatic mode with every class allowed. Every
test leaves it usable for the next.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.demo.scenes import HOSTS, TEMPLATE
from examples.demo.stage import Stage, free_port
from gridops.base.ids import Digest
from gridops.base.record import digest_of, to_bytes
from gridops.controller.connection import BODY_TIMEOUT_S, HEAD_TIMEOUT_S
from gridops.controller.core.intend import chain_of
from gridops.controller.statedir import StateDir
from gridops.protocol.messages import Grant
from gridops.protocol.open import open_grant
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from gridops.trust.tls import self_signed
from tests.e2e.impostor import Caller, Impostor, Player, Recorder
from tests.e2e.office import AUTOMATIC, Office, opened


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    def founded(stage: Stage) -> None:
        # One document at the start and then none for long: what automatic mode does afterwards is not in git.
        budgets = stage.fleet / "policies/budgets.yaml"
        budgets.write_text(budgets.read_text().replace("plan_file_every: 1s", "plan_file_every: 30m"))
        # A host that a test keeps away for a while is not given up meanwhile, however slow the machine is.
        planning = stage.fleet / "policies/planning.yaml"
        planning.write_text(planning.read_text().replace("stale_after: 15s", "stale_after: 60s"))
        (stage.fleet / "policies/mode.yaml").write_text(AUTOMATIC)

    with opened(tmp_path_factory.mktemp("models"), HOSTS, founded) as fleet:
        fleet.settle(keep=1)
        fleet.stage.until("the first document is in git", fleet.story.plan_documents)
        yield fleet


def test_a_rebuilt_controller_keeps_what_no_document_knows(fleet: Office) -> None:
    """Git is a batch behind, and the host that runs the newest replica comes back last."""
    fleet.settle(keep=1, tiny=1)
    stage, before = fleet.stage, sorted(fleet.story.engines())
    late = next(r["host"] for r in fleet.story.ready() if r["profile"] == "tiny")
    stage.stop(f"agent-{late}")
    fleet.lose_memory()
    fleet.start_controller()
    other = next(h for h in HOSTS if h != late)
    stage.until("one is heard", lambda: any(h["heard"] for h in fleet.story.status()["hosts"] if h["host"] == other))
    stage.until("it waits for the other", lambda: not fleet.story.status()["controller"]["ready"])
    assert sorted(fleet.story.engines()) == before
    fleet.story.start_agent(late)
    stage.until("both are ready again", lambda: fleet.is_so(keep=1, tiny=1))
    assert sorted(fleet.story.engines()) == before


def test_killed_at_any_moment_nothing_is_doubled_and_no_bystander_is_touched(fleet: Office) -> None:
    fleet.settle(keep=1, tiny=0)
    stage, story = fleet.stage, fleet.story
    bystander = sorted(story.engines())
    for turn, wanted in enumerate((2, 0, 1, 2)):
        fleet.want(tiny=wanted)
        for victim in (("controller",), ("agent-alpha",), ("agent-beta", "controller"))[turn % 3]:
            stage.stop(victim, signal.SIGKILL)
            fleet.start_controller() if victim == "controller" else story.start_agent(victim.removeprefix("agent-"))
        bodies = fleet.bodies()
        assert len(bodies) == len(set(bodies)), "one command, two engines"
        assert set(bystander) <= set(story.engines())
    stage.until("two are ready", lambda: fleet.is_so(keep=1, tiny=2), 60)
    assert set(bystander) <= set(story.engines())
    assert json.loads(stage.run("gridops", "plan", "-o", "json"))["decisions"] == []


def test_a_stranger_on_the_engines_port_is_left_alone_and_another_port_is_taken(fleet: Office) -> None:
    stage, story = fleet.stage, fleet.story
    fleet.settle(keep=1, tiny=1)
    home, port = next((r["host"], r["port"]) for r in story.ready() if r["profile"] == "tiny")
    engine = next(e for e in story.engines().values() if str(port) in e.cmdline())
    argv = engine.cmdline()
    stage.stop(f"agent-{home}", signal.SIGKILL)
    engine.kill()
    lookalike = subprocess.Popen([argv[0], "-c", "import time; time.sleep(60)", *argv[1:]], start_new_session=True)
    try:
        stage.until("the port is free", lambda: _free(port))
        with socket.create_server(("127.0.0.1", port)):
            story.start_agent(home)
            stage.until("it is up on another port", lambda: fleet.is_so(keep=1, tiny=1), 40)
        assert lookalike.poll() is None, "a process of somebody else was signalled"
    finally:
        lookalike.kill()
        lookalike.wait()


def test_observe_takes_back_what_no_host_has_heard_yet(fleet: Office) -> None:
    fleet.settle(keep=1, tiny=0)
    stage, before = fleet.stage, sorted(fleet.story.engines())
    mode = stage.fleet / "policies/mode.yaml"
    for host in HOSTS:
        stage.stop(f"agent-{host}")
    fleet.want(tiny=2)
    mode.write_text(AUTOMATIC.replace("mode: automatic", "mode: observe").replace("    automatic:", "    # automatic:"))
    observed = stage.commit("Only look")
    stage.until("the commit is in force", lambda: fleet.story.status()["intent"].get("commit") == observed)
    for host in HOSTS:
        fleet.story.start_agent(host)
    stage.until("the bystander is ready", lambda: fleet.is_so(keep=1, tiny=0))
    assert sorted(fleet.story.engines()) == before
    mode.write_text(AUTOMATIC)
    fleet.settle(keep=1, tiny=0)


def test_a_model_file_changed_in_place_is_not_started_again(fleet: Office) -> None:
    fleet.settle(keep=1, tiny=1)
    before = sorted(fleet.story.engines())
    model = fleet.model
    good, seen = model.read_bytes(), model.stat()
    with model.open("r+b") as file:  # same size, same inode, and the old time put back
        file.seek(len(good) - 1)
        file.write(bytes([good[-1] ^ 1]))
    os.utime(model, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    try:
        fleet.story.engines()[before[-1]].kill()
        why = fleet.stage.until("the host says why", lambda: _details(fleet, "has SHA-256"))
        assert "tiny.gguf" in why
        assert "it is not started" in why
        assert sorted(fleet.story.engines()) == before[:-1]
    finally:
        model.write_bytes(good)


@pytest.mark.parametrize("path", ["/v1/beat", "/v1/join", "/v1/operator"])
def test_whatever_is_sent_unsigned_is_refused_in_words_and_is_no_fault(fleet: Office, path: str) -> None:
    field = "heartbeat" if path == "/v1/beat" else "request"
    signed = json.dumps({"payload": "eyJob3N0X2tleSI6ICJcdWQ4MDAifQ==", "signatures": []})
    bodies = [
        b"",
        b"[]",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"a":' * 5_000,
        b'{"%s":NaN}' % field.encode(),
        b'{"%s":1e999}' % field.encode(),
        b'{"%s":"\\ud800"}' % field.encode(),
        b'{"\\ud800":1}',
        json.dumps({field: signed}).encode(),
        json.dumps({field: "[" * 3_000}).encode(),
        b"{" + b" " * (4 << 20),
    ]
    with httpx.Client(verify=_trusted(fleet), trust_env=False, timeout=20) as client:
        for body in bodies:
            answer = client.post(fleet.url + path, content=body)
            assert 400 <= answer.status_code < 500, (body[:40], answer.text)
            assert answer.json()["error"]["message"]
        assert client.get(f"{fleet.url}/v1/events", params={"after": "²"}).status_code == 400
        assert client.get(f"{fleet.url}/v1/plans/..%2f..%2fkeys").status_code == 404


def test_a_caller_that_goes_away_or_speaks_old_tls_leaves_no_fault_behind(fleet: Office) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with context.wrap_socket(socket.create_connection(("127.0.0.1", fleet.story.port))) as half:
        half.sendall(b"POST /v1/beat HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError), socket.create_connection(("127.0.0.1", fleet.story.port)) as old:
        context.wrap_socket(old)
    assert fleet.story.status()["controller"]["ready"]
    assert "fault while answering" not in (fleet.stage.root / "logs/controller.log").read_text()


def test_what_was_recorded_or_comes_from_another_fleet_starts_nothing(fleet: Office, tmp_path: Path) -> None:
    """The thief has the controller's TLS key and everything it ever said, then its signing key too."""
    stage, story, keys = fleet.stage, fleet.story, StateDir(fleet.state)
    fleet.settle(keep=1, tiny=0)
    backstage = f"127.0.0.1:{free_port()}"
    recorder = Recorder(f"https://{backstage}", keys.tls_cert, keys.signer())
    stage.stop("controller")
    with Impostor(story.port, keys.tls_cert, keys.tls_key, recorder) as between:
        fleet.start_controller("--listen", backstage)
        stage.until("the controller answers", lambda: story.status()["controller"]["ready"])
        fleet.settle(keep=1, tiny=1)
        host = fleet.home("tiny")
        front, before = story.front(host), sorted(story.engines())
        stage.until("its last receipt is acknowledged", lambda: _agent(fleet, host)["receipts_owed"] == 0)
        stage.stop("controller")
        root, thief = _another_fleet(stage, tmp_path)
        old = recorder.grants(host)
        newest = open_grant(old[-1], (recorder.signer.public,))
        theirs = _for_fleet(newest, chain_of((root,)).fleet)
        between.answer = player = Player(recorder, host, (root,))
        last = _agent(fleet, host)["last_command"]
        for what, code in (
            ({"grants": old}, ""),
            ({"grants": (seal("grant", to_bytes(theirs), thief),)}, "bad_signature"),
            ({"grants": (seal("grant", to_bytes(theirs), recorder.signer),)}, "wrong_fleet"),
            ({"signer": thief, "grants": old}, "bad_signature"),
            ({"record": recorder.last(host)[0]}, "stale_session"),
        ):
            player.play(**what)
            stage.until(f"{code or 'nothing'} for {sorted(what)}", partial(_says, fleet, player, code))
            assert (sorted(story.engines()), _agent(fleet, host)["last_command"]) == (before, last), sorted(what)
            assert front.ask("tiny", "hello", tokens=2).status_code == 200
            player.play()
    fleet.start_controller()
    stage.until("the controller is believed again", lambda: _agent(fleet, host)["talk"] == "fresh")
    stage.until("all is as it was", lambda: fleet.is_so(keep=1, tiny=1))
    assert sorted(story.engines()) == before


def test_another_certificate_at_the_controllers_address_is_named_and_gets_no_word(
    fleet: Office, tmp_path: Path
) -> None:
    fleet.settle(keep=1, tiny=1)
    stage, before, host = fleet.stage, sorted(fleet.story.engines()), fleet.home("tiny")
    front = fleet.story.front(host)
    other = self_signed(("127.0.0.1",), time.time_ns() // 1_000_000 - 3_600_000, 30)
    (tmp_path / "cert.pem").write_text(other.cert_pem)
    (tmp_path / "key.pem").write_bytes(other.key_pem)
    stage.stop("controller")
    with Impostor(fleet.story.port, tmp_path / "cert.pem", tmp_path / "key.pem", lambda *_: (200, b"{}")) as impostor:
        talk = "another certificate than the pinned one"
        stage.until("the agent names the certificate", lambda: talk in _agent(fleet, host)["talk"])
        assert sorted(fleet.story.engines()) == before
        assert front.ask("tiny", "hello", tokens=2).status_code == 200
        # Root documents prove themselves, and one may name the certificate: nothing else is asked, and nothing is said.
        assert set(impostor.asked) <= {("GET", "/v1/roots", b"")}
    fleet.start_controller()
    stage.until("the true one is believed", lambda: _agent(fleet, host)["talk"] == "fresh", 40)
    stage.until("all is as it was", lambda: fleet.is_so(keep=1, tiny=1))
    assert sorted(fleet.story.engines()) == before


def test_a_drain_in_a_commit_that_is_refused_takes_effect_and_nothing_else_of_it_does(fleet: Office) -> None:
    fleet.settle(keep=1, tiny=1)
    stage, story, drained = fleet.stage, fleet.story, fleet.home("tiny")
    stage.run("gridops", "drain", drained, "--reason", "smoke in the room")
    fleet.profile("tiny", 2)
    keep = stage.fleet / "profiles.d/keep.yaml"
    keep.write_text(keep.read_text().replace("replicas:", "replcas:"))
    bad = stage.commit("Drain it, and a typo in a hurry")
    try:
        stage.until("nothing is left there", lambda: _only_on(fleet, drained, keep=1, tiny=1), 40)
        refused = story.status()["intent"]["refused"]
        assert refused["commit"] == bad
        assert any("replcas" in line for line in refused["problems"])
    finally:
        (stage.fleet / f"fleet.d/drains/{drained}.yaml").unlink()
        fleet.settle(keep=1, tiny=1)
    assert not story.status()["intent"].get("refused")


def test_a_hundred_callers_that_hold_on_are_ended_by_name_and_nobody_else_waits(fleet: Office) -> None:
    """Fifty say nothing, the others one byte each second: half of these the head, half the body of a heartbeat."""
    fleet.settle(keep=1, tiny=0)
    heard = {host: _agent(fleet, host)["heard_ms"] for host in HOSTS}
    began, port = time.monotonic(), fleet.story.port
    body = b"POST /v1/beat HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n"
    silent = [Caller(port) for _ in range(50)]
    heads = [Caller(port, b"GET /v1/status HTTP/1.1\r\nx: ", b"x") for _ in range(25)]
    bodies = [Caller(port, body, b" ") for _ in range(25)]
    with contextlib.ExitStack() as callers:
        for caller in (*silent, *heads, *bodies):
            callers.callback(caller.close)
        honest = callers.enter_context(httpx.Client(verify=_trusted(fleet), trust_env=False, timeout=5))
        while any(not c.ended for c in (*silent, *heads, *bodies)):
            assert time.monotonic() - began < 2 * (HEAD_TIMEOUT_S + BODY_TIMEOUT_S), "somebody still holds on"
            asked = time.monotonic()
            assert honest.get(f"{fleet.url}/v1/status").json()["controller"]["ready"]
            for caller in (*silent, *heads, *bodies):
                caller.go_on()
            time.sleep(max(0.0, asked + 1 - time.monotonic()))
    assert {c.answer for c in (*silent, *heads)} == {f"408 no request arrived within {HEAD_TIMEOUT_S:g} s"}
    assert {c.answer for c in bodies} == {f"400 the body did not arrive within {BODY_TIMEOUT_S:g} s"}
    for host in HOSTS:
        assert _agent(fleet, host)["heard_ms"] > heard[host] + 8_000, f"{host} was not heard meanwhile"


def _trusted(fleet: Office) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(StateDir(fleet.state).tls_cert))
    context.check_hostname = False
    return context


def _details(fleet: Office, words: str) -> str:
    """What the status says of a model, or else a receipt said: the replica may have been sent elsewhere by now."""
    found = [json.dumps(m) for s in fleet.story.status()["scopes"] for m in s["models"]]
    found += fleet.story.told("receipt")
    return next((text for text in found if words in text), "")


def _agent(fleet: Office, host: str) -> dict[str, Any]:
    """What a person on a host sees."""
    state = str(fleet.stage.agent_state(host))
    seen: dict[str, Any] = json.loads(fleet.stage.run("gridops-agent", "status", "--state", state, "-o", "json"))
    return seen


def _says(fleet: Office, player: Player, code: str) -> bool:
    """The host refuses what it hears now, by this code; an empty one: it hears nothing that is to be refused."""
    seen = _agent(fleet, player.host)
    if not code:
        return player.heard > 2 and seen["talk"] == "fresh"
    # Of a whole directive it says so instead of `fresh`; of one command in it, beside it.
    told = seen["talk"].removeprefix("refused: ") if seen["talk"] != "fresh" else ""
    return player.heard > 0 and any(alarm.startswith(f"{code}: {told}") for alarm in seen["alarms"])


def _another_fleet(stage: Stage, folder: Path) -> tuple[str, MachineSigner]:
    """Another fleet with a root and a controller of its own: its root document, and its controller's key."""
    shutil.copytree(TEMPLATE, folder / "fleet")
    stage.run("git", "init", "--quiet", str(folder / "fleet"))
    stage.run(
        *("gridops", "-C", str(folder / "fleet"), "trust", "init", "--person", "nina", "--state", str(folder / "c"))
    )
    return (folder / "fleet/policies/trust/root/1.json").read_text(), StateDir(folder / "c").signer()


def _for_fleet(grant: Grant, fleet: Digest) -> Grant:
    """The command that would come next, as that fleet would give it."""
    body = replace(grant.body, fleet=fleet, seq=grant.body.seq + 1, prev=digest_of(grant.body))
    return replace(grant, fleet=fleet, body=body)


def _only_on(fleet: Office, drained: str, **replicas: int) -> bool:
    return fleet.is_so(**replicas) and drained not in {r["host"] for r in fleet.story.ready()}


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
