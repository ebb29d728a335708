"""The talk with a controller: over real TLS, pinned, signed, fresh; and what goes on while nobody answers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.errors import Failed, Refusal, Unreachable
from gridops.base.ids import Digest, HostId, PersonName
from gridops.base.record import digest_of
from gridops.model.snapshot import HostState, ResidencyState
from gridops.protocol.messages import Outcome, Term
from gridops.trust.join import Token, make_token, parse_token
from gridops.trust.keys import MachineSigner, PersonSigner
from gridops.trust.root import RoleKey, RoleName, Root, RootChain, seal_root
from gridops.trust.secret import Secret
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent.config import read_config
from gridops_agent.joining import join
from gridops_agent.shell import Agent
from tests.agent.desk import Desk, listening
from tests.agent.site import CONTROLLER, DAY, HOST, PERSON, pid_of, until, wall_ms


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


@pytest.fixture
def desk(make_site: Any, tls: TlsIdentity) -> Desk:
    return Desk(make_site(tls=tls), tls)


@asynccontextmanager
async def talking(desk: Desk) -> AsyncIterator[Agent]:
    """A running agent and its controller, beating for real."""
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            agent._loops = [asyncio.ensure_future(w) for w in (agent.talk.run(), agent.watch.run())]
            await until(lambda: bool(desk.beats), "a heartbeat")
            yield agent


async def test_a_command_travels_over_tls_and_its_receipt_comes_back(desk: Desk) -> None:
    async with talking(desk) as agent:
        body = desk.site.body(desk.site.warm())
        desk.grants = [desk.site.grant(body)]
        await until(lambda: 1 in desk.receipts, "the receipt")
        assert desk.receipts[1].outcome is Outcome.SUCCEEDED
        assert desk.receipts[1].body == digest_of(body)
        await until(lambda: desk.beats[-1].inventory.residencies[0].state is ResidencyState.READY)
        last = desk.beats[-1]
        assert (last.head.seq, last.receipt_head, last.open) == (1, 1, ())
        assert last.inventory.endpoint == agent.opened.endpoint
        assert last.inventory.front_cert == agent.opened.certificate
        assert last.inventory.cached == (desk.site.model.digest,)
        assert [b.hseq for b in desk.beats] == list(range(1, len(desk.beats) + 1))
        assert len({b.nonce for b in desk.beats}) == len(desk.beats)


async def test_receipts_are_repeated_until_they_are_acknowledged(desk: Desk) -> None:
    async with talking(desk) as agent:
        desk.changes = {"acked_rseq": 0}
        desk.grants = [desk.site.grant(desk.site.body(desk.site.load()))]
        await until(lambda: 1 in desk.receipts)
        desk.receipts.clear()
        await until(lambda: 1 in desk.receipts, "the receipt again")
        desk.changes = {}
        await until(lambda: agent.memory.host.receipts.acked == 1)


async def test_without_a_controller_what_runs_is_kept_alive_and_stays_so_after_a_restart(desk: Desk) -> None:
    async with talking(desk) as agent:
        desk.grants = [desk.site.grant(desk.site.body(desk.site.warm()))]
        await until(lambda: 1 in desk.receipts)
        keys = agent.front.table.keys
        assert keys
    async with desk.site.agent() as agent:  # nobody listens at the controller's address any more
        agent._loops = [asyncio.ensure_future(w) for w in (agent.talk.run(), agent.watch.run())]
        (body,) = agent.memory.host.held
        assert agent.front.table.keys == keys, "clients get in by the last word"
        old = pid_of(agent, body)
        os.kill(old, signal.SIGKILL)
        await until(lambda: agent.memory.host.held[body].restarts == 1)
        await until(lambda: agent.memory.host.held[body].state is ResidencyState.READY)
        assert "does not answer" in agent.talk.word
        assert not agent.hours.fresh()


async def test_a_host_that_is_not_admitted_waits_and_does_nothing(desk: Desk) -> None:
    desk.admitted = False
    async with talking(desk) as agent:
        await until(lambda: agent.talk.word.startswith("pending"))
        assert agent.memory.host.last_word.keys == ()


@pytest.mark.parametrize(
    ("changes", "signer", "code"),
    [
        ({"nonce": "of another heartbeat"}, CONTROLLER, "stale_session"),
        ({"host": HostId("other")}, CONTROLLER, "wrong_host"),
        ({"fleet": digest_bytes(b"other")}, CONTROLLER, "wrong_fleet"),
        ({"now_ms": wall_ms() + 2 * DAY, "expires_ms": wall_ms() + 3 * DAY}, CONTROLLER, "clock_disagrees"),
        ({"expires_ms": 1}, CONTROLLER, "stale_session"),
        ({}, MachineSigner.from_seed(b"thief".ljust(32, b"!")), "bad_signature"),
    ],
)
async def test_a_directive_that_is_not_for_this_moment_is_not_believed(
    desk: Desk, changes: dict[str, Any], signer: MachineSigner, code: str
) -> None:
    desk.changes, desk.signer = changes, signer
    desk.grants = [desk.site.grant(desk.site.body(desk.site.warm()))]
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            before = agent.memory.host
            with pytest.raises(Refusal) as caught:
                await agent.talk.beat()
            assert caught.value.code == code
            assert agent.memory.host is before


async def test_a_controller_that_answers_well_again_ends_what_was_said_against_it(desk: Desk) -> None:
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            for days in (2, 3):
                desk.changes = {"now_ms": wall_ms() + days * DAY, "expires_ms": wall_ms() + (days + 1) * DAY}
                assert (await agent.talk.attempt()).failures == 1
            (alarm,) = agent.alarms.now()
            assert alarm.startswith("clock_disagrees: ")
            desk.changes = {}
            assert (await agent.talk.attempt()).failures == 0
            assert desk.beats[-1].alarms == (alarm,), "it was told"
            assert agent.alarms.now() == ()


async def test_the_alarm_about_a_former_term_ends_when_a_good_term_is_obeyed_again(desk: Desk) -> None:
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            desk.changes = {"term": Term(epoch=1, counter=9)}
            assert (await agent.talk.attempt()).failures == 0
            desk.changes = {"term": Term(epoch=1, counter=8)}
            assert (await agent.talk.attempt()).failures == 1
            (alarm,) = agent.alarms.now()
            assert alarm.startswith("stale_term: ")
            assert agent.talk.word.startswith("refused: ")
            desk.changes = {"term": Term(epoch=1, counter=10)}
            assert (await agent.talk.attempt()).failures == 0
            assert desk.beats[-1].alarms == (alarm,), "it was told"
            assert agent.alarms.now() == ()
            assert agent.talk.word == "fresh"


@pytest.mark.parametrize(
    ("no", "failures"),
    [((409, "replayed"), 0), ((503, "not_ready"), 0), ((409, "bad_signature"), 2), ((503, "replayed"), 2)],
    ids=lambda v: str(v),
)
async def test_a_controller_that_lives_is_asked_at_the_usual_pace_whatever_it_refuses_for_now(
    desk: Desk, no: tuple[int, str], failures: int
) -> None:
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            desk.no = no
            work = asyncio.ensure_future(agent.talk.run())
            await until(lambda: len(desk.beats) >= 2)
            await until(lambda: agent.talk.pace.failures >= failures)
            assert agent.talk.pace.wakes is (failures == 0)
            desk.no = None
            await until(lambda: agent.talk.word == "fresh")
            work.cancel()


async def test_an_hour_between_the_clocks_is_no_reason_to_stop(desk: Desk) -> None:
    desk.site.offset_ms = 3_600_000
    async with talking(desk) as agent:
        desk.grants = [desk.site.grant(desk.site.body(desk.site.load()))]
        await until(lambda: 1 in desk.receipts)
        assert desk.receipts[1].outcome is Outcome.SUCCEEDED
        assert abs(agent.hours.now_ms() - wall_ms() - 3_600_000) < 5_000


async def test_another_certificate_than_the_pinned_one_is_refused(desk: Desk) -> None:
    desk.tls = self_signed(("127.0.0.1",), wall_ms() - DAY, 300)
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            with pytest.raises(Unreachable, match="does not answer"):
                await agent.talk.beat()
    assert desk.beats == []


def repinned(chain: RootChain, version: int, *certificates: str) -> str:
    """The next root document, with other certificates of the controller."""
    return seal_root(replace(chain.root, version=version, fleet=chain.fleet, controller_tls=certificates), PERSON)


async def test_a_host_that_slept_through_a_rotation_of_the_certificate_asks_for_the_roots(desk: Desk) -> None:
    """It pins a certificate that nobody shows any more; documents prove themselves, so anybody may be asked."""
    new = self_signed(("127.0.0.1",), wall_ms() - DAY, 300)
    chain = desk.site.chain
    desk.roots = [repinned(chain, 2, desk.tls.cert_pem, new.cert_pem), repinned(chain, 3, new.cert_pem)]
    desk.tls = new
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            await agent.talk.beat()
            assert agent.memory.host.chain.root.version == 3
            assert [b.root_version for b in desk.beats] == [1], "the same heartbeat, told again"


@pytest.mark.parametrize("lie", ["nobody signed it", "the same pins"])
async def test_somebody_between_with_another_certificate_hears_nothing_but_a_question_for_roots(
    desk: Desk, lie: str
) -> None:
    own, chain = self_signed(("127.0.0.1",), wall_ms() - DAY, 300), desk.site.chain
    pins = (own.cert_pem,) if lie == "nobody signed it" else chain.root.controller_tls
    root = replace(chain.root, version=2, fleet=chain.fleet, controller_tls=pins)
    stranger = PersonSigner.from_seed(b"s" * 32)
    desk.roots = [seal_root(root, stranger if lie == "nobody signed it" else PERSON)]
    desk.tls = own
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            with pytest.raises(Unreachable, match="another certificate than the pinned one"):
                await agent.talk.beat()
            assert agent.memory.host.chain.root.controller_tls == chain.root.controller_tls
    assert desk.beats == []


async def test_a_rotated_controller_key_is_learnt_from_the_roots_and_kept(desk: Desk) -> None:
    new = MachineSigner.from_seed(b"n" * 32)
    first = desk.site.chain.root
    roles = tuple(
        replace(r, keys=(RoleKey(holder=PersonName("controller"), key=new.public.text),))
        if r.name is RoleName.CONTROLLER
        else r
        for r in first.roles
    )
    second: Root = replace(first, version=2, fleet=desk.site.chain.fleet, roles=roles, controller_epoch=2)
    desk.roots = [seal_root(second, PERSON)]
    desk.signer = new
    desk.site.term = replace(desk.site.term, epoch=2)
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            await agent.talk.beat()
            assert agent.memory.host.chain.root.version == 2
            assert agent.memory.host.fence.term.epoch == 2
        async with desk.site.agent() as agent:
            assert agent.memory.host.chain.root.version == 2, "after a restart too"
    assert len(list(desk.site.config.roots.glob("*.json"))) == 2


async def test_a_host_without_its_memory_hears_the_controller_and_takes_no_command(desk: Desk) -> None:
    desk.site.config.ledger.write_bytes(b"rotten" * 1_000)
    async with talking(desk) as agent:
        desk.grants = [desk.site.grant(desk.site.body(desk.site.load()))]
        seen = len(desk.beats)
        await until(lambda: len(desk.beats) >= seen + 3, "more heartbeats")
        last = desk.beats[-1]
        assert last.inventory.state is HostState.UNHEALTHY
        assert any(alarm.startswith("ledger_damaged") for alarm in last.alarms)
        assert (last.head.seq, last.receipt_head) == (0, 0), "a number that it may have used before is not used again"
        assert agent.memory.host.commands == {}
    assert desk.receipts == {}


@pytest.mark.parametrize("raw", [[], {}, {"directive": 7}, "x"])
async def test_nonsense_from_the_other_side_is_an_unreachable_controller(desk: Desk, raw: Any) -> None:
    desk.raw = raw
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            with pytest.raises(Unreachable, match="is it a gridops controller"):
                await agent.talk.beat()


async def test_once_carries_out_what_is_wanted_and_delivers_the_receipts(desk: Desk) -> None:
    desk.grants = [desk.site.grant(desk.site.body(desk.site.warm()))]
    async with listening(desk) as url:
        desk.site.config = replace(desk.site.config, controller=url)
        async with desk.site.agent() as agent:
            assert await agent.once() == "fresh"
    assert desk.receipts[1].outcome is Outcome.SUCCEEDED
    assert len(desk.site.processes()) == 1


# --- joining --------------------------------------------------------------------------------------------------------


def invited(desk: Desk, url: str, folder: Path, secret: bytes = b"s" * 32) -> tuple[Any, Token]:
    token = parse_token(make_token(desk.site.chain.fleet, HOST, secret))
    return replace(desk.site.config, state=folder, controller=url, fleet=token.fleet), token


async def test_joining_proves_both_sides_and_leaves_a_complete_state_folder(desk: Desk, tmp_path: Path) -> None:
    async with listening(desk) as url:
        config, token = invited(desk, url, tmp_path / "new")
        joined = await join(config, token, "0.1.0")
        assert read_config(config.state) == config
        async with Agent(config, "0.1.0") as agent:
            assert agent.memory.host.chain.fleet == desk.site.chain.fleet
            assert agent.memory.host.fence.host_key == joined.key.text
        for secret in (config.seed, config.front_key, config.ledger):
            assert secret.stat().st_mode & 0o077 == 0
        with pytest.raises(Failed, match="joined a fleet already"):
            await join(config, token, "0.1.0")


async def test_a_wrong_token_a_false_controller_and_a_false_fleet_are_refused_and_can_be_tried_again(
    desk: Desk, tmp_path: Path
) -> None:
    async with listening(desk) as url:
        config, token = invited(desk, url, tmp_path / "new", b"x" * 32)
        with pytest.raises(Refusal, match="not this token"):
            await join(config, token, "0.1.0")
        config, token = invited(desk, url, tmp_path / "new")
        desk.changes = {"mac": "0" * 64}
        with pytest.raises(Refusal) as caught:
            await join(config, token, "0.1.0")
        assert caught.value.code == "bad_mac"
        desk.changes = {}
        other = Token(fleet=Digest(digest_bytes(b"other")), host=HOST, secret=Secret(b"s" * 32))
        with pytest.raises(Refusal) as caught:
            await join(replace(config, fleet=other.fleet), other, "0.1.0")
        assert caught.value.code == "wrong_fleet"
        assert not config.file.exists()
        before = config.seed.read_bytes()
        await join(config, token, "0.1.0")
        assert config.seed.read_bytes() == before, "a repeated try keeps the host's key"
