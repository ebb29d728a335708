"""An apply whose controller goes away: what is known of it, and how to look when somebody answers again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gridops.base.errors import Unreachable
from gridops.base.ids import PersonName
from gridops.cli import apply as module
from gridops.cli.client import Client, connect
from gridops.cli.output import Context
from gridops.cli.person import chain_of
from gridops.cli.requests import Desk
from gridops.trust.keys import PersonSigner

PLAN = "20261129T183000Z-7f3a2c19"
LOOKS = ("gridops plans list", f"gridops apply {PLAN} --resume")
PATIENT = module.Asked(confirm=(), resume=False, detach=False, approvals=(), approve_only=None)


@pytest.fixture
def at(trusted: Any, controller: Any) -> Desk:
    client = connect(Context(directory=trusted.root))
    return Desk(PersonName("mira"), PersonSigner.from_seed(b"p" * 32), chain_of(trusted.root), client)


def nobody(*args: object, **more: object) -> Any:
    raise Unreachable("controller https://127.0.0.1:9: no answer (refused)", hints=("is it running? gridops watch",))


def test_a_controller_that_goes_away_during_an_apply_leaves_it_going_on(
    at: Desk, controller: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    step = {"n": 1, "state": "running", "action": "place", "replica": "coder/1", "host": "alpha", "phase": "warm"}
    controller.answers[f"/v1/plans/{PLAN}"] = (200, {"apply": {"outcome": None, "steps": [step]}})
    asks = Client.get

    def once(self: Client, path: str, **params: Any) -> Any:
        answer = asks(self, path, **params)
        monkeypatch.setattr(Client, "get", nobody)
        return answer

    monkeypatch.setattr(Client, "get", once)
    with pytest.raises(Unreachable, match=rf"plan {PLAN} was taken over and goes on without me") as lost:
        module._follow(Context(directory=tmp_path), at, {"plan": PLAN}, PATIENT)
    assert lost.value.exit_code == 69
    assert all(any(look in hint for hint in lost.value.hints) for look in (*LOOKS, "gridops watch"))


@pytest.mark.parametrize("resume", [False, True])
def test_a_request_whose_answer_is_lost_may_have_arrived(
    at: Desk, monkeypatch: pytest.MonkeyPatch, resume: bool
) -> None:
    class Plan:
        id, scope = PLAN, "default"

    monkeypatch.setattr(Client, "operator", nobody)
    offer = module.Offer(plan=Plan(), reads=None, digest="", last_replicas=(), needs=())  # type: ignore[arg-type]
    with pytest.raises(Unreachable, match="not known whether plan") as lost:
        module._handed_over(at, offer, resume=resume)
    assert all(any(look in hint for hint in lost.value.hints) for look in LOOKS)
