"""All kinds of files: name, shape and the place where each must stand. One line each; everything else follows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from gridops.files.kinds_fleet import DRAIN, FLEET, HOST_KEY_KIND, HOSTS
from gridops.files.kinds_policy import APPROVALS, BUDGETS, MODE, PLANNING
from gridops.files.kinds_profile import PROFILE
from gridops.files.kinds_protection import PROTECTION
from gridops.files.shape import Block

API_VERSION = "gridops/v1"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind: `home` says to people where its files stand, `pattern` recognises such a path."""

    name: str
    shape: Block
    home: str
    pattern: re.Pattern[str]

    def is_home(self, path: str) -> bool:
        return self.pattern.fullmatch(path) is not None


def _policy(name: str, shape: Block) -> Kind:
    path = f"policies/{name.lower()}.yaml"
    return Kind(name, shape, path, re.compile(re.escape(path)))


_ALL = (
    _policy("Fleet", FLEET),
    Kind("HostKey", HOST_KEY_KIND, "fleet.d/keys/<host>.yaml", re.compile(r"fleet\.d/keys/[^/]+\.yaml")),
    Kind("Drain", DRAIN, "fleet.d/drains/<host>.yaml", re.compile(r"fleet\.d/drains/[^/]+\.yaml")),
    Kind("Hosts", HOSTS, "fleet.d/<any name>.yaml", re.compile(r"fleet\.d/(?!keys/|drains/).+\.yaml")),
    Kind("Profile", PROFILE, "profiles.d/<any name>.yaml", re.compile(r"profiles\.d/.+\.yaml")),
    _policy("Mode", MODE),
    _policy("Budgets", BUDGETS),
    _policy("Planning", PLANNING),
    _policy("Approvals", APPROVALS),
    _policy("Protection", PROTECTION),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _ALL}


def kind_at(path: str) -> Kind | None:
    """The kind that belongs at a path, when the path alone tells."""
    return next((kind for kind in _ALL if kind.is_home(path)), None)
