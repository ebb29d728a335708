"""State folders to damage: those of a controller and an agent that were killed while a replica was ready.

`lived` makes them by real processes, and lets people add what only people write. `damages` are the ways in which a
file is damaged; `judged` reads one that was.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gridops.base.ids import HostId
from gridops.controller.statedir import StateDir
from gridops.disk.keyring import create_secret
from gridops.model.fleet import DeviceKind
from gridops.protocol.qualification import DeviceReading, Qualification
from gridops.trust.keys import MachineSigner
from gridops_agent import evidence, rekeying
from gridops_agent.clock import SystemClock
from gridops_agent.config import read_config
from gridops_agent.core.protection import OverrideKind
from gridops_agent.keep import taken
from gridops_agent.life.left import note_left
from gridops_agent.overrides import Wish, say
from tests.builders.tiny_gguf import Made
from tests.crash.durable import AGENT, CONTROLLER, KEPT, No, kept_of, matches
from tests.crash.pair import founded, launch_of, paired, seed_of
from tests.crash.zygote import Nursery

CUT_EVERY = 64
FLIP_EVERY = 256
LEFT_APART = ("left.json",)
"""What changes how everything else is read: only in the copy in which it is damaged."""


@dataclass(frozen=True, slots=True)
class Damage:
    """What happens to one file: it is cut off, or one bit of it is another."""

    owner: str
    name: str
    at: int
    flip: bool

    def __str__(self) -> str:
        return f"{self.owner}/{self.name} {'bit flipped in' if self.flip else 'cut at'} byte {self.at}"

    def of(self, raw: bytes) -> bytes:
        if not self.flip:
            return raw[: self.at]
        return raw[: self.at] + bytes([raw[self.at] ^ (1 << self.at % 8)]) + raw[self.at + 1 :]


@dataclass(frozen=True, slots=True)
class Lived:
    """Two state folders as they were found."""

    controller: Path
    agent: Path

    def folder(self, owner: str) -> Path:
        return self.controller if owner == CONTROLLER else self.agent

    def files(self) -> list[tuple[str, str, int]]:
        """Owner, name and size of everything there is."""
        return [
            (owner, str(path.relative_to(self.folder(owner))), path.stat().st_size)
            for owner in (CONTROLLER, AGENT)
            for path in sorted(self.folder(owner).rglob("*"))
            if path.is_file()
        ]


def lived(root: Path, model: Made, nursery: Nursery) -> Lived:
    """Let the two live until a replica is ready, kill both, and keep what is on their disks."""
    founded(root / "template", model)
    pair = paired(root / "pair", root / "template", model, nursery)
    made = Lived(root / "controller", root / "agent")
    try:
        pair.serve()
        launch = launch_of(pair.state(CONTROLLER))
        for name, pid in list(pair.running.items()):
            os.kill(pid, signal.SIGKILL)
            while pair.nursery.ended(pid) is None:
                time.sleep(0.02)
            del pair.running[name]
        for name, target in ((CONTROLLER, made.controller), (AGENT, made.agent)):
            shutil.copytree(pair.state(name), target)
    finally:
        pair.clear()
    StateDir(made.controller).keep_invite(HostId("beta"), b"k" * 32)
    config = read_config(made.agent)
    say(config.override, Wish(OverrideKind.DRAIN, "a new fan", 3_600_000), SystemClock())
    taken.write(config.hands, taken.Hands(given=(taken.Given(body=config.fleet, replica="tiny/1", at_ms=7),)))
    rekeying.prepare(config)
    rekeying.promote(config)
    config.seed.unlink()
    create_secret(config.seed, seed_of(AGENT))  # as before it: the ledger names this one
    rekeying.prepare(config)
    note_left(config, 1_796_000_000_000)
    signer = MachineSigner.from_seed(config.seed.read_bytes())
    reading = DeviceReading(device="cpu0", kind=DeviceKind.CPU, total_bytes=9, used_bytes=2, own_bytes=1)  # type: ignore[arg-type]
    evidence.keep(
        config.qualified,
        Qualification(
            fleet=config.fleet, host=config.host, at_ms=1, agent_version="0.1.0", engine_version="b1", launch=launch,
            identity="x", steps=(), readings=(reading,), passed=True,
        ),
        signer,
    )  # fmt: skip
    return made


def damages(found: Lived, cut_every: int, flip_every: int) -> Iterator[Damage]:
    """Every cut and every flipped bit, of every file that is read back."""
    for owner, name, size in found.files():
        row = kept_of(owner, name)
        if row is None or row.read is None:
            continue
        yield from (Damage(owner, name, at, False) for at in range(0, size, cut_every))
        # Not at the beginning of each stretch alone: the offset wanders, so that every place of a page is met.
        yield from (
            Damage(owner, name, start + start // flip_every * 37 % min(flip_every, size - start), True)
            for start in range(0, size, flip_every)
        )


def copied(found: Lived, owner: str, name: str, to: Path) -> Path:
    """A copy of one state folder, without what would change how the file is read."""
    apart = [n for n in LEFT_APART if n != name]
    shutil.copytree(found.folder(owner), to, ignore=lambda _, names: [n for n in names if n in (*apart, "log")])
    return to


def read(folder: Path, owner: str, name: str) -> Any:
    """Its content as its reader takes it. Raises No."""
    row = next(row for row in KEPT if row.owner == owner and matches(row.name, name))
    assert row.read is not None
    return row.read(folder, folder / name)


def judged(found: Lived, damage: Damage, whole: Any, to: Path) -> str:
    """What became of a damaged file, in a word; an assertion fails where that is not allowed."""
    folder = copied(found, damage.owner, damage.name, to)
    path, row = folder / damage.name, kept_of(damage.owner, damage.name)
    assert row is not None
    path.write_bytes(damage.of(path.read_bytes()))
    try:
        now = read(folder, damage.owner, damage.name)
    except No as no:
        return str(no)
    finally:
        shutil.rmtree(to, ignore_errors=True)
    if now == whole:
        return "unchanged"
    if damage.name.endswith("-wal"):
        assert earlier(now, whole), f"{damage}: {str(now)[:400]} is no earlier state of {str(whole)[:400]}"
        return "an earlier state"
    assert damage.flip, f"{damage}: it is read as if it were whole: {str(now)[:400]}"
    assert not row.summed, f"{damage}: it is read as {str(now)[:400]} instead of {str(whole)[:400]}"
    return "changed, and nothing of ours can tell"


def earlier(now: Any, whole: Any) -> bool:
    """Fewer rows of the same chain; of a ledger, no more commands and receipts than there were."""
    if isinstance(now[0], int):
        return bool(now[0] < whole[0] and now[2] == whole[2][: now[0]])
    fence, receipts = now[0], now[1]
    return bool(fence.head.seq <= whole[0].head.seq and receipts.kept == whole[1].kept[: len(receipts.kept)])
