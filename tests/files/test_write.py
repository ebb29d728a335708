"""The two kinds of file that gridops writes itself: what people put into them survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridops.base.errors import ConfigError, Failed
from gridops.files.fmt import format_text
from gridops.files.load import check
from gridops.files.tree import WorkingTree
from gridops.files.write import write_drain, write_host_key
from gridops.model.fleet import Drain, HostKey
from tests.files.repo import GOOD, KEY

AT = 1795943520000


def key(**changes: object) -> HostKey:
    fields: dict[str, object] = {"host": "forge", "key": KEY, "admitted_by": "mira", "admitted_at_ms": AT}
    return HostKey(**(fields | changes))  # type: ignore[arg-type]


def drain(**changes: object) -> Drain:
    return Drain(**({"host": "forge", "reason": "driver upgrade"} | changes))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, text in GOOD.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_what_is_written_is_read_back_the_same(root: Path) -> None:
    previous = ("ed25519:" + "5b" * 32, "ed25519:" + "5c" * 32)
    write_host_key(root, key(previous=previous, expunged=True))
    write_drain(root, drain(by="mira", until_ms=AT + 1))
    found = check(WorkingTree(root))
    assert found.problems == ()
    assert found.intent is not None
    assert found.intent.desired.keys == (key(previous=previous, expunged=True),)
    assert found.intent.desired.drains == (drain(by="mira", until_ms=AT + 1),)


def test_what_is_written_is_in_canonical_layout(root: Path) -> None:
    for path in (write_host_key(root, key()), write_drain(root, drain(by="jon", until_ms=AT))):
        text = path.read_text()
        assert format_text(str(path), text.encode()).text == text


def test_writing_the_same_again_changes_no_byte(root: Path) -> None:
    path = write_drain(root, drain(by="mira", until_ms=AT))
    path.write_text("# by hand\n" + path.read_text().replace("by: mira", "by: mira   # call first"))
    before = path.read_bytes()
    assert write_drain(root, drain(by="mira", until_ms=AT)) == path
    assert path.read_bytes() == before


def test_comments_and_order_survive_a_change(root: Path) -> None:
    path = write_host_key(root, key())
    text = path.read_text().replace("expunged: false", "# ask mira first\nexpunged: false  # not yet")
    path.write_text("# keep out\n" + text)
    write_host_key(root, key(expunged=True))
    made = path.read_text()
    assert made.startswith("# keep out\n")
    assert "# ask mira first\nexpunged: true" in made
    assert "# not yet" in made


@pytest.mark.parametrize(
    "reason", ["no", "12", "a: b # c", "null", "2026-11-30", "'quoted'", "über, [x] {y}", "- dash", "&a"]
)
def test_any_reason_comes_back_as_it_was_given(root: Path, reason: str) -> None:
    write_drain(root, drain(reason=reason))
    found = check(WorkingTree(root))
    assert found.intent is not None
    assert found.intent.desired.drains[0].reason == reason


def test_a_field_that_is_gone_is_removed(root: Path) -> None:
    write_drain(root, drain(by="mira", until_ms=AT))
    path = write_drain(root, drain())
    assert path.read_text() == "apiVersion: gridops/v1\nkind: Drain\nhost: forge\nreason: driver upgrade\n"


def test_a_file_that_cannot_be_read_is_not_overwritten(root: Path) -> None:
    path = root / "fleet.d/drains/forge.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("host: [\n")
    with pytest.raises(ConfigError, match="GO103"):
        write_drain(root, drain())
    assert path.read_text() == "host: [\n"


def test_what_would_not_be_read_back_is_never_written(root: Path) -> None:
    with pytest.raises(ConfigError, match="GO212"):
        write_host_key(root, key(key="ed25519:short"))
    with pytest.raises(ConfigError, match="GO130"):
        write_drain(root, drain(reason="token hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"))
    assert not (root / "fleet.d/keys/forge.yaml").exists()
    assert not (root / "fleet.d/drains/forge.yaml").exists()


def test_a_folder_that_cannot_be_made_is_named(root: Path) -> None:
    (root / "fleet.d/drains").write_text("in the way")
    with pytest.raises(Failed, match="drains"):
        write_drain(root, drain())
