"""The controller's key and its certificate are rotated while it works: no gap, no command twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.codes.trust import BAD_SIGNATURE
from gridops.base.errors import BadSetup, Refusal
from gridops.controller import views
from gridops.controller.statedir import NEXT_SEED, NEXT_TLS_CERT, NEXT_TLS_KEY, SEED, TLS_CERT, TLS_KEY
from gridops.disk.keyring import create_secret
from gridops.trust import amend
from gridops.trust.found import renewed_root
from gridops.trust.keys import MachineSigner
from gridops.trust.root import Root, RootChain, seal_root, walk
from gridops.trust.tls import TlsIdentity, self_signed
from tests.controller.fleet import Desk
from tests.controller.replayed import same

NEXT = b"n" * 32
Amend = Callable[[RootChain, int], Root]


def both(chain: RootChain, now_ms: int) -> Root:
    return amend.next_controller(chain, MachineSigner.from_seed(NEXT).public, stolen=False, now_ms=now_ms)


def stolen(chain: RootChain, now_ms: int) -> Root:
    return amend.next_controller(chain, MachineSigner.from_seed(NEXT).public, stolen=True, now_ms=now_ms)


def commits(desk: Desk, make: Amend) -> None:
    """People make, sign and commit the next root."""
    fleet, chain = desk.fleet, desk.controller.soft.chain
    made = make(chain, desk.now)
    desk.commit({f"policies/trust/root/{made.version}.json": seal_root(made, fleet.root_signer)})
    assert desk.controller.soft.chain.root.version == made.version


def test_status_says_when_the_root_ages_and_that_it_has_expired(desk: Desk) -> None:
    desk.settle(2)
    root, view = desk.controller.soft.chain.root, desk.controller.view()
    life = root.expires_ms - root.issued_ms
    ages = [root.issued_ms + life * part // 100 for part in (10, 66, 67, 99, 100)]
    seen = [views.status(replace(view, now_ms=at)).trust for at in ages]
    assert [(t.soon, t.expired) for t in seen if t is not None] == [
        (False, False),
        (False, False),
        (True, False),
        (True, False),
        (True, True),
    ]


def hears(desk: Desk) -> None:
    """Hosts that cannot verify a directive ask for the roots, as real agents do."""
    for agent in desk.fleet.agents.values():
        roots = tuple(desk.state.roots)
        agent.chain = walk(agent.chain, roots[agent.chain.root.version :])


def key(desk: Desk) -> MachineSigner:
    return MachineSigner.from_seed((desk.fleet.state / SEED).read_bytes())


def test_a_rotation_has_no_gap_and_what_runs_meanwhile_runs_once(desk: Desk) -> None:
    desk.settle(2)
    create_secret(desk.fleet.state / NEXT_SEED, NEXT)
    for agent in desk.fleet.agents.values():
        agent.room.slow.add("warm")
    waits = desk.proposal()
    desk.apply()
    desk.settle(4)
    old = desk.controller.signer.public
    commits(desk, both)
    desk.settle(2)
    assert desk.controller.signer.public == old, "while both count, the one that every host knows goes on"
    commits(desk, amend.only_controller)
    assert desk.controller.signer.public == MachineSigner.from_seed(NEXT).public
    assert key(desk).public == desk.controller.signer.public
    assert not (desk.fleet.state / NEXT_SEED).exists()
    hears(desk)
    desk.settle(2)
    for agent in desk.fleet.agents.values():
        agent.finish("warm")
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert [len(a.room.spawned) for a in desk.fleet.agents.values() if a.room.spawned] == [1]
    assert desk.book().applies[-1].names[-1] == waits.id
    same(desk)
    desk.restart()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.controller.close()


def test_a_plan_document_from_before_a_rotation_can_still_be_applied_and_one_by_a_stolen_key_cannot(desk: Desk) -> None:
    desk.settle(2)
    desk.project()
    create_secret(desk.fleet.state / NEXT_SEED, NEXT)
    commits(desk, both)
    commits(desk, amend.only_controller)
    branch, waits = desk.place().branch(), desk.proposal()
    found = branch.find(waits.id)
    assert found is not None
    assert desk.controller.soft.chain.plan_keys()[-1] == MachineSigner.from_seed(desk.fleet.seed).public
    create_secret(desk.fleet.state / NEXT_SEED, b"3" * 32)
    third = MachineSigner.from_seed(b"3" * 32).public
    commits(desk, lambda chain, now_ms: amend.next_controller(chain, third, stolen=True, now_ms=now_ms))
    assert desk.controller.soft.chain.plan_keys() == (third,)
    desk.controller.close()


def test_with_a_stolen_key_out_of_the_root_the_next_one_takes_over_in_a_new_epoch(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle()
    thief = desk.controller.signer
    create_secret(desk.fleet.state / NEXT_SEED, NEXT)
    commits(desk, stolen)
    assert desk.controller.signer.public != thief.public
    assert desk.state.term.epoch == 2
    alpha = desk.fleet.agents["alpha"]
    with pytest.raises(Refusal) as caught:
        desk.beat("alpha")  # it does not know the new key yet
    assert caught.value.code == BAD_SIGNATURE.code
    hears(desk)
    desk.settle(2)
    assert alpha.fence.term.epoch == 2
    assert desk.ready() == ["coder/1"], "what runs goes on"
    desk.controller.close()


def test_a_controller_that_was_down_during_its_rotation_begins_with_the_key_that_counts(desk: Desk) -> None:
    desk.settle(2)
    create_secret(desk.fleet.state / NEXT_SEED, NEXT)
    commits(desk, both)
    chain, now_ms = desk.controller.soft.chain, desk.now
    desk.controller.close()
    made = amend.only_controller(chain, now_ms)
    desk.fleet.commit({"policies/trust/root/3.json": seal_root(made, desk.fleet.root_signer)})
    desk.start()
    assert desk.controller.signer.public == MachineSigner.from_seed(NEXT).public
    desk.controller.close()


def test_a_root_that_names_neither_key_stops_a_start_and_says_so(desk: Desk) -> None:
    desk.settle(2)
    stranger = MachineSigner.from_seed(b"s" * 32).public
    commits(desk, lambda chain, now_ms: amend.next_controller(chain, stranger, stolen=True, now_ms=now_ms))
    assert "controller_key" in desk.state.alarms
    desk.controller.close()
    with pytest.raises(BadSetup, match="its controller key"):
        desk.start()


# --- the certificate


def shown(desk: Desk) -> str:
    return (desk.fleet.state / TLS_CERT).read_text()


@pytest.fixture
def next_tls(desk: Desk) -> TlsIdentity:
    """The next certificate, made as `trust rotate tls` makes it."""
    made = self_signed(["127.0.0.1"], desk.now, 300)
    create_secret(desk.fleet.state / NEXT_TLS_KEY, made.key_pem)
    (desk.fleet.state / NEXT_TLS_CERT).write_text(made.cert_pem)
    return made


def test_a_certificate_is_shown_from_the_moment_on_that_it_alone_is_pinned(desk: Desk, next_tls: TlsIdentity) -> None:
    renewed: list[str] = []
    desk.controller.renewed = lambda: renewed.append(shown(desk))
    old = shown(desk)
    commits(desk, lambda chain, now: amend.next_certificate(chain, next_tls.cert_pem, stolen=False, now_ms=now))
    assert shown(desk) == old
    assert not renewed
    commits(desk, amend.only_certificate)
    assert renewed == [next_tls.cert_pem]
    assert (desk.fleet.state / TLS_KEY).read_bytes() == next_tls.key_pem
    assert not (desk.fleet.state / NEXT_TLS_CERT).exists()
    assert "controller_tls" not in desk.state.alarms
    desk.restart()
    assert shown(desk) == next_tls.cert_pem


def test_a_certificate_that_nobody_has_is_an_alarm_until_one_is_pinned_that_is_there(desk: Desk) -> None:
    old, other = shown(desk), self_signed(["127.0.0.1"], desk.now, 300)
    commits(desk, lambda chain, now: amend.next_certificate(chain, other.cert_pem, stolen=True, now_ms=now))
    assert "controller_tls" in desk.state.alarms
    assert shown(desk) == old
    commits(desk, lambda chain, now: amend.next_certificate(chain, old, stolen=True, now_ms=now))
    assert "controller_tls" not in desk.state.alarms


def test_a_crash_between_key_and_certificate_is_finished_at_the_next_start(desk: Desk, next_tls: TlsIdentity) -> None:
    commits(desk, lambda chain, now: amend.next_certificate(chain, next_tls.cert_pem, stolen=False, now_ms=now))
    made = amend.only_certificate(desk.controller.soft.chain, desk.now)
    desk.fleet.commit({"policies/trust/root/3.json": seal_root(made, desk.fleet.root_signer)})
    desk.controller.close()
    (desk.fleet.state / NEXT_TLS_KEY).replace(desk.fleet.state / TLS_KEY)  # and there it died
    desk.start()
    assert shown(desk) == next_tls.cert_pem
    assert "controller_tls" not in desk.state.alarms


def test_a_host_that_slept_through_many_roots_walks_them_in_order_so_many_at_a_time(desk: Desk) -> None:
    desk.settle(2)
    chain, files = desk.controller.soft.chain, dict[str, str | None]()
    for _ in range(2 * limits.ROOTS_PER_DIRECTIVE + 3):
        made = seal_root(renewed_root(chain, desk.now), desk.fleet.root_signer)
        chain = chain.advance(made)
        files[f"policies/trust/root/{chain.root.version}.json"] = made
    desk.commit(files)
    newest = desk.controller.soft.chain.root.version
    assert newest == chain.root.version
    agent = desk.fleet.agents["alpha"]
    seen = [agent.chain.root.version]
    for _ in range(3):
        desk.beat("alpha")
        assert agent.last is not None
        assert len(agent.last.roots) <= limits.ROOTS_PER_DIRECTIVE
        seen.append(agent.chain.root.version)
    assert seen == [1, 33, 65, newest]
    desk.beat("alpha")
    assert agent.last.roots == (), "and none twice"


def test_a_copy_of_the_newest_root_does_not_take_the_place_of_the_next_one(desk: Desk) -> None:
    """Whoever may push could otherwise keep people from ever adding another one: none is replaced or moved."""
    desk.settle(2)
    desk.commit({"policies/trust/root/2.json": desk.fleet.root_text})
    assert desk.state.refused is not None
    assert "policies/trust/root: root_version" in desk.state.refused.problems[0]
    assert len(desk.state.roots) == 1
    desk.commit({"policies/trust/root/2.json": None, "README.md": "put right\n"})
    assert desk.state.refused is None
