"""Check 10 of the fence: people signed what may run at all, and the key of the controller alone cannot change that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base.record import digest_of
from gridops.model.action import Action, Evict
from gridops.model.profile import EngineArg
from gridops.protocol.fence import Execute, Reject, Ruling, Standing, Voided, examine
from gridops.protocol.messages import Body, GrantMode
from gridops.trust.release import NONE_KNOWN, KnownCatalog, again, seal_catalog, take
from tests.protocol import build as b
from tests.trust import catalogs

ENTRY = catalogs.entry(b.warm().launch)
CATALOG = catalogs.catalog(b.FLEET, ENTRY, version=3)
KNOWN = take(NONE_KNOWN, b.RELEASED, seal_catalog(CATALOG, b.ANN, b.BOB))
LEVEL = b.standing(chain=b.RELEASED, known=KNOWN)


def made_under(action: Action, catalog: int | None = 3) -> Body:
    return replace(b.body(1, action=action), catalog=catalog)


def ruling(body: Body, standing: Standing = LEVEL, **changes: object) -> Ruling:
    return examine(b.fence(), b.sealed(b.grant(body, **changes)), standing)


def refused(body: Body, standing: Standing = LEVEL) -> tuple[str, str]:
    said = ruling(body, standing)
    assert isinstance(said, Reject), said
    assert said.final
    assert said.fence.head.body == digest_of(body), "its number is used up"
    return said.code, said.detail


@pytest.mark.parametrize("action", [b.load(), b.warm()], ids=lambda a: a.kind)
def test_what_the_catalog_holds_is_executed(action: Action) -> None:
    assert isinstance(ruling(made_under(action)), Execute)


def _warm(**changes: object) -> Action:
    return replace(b.warm(), launch=replace(b.warm().launch, **changes))  # type: ignore[arg-type]


OFF_CATALOG: dict[str, Action] = {
    "files that nobody signed, to be brought": b.load(2),
    "files that nobody signed, to be started": b.warm(2),
    "an argument that nobody signed": _warm(args=(EngineArg(name="rpc", value="evil.example:1"),)),
    "more context than the bound": _warm(context=4_097),
    "more lanes than the bound": _warm(lanes=2),
    "more devices than the bound": b.warm(devices=("gpu0", "gpu1")),
    "more memory than the bound": replace(b.warm(), device_bytes=1_001),
    "another engine": _warm(engine="vllm"),
    "another backend": _warm(backend="cuda"),
}


@pytest.mark.parametrize("name", sorted(OFF_CATALOG))
def test_the_controllers_key_alone_starts_nothing_else(name: str) -> None:
    assert refused(made_under(OFF_CATALOG[name]))[0] == "not_in_catalog"


@pytest.mark.parametrize("catalog", [None, 0, 1, 2])
def test_a_command_made_under_an_older_catalog_is_refused(catalog: int | None) -> None:
    assert refused(made_under(b.warm(), catalog))[0] == "old_catalog"


def test_a_command_that_claims_a_newer_catalog_is_held_against_the_one_that_is_here() -> None:
    assert isinstance(ruling(made_under(b.warm(), 9)), Execute)
    assert refused(made_under(b.warm(2), 9))[0] == "not_in_catalog"


NEVER_IN_THE_WAY: dict[str, Action] = {
    "drain": b.drain(),
    "unload": b.unload(),
    "operate": b.operate(),
    "evict": Evict(host=b.HOST, replica=b.load().replica, profile=b.load().profile, files=()),
}
NOTHING_HOLDS = again(KNOWN, b.released(b.RELEASED, 1, None, b.ADA))


@pytest.mark.parametrize("name", sorted(NEVER_IN_THE_WAY))
@pytest.mark.parametrize("known", [KNOWN, NOTHING_HOLDS], ids=["a catalog", "none that holds"])
def test_what_only_ends_or_relabels_is_never_refused_by_it(name: str, known: KnownCatalog) -> None:
    assert isinstance(ruling(made_under(NEVER_IN_THE_WAY[name], None), replace(LEVEL, known=known)), Execute)


def test_a_void_is_settled_without_it() -> None:
    assert isinstance(ruling(made_under(b.warm(2)), mode=GrantMode.VOID), Voided)


def test_without_a_catalog_nothing_is_asked() -> None:
    for chain in (b.CHAIN, b.RELEASED):
        assert isinstance(ruling(made_under(b.warm(2), None), b.standing(chain=chain)), Execute)


ASKED_FOR: dict[str, Callable[[], Standing]] = {
    "the root asks for one and none ever came": lambda: b.standing(chain=b.released(b.CHAIN, 2, 1)),
    "the root asks for a newer one": lambda: replace(LEVEL, chain=b.released(b.RELEASED, 2, 4)),
    "who signed it is believed no more": lambda: b.standing(
        chain=b.released(b.RELEASED, 1, None, b.ADA), known=NOTHING_HOLDS
    ),
}


@pytest.mark.parametrize("name", sorted(ASKED_FOR))
def test_where_one_is_asked_for_and_none_holds_nothing_starts(name: str) -> None:
    assert refused(made_under(b.warm()), ASKED_FOR[name]())[0] == "not_in_catalog"


def test_a_root_that_asks_for_none_ends_the_level() -> None:
    off = b.released(b.RELEASED, 2, 0)
    assert isinstance(ruling(made_under(b.warm(2), None), replace(LEVEL, chain=off, known=KNOWN)), Execute)


def test_its_place_is_behind_the_session_and_before_the_authority() -> None:
    off, nobody = made_under(b.warm(2)), replace(b.APPROVED, approvals=())
    stale = ruling(off, replace(LEVEL, fresh=False))
    assert isinstance(stale, Reject)
    assert (stale.code, stale.final) == ("stale_session", False)
    both = ruling(off, authority=nobody)
    assert isinstance(both, Reject)
    assert both.code == "not_in_catalog"
    last = ruling(made_under(b.warm()), authority=nobody)
    assert isinstance(last, Reject)
    assert last.code == "unapproved"
