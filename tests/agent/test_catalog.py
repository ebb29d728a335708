"""A host and the catalog that people signed: what it remembers, what it refuses by it, and what it leaves alone."""

from __future__ import annotations

import asyncio
import sqlite3
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.ids import PersonName
from gridops.base.record import digest_of, to_bytes
from gridops.model.action import Warm
from gridops.model.catalog import Catalog, Entry, Network
from gridops.model.profile import EngineArg
from gridops.model.snapshot import ResidencyState
from gridops.protocol.fresh import ask, begin
from gridops.protocol.messages import Heartbeat, Outcome
from gridops.trust.envelope import seal
from gridops.trust.keys import PersonSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import Role, RoleKey, RoleName, seal_root
from gridops_agent import admission
from gridops_agent.core.events import Act, Began, Died, Effect, Heard, RetryDue, RootsCame, StartAgain, Warn
from gridops_agent.core.report import Readings, heartbeat
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity, host_of, rows_of
from gridops_agent.shell import Agent
from gridops_agent.status import status
from gridops_agent.status_lines import render
from tests.agent.site import PERSON, Site, command, done, receipt
from tests.agent.story import Story
from tests.protocol import build as b
from tests.trust import catalogs

ENTRY = catalogs.entry(b.warm().launch)


def catalog(version: int = 3, *entries: Entry) -> Catalog:
    return catalogs.catalog(b.FLEET, *(entries or (ENTRY,)), version=version)


def sealed(of: Catalog, *signers: PersonSigner) -> str:
    return seal_catalog(of, *(signers or (b.ANN, b.BOB)))


@pytest.fixture
def level(story: Story) -> Story:
    """A host of a fleet with a catalog, which has it."""
    story.tell(RootsCame((b.RELEASED.text,)))
    assert story.hear(catalog=sealed(catalog())) == ()
    return story


def said(story: Story) -> Heartbeat:
    session = ask(begin(b.FLEET, b.HOST, "b1"), "n", 1)
    return heartbeat(story.host, session, "n", story.now, "0.1.0", Readings())


def refusal(story: Story, action: Any, catalog: int | None = 3) -> str | None:
    """The code of a command's final refusal at the fence; None where it is accepted."""
    prev = digest_of(story.bodies[-1]) if story.bodies else b.START
    body = replace(b.body(len(story.bodies) + 1, prev, action), catalog=catalog)
    story.bodies.append(body)
    story.hear(b.sealed(b.grant(body)))
    if digest_of(body) in story.host.commands:
        return None
    outcome, code = story.said(digest_of(body))
    assert outcome is Outcome.REFUSED
    return code


def warned(effects: tuple[Effect, ...]) -> list[str]:
    return [effect.code for effect in effects if isinstance(effect, Warn)]


def argument(**pairs: str) -> Warm:
    args = tuple(EngineArg(name=n, value=v) for n, v in sorted(pairs.items()))
    return replace(b.warm(), launch=replace(b.warm().launch, args=args))


# --- what is remembered -------------------------------------------------------------------------------------------


def test_a_host_that_has_seen_none_says_nothing_of_it_and_that_it_knows_what_one_is(story: Story) -> None:
    word = said(story)
    assert word.catalog_version is None
    assert b"catalog_version" not in to_bytes(word), "a controller of before reads what it always read"
    assert "catalog" in (word.inventory.abilities or ())


def test_a_catalog_is_taken_before_the_grants_beside_it(story: Story) -> None:
    story.tell(RootsCame((b.RELEASED.text,)))
    off = b.body(1, action=b.warm(2))
    story.hear(b.sealed(b.grant(replace(off, catalog=3))), catalog=sealed(catalog()))
    assert said(story).catalog_version == 3
    assert [r.code for r in story.host.receipts.kept] == ["not_in_catalog"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (sealed(catalog(2)), "old_catalog"),
        (sealed(catalog(3, replace(ENTRY, lanes=9))), "old_catalog"),
        (sealed(catalog(9), b.ANN), "catalog_threshold"),
        (sealed(catalog(9), b.ADA, b.ADA), "catalog_threshold"),
        (seal("directive", to_bytes(catalog(9)), b.CONTROLLER), "wrong_kind"),
        ("{}", "bad_envelope"),
    ],
    ids=["replayed", "of the same version", "by one of two", "by another role", "by the controller", "no envelope"],
)
def test_what_is_no_newer_catalog_changes_nothing_and_is_shown(level: Story, text: str, code: str) -> None:
    before = level.host.known
    assert warned(level.hear(catalog=text)) == [code]
    assert level.host.known == before
    assert refusal(level, b.warm(2)) == "not_in_catalog"


def test_a_controller_that_stops_sending_it_ends_nothing(level: Story) -> None:
    for _ in range(3):
        level.hear()
    assert refusal(level, b.warm(2), None) == "old_catalog"
    assert refusal(level, b.warm(2)) == "not_in_catalog"
    assert refusal(level, b.warm()) is None


def test_it_comes_back_from_the_ledger_with_the_highest_version(level: Story, tmp_path: Path) -> None:
    path, identity = tmp_path / "ledger.sqlite", Identity(fleet=b.FLEET, host=b.HOST, host_key=b.HOST_KEY)
    ledger = Ledger.create(path, identity, (b.CHAIN.text,))
    empty = ledger.load("b1")
    ledger.write(empty, level.host)
    ledger.close()
    again = Ledger.open(path, identity, (), 1)
    level.host = replace(again.load("b2"), measured=level.host.measured)
    again.close()
    assert level.host.known.floor == 3
    assert refusal(level, b.warm(2)) == "not_in_catalog"
    assert warned(level.hear(catalog=sealed(catalog(2)))) == ["old_catalog"]


def test_an_agent_of_before_refuses_a_ledger_that_knows_catalogs(level: Story, tmp_path: Path) -> None:
    """It would start whatever it is told: what bears a higher form is left alone."""
    path, identity = tmp_path / "ledger.sqlite", Identity(fleet=b.FLEET, host=b.HOST, host_key=b.HOST_KEY)
    Ledger.create(path, identity, (b.CHAIN.text,)).close()
    database = sqlite3.connect(path)
    assert database.execute("PRAGMA user_version").fetchone()[0] > 2
    database.close()


def test_keys_that_are_believed_no_more_take_the_catalog_along_until_it_is_signed_anew(level: Story) -> None:
    level.tell(RootsCame((b.released(b.RELEASED, 1, None, b.ADA).text,)))
    assert said(level).catalog_version == 0
    assert refusal(level, b.warm()) == "not_in_catalog"
    identity = Identity(fleet=b.FLEET, host=b.HOST, host_key=b.HOST_KEY)
    restarted = host_of({("identity", ""): identity, **rows_of(level.host)}, "b2")
    assert restarted.known == level.host.known, "also after a restart"
    assert warned(level.hear(catalog=sealed(catalog()))) == ["catalog_threshold"], "the retired keys"
    assert level.hear(catalog=sealed(catalog(), b.ADA)) == ()
    assert said(level).catalog_version == 3
    assert refusal(level, b.warm()) is None


def test_only_a_root_ends_it_and_the_ledger_forgets_it_with_the_root(level: Story) -> None:
    level.tell(RootsCame((b.released(b.RELEASED, 2, 0).text,)))
    assert said(level).catalog_version is None
    assert ("catalog", "") not in rows_of(level.host)
    assert refusal(level, b.warm(2), None) is None


def test_two_roots_at_once_end_what_was_signed_too_high_and_begin_anew(level: Story) -> None:
    level.hear(catalog=sealed(catalog(2**53 - 1)))
    off = b.released(b.RELEASED, 2, 0)
    level.tell(RootsCame((off.text, b.released(off, 1, 4, b.ADA).text)))
    assert refusal(level, b.warm(), None) == "not_in_catalog", "asked for, and none is here"
    level.hear(catalog=sealed(catalog(4), b.ADA))
    assert said(level).catalog_version == 4


# --- what is refused ----------------------------------------------------------------------------------------------


def test_an_argument_that_nobody_signed_reaches_no_engine(level: Story) -> None:
    assert refusal(level, argument(rpc="evil.example:1")) == "not_in_catalog"
    assert level.host.held == {}
    assert level.host.commands == {}


def test_a_command_that_waited_is_asked_again_when_its_effect_begins(level: Story) -> None:
    waiting, loading = level.issue(b.warm(), catalog=3), level.issue(b.load(), catalog=3)
    level.hear(catalog=sealed(catalog(4, catalogs.entry(b.warm(2).launch, "coder/q8"))))
    for body in (waiting, loading):
        assert Act(body) not in level.tell(Began(body))
        assert level.said(body) == (Outcome.REFUSED, "not_in_catalog")


def test_what_runs_is_kept_alive_whatever_a_later_catalog_says(level: Story) -> None:
    body = level.ready_under(3)
    level.hear(catalog=sealed(catalog(4, catalogs.entry(b.warm(2).launch, "coder/q8"))))
    assert level.state(body) is ResidencyState.READY
    level.tell(Died(body, "crash"))
    assert level.tell(RetryDue(body), after_ms=10_000) == (StartAgain(body),)


def test_what_ran_before_there_was_a_catalog_can_be_drained_and_ended(story: Story) -> None:
    body = story.ready()
    story.tell(RootsCame((b.RELEASED.text,)))
    story.hear(catalog=sealed(catalog(3, catalogs.entry(b.warm(2).launch, "other"))))
    for action in (story.drain_of(body), story.unload_of(body)):
        assert Act(story.begun(action)) is not None


# --- what only the host can know ----------------------------------------------------------------------------------


def by_site(site: Site, warm: Warm, **changes: Any) -> tuple[str, str]:
    """The next root of a site's fleet, with a release role, and a catalog with one entry."""
    ada = (RoleKey(holder=PersonName("ada"), key=PERSON.public.text),)
    roles = (*site.chain.root.roles, Role(name=RoleName.RELEASE, threshold=1, keys=ada))
    following = replace(
        site.chain.root, version=2, fleet=site.chain.fleet, roles=tuple(sorted(roles, key=lambda r: r.name))
    )
    entry = catalogs.entry(
        warm.launch, device_bytes=warm.device_bytes, host_bytes=warm.host_bytes, environment=VISIBLE, **changes
    )
    made = catalogs.catalog(site.chain.fleet, entry)
    return seal_root(following, PERSON), seal_catalog(made, PERSON)


VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


async def tell_catalog(agent: Agent, site: Site, root: str, text: str) -> None:
    await agent.effects.tell(RootsCame((root,)))
    directive = replace(site.directive(acked=agent.memory.host.receipts.acked), catalog=text)
    await agent.effects.tell(Heard(directive, floor_ms=directive.now_ms, epoch=1))


ELSEWHERE: dict[str, dict[str, Any]] = {
    "another build": {"builds": ("b1234",)},
    "a network of its own": {"network": Network.OWN},
}


@pytest.mark.parametrize("name", sorted(ELSEWHERE))
async def test_a_host_that_would_start_it_otherwise_does_not_start_it(name: str, site: Site) -> None:
    async with site.agent() as agent:
        warm = site.warm()
        await tell_catalog(agent, site, *by_site(site, warm, **ELSEWHERE[name]))
        answer = await receipt(agent, await command(agent, site, warm, catalog=1))
        assert (answer.outcome, answer.code) == (Outcome.REFUSED, "not_in_catalog")
        assert agent.memory.host.held == {}


async def test_variables_that_nobody_signed_are_not_set(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    async with site.agent() as agent:
        warm = site.warm()
        await tell_catalog(agent, site, *by_site(site, warm))
        engine = agent.effects._tools.engines[warm.launch.engine]
        monkeypatch.setattr(type(engine), "environment", lambda self, start: {"LD_PRELOAD": "/tmp/x.so"})
        answer = await receipt(agent, await command(agent, site, warm, catalog=1))
        assert (answer.outcome, answer.code) == (Outcome.REFUSED, "not_in_catalog")
        assert "LD_PRELOAD" in (answer.detail or "")


async def test_the_build_that_people_signed_starts_and_a_real_engine_serves(site: Site) -> None:
    async with site.agent() as agent:
        warm = site.warm()
        build = await asyncio.to_thread(agent.effects._tools.engines[warm.launch.engine].build)
        assert build, "this machine has a build that can be named"
        await tell_catalog(agent, site, *by_site(site, warm, builds=(build,)))
        assert (await done(agent, site, warm, catalog=1)).outcome is Outcome.SUCCEEDED
        assert await admission.objection(agent.memory.host, agent.effects._tools, warm) is None


async def test_people_at_the_host_read_which_catalog_it_asks_for(site: Site) -> None:
    async with site.agent() as agent:
        assert status(site.config, running=False)["catalog"] is None
        await tell_catalog(agent, site, *by_site(site, site.warm()))
    seen = status(site.config, running=False)
    assert seen["catalog"] == {"asked": 1, "version": 1}
    assert "catalog 1: nothing else starts here" in render(seen, 1)
    text = render({**seen, "catalog": {"asked": 2, "version": None}}, 1)
    assert "catalog 2 is asked for: nothing starts before" in text


def test_a_body_of_before_keeps_its_identity() -> None:
    assert b"catalog" not in to_bytes(b.body(1))
    assert digest_of(replace(b.body(1), catalog=3)) != digest_of(b.body(1))
