"""The root changes hands: one person, two who must agree, a rotated controller, and what is refused on the way."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.base.units import render_instant
from gridops.cli import exits
from gridops.cli.person import chain_of, key_folder
from gridops.controller.statedir import NEXT_SEED, NEXT_TLS_CERT, NEXT_TLS_KEY, SEED
from gridops.model.catalog import Catalog
from gridops.trust.envelope import seal
from gridops.trust.keys import PersonSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import RoleName
from tests.builders.calls import Call
from tests.cli.conftest import Trusted

DRAFT = "policies/trust/draft.json"


def public_of(name: str, where: Path) -> Path:
    """Somebody's public key as a file that they sent."""
    path = where / f"{name}.pub"
    path.write_text(PersonSigner.from_seed(name.encode().ljust(32, b".")).public_line(f"{name}@laptop") + "\n")
    return path


@pytest.fixture
def jons(tmp_path: Path) -> Path:
    """Jon's own keyring, elsewhere: his root key."""
    folder = tmp_path / "jons-keys"
    folder.mkdir(mode=0o700)
    path = folder / "jon.root"
    path.write_bytes(PersonSigner.from_seed(b"jon-root".ljust(32, b".")).to_openssh())
    path.chmod(0o600)
    return folder


def holders(trusted: Trusted, name: RoleName) -> list[str]:
    role = chain_of(trusted.root).root.role(name)
    return [] if role is None else [entry.holder for entry in role.keys]


def test_one_person_adds_another_and_revokes_them_again(trusted: Trusted, call: Call, tmp_path: Path) -> None:
    answer = call("-C", trusted.root, "trust", "add", "jon", "--key", public_of("jon", tmp_path))
    assert answer.code == 0, answer.err
    assert "Wrote policies/trust/root/2.json" in answer.out
    assert "commit it: git add policies/trust" in answer.err
    assert holders(trusted, RoleName.APPROVER) == ["mira", "jon"]
    assert holders(trusted, RoleName.ROOT) == ["mira"]
    assert call("-C", trusted.root, "trust", "revoke", "jon").code == 0
    assert holders(trusted, RoleName.APPROVER) == ["mira"]
    assert call("-C", trusted.root, "trust", "renew").code == 0
    assert chain_of(trusted.root).root.version == 4


def test_agents_are_driven_from_a_version_on_and_what_is_no_version_is_refused(trusted: Trusted, call: Call) -> None:
    answer = call("-C", trusted.root, "trust", "agents", "99.0.0")
    assert answer.code == 0, answer.err
    assert "Agents before 99.0.0 serve on and take nothing new." in answer.out
    assert "gridops status names them" in answer.err
    assert "no agent of its release may be driven then" in answer.err
    assert chain_of(trusted.root).agents_from == "99.0.0"
    wrong = call("-C", trusted.root, "trust", "agents", "newest")
    assert (wrong.code != 0, "'newest' is no version of an agent" in wrong.err) == (True, True)
    assert call("-C", trusted.root, "trust", "agents", "0.1.0").code == 0
    assert chain_of(trusted.root).agents_from is None
    assert "Agents before" not in call("-C", trusted.root, "trust", "show").out


def test_two_people_sign_one_after_the_other_each_with_their_own_keys(
    trusted: Trusted, call: Call, tmp_path: Path, jons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "jon-root.pub"
    key.write_text(PersonSigner.from_seed(b"jon-root".ljust(32, b".")).public_line("jon"))
    assert call("-C", trusted.root, "trust", "add", "jon", "--key", key, "--role", "root").code == 0
    drafted = call("-C", trusted.root, "trust", "demand", "root", "2")
    assert drafted.code == 0
    assert "Root 3 waits for signatures." in drafted.out
    assert "root 3 (then): 1 of 2 signed: mira" in drafted.out
    assert chain_of(trusted.root).root.version == 2, "nothing counts yet"
    told = call("-C", trusted.root, "trust", "verify", "-o", "json").json
    assert told["draft"]["signatures"][1] == {"root": 3, "need": 2, "signed": ["mira"], "missing": ["jon"]}
    second = call("-C", trusted.root, "trust", "renew")
    assert (second.code, "another root document waits" in second.err) == (1, True)
    twice = call("-C", trusted.root, "trust", "sign")
    assert (twice.code, "no root key whose signature is missing" in twice.err) == (1, True)
    monkeypatch.setenv("GRIDOPS_KEYS", str(jons))
    signed = call("-C", trusted.root, "trust", "sign")
    assert signed.code == 0, signed.err
    assert not (trusted.root / DRAFT).exists()
    assert chain_of(trusted.root).threshold(RoleName.ROOT) == 2
    nobody = call("-C", trusted.root, "trust", "sign")
    assert (nobody.code, "no root document waits here" in nobody.err) == (1, True)


def test_the_controllers_key_is_rotated_in_two_steps(trusted: Trusted, call: Call) -> None:
    first = call("-C", trusted.root, "trust", "rotate", "controller", "--state", trusted.state)
    assert first.code == 0, first.err
    assert "The controller's key is being rotated: 2 keys count." in first.out
    assert (trusted.state / NEXT_SEED).stat().st_mode & 0o777 == 0o600
    assert "rotation is not finished" in call("-C", trusted.root, "trust", "doctor").out
    assert call("-C", trusted.root, "trust", "rotate", "controller", "--finish").code == 0
    (key,) = chain_of(trusted.root).keys(RoleName.CONTROLLER)
    assert key != trusted.signer.public
    assert (trusted.state / SEED).exists(), "the controller itself takes the new one into its hands"


def test_a_stolen_key_goes_at_once_and_with_its_epoch(trusted: Trusted, call: Call) -> None:
    assert call("-C", trusted.root, "trust", "rotate", "controller", "--stolen", "--state", trusted.state).code == 0
    chain = chain_of(trusted.root)
    assert chain.root.controller_epoch == 2
    assert trusted.signer.public not in chain.plan_keys()


def test_a_persons_new_key_takes_the_place_of_the_old_one(trusted: Trusted, call: Call, tmp_path: Path) -> None:
    new = public_of("mira-2027", tmp_path)
    assert call("-C", trusted.root, "trust", "rotate", "mira", "--key", new, "--role", "approver").code == 0
    (key,) = chain_of(trusted.root).keys(RoleName.APPROVER)
    assert key.text in new.read_text()


Words = Callable[[Path], tuple[str | Path, ...]]
REFUSED: dict[str, tuple[Words, int, str]] = {
    "a key that is none": (lambda t: ("add", "jon", "--key", t / "ops/policies/mode.yaml"), 1, "is not a key"),
    "a key that is not there": (lambda t: ("add", "jon", "--key", t / "nowhere.pub"), 1, "cannot be read"),
    "a machine's key": (lambda t: ("add", "jon", "--key", t / "machine.pub"), 1, "a machine's key"),
    "a name that is none": (lambda t: ("add", "Jon!", "--key", t / "jon.pub"), 64, "a person's name has"),
    "a role that is none": (lambda t: ("add", "jon", "--key", t / "jon.pub", "--role", "boss"), 64, "no role that"),
    "a key of somebody else": (lambda t: ("add", "eve", "--key", t / "mira.pub"), 1, "this key is the one of mira"),
    "a stranger": (lambda t: ("revoke", "eve"), 1, "eve holds no key"),
    "the only root": (lambda t: ("revoke", "mira", "--role", "root"), 1, "nobody would be left without mira"),
    "more than there are": (lambda t: ("demand", "root", "2"), 1, "lists 1"),
    "a person without a key": (lambda t: ("rotate", "mira"), 64, "a person's new key is named with --key"),
    "both at once": (lambda t: ("rotate", "controller", "--stolen", "--finish"), 64, "not both"),
    "an end without a beginning": (lambda t: ("rotate", "controller", "--finish"), 1, "no rotation is under way"),
    "another machine": (lambda t: ("rotate", "controller", "--state", t / "empty"), 1, "not the controller's state"),
    "a file that is no document": (lambda t: ("verify", t / "jon.pub"), 1, "jon.pub: not a signed document"),
    "nor one to sign": (lambda t: ("sign", t / "jon.pub"), 1, "jon.pub: not a signed document: it is not JSON"),
    "a root that stands": (lambda t: ("sign", t / "ops/policies/trust/root/1.json"), 1, "1.json: root 1 cannot"),
    "a folder to sign": (lambda t: ("sign", t), 1, "cannot be read"),
    "the private key itself": (lambda t: ("add", "jon", "--key", t / "config/jon"), 1, "this is a private key"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_changes_nothing_and_says_why(trusted: Trusted, call: Call, tmp_path: Path, name: str) -> None:
    public_of("jon", tmp_path)
    (tmp_path / "machine.pub").write_text("ed25519:" + "ab" * 32)
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config/jon").write_bytes(PersonSigner.from_seed(b"j" * 32).to_openssh())
    (tmp_path / "mira.pub").write_text(chain_of(trusted.root).keys(RoleName.APPROVER)[0].text)
    words, code, said = REFUSED[name]
    before = sorted(p.name for p in (trusted.root / "policies/trust").rglob("*"))
    answer = call("-C", trusted.root, "trust", *words(tmp_path))
    assert said in answer.err, answer.err
    assert (answer.code != 0, "Traceback" in answer.err) == (True, False)
    assert code != 64 or answer.code == 64
    assert sorted(p.name for p in (trusted.root / "policies/trust").rglob("*")) == before
    assert not (trusted.state / NEXT_SEED).exists()


def test_without_a_root_key_at_hand_nothing_is_written(
    trusted: Trusted, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDOPS_KEYS", str(tmp_path / "empty"))
    answer = call("-C", trusted.root, "trust", "renew")
    assert answer.code == 1
    assert "holds none of the root keys that must sign" in answer.err
    assert "mira.root" in answer.err
    assert not (trusted.root / DRAFT).exists()


def test_verify_says_who_signed_whatever_one_has_in_hand(trusted: Trusted, call: Call, tmp_path: Path) -> None:
    root = trusted.root / "policies/trust/root/1.json"
    verified = call("-C", trusted.root, "trust", "verify").out
    assert "1 root document, each signed by enough people" in verified
    assert f"fleet {chain_of(trusted.root).fleet}\n" in verified, "whole: it is what a person types at a host's console"
    told = call("-C", trusted.root, "trust", "verify", root, "-o", "json").json
    assert (told["kind"], told["signed_by"]) == ("root", ["mira (root)"])
    forged = json.loads(root.read_text())
    forged["payload"] = forged["payload"][:-8] + "AAAAAAA="
    bent = tmp_path / "bent.json"
    bent.write_text(json.dumps(forged))
    assert call("-C", trusted.root, "trust", "verify", bent).code != 0
    assert call("-C", trusted.root, "trust", "renew").code == 0
    first = call("-C", trusted.root, "trust", "verify", root)
    assert (first.code, "signed by mira (root)" in first.out) == (0, True), first.err
    assert "root 1 of this fleet, whose newest is 2" in " ".join(first.out.split())
    (trusted.root / DRAFT).write_text("{")
    draft = call("-C", trusted.root, "trust", "verify")
    assert (draft.code, f"{DRAFT}: not a signed root" in draft.err) == (4, True), draft.err


JONS = PersonSigner.from_seed(b"jon".ljust(32, b"."))


def test_who_left_is_shown_with_the_end_and_what_they_signed_says_whether_it_is_older(
    trusted: Trusted, call: Call, tmp_path: Path
) -> None:
    for role in ("approver", "release"):
        added = call("-C", trusted.root, "trust", "add", "jon", "--key", public_of("jon", tmp_path), "--role", role)
        assert added.code == 0, added.err
    now_ms = int(time.time() * 1000)
    fleet = chain_of(trusted.root).fleet
    files = {}
    for name, kind, at_ms in (("old", "approval", now_ms - 1), ("new", "approval", now_ms + 3_600_000)):
        files[name] = tmp_path / f"{name}.json"
        files[name].write_text(seal(kind, b'{"issued_ms":%d}' % at_ms, JONS))
    request = tmp_path / "request.json"
    request.write_text(seal("operator", b'{"issued_ms":%d}' % (now_ms - 1), JONS))
    catalog = tmp_path / "catalog.json"
    catalog.write_text(seal_catalog(Catalog(fleet=fleet, version=1, issued_ms=now_ms - 1, entries=()), JONS))
    assert "signed by jon (approver)" in call("-C", trusted.root, "trust", "verify", files["old"]).out
    assert call("-C", trusted.root, "trust", "revoke", "jon").code == 0
    end_ms = chain_of(trusted.root).root.issued_ms

    shown = call("-C", trusted.root, "trust", "show")
    assert "Keys that count no more" in shown.out
    assert f"approver, release until {render_instant(end_ms)} (root 4)" in " ".join(shown.out.split())
    (row,) = call("-C", trusted.root, "trust", "show", "-o", "json").json["former"]
    assert (row["holder"], row["roles"], row["accepted_until_ms"]) == ("jon", ["approver", "release"], end_ms)

    old = call("-C", trusted.root, "trust", "verify", files["old"])
    assert old.code == exits.REFUSED, old.err
    said = " ".join(old.out.split())
    assert "signed by nobody who counts now, so that it counts for nothing" in said
    assert "by a former key of jon, approver, release until" in said
    assert ", before that" in said
    new = call("-C", trusted.root, "trust", "verify", files["new"], "-o", "json")
    assert (new.code, new.json["signed_by"]) == (exits.REFUSED, [])
    (row,) = new.json["former"]
    assert (row["holder"], row["issued_ms"] >= row["accepted_until_ms"]) == ("jon", True)
    asked = call("-C", trusted.root, "trust", "verify", request)
    assert (asked.code, "by a former key of jon" in asked.out) == (exits.REFUSED, True)
    released = " ".join(call("-C", trusted.root, "trust", "verify", catalog).out.split())
    assert "waits for signatures: 0 of 1 signed: nobody" in released
    assert "by a former key of jon" in released


def test_doctor_names_what_one_lost_key_would_end(trusted: Trusted, call: Call, tmp_path: Path) -> None:
    told = call("-C", trusted.root, "trust", "doctor").out
    assert "mira alone is root: if the key is lost, nobody can replace it" in told
    assert "mira alone is approver" in told
    assert call("-C", trusted.root, "trust", "add", "jon", "--key", public_of("jon", tmp_path)).code == 0
    assert "approver: one of jon, mira suffices" in call("-C", trusted.root, "trust", "doctor").out
    (key_folder() / "mira").chmod(0o644)
    answer = call("-C", trusted.root, "trust", "doctor", "-o", "json")
    assert answer.code == 1
    assert [f["what"] for f in answer.json["findings"] if f["level"] == "fail"]
    shutil.rmtree(key_folder())


def test_the_controllers_certificate_is_rotated_in_two_documents(trusted: Trusted, call: Call) -> None:
    where = ("--state", trusted.state)
    made = call("-C", trusted.root, "trust", "rotate", "tls", *where)
    assert made.code == 0, made.err
    assert "--finish" in made.err
    first, second = chain_of(trusted.root).root.controller_tls
    assert (trusted.state / NEXT_TLS_CERT).read_text() == second != first
    assert (trusted.state / NEXT_TLS_KEY).stat().st_mode & 0o777 == 0o600
    assert "certificate is being rotated: 2 are pinned" in call("-C", trusted.root, "trust", "show").out
    found = call("-C", trusted.root, "trust", "doctor").out
    assert "the rotation of the controller's certificate is not finished" in found
    assert "the controller's certificate is good until" in found
    again = call("-C", trusted.root, "trust", "rotate", "tls", *where)
    assert again.code == 4
    assert "a rotation is under way" in again.err
    assert call("-C", trusted.root, "trust", "rotate", "tls", "--finish").code == 0
    assert chain_of(trusted.root).root.controller_tls == (second,)
    assert call("-C", trusted.root, "trust", "rotate", "tls", "--finish").code == 4
    elsewhere = call("-C", trusted.root, "trust", "rotate", "tls", "--state", trusted.root)
    assert elsewhere.code == 1
    assert "this is not the controller's state folder" in elsewhere.err


def test_a_certificate_whose_key_was_stolen_is_replaced_at_once(trusted: Trusted, call: Call) -> None:
    before = chain_of(trusted.root).root.controller_tls
    made = call("-C", trusted.root, "trust", "rotate", "tls", "--stolen", "--state", trusted.state)
    assert made.code == 0, made.err
    after = chain_of(trusted.root).root.controller_tls
    assert len(after) == 1
    assert after != before


@pytest.mark.parametrize(("days", "said"), [(30, "certificate ends in"), (-1, "other programs refuse it")])
def test_doctor_warns_of_a_certificate_that_nears_its_end(
    trusted: Trusted, call: Call, days: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = time.time_ns() // 1_000_000 + days * 86_400_000
    monkeypatch.setattr("gridops.cli.trust_tls.valid_until_ms", lambda pem: end)
    assert said in call("-C", trusted.root, "trust", "doctor").out


def test_mirrors_are_named_and_taken_back(trusted: Trusted, call: Call) -> None:
    urls = ("https://b.example.com/roots/", "http://a.example.com/")
    made = call("-C", trusted.root, "trust", "mirrors", *urls)
    assert made.code == 0, made.err
    assert chain_of(trusted.root).root.mirrors == tuple(sorted(urls))
    shown = " ".join(call("-C", trusted.root, "trust", "show").out.split())
    assert f"also at {', '.join(sorted(urls))}" in shown
    refused = call("-C", trusted.root, "trust", "mirrors", "https://example.com")
    assert refused.code == 4
    assert "that end with /" in " ".join(refused.err.split())
    assert call("-C", trusted.root, "trust", "mirrors").code == 0
    assert chain_of(trusted.root).root.mirrors is None
