"""The controller's key and certificate are changed under a running fleet: nothing stops, and nothing runs twice."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from gridops.cli.person import chain_of
from gridops.controller.statedir import NEXT_SEED, StateDir
from gridops.trust.root import RoleName
from gridops.trust.tls import fingerprint
from tests.e2e.office import Office, opened


@pytest.fixture(scope="module")
def office(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    with opened(tmp_path_factory.mktemp("models"), ("alpha",)) as office:
        office.have("tiny", 1)
        yield office


def rotate(office: Office, *more: str) -> None:
    done = office.call("trust", "rotate", "controller", *more, env={"GRIDOPS_STATE": str(office.state)})
    assert done.returncode == 0, done.stderr
    office.in_force(office.stage.commit(f"Rotate the controller {' '.join(more)}"))


def heard_anew(office: Office, version: int) -> None:
    """The host has answered under the newest root."""

    def known() -> bool:
        agent = office.stage.agent_state("alpha") / "roots" / f"{version}.json"
        heard = {h["host"]: h["heard"] for h in office.story.status()["hosts"]}
        return agent.exists() and bool(heard.get("alpha"))

    office.stage.until(f"alpha has root {version} and is heard", known, 60)


def test_a_key_is_rotated_in_the_middle_of_an_action_and_that_goes_on(office: Office) -> None:
    before = office.bodies()
    office.profile("other", 1)
    office.in_force(office.stage.commit("One more"))
    plan = office.proposal("1 place")
    applied = office.call("apply", plan, "--detach")
    assert applied.returncode == 0, applied.stderr
    rotate(office)
    rotate(office, "--finish")
    heard_anew(office, 3)
    office.stage.until("both are ready, an engine each", lambda: office.is_so(tiny=1, other=1), 60)
    assert set(before) < set(office.bodies()), "what ran was left alone"
    assert len(set(office.bodies())) == len(office.bodies()) == 2
    chain = chain_of(office.stage.fleet)
    assert chain.keys(RoleName.CONTROLLER) == (StateDir(office.state).signer().public,)
    assert not (office.state / NEXT_SEED).exists()
    office.have("other", 0)


def test_a_stolen_key_is_replaced_at_once_and_work_goes_on_in_a_new_epoch(office: Office, tmp_path: Path) -> None:
    before, thief = office.bodies(), StateDir(office.state).signer().public
    rotate(office, "--stolen")
    heard_anew(office, 4)
    chain = chain_of(office.stage.fleet)
    assert chain.root.controller_epoch == 2
    assert thief not in chain.plan_keys()
    office.have("other", 1)
    assert office.is_so(tiny=1, other=1)
    assert set(before) < set(office.bodies())
    office.have("other", 0)


def shown(office: Office) -> str:
    """Fingerprint of the certificate that a new connection gets."""
    return fingerprint(ssl.get_server_certificate(("127.0.0.1", office.story.port)))


def rotate_tls(office: Office, *more: str) -> int:
    """The root document that did it."""
    done = office.call("trust", "rotate", "tls", *more, env={"GRIDOPS_STATE": str(office.state)})
    assert done.returncode == 0, done.stderr
    office.in_force(office.stage.commit(f"Rotate the certificate {' '.join(more)}"))
    return chain_of(office.stage.fleet).root.version


def test_a_certificate_is_rotated_without_a_gap_and_without_a_restart(office: Office) -> None:
    before, old = office.bodies(), shown(office)
    heard_anew(office, rotate_tls(office))
    assert shown(office) == old, "both are pinned, and the one that is shown is the one before"
    heard_anew(office, rotate_tls(office, "--finish"))
    assert shown(office) != old
    assert [shown(office)] == [fingerprint(pem) for pem in chain_of(office.stage.fleet).root.controller_tls]
    office.have("other", 1)
    assert set(before) < set(office.bodies())
    office.have("other", 0)


def test_a_host_that_missed_the_document_learns_of_the_certificate_and_goes_on(office: Office) -> None:
    """It pins what nobody shows any more; the documents that it asks anybody for prove themselves."""
    before, old = office.bodies(), shown(office)
    version = rotate_tls(office, "--stolen")
    assert shown(office) != old
    heard_anew(office, version)
    office.have("other", 1)
    assert set(before) < set(office.bodies())
    office.have("other", 0)
