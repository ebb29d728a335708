"""Founding a fleet: one person's first root document holds and does what the words say."""

from __future__ import annotations

import pytest

from gridops.base.ids import PersonName
from gridops.trust.found import CAN, CANNOT, YEAR_MS, Founders, first_root
from gridops.trust.operator import OperatorRequest, open_operator, seal_operator
from gridops.trust.root import RoleName, genesis, seal_root
from tests.trust.people import NOW, machine, person

FOUNDERS = Founders(
    person=PersonName("mira"),
    root_key=person("mira.root").public,
    person_key=person("mira").public,
    controller_key=machine("controller").public,
    controller_tls="a certificate",
)


def test_the_first_root_holds_and_is_signed_by_its_own_root_key() -> None:
    root = first_root(FOUNDERS, NOW)
    chain = genesis(seal_root(root, person("mira.root")))
    assert chain.root == root
    assert not chain.expired(NOW + YEAR_MS - 1)
    assert chain.expired(NOW + YEAR_MS)
    assert root.controller_tls == ("a certificate",)
    assert root.standing
    assert chain.keys(RoleName.ROOT) == (person("mira.root").public,)
    for name in (RoleName.APPROVER, RoleName.CHANGE, RoleName.RELEASE):
        assert chain.keys(name) == (person("mira").public,)
    assert chain.keys(RoleName.CONTROLLER) == (machine("controller").public,)


def test_the_founder_can_ask_and_the_root_key_is_for_roots_only() -> None:
    chain = genesis(seal_root(first_root(FOUNDERS, NOW), person("mira.root")))
    request = OperatorRequest(
        fleet=chain.fleet,
        verb="freeze",
        by=PersonName("mira"),
        nonce="n" * 32,
        issued_ms=NOW,
        not_after_ms=NOW + 60_000,
    )
    assert open_operator(seal_operator(request, person("mira")), chain, NOW) == request
    with pytest.raises(Exception, match="GO414"):
        open_operator(seal_operator(request, person("mira.root")), chain, NOW)


def test_every_role_says_what_its_key_can_do() -> None:
    assert set(CAN) == set(CANNOT) == set(RoleName)
