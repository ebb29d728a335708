"""Locks: every requirement pinned with hashes, no index named, all of pyproject.toml covered, one version per set."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy.source import ROOT, check_none

LOCKS = ("run", "all", "model", "build", "lock")
_PIN = re.compile(r"^([a-z0-9._-]+)==([^ \\;]+)\s*(?:;[^\\]*)?\\$", re.IGNORECASE)


def pins(lock: str) -> dict[str, set[str]]:
    """Versions by package; a universal lock may hold several for different interpreters."""
    found: dict[str, set[str]] = {}
    for line in (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8").splitlines():
        match = _PIN.match(line)
        if match is not None:
            found.setdefault(canonicalize_name(match.group(1)), set()).add(match.group(2))
    return found


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_of_a_lock_is_a_pin_with_a_hash_or_a_comment(lock: str) -> None:
    lines = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8").splitlines()
    bad = []
    for number, line in enumerate(lines):
        pin = _PIN.match(line) is not None
        digest = re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}(?: \\)?", line) is not None
        if not (pin or digest or line.lstrip().startswith("#")):
            bad.append(f"{lock}.txt:{number + 1}: {line}")
        if pin and "--hash=sha256:" not in lines[number + 1]:
            bad.append(f"{lock}.txt:{number + 1}: no hash")
    check_none(bad, "a lock holds pins, hashes and comments, and names no index")
    assert pins(lock)


def test_the_locks_cover_what_pyproject_asks_for() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    extras = project["optional-dependencies"]
    run = [*project["dependencies"], *extras["llamacpp"]]
    bad = _unmet(run, pins("run")) + _unmet([*run, *extras["test"], *extras["lint"]], pins("all"))
    check_none(bad, "renew the locks with `make lock`")


def test_both_locks_agree_so_that_one_environment_serves_both() -> None:
    every = pins("all")
    check_none(
        [name for name, versions in pins("run").items() if every.get(name) != versions], "run.txt and all.txt differ"
    )


def test_tools_for_tests_are_not_in_the_lock_of_the_product() -> None:
    assert not {"pytest", "mypy", "ruff", "hypothesis", "import-linter"} & set(pins("run"))


def test_the_build_lock_satisfies_the_build_system() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["build-system"]["requires"]
    check_none(_unmet(wanted, pins("build")), "requirements/build.in lags behind pyproject.toml")


def _unmet(wanted: list[str], locked: dict[str, set[str]]) -> list[str]:
    bad = []
    for text in wanted:
        requirement = Requirement(text)
        versions = locked.get(canonicalize_name(requirement.name), set())
        if not versions or any(not requirement.specifier.contains(version, prereleases=True) for version in versions):
            bad.append(f"{text}: locked {sorted(versions) or 'not at all'}")
    return bad
