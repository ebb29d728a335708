"""A fleet with a signed catalog: which commits hold, what hosts are sent, and what is not even asked of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.codes.placement import CATALOG_UNKNOWN, NOT_IN_CATALOG
from gridops.base.errors import ConfigError
from gridops.controller import views
from gridops.controller.core import issue
from gridops.controller.statedir import ACCEPTED
from gridops.model.action import Load, Warm
from gridops.model.catalog import Catalog, Entry
from gridops.model.profile import Profile
from gridops.planner.eligible import launch_of
from gridops.protocol.outbox import open_entries
from gridops.trust.keys import PersonSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import RoleName, seal_root
from tests.controller.fleet import Desk, mode, profile
from tests.controller.replayed import same
from tests.trust import catalogs

FILE = "policies/trust/catalog.json"
OTHER = "sha256:" + "cd" * 32


def entry(desk: Desk, name: str = "coder", **changes: Any) -> Entry:
    """What admits a profile of the intent in force."""
    found: Profile = next(p for p in desk.state.accepted.desired.profiles if p.name == name)
    launch = launch_of(found, found.configs[0], "cpu")
    made = catalogs.entry(launch, f"{name}/q4", device_bytes=400 << 20, host_bytes=0)
    return replace(made, **changes)


def signed(desk: Desk, *entries: Entry, version: int = 1, by: PersonSigner | None = None) -> str:
    made: Catalog = catalogs.catalog(desk.fleet.chain.fleet, *entries, version=version)
    return seal_catalog(made, by or desk.fleet.person)


def warm_bodies(desk: Desk) -> list[int | None]:
    """Under which catalog the starts and loads of all hosts were made."""
    entries = [e for book in desk.state.hosts.values() for e in book.outbox.entries]
    return [e.body.catalog for e in entries if isinstance(e.body.action, Warm | Load)]


def test_hosts_are_sent_the_catalog_and_what_it_holds_runs_under_it(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk))})
    desk.settle(2)
    assert {a.known.floor for a in desk.fleet.agents.values()} == {1}
    assert all(a.last is not None and a.last.catalog is None for a in desk.fleet.agents.values()), "sent once"
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert set(warm_bodies(desk)) == {1}
    told = views.status(desk.controller.view()).trust
    assert told is not None
    assert (told.root, told.catalog, told.signed_commits, told.expired) == (1, 1, False, False)
    same(desk)


def test_what_nobody_signed_is_not_placed_and_the_reason_is_said(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk)), "profiles.d/coder.yaml": profile(sha=OTHER)})
    desk.settle(2)
    candidate = desk.controller.soft.scope("default").candidate  # type: ignore[arg-type]
    assert candidate is not None
    (missing,) = candidate.report.unplaced
    assert {line.code for line in missing.hosts} == {NOT_IN_CATALOG.code}
    assert warm_bodies(desk) == []


def test_what_ran_before_goes_on_and_is_not_started_again(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit({FILE: signed(desk)})
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert desk.book().proposal is None


REFUSED: dict[str, tuple[str, str]] = {
    "unsigned by anybody who may": ("strange", "signed by 0 of the 1 person"),
    "no envelope at all": ("{}", "expected exactly"),
    "older than the one before": ("old", "version 2 is the least that counts"),
    "another one of the same version": ("other", "another catalog 2"),
    "taken away": ("gone", "it is gone"),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_commit_with_a_catalog_that_does_not_hold_is_refused_as_a_whole_and_by_name(name: str, desk: Desk) -> None:
    desk.settle(2)
    mine = entry(desk)
    desk.commit({FILE: signed(desk, mine, version=2)})
    kind, words = REFUSED[name]
    stranger = PersonSigner.from_seed(b"z" * 32)
    texts: dict[str, str | None] = {
        "strange": signed(desk, mine, version=3, by=stranger),
        "old": signed(desk, mine, version=1),
        "other": signed(desk, mine, entry(desk, "spare"), version=2),
        "gone": None,
    }
    before = desk.state.accepted
    desk.commit({FILE: texts.get(kind, kind), "policies/mode.yaml": mode("{mode: observe, reason: stop}")})
    refused = desk.state.refused
    assert refused is not None
    assert any(problem.startswith(FILE) and words in problem for problem in refused.problems), refused.problems
    assert len([p for p in refused.problems if p.startswith(FILE)]) == 1, "it is said once"
    assert desk.state.accepted == before
    assert desk.state.catalog.version == 2
    assert refused.mode is not None, "what tightens holds all the same"
    same(desk)


def test_only_a_root_ends_the_need_for_one(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk))})
    desk.settle(2)
    root = desk.controller.soft.chain.root
    off = replace(root, version=2, fleet=desk.fleet.chain.fleet, catalog=0)
    desk.commit({"policies/trust/root/2.json": seal_root(off, desk.fleet.root_signer), FILE: None})
    assert desk.state.refused is None
    assert desk.state.catalog is None
    desk.settle(2)
    assert {a.known.floor for a in desk.fleet.agents.values()} == {0}
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    same(desk)


def test_a_root_that_asks_for_one_is_refused_without_it(desk: Desk) -> None:
    desk.settle(2)
    root = desk.controller.soft.chain.root
    on = seal_root(replace(root, version=2, fleet=desk.fleet.chain.fleet, catalog=1), desk.fleet.root_signer)
    desk.commit({"policies/trust/root/2.json": on})
    assert desk.state.refused is not None
    desk.commit({FILE: signed(desk, entry(desk))})
    assert desk.state.refused is None
    assert desk.controller.soft.chain.root.catalog == 1


def test_keys_that_leave_the_root_take_the_catalog_along_unless_it_is_signed_anew(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk))})
    desk.settle(2)
    jon = PersonSigner.from_seed(b"j" * 32)
    root = desk.controller.soft.chain.root
    roles = tuple(
        replace(r, keys=(replace(r.keys[0], holder="jon", key=jon.public.text),)) if r.name == RoleName.RELEASE else r
        for r in root.roles
    )
    following = seal_root(replace(root, version=2, fleet=desk.fleet.chain.fleet, roles=roles), desk.fleet.root_signer)
    desk.commit({"policies/trust/root/2.json": following})
    assert desk.state.refused is not None
    desk.commit({FILE: signed(desk, entry(desk), by=jon)})
    assert desk.state.refused is None
    desk.settle(2)
    assert all(a.known.catalog is not None for a in desk.fleet.agents.values()), "the same version, sent once more"


def test_a_command_made_under_an_older_catalog_is_taken_back_and_made_anew(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk))})
    desk.settle(2)
    desk.apply()  # the first step is queued and not yet sent
    assert warm_bodies(desk) == [1]
    desk.commit({FILE: signed(desk, entry(desk), entry(desk, "spare"), version=2)})
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert warm_bodies(desk)[0] == 1
    assert set(warm_bodies(desk)[1:]) == {2}
    assert [a.rejects for a in desk.fleet.agents.values()] == [[], []], "no host had to refuse anything"


def test_a_host_of_before_is_sent_nothing_new_keeps_what_it_has_and_the_plan_says_why(desk: Desk) -> None:
    for agent in desk.fleet.agents.values():
        agent.room.abilities = ("evict", "proof")
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1"]
    desk.commit({FILE: signed(desk, entry(desk)), "profiles.d/coder.yaml": profile(replicas=2)})
    desk.settle()
    assert desk.ready() == ["coder/1"]
    assert set(warm_bodies(desk)) == {None}
    candidate = desk.controller.soft.scope("default").candidate  # type: ignore[arg-type]
    assert candidate is not None
    codes = {line.code for u in candidate.report.unplaced for line in u.hosts}
    assert CATALOG_UNKNOWN.code in codes
    for agent in desk.fleet.agents.values():
        agent.room.abilities = ("catalog", "evict", "proof")
    desk.settle()
    desk.apply()
    desk.settle()
    assert desk.ready() == ["coder/1", "coder/2"]


def test_a_controller_that_starts_again_or_is_rebuilt_knows_the_catalog(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk), version=4)})
    desk.settle(2)
    known = desk.state.catalog
    desk.restart()
    assert desk.state.catalog == known
    desk.settle(2)
    desk.rebuild()
    assert desk.state.catalog == known
    assert desk.state.accepted.desired.catalog is not None


def test_a_controller_of_before_that_took_the_commit_reads_its_catalog_now(desk: Desk) -> None:
    """It accepted the commit and did not know what that file is."""
    desk.settle(2)
    text = signed(desk, entry(desk))
    desk.commit({FILE: text})
    desk.state.catalog = None
    assert desk.look() > 0
    assert desk.state.catalog.text == text
    assert desk.look() == 0


def test_a_host_that_has_seen_a_newer_catalog_is_an_alarm_until_it_is_in_force_again(desk: Desk) -> None:
    """Somebody rewound the branch, and all that the controller knew is gone: hosts know better."""
    desk.settle(2)
    before = desk.fleet.git("rev-parse", "HEAD")
    desk.commit({FILE: signed(desk, entry(desk), version=4)})
    newest = desk.fleet.git("rev-parse", "HEAD")
    desk.settle(2)
    assert "old_catalog:alpha" not in desk.state.alarms
    desk.fleet.git("reset", "-q", "--hard", before)
    with pytest.raises(ConfigError, match=r"catalog\.json: bad_catalog: it is gone, and version 4 is the least"):
        desk.rebuild()
    (desk.fleet.state / ACCEPTED).unlink()  # what was in force, beside the journal
    desk.rebuild()
    assert desk.state.catalog is None
    desk.settle(3)
    assert "it has seen catalog 4, and the commit in force has none" in desk.state.alarms["old_catalog:alpha"].text
    assert desk.state.held("alpha") is None, "what ends something goes on"
    desk.fleet.git("reset", "-q", "--hard", newest)
    desk.look()
    desk.settle(2)
    assert "old_catalog:alpha" not in desk.state.alarms


def test_a_directive_with_a_catalog_is_never_longer_than_hosts_read() -> None:
    text = "x" * (200 << 10)
    kept = issue._fitting((text,) * 5, 256 << 10)
    assert len(kept) == 3, "the others come with the next answer"
    assert issue._fitting(("x",) * limits.GRANTS_PER_DIRECTIVE, 256 << 10) == ("x",) * limits.GRANTS_PER_DIRECTIVE


def test_what_the_target_holds_and_nobody_signs_any_more_waits_in_words(desk: Desk) -> None:
    desk.settle(2)
    desk.commit({FILE: signed(desk, entry(desk))})
    desk.settle(2)
    desk.apply()
    desk.commit({FILE: signed(desk, version=2)})
    desk.settle()
    assert desk.ready() == []
    left = [e.body.action for book in desk.state.hosts.values() for e in open_entries(book.outbox)]
    assert not [action for action in left if isinstance(action, Warm | Load)]
    assert any("catalog 2" in line for line in desk.controller.soft.scope("default").waits)  # type: ignore[arg-type]
