"""People sign what may run: what is shown before, how it goes from hand to hand, and what a plan says without it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.cli.person import chain_of
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.trust.keys import PersonSigner
from gridops.trust.root import RoleName
from tests.builders.calls import Answer, Call
from tests.cli.conftest import Trusted

CATALOG = "policies/trust/catalog.json"
DRAFT = "policies/trust/catalog.draft.json"
Says = Callable[..., Answer]


@pytest.fixture
def says(trusted: Trusted, call: Call) -> Says:
    return lambda *words: call("-C", trusted.root, *words)


@pytest.fixture
def jons(trusted: Trusted, says: Says, tmp_path: Path) -> Path:
    """Jon may sign releases too, two of two have to, and his key lies in a keyring of his own."""
    signer = PersonSigner.from_seed(b"jon".ljust(32, b"."))
    public = tmp_path / "jon.pub"
    public.write_text(signer.public_line("jon") + "\n")
    assert says("trust", "add", "jon", "--key", public, "--role", "release").code == 0
    assert says("trust", "demand", "release", "2").code == 0
    folder = tmp_path / "jons-keys"
    folder.mkdir(mode=0o700)
    (folder / "jon").write_bytes(signer.to_openssh())
    (folder / "jon").chmod(0o600)
    return folder


def test_what_would_be_signed_is_read_before_anything_is_written(trusted: Trusted, says: Says) -> None:
    shown = says("trust", "catalog")
    assert shown.code == 0
    assert "No catalog: whatever a profile asks for may run." in shown.out
    assert "would be signed: smollm/q4-cpu: llama.cpp on cpu" in shown.out
    assert not (trusted.root / CATALOG).exists()
    told = json.loads(says("trust", "catalog", "-o", "json").out)
    assert told["catalog"] is None
    assert [one["name"] for one in told["missing"]] == ["second/q4-cpu", "smollm/q4-cpu"]
    assert told["missing"][1]["entry"]["context"] == 2_048


def test_one_person_signs_it_and_then_everything_in_the_files_is_signed(trusted: Trusted, says: Says) -> None:
    made = says("trust", "catalog", "--write")
    assert made.code == 0, made.err
    assert "Catalog 1 counts: 1 of 1 signed: mira" in made.out
    assert "commit it: git add policies/trust" in made.err
    assert "Everything in the files is signed." in says("trust", "catalog").out
    assert says("validate").code == 0
    desired = load(WorkingTree(trusted.root)).desired
    assert desired.catalog is not None
    assert [entry.name for entry in desired.catalog.entries] == ["second/q4-cpu", "smollm/q4-cpu"]
    assert "Catalog 1 counts" in says("trust", "show").out
    verified = says("trust", "verify", trusted.root / CATALOG)
    assert "Catalog 1 counts: 1 of 1 signed: mira" in verified.out
    assert "one that joins does not" in says("trust", "show").out
    assert "a host that joins does not know" in says("trust", "doctor").out


def test_a_change_that_nobody_signed_is_placed_nowhere_and_says_how_to_sign_it(trusted: Trusted, says: Says) -> None:
    assert says("trust", "catalog", "--write").code == 0
    profile = trusted.root / "profiles.d/smollm.yaml"
    profile.write_text(profile.read_text().replace("context: 2048", "context: 4096"))
    planned = " ".join(says("plan", "--against", "declared").out.split())
    assert "entry smollm/q4-cpu: context from 1 to 2048, not 4096 (to sign it: gridops trust catalog)" in planned
    assert "smollm/q4-cpu: catalog 1, entry smollm/q4-cpu: context" in says("trust", "catalog").out
    wider = says("trust", "catalog", "--write", "--allow", "smollm/q4-cpu:threads=1..4")
    assert "Catalog 2 counts" in wider.out
    assert "threads: only 1 to 4" in wider.out
    assert "1 to place" in says("plan", "--against", "declared").out


def test_two_people_sign_one_after_the_other_and_each_reads_it(
    trusted: Trusted, says: Says, jons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = says("trust", "catalog", "--write")
    assert first.code == 0, first.err
    assert "Catalog 1 waits for signatures: 1 of 2 signed: mira" in first.out
    assert "Who may sign: jon" in first.out
    assert (trusted.root / DRAFT).exists()
    assert not (trusted.root / CATALOG).exists()
    assert says("validate").code == 0, "what waits is no catalog"
    another = says("trust", "catalog", "--write")
    assert (another.code, "another catalog waits for signatures" in another.err) == (1, True)
    twice = says("trust", "sign")
    assert (twice.code, "no release key whose signature is missing" in twice.err) == (1, True)
    monkeypatch.setenv("GRIDOPS_KEYS", str(jons))
    second = says("trust", "sign")
    assert second.code == 0, second.err
    assert "smollm/q4-cpu: llama.cpp on cpu" in second.err, "what is signed is said before"
    assert "Catalog 1 counts: 2 of 2 signed: jon, mira" in second.out
    assert not (trusted.root / DRAFT).exists()
    assert says("validate").code == 0


def test_a_root_that_makes_it_count_no_more_says_so_and_the_commit_would_be_refused(
    trusted: Trusted, says: Says, tmp_path: Path, jons: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert says("trust", "demand", "release", "1").code == 0
    assert says("trust", "catalog", "--write").code == 0
    gone = says("trust", "revoke", "mira", "--role", "release")
    assert gone.code == 0, gone.err
    assert f"gridops trust sign {CATALOG}, in the same commit" in gone.err
    refused = says("validate")
    assert refused.code == 3
    assert "bad_catalog" in refused.out + refused.err
    assert "signed by 0 of the 1 person" in says("trust", "doctor").out
    monkeypatch.setenv("GRIDOPS_KEYS", str(jons))
    assert says("trust", "sign", trusted.root / CATALOG).code == 0
    assert says("validate").code == 0


def test_every_host_is_made_to_ask_for_it_and_to_ask_no_more(trusted: Trusted, says: Says) -> None:
    nothing = says("trust", "catalog", "--require")
    assert (nothing.code, "there is none to ask for" in nothing.err) == (1, True)
    assert says("trust", "catalog", "--write").code == 0
    assert says("trust", "catalog", "--require").code == 0
    assert chain_of(trusted.root).root.catalog == 1
    assert "Every host asks for catalog 1 or a later one" in says("trust", "show").out
    again = says("trust", "catalog", "--require")
    assert (again.code, "asks for catalog 1 already" in again.err) == (4, True)
    assert says("trust", "renew").code == 0
    assert chain_of(trusted.root).root.catalog == 1, "the next root asks for it too"
    assert says("trust", "catalog", "--off").code == 0
    assert "No host asks for a catalog" in says("trust", "show").out
    assert load(WorkingTree(trusted.root)).desired.catalog is None
    assert "asks for none" in says("trust", "doctor").out


def test_entries_that_somebody_slipped_in_are_not_signed_along(trusted: Trusted, says: Says) -> None:
    """Who can write into the repository and has no release key."""
    assert says("trust", "catalog", "--write").code == 0
    path = trusted.root / CATALOG
    document = json.loads(path.read_text())
    payload = json.loads(base64.b64decode(document["payload"]))
    payload["entries"][0]["artifacts"][0]["content"] = "sha256:" + "0" * 64
    raw = json.dumps(payload, separators=(",", ":"), sort_keys=True).encode()
    path.write_text(json.dumps({**document, "payload": base64.b64encode(raw).decode()}))
    before = path.read_text()
    for words in (("trust", "catalog"), ("trust", "catalog", "--write"), ("trust", "catalog", "--require")):
        answer = says(*words)
        assert (answer.code, "signed by 0 of the 1 person" in answer.err) == (4, True), answer.err
    assert path.read_text() == before


def test_what_nothing_needs_is_named_and_dropped(trusted: Trusted, says: Says) -> None:
    assert says("trust", "catalog", "--write").code == 0
    (trusted.root / "profiles.d/second.yaml").unlink()
    assert "Needed by nothing in the files: second/q4-cpu" in says("trust", "catalog").out
    assert says("trust", "catalog", "--write", "--drop").code == 0
    desired = load(WorkingTree(trusted.root)).desired
    assert desired.catalog is not None
    assert ([e.name for e in desired.catalog.entries], desired.catalog.version) == (["smollm/q4-cpu"], 2)


def test_bounds_are_widened_as_they_are_typed(trusted: Trusted, says: Says) -> None:
    made = says(
        *("trust", "catalog", "--write", "--build", "smollm/q4-cpu=b7000", "--allow", "smollm/q4-cpu:lanes=8"),
        *("--allow", "smollm/q4-cpu:flash_attn=on,off", "--allow", "smollm/q4-cpu:network=own"),
    )
    assert made.code == 0, made.err
    for words in ("8 lanes", "flash_attn: only off or on", "started by b7000 alone", "in a network of its own"):
        assert words in made.out


WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "an entry that is not there": (("--write", "--allow", "x/y:lanes=2"), 64, "no entry is called 'x/y'"),
    "no bound": (("--write", "--allow", "smollm/q4-cpu:lanes"), 64, "expected ENTRY:NAME=VALUES"),
    "a number that is none": (("--write", "--allow", "smollm/q4-cpu:context=many"), 64, "is a whole number"),
    "a range that is none": (("--write", "--allow", "smollm/q4-cpu:threads=1..x"), 64, "two whole numbers"),
    "a range that ends first": (("--write", "--allow", "smollm/q4-cpu:threads=9..1"), 4, "ends before it begins"),
    "a bound that admits nothing": (("--write", "--allow", "smollm/q4-cpu:lanes=0"), 4, "admits nothing"),
    "a network that is none": (("--write", "--allow", "smollm/q4-cpu:network=all"), 64, "host or own"),
    "a wish without a version": (("--drop",), 64, "--write"),
    "two things at once": (("--require", "--off"), 64, "--write"),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_what_cannot_be_meant_is_refused_and_nothing_is_written(name: str, trusted: Trusted, says: Says) -> None:
    words, code, said = WRONG[name]
    answer = says("trust", "catalog", *words)
    assert (answer.code, said in answer.err) == (code, True), answer.err
    assert not (trusted.root / CATALOG).exists()


def test_without_a_release_key_at_hand_nothing_is_written(
    trusted: Trusted, says: Says, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRIDOPS_KEYS", str(tmp_path))
    answer = says("trust", "catalog", "--write")
    assert (answer.code, "holds no release key of this fleet" in answer.err) == (1, True)
    assert not (trusted.root / CATALOG).exists()
    assert chain_of(trusted.root).root.role(RoleName.RELEASE) is not None
