"""Names and digests: what may stand for something."""

from __future__ import annotations

import pytest

from gridops.base.ids import is_digest, is_name, replica_id, replica_key, short, split_replica


@pytest.mark.parametrize("text", ["a", "gpu-01", "llama-3.3_70b", "0", "a" * 63])
def test_names_are_short_and_plain(text: str) -> None:
    assert is_name(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A",
        "-a",
        ".",
        "..",
        ".a",
        "_a",
        "a b",
        "a/b",
        "a\n",
        "a\x00",
        "ü",
        "٣",
        "a" * 64,
        "a:b",
        "a@b",
        "~",
        "*",
        "$a",
    ],
)
def test_anything_that_could_mean_more_is_no_name(text: str) -> None:
    assert not is_name(text)


def test_a_digest_has_one_form() -> None:
    good = "sha256:" + "0123456789abcdef" * 4
    assert is_digest(good)
    for bad in (
        good.upper(),
        good[:-1],
        good + "0",
        good[7:],
        "sha512" + good[6:],
        good + "\n",
        good.replace("0", "٠"),
    ):
        assert not is_digest(bad)


def test_a_replica_is_a_profile_and_a_number_from_one() -> None:
    for profile, number in (("coder", 1), ("llama-3.3_70b", 999_999)):
        assert split_replica(replica_id(profile, number)) == (profile, number)  # type: ignore[arg-type]
    for bad in (
        "coder",
        "coder/",
        "/1",
        "coder/0",
        "coder/01",
        "coder/-1",
        "Coder/1",
        "a/b/1",
        "coder/1\n",
        "coder/1000000",
    ):
        with pytest.raises(ValueError, match=r"is not a replica: expected NAME/NUMBER"):
            split_replica(bad)


def test_replicas_sort_by_number() -> None:
    wanted = ["a/1", "a/2", "a/10", "b/1"]
    assert sorted(["b/1", "a/10", "a/2", "a/1"], key=replica_key) == wanted
    assert replica_key("no number") == ("", 0)
    assert replica_key("a/²") == ("a", 0)


def test_short_is_for_text() -> None:
    assert short("sha256:0123456789abcdef") == "01234567"
    assert short("0123456789abcdef", 4) == "0123"
