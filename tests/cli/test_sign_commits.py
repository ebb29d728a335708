"""docs/howto/sign-commits.md word for word, with the real git and ssh-keygen; then the controller believes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gridops.base.ids import CommitId
from gridops.cli.person import chain_of
from gridops.controller.lineage import Base, line_to
from gridops.files.git import Checkout
from gridops.trust.keys import PersonSigner
from gridops.trust.root import RoleName, genesis
from tests.builders.calls import Call

BLOCK = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """What a reader types, in order."""
    lines = [line for block in BLOCK.findall(page.read_text("utf-8")) for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]


def typed(where: Path, line: str, home: Path) -> str:
    """One line in a shell, with `gridops` on the PATH."""
    env = {**os.environ, "HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}
    env.pop("GRIDOPS_KEYS", None)
    ran = subprocess.run(["sh", "-ec", line], cwd=where, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"$ {line}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with `gridops` in it."""
    found = tmp_path / "home"
    (found / "bin").mkdir(parents=True)
    tool = found / "bin" / "gridops"
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m gridops "$@"\n')
    tool.chmod(0o755)
    return found


def test_the_page_leads_to_commits_that_the_controller_believes(
    fleet: Path, home: Path, git: Callable[..., str], repository: Path
) -> None:
    typed(fleet, f"gridops trust init --person mira --state {home}/state", home)
    git(fleet, "add", ".")
    git(fleet, "commit", "-q", "-m", "Found the fleet")
    before = CommitId(git(fleet, "rev-parse", "HEAD"))
    for name in ("jon", "bot"):
        public = PersonSigner.from_seed(name.encode().ljust(32, b".")).public_line(name)
        (fleet / f"{name}.pub").write_text(public + "\n")
    git(fleet, "branch", "more-coders")
    said = ""
    for line in commands(repository / "docs/howto/sign-commits.md"):
        if "git merge" in line:
            _on_a_branch(fleet, git)
        said += typed(fleet, line, home)
    assert "git signs commits here with the change key of mira" in said, said
    assert "the newest commit here is signed by mira" in said
    tip = CommitId(git(fleet, "rev-parse", "HEAD"))
    checkout, chain = Checkout(fleet), chain_of(fleet)
    root_1 = genesis((fleet / "policies/trust/root/1.json").read_text())
    line_ = line_to(checkout, tip, Base(before, root_1, (root_1.text,)))
    assert line_.refusal is None, line_.refusal
    assert line_.signers == ("mira",)
    assert chain.root.signed_commits
    change = chain.root.role(RoleName.CHANGE)
    assert change is not None
    assert [(e.holder, e.paths) for e in change.keys][1:] == [("jon", None), ("merge-bot", ("profiles.d/",))]
    _unsigned_is_refused(fleet, git, Base(tip, chain, _roots(fleet)))


def _on_a_branch(fleet: Path, git: Callable[..., str]) -> None:
    """Somebody's work on a branch, unsigned."""
    git(fleet, "switch", "-q", "more-coders")
    (fleet / "README.md").write_text("more coders\n")
    git(fleet, "add", "README.md")
    git(fleet, "-c", "commit.gpgsign=false", "commit", "-q", "-m", "A second coder")
    git(fleet, "switch", "-q", "main")


def _roots(fleet: Path) -> tuple[str, ...]:
    folder = fleet / "policies/trust/root"
    return tuple((folder / f"{n}.json").read_text().strip() for n in range(1, 1 + len(list(folder.iterdir()))))


def _unsigned_is_refused(fleet: Path, git: Callable[..., str], base: Base) -> None:
    git(fleet, "-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", "The merge button")
    refused = line_to(Checkout(fleet), CommitId(git(fleet, "rev-parse", "HEAD")), base).refusal
    assert refused is not None
    assert refused.code == "commit_unsigned"


def test_show_and_doctor_say_in_words_what_counts(fleet: Path, call: Call, tmp_path: Path, home: Path) -> None:
    assert call("-C", fleet, "trust", "init", "--person", "mira", "--state", tmp_path / "state").code == 0
    shown = call("-C", fleet, "trust", "show").out
    assert "who may push to the watched branch speaks for intent" in shown
    assert call("-C", fleet, "trust", "commits", "any").code == 4
    made = call("-C", fleet, "trust", "commits", "signed")
    assert made.code == 0, made.err
    assert "git config gpg.format ssh" in made.err
    assert "Every commit is signed by a change key" in call("-C", fleet, "trust", "show").out
    found = call("-C", fleet, "trust", "doctor").out
    assert "mira alone may change intent" in found
    assert "git does not sign every commit" in found
    assert "would not be believed" in found
    again = call("-C", fleet, "trust", "commits", "signed")
    assert again.code == 4
    assert "commits must be signed already" in again.err
    refused = call("-C", fleet, "trust", "revoke", "mira", "--role", "change")
    assert refused.code == 4, "nobody could commit any more"
    assert call("-C", fleet, "trust", "demand", "change", "1").code == 0
    assert call("-C", fleet, "trust", "commits", "any").code == 0
    assert "Commits need no signature" in call("-C", fleet, "trust", "show").out


def test_a_line_begins_anew_only_at_a_commit_that_a_controller_would_take(
    fleet: Path, call: Call, tmp_path: Path, git: Callable[..., str]
) -> None:
    assert call("-C", fleet, "trust", "init", "--person", "mira", "--state", tmp_path / "state").code == 0
    git(fleet, "add", ".")
    git(fleet, "commit", "-q", "-m", "Found the fleet")
    founded = git(fleet, "rev-parse", "HEAD")
    assert call("-C", fleet, "trust", "commits", "signed").code == 0
    git(fleet, "add", ".")
    git(fleet, "commit", "-q", "-m", "Demand signed commits")
    git(fleet, "switch", "-q", "-c", "aside")
    git(fleet, "commit", "-q", "--allow-empty", "-m", "Aside")
    aside = git(fleet, "rev-parse", "HEAD")
    git(fleet, "switch", "-q", "main")
    before = sorted(p.name for p in (fleet / "policies/trust/root").iterdir())
    for args, says in (
        (("signed", "--from", "nowhere"), "no commit here"),
        (("signed", "--from", aside), "not on the line"),
        (("signed", "--from", founded), "keeps all of them"),
        (("any", "--from", "HEAD"), "--from says where"),
    ):
        ran = call("-C", fleet, "trust", "commits", *args)
        assert ran.code != 0
        assert says in ran.err, ran.err
    assert sorted(p.name for p in (fleet / "policies/trust/root").iterdir()) == before
    said = call("-C", fleet, "trust", "commits", "signed", "--from", "HEAD")
    assert "Wrote policies/trust/root/3.json" in said.out, said.err
    assert f"begins anew at {chain_of(fleet).root.from_commit}" in call("-C", fleet, "trust", "show").out
    assert chain_of(fleet).root.from_commit == git(fleet, "rev-parse", "HEAD")
