"""What hosts may say, and what is made of it: admission, replays, two agents under one key, lost and torn memories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Refusal
from gridops.base.ids import HostId
from gridops.base.limits import STRAYS_PROVE
from gridops.base.record import to_bytes
from gridops.controller import views
from gridops.controller.endpoints import ROUTES
from gridops.model.policy import protection_default
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Beat, Directive, Facts, GatewayKey, JoinRequest
from gridops.protocol.open import sealed_bytes
from gridops.trust.envelope import seal
from gridops.trust.join import join_key, parse_token, reply_mac, request_mac
from gridops.trust.keys import MachineSigner
from tests.controller.fleet import AUTOMATIC, Desk, Fleet, profile
from tests.controller.scripted_agent import ScriptedAgent

OTHER = MachineSigner.from_seed(b"x" * 32)


def joined(desk: Desk, host: str, signer: MachineSigner, token: str, mac: str | None = None) -> JoinRequest:
    parsed = parse_token(token)
    key = signer.public.text
    return JoinRequest(
        fleet=parsed.fleet,
        host=HostId(host),
        host_key=key,
        nonce="n" * 24,
        facts=Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="linux"),
        mac=mac or request_mac(join_key(parsed.secret), parsed.fleet, key, "n" * 24),
    )


def test_each_message_is_measured_by_its_own_limit_before_it_is_opened(desk: Desk) -> None:
    def answer(ask: Callable[[str], object], bytes_: int) -> str:
        with pytest.raises(Refusal) as no:
            ask('{"payload": "e30="}'.ljust(bytes_))
        return str(no.value)

    def beat(text: str) -> object:
        return desk.controller.beat(Beat(heartbeat=text))

    most = sealed_bytes(limits.HEARTBEAT_BYTES)
    assert "names no host" in answer(beat, most)
    assert "larger than" in answer(beat, most + 1)
    most = sealed_bytes(limits.JOIN_BYTES)
    assert "names no host key" in answer(desk.controller.join, most)
    assert "larger than" in answer(desk.controller.join, most + 1)
    by_path = {route.path: route.limit for route in ROUTES}
    assert sealed_bytes(limits.HEARTBEAT_BYTES) < by_path["/v1/beat"]
    assert sealed_bytes(limits.JOIN_BYTES) < by_path["/v1/join"] < limits.HEARTBEAT_BYTES / 4


def test_an_invited_host_waits_until_a_commit_admits_its_very_key(fleet: Fleet) -> None:
    fleet.begin(admit=False)
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    with pytest.raises(Refusal) as no:
        desk.beat("alpha")
    assert no.value.code == "not_admitted"
    token = desk.ask("invite", host="alpha")["token"]
    request = joined(desk, "alpha", agent.signer, token)
    reply = desk.controller.join(seal("join", to_bytes(request), agent.signer))
    expected = reply_mac(join_key(parse_token(token).secret), request.host_key, request.nonce, reply.roots)
    assert reply.mac == expected
    assert reply.roots == (fleet.root_text,)
    waiting = views.pending(desk.controller.view()).pending
    assert [(p.host, p.fingerprint) for p in waiting] == [("alpha", agent.signer.public.key_id)]
    with pytest.raises(Refusal):
        desk.beat("alpha")
    again = desk.controller.join(seal("join", to_bytes(request), agent.signer))
    assert again.mac == reply.mac, "an answer may get lost: the same key may ask again"
    desk.commit({"fleet.d/keys/alpha.yaml": fleet.key_file("alpha")})
    assert views.pending(desk.controller.view()).pending == ()
    desk.beat("alpha")
    desk.controller.close()


def test_a_token_serves_one_key_for_a_time_and_never_stands_in_the_journal(fleet: Fleet) -> None:
    fleet.begin(admit=False)
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    answer = desk.ask("invite", host="alpha", ttl_ms=60_000)
    token = answer["token"]
    desk.controller.join(seal("join", to_bytes(joined(desk, "alpha", agent.signer, token)), agent.signer))
    with pytest.raises(Refusal, match="another key"):
        desk.controller.join(seal("join", to_bytes(joined(desk, "alpha", OTHER, token)), OTHER))
    with pytest.raises(Refusal, match="no open invitation"):
        desk.controller.join(seal("join", to_bytes(joined(desk, "beta", OTHER, token)), OTHER))
    secret = parse_token(token).secret.reveal().hex()
    journal = b"".join(p.read_bytes() for p in fleet.state.glob("journal.sqlite*"))
    assert secret.encode() not in journal
    assert join_key(parse_token(token).secret) not in journal
    desk.clock.pass_by(60_001)
    with pytest.raises(Refusal, match="no open invitation"):
        desk.controller.join(seal("join", to_bytes(joined(desk, "alpha", agent.signer, token)), agent.signer))
    desk.controller.close()


def test_a_wrong_mac_and_a_wrong_signature_are_refused(fleet: Fleet) -> None:
    fleet.begin(admit=False)
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    token = desk.ask("invite", host="alpha")["token"]
    wrong = joined(desk, "alpha", agent.signer, token, mac="0" * 64)
    with pytest.raises(Refusal) as no:
        desk.controller.join(seal("join", to_bytes(wrong), agent.signer))
    assert no.value.code == "bad_mac"
    right = joined(desk, "alpha", agent.signer, token)
    with pytest.raises(Refusal) as no:
        desk.controller.join(seal("join", to_bytes(right), OTHER))
    assert no.value.code == "bad_signature"
    assert desk.state.pending == {}
    desk.controller.close()


def test_a_pending_host_can_be_rejected(fleet: Fleet) -> None:
    fleet.begin(admit=False)
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    token = desk.ask("invite", host="alpha")["token"]
    desk.controller.join(seal("join", to_bytes(joined(desk, "alpha", agent.signer, token)), agent.signer))
    desk.ask("reject", host="alpha")
    assert desk.state.pending == {}
    desk.controller.close()


@pytest.mark.parametrize("host", ["../../etc/cron", "a/b", "", "A"])
def test_an_invitation_names_a_host_and_no_path(desk: Desk, host: str) -> None:
    with pytest.raises(Refusal):
        desk.ask("invite", host=host)
    assert not (desk.fleet.state / "keys" / "invites").exists() or not list(
        (desk.fleet.state / "keys" / "invites").iterdir()
    )


def test_a_heartbeat_signed_by_another_host_is_refused(desk: Desk) -> None:
    alpha, beta = desk.fleet.agents["alpha"], desk.fleet.agents["beta"]
    beat = alpha.beat()
    from gridops.protocol.open import open_heartbeat

    heartbeat = open_heartbeat(beat.heartbeat, alpha.signer.public)
    forged = Beat(heartbeat=seal("heartbeat", to_bytes(heartbeat), beta.signer))
    with pytest.raises(Refusal) as no:
        desk.controller.beat(forged)
    assert no.value.code == "bad_signature"


def test_an_expunged_host_is_heard_no_more(desk: Desk) -> None:
    desk.beat()
    desk.commit({"fleet.d/keys/alpha.yaml": desk.fleet.key_file("alpha") + "expunged: true\n"})
    with pytest.raises(Refusal) as no:
        desk.beat("alpha")
    assert no.value.code == "not_admitted"


def test_an_expunged_key_never_returns_whatever_a_later_commit_says(desk: Desk) -> None:
    text = desk.fleet.key_file("alpha")
    desk.commit({"fleet.d/keys/alpha.yaml": text + "expunged: true\n"})
    expunged = desk.state.accepted.commit
    for files in (
        {"fleet.d/keys/alpha.yaml": text},
        {"fleet.d/keys/alpha.yaml": text + "expunged: false\n"},
        {"fleet.d/keys/alpha.yaml": None, "fleet.d/keys/beta.yaml": text.replace("alpha", "beta")},
    ):
        desk.commit(files)
        assert desk.state.accepted.commit == expunged
        assert "key_expunged" in desk.state.refused.problems[0]
        with pytest.raises(Refusal, match="not_admitted"):
            desk.beat("alpha")
    desk.restart()  # it is remembered, and not only by the commit that is in force
    assert desk.state.accepted.commit == expunged
    desk.commit({"fleet.d/keys/beta.yaml": desk.fleet.key_file("beta")})  # the file of alpha is gone since
    assert "alpha" not in {k.host for k in desk.state.accepted.desired.keys}
    desk.commit({"fleet.d/keys/alpha.yaml": text})
    assert "key_expunged" in desk.state.refused.problems[0]
    agent, token = desk.fleet.agents["alpha"], desk.ask("invite", host="alpha")["token"]
    with pytest.raises(Refusal, match="key_expunged"):
        desk.controller.join(seal("join", to_bytes(joined(desk, "alpha", agent.signer, token)), agent.signer))
    own = text.replace(agent.signer.public.text, OTHER.public.text)
    desk.commit({"fleet.d/keys/alpha.yaml": own})
    assert desk.controller.roster.admitted(HostId("alpha")) is not None, "the host may return, with a key of its own"


def test_a_key_that_was_taken_out_and_not_expunged_may_return(desk: Desk) -> None:
    desk.commit({"fleet.d/keys/alpha.yaml": None})
    desk.commit({"fleet.d/keys/alpha.yaml": desk.fleet.key_file("alpha")})
    desk.beat("alpha")


def test_a_replayed_heartbeat_is_ignored_and_two_agents_with_one_key_are_stopped(fleet: Fleet) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    agent.now_ms = desk.now
    old = agent.beat()
    agent.hear(desk.post(old))
    desk.beat("alpha")
    with pytest.raises(Refusal) as no:
        desk.controller.beat(old)
    assert no.value.code == "replayed"
    twin = agent.twin("boot-2")
    for _ in range(STRAYS_PROVE + 1):
        desk.clock.pass_by(1_000)
        for one in (twin, agent):
            try:
                one.talk(desk.post, desk.now)
            except Refusal:
                continue
    assert any(key.startswith("cloned_host") for key in desk.state.alarms)
    desk.pass_()
    desk.beat("beta")
    assert agent.executed == []
    assert twin.executed == []
    desk.controller.close()


def test_a_copy_that_is_always_late_is_answered_with_nothing_and_found(fleet: Fleet) -> None:
    """It was copied a while ago and speaks second, each time: what it repeats is older than what the true one does."""
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    agent.claims = True
    desk.controller.gateway_keys = (GatewayKey(name="all", sha256=digest_bytes(b"k")),)
    turn(desk, agent)
    twin = agent.twin("boot-2")
    for _ in range(2):
        turn(desk, agent)
    answer = turn(desk, twin)
    assert (answer.keys, answer.grants) == ((), ())
    assert agent.last is not None
    assert agent.last.keys, "the true one has them"
    assert desk.state.alarms == {}
    for _ in range(2):
        turn(desk, agent)
        turn(desk, twin)
    assert any(key.startswith("cloned_host") for key in desk.state.alarms)
    assert twin.executed == []
    desk.controller.close()


def turn(desk: Desk, agent: ScriptedAgent) -> Directive:
    desk.clock.pass_by(1_000)
    return agent.talk(desk.post, desk.now)


def test_an_agent_with_an_old_copy_of_its_ledger_is_heard_again_and_said_to_have_forgotten(fleet: Fleet) -> None:
    fleet.begin(**{"policies/mode.yaml": AUTOMATIC})
    desk = Desk(fleet)
    agent = fleet.agents["alpha"]
    agent.claims = True
    turn(desk, agent)
    old = agent.twin("boot-2")
    for _ in range(20):
        desk.clock.pass_by(1_000)
        desk.beat()
        desk.pass_()
    assert agent.executed, "it has done something that the copy knows nothing of"
    for _ in range(STRAYS_PROVE):
        assert turn(desk, old).grants == ()
    desk.clock.pass_by(1_000)
    old.now_ms = desk.now
    desk.post(old.beat())
    assert any(key.startswith("host_rewound") for key in desk.state.alarms)
    assert not any(key.startswith("cloned_host") for key in desk.state.alarms)
    desk.controller.close()


def test_a_restarted_agent_is_one_agent(desk: Desk) -> None:
    desk.beat()
    desk.fleet.agents["alpha"].restart("boot-2")
    desk.beat()
    desk.beat()
    assert desk.state.alarms == {}


def test_receipts_are_acknowledged_only_once_they_are_durable_and_repeats_are_harmless(desk: Desk) -> None:
    desk.beat()
    desk.beat()
    desk.pass_()
    desk.apply()
    desk.beat()
    agent = next(a for a in desk.fleet.agents.values() if a.receipts.head)
    assert agent.receipts.acked == 0
    beat = agent.beat()
    desk.controller.beat(beat)
    assert desk.state.hosts[agent.host].outbox.acked_rseq == 1
    rows = desk.controller.writer.length
    again = agent.beat()
    assert again.receipts, "the answer was lost: the agent says it again"
    agent.hear(desk.post(again))
    taken = [e for e in desk.controller.events.after(rows) if e.kind == "receipt"]
    assert taken == []
    assert agent.receipts.acked == 1


def test_a_missing_receipt_is_an_alarm_and_nothing_is_taken_on_faith(desk: Desk) -> None:
    desk.beat()
    desk.beat()
    desk.pass_()
    desk.apply()
    desk.beat()
    agent = next(a for a in desk.fleet.agents.values() if a.receipts.head)
    real = agent.receipts
    lost = replace(real.kept[0], rseq=2)
    beat = agent.beat()
    forged = Beat(heartbeat=beat.heartbeat, receipts=(seal("receipt", to_bytes(lost), agent.signer),))
    desk.controller.beat(forged)
    assert any(key.startswith("receipt_gap") for key in desk.state.alarms)
    assert ob.open_entries(desk.state.hosts[agent.host].outbox)


def test_a_host_whose_ledger_went_back_is_held(desk: Desk) -> None:
    backups = {name: agent.twin("boot-9") for name, agent in desk.fleet.agents.items()}
    desk.beat()
    desk.beat()
    desk.pass_()
    desk.apply()
    desk.settle()
    host = next(a for a in desk.fleet.agents.values() if a.executed).host
    old = backups[host]
    old.fence = replace(old.fence, term=desk.state.term)
    for _ in range(2):
        desk.clock.pass_by(1_000)
        old.now_ms = desk.now
        desk.controller.beat(old.beat())
    assert desk.state.hosts[host].outbox.held is not None
    docs = {h.host: h for h in views.status(desk.controller.view()).hosts}
    assert docs[host].held is not None


def test_a_silent_host_can_be_written_off_and_one_that_answers_cannot(desk: Desk) -> None:
    desk.beat()
    with pytest.raises(Refusal, match="answers"):
        desk.ask("write_off", host="alpha", reason="gone")
    desk.clock.pass_by(20_000)
    desk.ask("write_off", host="alpha", reason="water damage")
    docs = {h.host: h for h in views.status(desk.controller.view()).hosts}
    assert docs["alpha"].written_off
    desk.beat("alpha")
    docs = {h.host: h for h in views.status(desk.controller.view()).hosts}
    assert not docs["alpha"].written_off


def test_protection_and_gateway_keys_travel_in_the_directive(fleet: Fleet) -> None:
    protection = (
        "apiVersion: gridops/v1\nkind: Protection\nclasses:\n"
        "  dedicated: {thermal: {throttle: 85, pause: 95, recover: 75}, unknown_sensor: ignore}\n"
    )
    fleet.begin(**{"policies/protection.yaml": protection})
    desk = Desk(fleet)
    desk.beat("alpha")
    directive = fleet.agents["alpha"].last
    assert directive is not None
    assert directive.protection is not None
    assert directive.protection.thermal.pause == 95
    assert [k.name for k in directive.keys] == ["gateway"]
    assert "gk1_test" not in str(directive)
    desk.controller.close()


def test_a_class_of_which_the_files_say_nothing_has_its_default(desk: Desk) -> None:
    desk.beat("alpha")
    directive = desk.fleet.agents["alpha"].last
    assert directive is not None
    assert directive.protection == protection_default("dedicated")


def test_a_host_asks_again_soon_while_something_is_under_way(desk: Desk) -> None:
    desk.settle(2)
    calm = desk.fleet.agents["alpha"].last
    desk.apply()
    desk.beat()
    busy = [a.last.next_poll_ms for a in desk.fleet.agents.values() if a.last is not None and a.executed]
    assert calm is not None
    assert 1_000 <= calm.next_poll_ms < 1_125, "an eighth of spread"
    assert busy == [500]


def test_a_person_may_accept_the_account_of_a_host_that_an_alarm_stopped(desk: Desk) -> None:
    """After a clone or a restored ledger was looked into, the host's own account holds and commands go again."""
    backups = {name: agent.twin("boot-9") for name, agent in desk.fleet.agents.items()}
    desk.settle(2)
    desk.apply()
    desk.settle()
    host = next(a for a in desk.fleet.agents.values() if a.executed).host
    old = backups[host]
    old.room = desk.fleet.agents[host].room
    old.fence = replace(old.fence, term=desk.state.term)
    desk.fleet.agents[host] = old
    for _ in range(2):
        desk.clock.pass_by(1_000)
        old.now_ms = desk.now
        desk.controller.beat(old.beat())
    assert desk.state.hosts[host].outbox.held is not None
    assert desk.ask("write_off", host=host, reason="restored from a backup, looked at")["accepted"]
    assert desk.state.hosts[host].outbox.held is None
    assert desk.state.alarms == {}
    desk.settle(4)
    desk.commit({"profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]


def test_a_new_key_clears_what_stopped_the_old_one(desk: Desk) -> None:
    agent = desk.fleet.agents["alpha"]
    desk.beat()
    twin = agent.twin("boot-2")
    for _ in range(STRAYS_PROVE + 1):
        for one in (twin, agent):
            desk.clock.pass_by(500)
            try:
                one.talk(desk.post, desk.now)
            except Refusal:
                continue
    assert desk.state.held(HostId("alpha")) is not None
    fresh_agent = ScriptedAgent(HostId("alpha"), OTHER, desk.fleet.chain)
    desk.fleet.agents["alpha"] = fresh_agent
    desk.commit({"fleet.d/keys/alpha.yaml": desk.fleet.key_file("alpha")})
    desk.settle(3)
    assert desk.state.held(HostId("alpha")) is None
