"""Files that a person named: the wrong one ends in words, however large it is and whatever it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gridops.base import limits
from gridops.cli.named import text_at
from gridops.cli.person import key_folder
from gridops.trust.keys import PersonSigner
from tests.builders.calls import Call

ENDLESS = Path("/dev/zero")


def test_a_document_of_the_largest_size_is_read_and_one_byte_more_is_not(tmp_path: Path) -> None:
    at = tmp_path / "one.json"
    at.write_bytes(b"a" * limits.ENVELOPE_BYTES)
    assert len(text_at(at)) == limits.ENVELOPE_BYTES
    at.write_bytes(b"a" * (limits.ENVELOPE_BYTES + 1))
    with pytest.raises(OSError, match="larger than 256 KiB"):
        text_at(at)


@pytest.mark.parametrize(
    "words",
    [
        ("trust", "add", "jon", "--key", ENDLESS),
        ("trust", "rotate", "mira", "--key", ENDLESS),
        ("trust", "sign", ENDLESS),
        ("trust", "verify", ENDLESS),
    ],
    ids=lambda words: "-".join(str(word) for word in words[:2]),
)
def test_a_file_without_an_end_is_refused_by_name(trusted: Any, call: Call, words: tuple[Any, ...]) -> None:
    said = call("-C", trusted.root, *words)
    assert said.code == 1
    assert said.err.startswith("error: /dev/zero: ")
    assert "larger than 256 KiB" in said.err


def test_whoever_has_only_a_change_key_freezes_and_does_nothing_else(
    trusted: Any, controller: Any, call: Call, tmp_path: Path
) -> None:
    jon = PersonSigner.from_seed(b"j" * 32)
    (tmp_path / "jon.pub").write_text(jon.public.text)
    added = call("-C", trusted.root, "trust", "add", "jon", "--key", tmp_path / "jon.pub", "--role", "change")
    assert added.code == 0, added.err
    for key in key_folder().iterdir():
        key.unlink()
    alone = key_folder() / "jon"
    alone.write_bytes(jon.to_openssh())
    alone.chmod(0o600)
    controller.answers["/v1/operator"] = (200, {"scope": None})
    for who in ((), ("--as", "jon")):
        said = call("-C", trusted.root, "freeze", "--reason", "smoke", *who)
        assert (said.code, said.out) == (0, "Every scope is frozen until `gridops thaw`: smoke\n"), said.err
    eve = call("-C", trusted.root, "freeze", "--reason", "smoke", "--as", "eve")
    assert eve.err.startswith("error: --as eve: nobody of this fleet")
    thawed = call("-C", trusted.root, "thaw", "--as", "jon")
    assert (thawed.code, thawed.err.partition("\n")[0]) == (64, "error: --as jon: no such approver in this fleet")
    assert len(controller.asked) == 2
