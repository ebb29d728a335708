"""Who signs a catalog, how a newer one takes the place of an older one, and what ends the need for one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.base.record import to_bytes
from gridops.model.catalog import Catalog, Entry, Slot
from gridops.trust import envelope
from gridops.trust.release import (
    NONE_KNOWN,
    KnownCatalog,
    again,
    demanded,
    open_catalog,
    read_catalog,
    seal_catalog,
    take,
)
from gridops.trust.root import RoleName
from tests.protocol import build
from tests.trust import catalogs
from tests.trust.catalogs import released, signed, then
from tests.trust.people import chain_of, person, role, root

ENTRY = catalogs.entry(build.warm().launch)
CHAIN = released(2, "ann", "bob", "cid")


def _catalog(version: int = 1, fleet: Digest | None = None, *entries: Entry) -> Catalog:
    return catalogs.catalog(fleet or CHAIN.fleet, *(entries or (ENTRY,)), version=version)


def refused(text: str, chain: Any = CHAIN, known: KnownCatalog = NONE_KNOWN) -> str:
    with pytest.raises(Refusal) as caught:
        take(known, chain, text)
    return caught.value.code


def test_as_many_release_people_as_the_root_demands_make_it_count() -> None:
    known = take(NONE_KNOWN, CHAIN, signed(_catalog(), "ann", "cid"))
    assert (known.floor, known.catalog) == (1, _catalog())


def test_it_goes_from_hand_to_hand() -> None:
    first = signed(_catalog(), "bob")
    draft = read_catalog(CHAIN, first)
    assert (draft.complete, draft.signed, draft.missing) == (False, ("bob",), ("ann", "cid"))
    second = read_catalog(CHAIN, envelope.countersign(first, kind="catalog", signer=person("ann")))
    assert (second.complete, second.signed, second.missing) == (True, ("ann", "bob"), ("cid",))
    assert open_catalog(CHAIN, second.text) == _catalog()


def _raw(catalog: Catalog, *names: str, kind: str = "catalog") -> str:
    return envelope.seal(kind, to_bytes(catalog), *(person(name) for name in names))


NOT_BELIEVED: dict[str, tuple[Callable[[], str], str]] = {
    "signed by one of two": (lambda: signed(_catalog(), "ann"), "catalog_threshold"),
    "signed twice by one": (
        lambda: envelope.countersign(signed(_catalog(), "ann"), kind="catalog", signer=person("ann")),
        "catalog_threshold",
    ),
    "signed by one and a stranger": (lambda: signed(_catalog(), "ann", "zoe"), "catalog_threshold"),
    "signed by approvers": (lambda: signed(_catalog(), "mira", "jon"), "catalog_threshold"),
    "signed by root keys": (lambda: signed(_catalog(), "mira.root", "jon.root"), "catalog_threshold"),
    "signed as another kind": (lambda: _raw(_catalog(), "ann", "bob", kind="approval"), "wrong_kind"),
    "of another fleet": (lambda: signed(_catalog(1, build.FLEET), "ann", "bob"), "wrong_fleet"),
    "no envelope": (lambda: "{}", "bad_envelope"),
    "of version zero": (lambda: _raw(_catalog(0), "ann", "bob"), "bad_schema"),
    "of an unknown form": (lambda: _raw(replace(_catalog(), v=2), "ann", "bob"), "bad_schema"),
}


@pytest.mark.parametrize("name", sorted(NOT_BELIEVED))
def test_what_the_release_people_did_not_sign_so_is_no_catalog(name: str) -> None:
    make, code = NOT_BELIEVED[name]
    assert refused(make()) == code


CONTRADICTIONS: dict[str, Catalog] = {
    "entries out of order": replace(_catalog(), entries=(replace(ENTRY, name="b"), replace(ENTRY, name="a"))),
    "an entry twice": replace(_catalog(), entries=(ENTRY, ENTRY)),
    "an entry without a name": _catalog(1, None, replace(ENTRY, name="")),
    "an entry without files": _catalog(1, None, replace(ENTRY, artifacts=())),
    "an entry without a backend": _catalog(1, None, replace(ENTRY, backends=())),
    "backends out of order": _catalog(1, None, replace(ENTRY, backends=("cuda", "cpu"))),
    "no context": _catalog(1, None, replace(ENTRY, context=0)),
    "less than no memory": _catalog(1, None, replace(ENTRY, host_bytes=-1)),
    "half a range": _catalog(1, None, replace(ENTRY, args=(Slot(name="threads", low=1),))),
    "a range that ends before it begins": _catalog(1, None, replace(ENTRY, args=(Slot(name="t", low=2, high=1),))),
    "values out of order": _catalog(1, None, replace(ENTRY, args=(Slot(name="t", values=("b", "a")),))),
    "an argument twice": _catalog(1, None, replace(ENTRY, args=(Slot(name="t"), Slot(name="t")))),
    "too many entries": replace(
        _catalog(), entries=tuple(replace(ENTRY, name=f"{n:05d}", artifacts=ENTRY.artifacts) for n in range(1_025))
    ),
    "too many values": _catalog(
        1, None, replace(ENTRY, args=(Slot(name="t", values=tuple(f"{n:04d}" for n in range(257))),))
    ),
}


@pytest.mark.parametrize("name", sorted(CONTRADICTIONS))
def test_a_catalog_that_contradicts_itself_is_neither_signed_nor_read(name: str) -> None:
    with pytest.raises(Refusal) as caught:
        seal_catalog(CONTRADICTIONS[name], person("ann"))
    assert caught.value.code == "bad_schema"
    if name != "too many entries":  # its envelope is refused for its size before anything in it is looked at
        assert refused(_raw(CONTRADICTIONS[name], "ann", "bob")) == "bad_schema"


def test_versions_only_rise() -> None:
    known = take(NONE_KNOWN, CHAIN, signed(_catalog(5), "ann", "bob"))
    assert refused(signed(_catalog(4), "ann", "bob"), known=known) == "old_catalog"
    assert take(known, CHAIN, signed(_catalog(6), "ann", "bob")).floor == 6


def test_the_same_catalog_signed_by_others_takes_its_place_and_another_of_its_version_does_not() -> None:
    known = take(NONE_KNOWN, CHAIN, signed(_catalog(5), "ann", "bob"))
    anew = signed(_catalog(5), "bob", "cid")
    assert take(known, CHAIN, anew) == KnownCatalog(5, anew, _catalog(5))
    other = signed(_catalog(5, None, replace(ENTRY, lanes=9)), "ann", "bob")
    assert refused(other, known=known) == "old_catalog"


def test_whoever_has_seen_one_goes_on_asking_for_it() -> None:
    assert demanded(NONE_KNOWN, CHAIN) == 0
    assert demanded(take(NONE_KNOWN, CHAIN, signed(_catalog(5), "ann", "bob")), CHAIN) == 5


def test_a_root_can_demand_one_of_a_host_that_has_never_seen_any() -> None:
    chain = released(1, catalog=3)
    assert demanded(NONE_KNOWN, chain) == 3
    low = signed(catalogs.catalog(chain.fleet, ENTRY, version=2))
    assert refused(low, chain) == "old_catalog"
    assert take(NONE_KNOWN, chain, signed(catalogs.catalog(chain.fleet, ENTRY, version=3))).floor == 3


def test_a_key_that_is_believed_no_more_takes_its_word_along_and_the_need_stays() -> None:
    chain = released(1)
    known = take(NONE_KNOWN, chain, signed(catalogs.catalog(chain.fleet, ENTRY, version=5), "ann"))
    without_ann = again(known, then(chain, 1, "bob"))
    assert (without_ann.floor, without_ann.catalog) == (5, None)
    assert demanded(without_ann, then(chain, 1, "bob")) == 5
    by_bob = signed(catalogs.catalog(chain.fleet, ENTRY, version=5), "bob")
    assert take(without_ann, then(chain, 1, "bob"), by_bob).catalog is not None
    assert again(known, then(chain, 1, "ann", "bob")) == known


def test_more_people_demanded_later_count_for_the_catalog_of_before_too() -> None:
    chain = released(1)
    known = take(NONE_KNOWN, chain, signed(catalogs.catalog(chain.fleet, ENTRY), "ann"))
    assert again(known, then(chain, 2, "ann", "bob")).catalog is None


def test_nobody_who_may_sign_is_nobody_who_did() -> None:
    chain = chain_of(root())
    assert chain.root.role(RoleName.RELEASE) is None
    assert refused(signed(catalogs.catalog(chain.fleet, ENTRY), "ann"), chain) == "catalog_threshold"


def test_only_a_root_ends_the_need_for_one_and_then_a_smaller_version_may_follow() -> None:
    """Also the way back after a stolen release key signed a version that nothing can follow."""
    chain = released(1)
    known = take(NONE_KNOWN, chain, signed(catalogs.catalog(chain.fleet, ENTRY, version=9_000), "ann"))
    off = then(chain, catalog=0)
    assert again(known, off) == NONE_KNOWN
    assert demanded(known, off) == 0
    assert take(known, off, signed(catalogs.catalog(chain.fleet, ENTRY, version=9_001), "ann")) == NONE_KNOWN
    on = then(off, 1, "bob", catalog=6)
    assert take(again(known, off), on, signed(catalogs.catalog(chain.fleet, ENTRY, version=6), "bob")).floor == 6


def test_a_root_that_demands_less_than_nothing_cannot_hold() -> None:
    with pytest.raises(Refusal) as caught:
        chain_of(root(role(RoleName.RELEASE, 1, "ann"), catalog=-1))
    assert caught.value.code == "bad_schema"
