"""Approvals with real daemons: what a person applied is carried out, and nothing else is done in its name.

One fleet for the module: a controller, one host, a tiny model, mode `recommend`. The root permits standing authority,
as a first root does; every command here is under an approval.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from examples.demo.stage import free_port
from gridops.base.ids import DeviceId, Digest, ReplicaId
from gridops.base.record import digest_of, to_bytes
from gridops.controller.statedir import StateDir
from gridops.model.action import Action, Drain, Unload, Warm
from gridops.protocol.messages import AuthorityKind, Grant
from gridops.protocol.open import open_grant
from gridops.trust.envelope import seal
from tests.e2e.impostor import Impostor, Player, Recorder
from tests.e2e.office import Office, opened

HOST = "alpha"


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(tmp_path_factory.mktemp("models"), (HOST,)) as office:
        yield office


def test_what_a_person_ended_is_ended_by_the_approval_of_its_end(office: Office) -> None:
    office.have("tiny", 1)
    assert len(office.story.engines()) == 1
    office.have("tiny", 0)
    assert office.story.engines() == {}
    assert not [a for a in _seen(office)["alarms"] if "unapproved" in a]
    assert Digest(office.story.status()["scopes"][0]["target"]["digest"]).startswith("sha256:")


class Thief:
    """Somebody with all keys of the controller and everything it ever said, at its address."""

    def __init__(self, office: Office, recorder: Recorder, player: Player) -> None:
        self.office, self.signer, self.player = office, recorder.signer, player
        newest = open_grant(recorder.grants(HOST)[-1], (self.signer.public,))
        self.seq, self.head = newest.body.seq, digest_of(newest.body)

    def orders(self, like: Grant, action: Action, **changes: Any) -> str:
        """Gives this order under the authority of a grant that was real; the code of the host's refusal."""
        self.seq += 1
        body = replace(like.body, seq=self.seq, prev=self.head, action=action, precondition=())
        self.head = digest_of(body)
        now_ms = time.time_ns() // 1_000_000
        grant = replace(like, body=body, issued_ms=now_ms - 1_000, not_after_ms=now_ms + 120_000)
        grant = replace(grant, authority=replace(grant.authority, **changes))
        self.player.play(grants=(seal("grant", to_bytes(grant), self.signer),))
        said = self.office.stage.until("the host's answer", lambda: self.player.receipts.get(self.head), 30)
        assert said["final"]
        return f"{said['outcome']} {said.get('code')}: {said.get('detail')}"


def test_an_apply_is_carried_out_and_the_same_keys_can_do_nothing_else_with_it(office: Office) -> None:
    stage, story, keys = office.stage, office.story, StateDir(office.state)
    backstage = f"127.0.0.1:{free_port()}"
    recorder = Recorder(f"https://{backstage}", keys.tls_cert, keys.signer())
    stage.stop("controller")
    with Impostor(story.port, keys.tls_cert, keys.tls_key, recorder) as between:
        office.start_controller("--listen", backstage)
        stage.until("the controller answers", lambda: story.status()["controller"]["ready"])
        office.have("tiny", 1)
        grants = [open_grant(text, (recorder.signer.public,)) for text in recorder.grants(HOST)]
        assert {g.authority.kind for g in grants} == {AuthorityKind.APPROVAL}
        assert all(g.authority.proof is not None for g in grants)
        front = story.front(HOST)
        assert front.ask("tiny", "hello", tokens=2).status_code == 200
        before = sorted(story.engines())
        stage.until("its last receipt is acknowledged", lambda: _seen(office)["receipts_owed"] == 0)
        stage.stop("controller")
        root = (stage.fleet / "policies/trust/root/1.json").read_text()
        between.answer = player = Player(recorder, HOST, (root,))
        thief = Thief(office, recorder, player)
        for (like, action, changes), words in _orders(grants):
            said = thief.orders(like, action, **changes)
            assert said.startswith("refused unapproved"), said
            assert words in said
            assert sorted(story.engines()) == before, "something was started or stopped"
        assert front.ask("tiny", "hello", tokens=2).status_code == 200
        player.play()
    office.start_controller()
    stage.until("it is noticed", lambda: any("older than the fleet" in line for line in story.told("alarm")), 40)
    office.lose_memory()  # what the true controller has to do now: believe its hosts
    office.start_controller()
    stage.until("the model is known again", lambda: office.is_so(tiny=1), 40)
    assert sorted(story.engines()) == before


def _orders(grants: list[Grant]) -> list[tuple[tuple[Grant, Action, dict[str, Any]], str]]:
    """What somebody with the controller's keys would like to do with the approval of a start."""
    start = next(g for g in grants if isinstance(g.body.action, Warm))
    warm = start.body.action
    assert isinstance(warm, Warm)
    running = digest_of(start.body)
    names: dict[str, Any] = {"host": warm.host, "replica": warm.replica, "profile": warm.profile}
    other_args = replace(warm, launch=replace(warm.launch, context=warm.launch.context * 2))
    another = replace(warm, replica=ReplicaId("tiny/2"))
    elsewhere = replace(warm, devices=(DeviceId("cpu1"),))
    drain = Drain(**names, incarnation=running, grace_ms=0)
    unload = Unload(**names, incarnation=running, force=True)
    proof = start.authority.proof
    assert proof is not None
    bent = replace(proof, decision=replace(proof.decision, launch=digest_of(other_args.launch)))
    return [
        ((start, other_args, {}), "would be started by launch"),
        ((start, other_args, {"proof": bent}), "is for other decisions"),
        ((start, another, {}), "is about tiny/1, the command about tiny/2"),
        ((start, elsewhere, {}), "on cpu1, which was not approved"),
        ((start, drain, {}), "keeps tiny/1 where it is"),
        ((start, unload, {}), "keeps tiny/1 where it is"),
        ((start, warm, {"approvals": ()}), "carries none"),
        ((start, warm, {"proof": None}), "does not show which approved decision"),
    ]


def _seen(office: Office) -> dict[str, Any]:
    """What a person on the host sees."""
    state = str(office.stage.agent_state(HOST))
    found: dict[str, Any] = json.loads(office.stage.run("gridops-agent", "status", "--state", state, "-o", "json"))
    return found
