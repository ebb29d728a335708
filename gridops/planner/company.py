"""Colocation: which models may share a host, in both directions. Used for what is planned and for what still runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gridops.base.ids import ProfileName
from gridops.base.units import counted
from gridops.model.profile import Profile


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why a profile may not join others. `together` and `most` count distinct profiles, when it is about numbers."""

    detail: str
    together: int | None = None
    most: int | None = None


def has_rules(profile: Profile) -> bool:
    """It may object to others on its host. Where nobody may, nobody need be asked."""
    return profile.colocation.max is not None or bool(profile.colocation.exclude)


def conflict(
    profile: Profile, present: Iterable[ProfileName], profiles: Mapping[ProfileName, Profile]
) -> Conflict | None:
    """The first objection of the newcomer or of anybody present; `max` counts distinct profiles, itself included."""
    others = set(present)
    others.discard(profile.name)
    if not others:
        return None
    together = len(others) + 1
    for name in sorted(others):
        other = profiles.get(name)
        if name in profile.colocation.exclude or (other is not None and profile.name in other.colocation.exclude):
            return Conflict(f"{name} is there, and the two exclude each other")
        if other is not None and other.colocation.max is not None and together > other.colocation.max:
            return Conflict(
                f"{name} shares a host with at most {counted(other.colocation.max - 1, 'other')}",
                together,
                other.colocation.max,
            )
    most = profile.colocation.max
    if most is not None and together > most:
        return Conflict(f"it holds {len(others)} other models, at most {most - 1} accepted", together, most)
    return None
