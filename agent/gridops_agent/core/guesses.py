"""What this host fetched on a guess: remembered with the receipt, forgotten with the first use, deleted when told to.

Only such files may be deleted by command, just as they were fetched, and only while nothing here is made of them or is
about to be. What was there before, what a person put there and what was used once are files like any other, for good.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gridops.base import limits
from gridops.base.codes import host as codes
from gridops.base.codes import protocol as protocol_codes
from gridops.base.ids import Digest
from gridops.base.record import digest_of
from gridops.model.action import Action, Evict, Load, Warm
from gridops.model.advice import Prefetched
from gridops.model.profile import Artifact
from gridops_agent.core.state import Guess, Host, drop, put

No = tuple[str, str]
FOREIGN_STORE = "ollama://"
"""What a service fetched into its own store is never ours to delete."""


def identity_of(artifact: Artifact) -> Digest:
    """One name per set of files, whatever the source."""
    return digest_of(Artifact(format=artifact.format, files=artifact.files))


def came(host: Host, load: Load, fetched_bytes: int | None, now_ms: int) -> Host:
    """A load has succeeded. What was there already, or was asked for in earnest, is no guess."""
    files = _files(load.artifact)
    if not load.guess:
        return used(host, files)
    if fetched_bytes is None or (load.artifact.source or "").startswith(FOREIGN_STORE):
        return host
    guess = Guess(profile=load.profile, files=tuple(sorted(files)), size_bytes=fetched_bytes, since_ms=now_ms)
    guesses = put(host.guesses, identity_of(load.artifact), guess)
    while len(guesses) > limits.PREFETCHED_PER_HOST:
        guesses = drop(guesses, min(guesses, key=lambda d: (guesses[d].since_ms, d)))
    return replace(host, guesses=guesses)


def used(host: Host, files: Collection[Digest]) -> Host:
    """Something is made of these files now, or was asked for in earnest: they are files like any other."""
    stay = {d: g for d, g in host.guesses.items() if not set(g.files).intersection(files)}
    if len(stay) == len(host.guesses):
        return host
    for name in sorted(host.guesses.keys() - stay.keys()):
        host = replace(host, guesses=drop(host.guesses, name))
    return host


def started(host: Host, warm: Warm) -> Host:
    return used(host, _files(warm.launch.artifact))


def gone(host: Host, evict: Evict) -> Host:
    """The files of a guess were deleted."""
    name = named(host, evict.files)
    return host if name is None else replace(host, guesses=drop(host.guesses, name))


def named(host: Host, files: tuple[Digest, ...]) -> Digest | None:
    """The artifact that was fetched on a guess and has exactly these files."""
    return next((name for name, guess in sorted(host.guesses.items()) if guess.files == files), None)


def objection(host: Host, action: Action) -> No | None:
    """Why these files may not be deleted, or something may not start from files that are being deleted."""
    match action:
        case Evict():
            return _kept(host, action)
        case Warm():
            files = _files(action.launch.artifact)
            for command in host.commands.values():
                other = command.body.action
                if isinstance(other, Evict) and command.began_ms is not None and files.intersection(other.files):
                    return protocol_codes.PRECONDITION.code, "its files are being deleted here"
    return None


def _kept(host: Host, evict: Evict) -> No | None:
    if named(host, evict.files) is None:
        return codes.NOT_A_GUESS.code, "no such files were fetched here on a guess, or they have been used since"
    for held in sorted(host.held.values(), key=lambda h: h.body):
        if _files(held.warm.launch.artifact).intersection(evict.files):
            return codes.NOT_A_GUESS.code, f"{held.replica} is made of them"
    for command in host.commands.values():
        other = command.body.action
        artifact = (
            other.artifact if isinstance(other, Load) else other.launch.artifact if isinstance(other, Warm) else None
        )
        if artifact is not None and _files(artifact).intersection(evict.files):
            return codes.NOT_A_GUESS.code, f"{other.replica} is about to use them"
    return None


def shown(host: Host, cached: Collection[Digest]) -> tuple[Prefetched, ...]:
    """For the heartbeat: guesses whose files are still here, oldest first, within what a heartbeat holds."""
    found: list[Prefetched] = []
    room = limits.PREFETCHED_FILES
    for guess in sorted(host.guesses.values(), key=lambda g: (g.since_ms, g.files)):
        if len(found) < limits.PREFETCHED_PER_HOST and len(guess.files) <= room and set(guess.files).issubset(cached):
            room -= len(guess.files)
            found.append(
                Prefetched(
                    host=host.fence.host,
                    profile=guess.profile,
                    files=guess.files,
                    size_bytes=guess.size_bytes,
                    since_ms=guess.since_ms,
                )
            )
    return tuple(found)


def _files(artifact: Artifact) -> set[Digest]:
    return {f.sha256 for f in artifact.files}
