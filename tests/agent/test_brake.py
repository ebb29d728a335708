"""The brake: how many models a host lets go without a person's word, whoever asks."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.codes import protocol as codes
from gridops.base.ids import Digest, ReplicaId
from gridops.base.record import digest_of
from gridops.model.action import Drain, Operate
from gridops.model.snapshot import ResidencyState
from gridops.protocol.fence import new_fence
from gridops.protocol.messages import Authority
from gridops.protocol.receipts import new_receipts, stored
from gridops_agent.core.events import Act, Began, Heard
from gridops_agent.core.heart import step
from gridops_agent.core.state import Brake, Held, Host
from gridops_agent.ledger import Ledger
from gridops_agent.statefolder import spare_roots
from tests.agent.site import Site
from tests.protocol import build as b

MODELS = limits.STANDING_STOPS + 2


class Crowd:
    """A host with many ready models, and a controller that wants them gone."""

    def __init__(self) -> None:
        fence = new_fence(b.FLEET, b.HOST, b.HOST_KEY)
        receipts = new_receipts(b.FLEET, b.HOST, b.HOST_KEY)
        held = {Digest(f"sha256:{n:064x}"): self.model(n) for n in range(MODELS)}
        host = Host(boot="b1", chain=b.CHAIN, roots=(b.CHAIN.text,), fence=fence, receipts=receipts)
        self.host = replace(host, held=MappingProxyType(held))
        self.now, self.prev, self.seq = b.NOW, b.START, 0

    def model(self, n: int) -> Held:
        warm = replace(b.warm(), replica=ReplicaId(f"coder/{n + 1}"))
        return Held(
            body=Digest(f"sha256:{n:064x}"),
            warm=warm,
            state=ResidencyState.READY,
            since_ms=b.NOW,
            serves=warm.serves,
            restart=warm.restart,
            drain_ms=warm.drain_ms,
        )

    def operate(self, n: int, authority: Authority, **changes: Any) -> str | None:
        """New terms for model `n`; the code of a refusal, or None where they hold."""
        return self._ordered(replace(b.operate(), **{**self._model(n), **changes}), authority)

    def drain(self, n: int, authority: Authority | None = None) -> str | None:
        """Drains model `n`, without an authority by an approval; the code of a refusal, or None where it begins."""
        return self._ordered(replace(b.drain(), **self._model(n)), authority)

    def _model(self, n: int) -> dict[str, Any]:
        return {"incarnation": Digest(f"sha256:{n:064x}"), "replica": ReplicaId(f"coder/{n + 1}")}

    def _ordered(self, action: Drain | Operate, authority: Authority | None) -> str | None:
        self.seq += 1
        body = b.body(self.seq, self.prev, action)
        self.prev = digest_of(body)
        grant = b.grant(
            body, authority=authority or b.approved(action), issued_ms=self.now, not_after_ms=self.now + 60_000
        )
        directive = b.directive(grants=(b.sealed(grant),), acked_rseq=self.host.receipts.head)
        self.host = step(self.host, Heard(directive, floor_ms=self.now, epoch=1), self.now).host
        done = step(self.host, Began(digest_of(body)), self.now)
        self.host = done.host
        if Act(digest_of(body)) in done.effects:
            return None
        receipt = stored(self.host.receipts, digest_of(body))
        assert receipt is not None
        return receipt.code


@pytest.fixture
def crowd() -> Crowd:
    return Crowd()


def test_standing_permission_takes_so_many_models_out_of_service_and_no_more(crowd: Crowd) -> None:
    said = [crowd.drain(n, b.STANDING) for n in range(MODELS)]
    assert said == [None] * limits.STANDING_STOPS + [codes.BRAKE.code] * 2
    serving = [held for held in crowd.host.held.values() if held.state is ResidencyState.READY]
    assert len(serving) == 2, "the rest goes on serving"


def test_an_approval_is_not_braked_and_does_not_use_the_brake_up(crowd: Crowd) -> None:
    assert [crowd.drain(n) for n in range(MODELS)] == [None] * MODELS
    assert crowd.host.brake == Brake()


def test_a_person_can_go_on_where_the_brake_holds(crowd: Crowd) -> None:
    for n in range(limits.STANDING_STOPS):
        crowd.drain(n, b.STANDING)
    assert crowd.drain(MODELS - 1, b.STANDING) == codes.BRAKE.code
    assert crowd.drain(MODELS - 1) is None


def test_the_brake_lets_go_when_the_window_has_passed(crowd: Crowd) -> None:
    for n in range(limits.STANDING_STOPS):
        crowd.drain(n, b.STANDING)
    crowd.now += limits.STANDING_STOPS_WINDOW_MS - 1
    assert crowd.drain(MODELS - 2, b.STANDING) == codes.BRAKE.code
    crowd.now += 1
    assert crowd.drain(MODELS - 2, b.STANDING) is None
    assert len(crowd.host.brake.stops_ms) == 1, "what has passed is forgotten"


def test_draining_what_drains_already_does_not_count(crowd: Crowd) -> None:
    for _ in range(limits.STANDING_STOPS + 1):
        assert crowd.drain(0, b.STANDING) is None
    assert len(crowd.host.brake.stops_ms) == 1


RELABELS: dict[str, dict[str, Any]] = {
    "another name": {"replica": ReplicaId("chat/1")},
    "no id of its own": {"serves": ()},
    "the id of another": {"serves": ("chat",)},
}


@pytest.mark.parametrize("change", RELABELS.values(), ids=RELABELS.keys())
def test_new_names_by_standing_permission_take_models_out_of_service_too(crowd: Crowd, change: dict[str, Any]) -> None:
    """What nobody can ask for any more is gone for its callers, and under another name an approval of that one's end
    would speak for it."""
    said = [crowd.operate(n, b.STANDING, **change) for n in range(MODELS)]
    assert said == [None] * limits.STANDING_STOPS + [codes.BRAKE.code] * 2
    assert crowd.drain(MODELS - 1, b.STANDING) == codes.BRAKE.code, "one brake for both"


def test_new_terms_that_take_nothing_away_are_not_braked(crowd: Crowd) -> None:
    assert [crowd.operate(n, b.STANDING, serves=("coder", "more")) for n in range(MODELS)] == [None] * MODELS
    assert crowd.host.brake == Brake()


def test_the_brake_outlives_the_agent(site: Site) -> None:
    ledger = Ledger.open(site.config.ledger, site.identity, spare_roots(site.config), 1)
    host = ledger.load("b1")
    assert host.brake == Brake(), "a ledger from before the brake has no row of it"
    ledger.write(host, replace(host, brake=Brake(stops_ms=(1, 2))))
    ledger.close()
    ledger = Ledger.open(site.config.ledger, site.identity, spare_roots(site.config), 1)
    assert ledger.load("b2").brake == Brake(stops_ms=(1, 2))
    ledger.close()
