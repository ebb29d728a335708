"""A fleet whose root keys are lost is founded again, and its hosts are pinned to it: nothing that runs is touched."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from gridops.cli.person import chain_of
from tests.e2e.office import Office, opened


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(tmp_path_factory.mktemp("models"), ("alpha",)) as office:
        office.have("tiny", 1)
        yield office


def founded_again(office: Office) -> str:
    """People begin anew in the same repository, with another controller at the same address; its digest."""
    stage, root = office.stage, office.stage.root
    stage.stop("controller")
    office.state.rename(root / "controller-before")
    (root / "keys").rename(root / "keys-lost")
    (stage.fleet / "policies/trust").rename(root / "trust-before")
    stage.run("gridops", "trust", "init", "--person", "mira", "--state", str(office.state))
    commit = stage.commit("Found the fleet again")
    no = office.call("controller", "rebuild", "--state", str(office.state))
    assert no.returncode == 4
    assert "git branch -m gridops/plans gridops/plans-before" in no.stderr, "the plans of before are in its way"
    stage.git("branch", "-m", "gridops/plans", "gridops/plans-before")
    office.start_controller()
    office.in_force(commit)
    return str(chain_of(stage.fleet).fleet)


def repin(office: Office, digest: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["gridops-agent", "repin", digest, "--yes", "--state", str(office.stage.agent_state("alpha"))],
        env=office.stage.env,
        capture_output=True,
        text=True,
        timeout=90,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def heard(office: Office) -> bool:
    return {h["host"]: bool(h["heard"]) for h in office.story.status()["hosts"]}.get("alpha", False)


def test_after_a_lost_root_hosts_are_pinned_at_their_consoles_and_obey_only_the_new_fleet(office: Office) -> None:
    before, former = office.bodies(), chain_of(office.stage.fleet).fleet
    digest = founded_again(office)
    assert digest != former
    done = repin(office, digest)
    assert done.returncode == 75, "its agent runs"
    office.stage.stop("agent-alpha")
    wrong = repin(office, "sha256:" + "0" * 64)
    assert wrong.returncode != 0
    assert "nothing was changed" in wrong.stderr
    assert not heard(office), "nobody is told over the network to believe another root"
    done = repin(office, digest)
    assert done.returncode == 0, done.stderr
    office.story.start_agent("alpha")
    office.stage.until("the host is heard by the new controller", lambda: heard(office), 60)
    office.have("tiny", 1)
    assert office.bodies() == before, "what ran was taken over, not started again"
    office.have("other", 1)
    office.have("tiny", 0)
    office.stage.until("one ended and the other runs", lambda: office.is_so(tiny=0, other=1), 60)
    assert not set(before) & set(office.bodies()), "and it is commanded as ever"
