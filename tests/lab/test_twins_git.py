"""The lab's repository beside real git: every object of a run poured into one, and the same intake asked of both."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

from git import Repo

from gridops.base.ids import CommitId
from gridops.controller.core.intend import Found, chain_of
from gridops.controller.intake import look
from gridops.controller.lineage import Base
from gridops.files.git import Checkout
from gridops.lab.forge import Forge
from gridops.lab.options import Options
from gridops.lab.world import World

PUSHED = Options(
    seed=3,
    hosts=1,
    profiles=1,
    catalog=True,
    signed_commits=True,
    commit_every_ms=90_000,
    pusher_every_ms=8_000,
    renew_every_ms=40_000,
)


def poured(forge: Forge, at: Path) -> Checkout:
    """A bare repository that holds what the lab's holds."""
    Repo.init(at, bare=True)
    for oid, (kind, raw) in forge.kept.items():
        whole = f"{kind} {len(raw)}\x00".encode() + raw
        assert hashlib.sha1(whole, usedforsecurity=False).hexdigest() == oid
        file = at / "objects" / oid[:2] / oid[2:]
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(zlib.compress(whole))
    return Checkout(at)


def words(found: Found) -> tuple[object, ...]:
    """All that is judged of a commit. Who wrote it is a claim, which the lab does not model."""
    line = found.line
    said = (line.base, line.tip, line.signers, str(line.refusal)) if line is not None else None
    desired = found.intent.desired if found.intent is not None else None
    tight = (found.mode, found.mode_gone, found.drains)
    return (
        found.commit,
        found.subject,
        desired,
        found.problems,
        tight,
        found.roots,
        found.catalog,
        said,
        found.descends,
    )


def test_the_intake_reads_the_same_from_the_lab_and_from_git(tmp_path: Path) -> None:
    world = World(PUSHED)
    world.run()
    forge, line = world.repository.forge, world.repository.line
    assert forge is not None
    git = poured(forge, tmp_path / "repository.git")
    pushed = [CommitId(oid) for oid, (kind, _) in forge.kept.items() if kind == "commit" and oid not in line]
    first = tuple(world.repository.roots[:1])
    begun = Base(None, chain_of(first), first)
    middle = look(forge, line[len(line) // 2], begun)
    force = Base(middle.commit, chain_of(middle.roots), middle.roots)
    asked = [(force, tip) for tip in (*pushed[:10], line[0], line[-1])] + [(begun, pushed[-1]), (begun, line[-1])]
    refused = 0
    for base, tip in asked:
        ours, theirs = look(forge, tip, base), look(git, tip, base)
        assert words(ours) == words(theirs), tip
        refused += ours.line is not None and ours.line.refusal is not None
    assert 0 < refused < len(asked)
