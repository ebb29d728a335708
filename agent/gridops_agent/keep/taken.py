"""What a person at this host handed over or took back: engines taken over while they ran, and engines given back.

One file of the state folder (0600), written by the commands `takeover` and `release`, read by the running agent. What
is in it is durable by itself, and a file that cannot be read is an error and never an empty list.
"""

from __future__ import annotations

from pathlib import Path

from gridops.base import limits
from gridops.base.errors import BadSetup, Busy
from gridops.base.ids import Digest
from gridops.base.record import Malformed, from_bytes, record, to_bytes
from gridops.disk.atomic import read_checked, write_checked
from gridops.disk.keyring import read_secret
from gridops_agent.core.state import Handle


@record
class Taken:
    """One engine that a person handed over, as it was proved then."""

    handle: Handle
    engine: str
    lists: tuple[str, ...]
    words: tuple[str, ...]
    """Its command line: where the file of its model stands."""
    at_ms: int

    @property
    def called(self) -> str:
        """What people call it."""
        return self.handle.name or f"pid {self.handle.pid}"


@record
class Given:
    """One residency that a person took back while it runs."""

    body: Digest
    replica: str
    at_ms: int


@record
class Hands:
    """The whole file."""

    taken: tuple[Taken, ...] = ()
    given: tuple[Given, ...] = ()


def read(path: Path) -> Hands:
    """What is on file. Raises BadSetup when it cannot be read."""
    if not path.exists():
        return Hands()
    try:
        read_secret(path)  # nobody else may say what is ours to stop
        return from_bytes(Hands, read_checked(path))
    except (Malformed, ValueError) as error:
        raise BadSetup(f"{path} cannot be read: {error}", hints=(f"move it away: mv {path} {path}.broken",)) from error


def write(path: Path, hands: Hands) -> None:
    """Put it on file. Raises Busy when there is more than one host can have, or Failed."""
    if len(hands.taken) > limits.EXTERNAL_ENGINES:
        raise Busy(f"{len(hands.taken)} engines are taken over, {limits.EXTERNAL_ENGINES} are the most")
    newest = sorted(hands.given, key=lambda g: -g.at_ms)[: limits.GIVEN_BACK_KEPT]
    kept = Hands(taken=hands.taken, given=tuple(sorted(newest, key=lambda g: g.body)))
    write_checked(path, to_bytes(kept))
