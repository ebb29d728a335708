"""A laptop that sleeps, by two hosts and a whole controller: waited for, replaced in time, and who yields then."""

from __future__ import annotations

import pytest

from gridops.controller import views
from gridops.model.snapshot import ResidencyState
from tests.controller.fleet import Desk, Fleet, mode

HOSTS = """
apiVersion: gridops/v1
kind: Hosts
defaults: {{runtimes: {{llama.cpp: {{backend: cpu}}}}, disk: {{artifacts: 100GiB}}}}
hosts:
  alpha: {{domains: {{rack: left}}, devices: {{cpu0: {{kind: cpu, memory: 3GiB}}}}}}
  beta:
    class: opportunistic
    owner: mira
    domains: {{rack: right}}
    devices: {{cpu0: {{kind: cpu, memory: 3GiB}}}}
    absence: {{replace_after: 2m, on_return: {on_return}}}
"""
FREE = mode("{mode: automatic, automatic: {allow: [repair, scale_up, scale_down, rebalance, remove]}}")
REPLACE_MS = 120_000
MINUTE = 60_000


def fleet_with_a_laptop(fleet: Fleet, on_return: str = "keep_newest") -> Desk:
    """The laptop alone is there at first, so the replica goes to it."""
    fleet.begin(**{"fleet.d/hosts.yaml": HOSTS.format(on_return=on_return), "policies/mode.yaml": FREE})
    desk = Desk(fleet)
    for _ in range(60):
        turns(desk, 1, "beta")
        if fleet.agents["beta"].executed:
            break
    return desk


def turns(desk: Desk, seconds: int, *hosts: str) -> None:
    for _ in range(seconds):
        desk.clock.pass_by(1_000)
        desk.beat(*hosts)
        desk.pass_()


def where(desk: Desk) -> dict[str, list[str]]:
    return {
        name: sorted(r.replica or "" for r in agent.room.residencies.values() if r.state is ResidencyState.READY)
        for name, agent in desk.fleet.agents.items()
    }


def goes_to_sleep(desk: Desk, says_goodbye: bool) -> None:
    beta = desk.fleet.agents["beta"]
    if says_goodbye:
        beta.goodbye = True
        desk.beat("beta")
    beta.goodbye = False


def test_one_that_sleeps_is_told_from_one_that_left(fleet: Fleet) -> None:
    desk = fleet_with_a_laptop(fleet)

    def word() -> str:
        return next(h.state for h in views.status(desk.controller.view()).hosts if h.host == "beta")

    assert word() == "accepting"
    beta = fleet.agents["beta"]
    beta.goodbye = True
    desk.beat("beta")
    assert word() == "asleep"
    beta.left = True
    desk.beat("beta")
    assert word() == "left"
    beta.goodbye, beta.left = False, None
    desk.beat("beta")
    assert word() == "accepting", "it may join again, or a person thought better of it"


@pytest.mark.parametrize("says_goodbye", [True, False], ids=["a goodbye", "silence"])
def test_a_laptop_that_sleeps_in_the_middle_of_a_load_is_waited_for_and_then_replaced(
    fleet: Fleet, says_goodbye: bool
) -> None:
    beta = fleet.agents["beta"]
    beta.room.slow = {"load"}
    desk = fleet_with_a_laptop(fleet)
    assert beta.executed == [("load", "coder/1")]
    goes_to_sleep(desk, says_goodbye)
    turns(desk, 100, "alpha")
    assert where(desk) == {"alpha": [], "beta": []}, "it is waited for"
    turns(desk, 60, "alpha")
    assert where(desk) == {"alpha": ["coder/1"], "beta": []}, "its time is over"
    turns(desk, 2, "alpha", "beta")
    beta.finish("load")
    turns(desk, 20, "alpha", "beta")
    assert where(desk) == {"alpha": ["coder/1"], "beta": []}, "what it had begun is not gone on with"
    assert beta.open == {}
    assert [kind for kind, _ in beta.executed] == ["load"]


@pytest.mark.parametrize("says_goodbye", [True, False], ids=["a goodbye", "silence"])
@pytest.mark.parametrize(("on_return", "stays"), [("keep_newest", "alpha"), ("keep_oldest", "beta")])
def test_on_return_the_one_yields_that_the_file_names(
    fleet: Fleet, says_goodbye: bool, on_return: str, stays: str
) -> None:
    desk = fleet_with_a_laptop(fleet, on_return)
    turns(desk, 8, "beta")
    assert where(desk) == {"alpha": [], "beta": ["coder/1"]}
    before = dict(fleet.agents["beta"].room.residencies)
    goes_to_sleep(desk, says_goodbye)
    turns(desk, 100, "alpha")
    assert where(desk)["alpha"] == [], "a closed laptop is not a lost one"
    turns(desk, 60, "alpha")
    assert where(desk)["alpha"] == ["coder/1"], "served while it is away"
    turns(desk, 60, "alpha", "beta")
    left = {name: found for name, found in where(desk).items() if found}
    assert left == {stays: ["coder/1"]}, "one of them has yielded, and only one"
    if stays == "beta":
        assert fleet.agents["beta"].room.residencies.keys() == before.keys(), "the very process that was there"


def test_a_laptop_that_is_back_in_time_goes_on_as_if_nothing_had_been(fleet: Fleet) -> None:
    desk = fleet_with_a_laptop(fleet)
    turns(desk, 8, "beta")
    done = list(fleet.agents["beta"].executed)
    goes_to_sleep(desk, says_goodbye=True)
    turns(desk, 100, "alpha")
    turns(desk, 30, "alpha", "beta")
    assert where(desk) == {"alpha": [], "beta": ["coder/1"]}
    assert fleet.agents["beta"].executed == done
    assert fleet.agents["alpha"].executed == []
