"""A small repository without a finding, and ways to break one place of it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

from gridops.files.diagnose import Problem
from gridops.files.load import Checked, check
from gridops.files.tree import MemoryTree

DIGEST = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
KEY = "ed25519:" + "4a" * 32
SEED = "5e" * 32

HOSTS = "fleet.d/hosts.yaml"
PROFILE = "profiles.d/coder.yaml"
MODE = "policies/mode.yaml"
BUDGETS = "policies/budgets.yaml"
PLANNING = "policies/planning.yaml"
APPROVALS = "policies/approvals.yaml"
PROTECTION = "policies/protection.yaml"
FLEET = "policies/fleet.yaml"
DRAIN = "fleet.d/drains/forge.yaml"
HOST_KEY = "fleet.d/keys/forge.yaml"


def _text(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


GOOD: Mapping[str, str] = {
    HOSTS: _text("""
        apiVersion: gridops/v1
        kind: Hosts
        hosts:
          forge:
            devices:
              gpu0: {kind: gpu, memory: 48GiB, peers: [gpu1]}
              gpu1: {kind: gpu, memory: 48GiB, peers: [gpu0]}
              cpu0: {kind: cpu, memory: 256GiB, reserve: 16GiB}
            runtimes: {llama.cpp: {backend: cuda}}
            tags: [always-on]
            tier: confidential
            domains: {rack: r1}
          ana-mac:
            class: opportunistic
            owner: ana
            devices: {unified0: {kind: unified, memory: 48GiB, reserve: 12GiB, gpu_share: 75%}}
            runtimes: {llama.cpp: {backend: metal}}
        """),
    PROFILE: _text(f"""
        apiVersion: gridops/v1
        kind: Profile
        name: coder
        replicas: {{min: 1, max: 2}}
        placement:
          require_tags: [always-on]
        max_per_host: 2
        configs:
          q4:
            engine: llama.cpp
            backends: [cuda]
            artifact:
              format: gguf
              files: [{{path: coder.gguf, sha256: {DIGEST}, size: 18GiB}}]
            context: 16384
            footprint: {{source: declared, device: 20GiB}}
        """),
    MODE: "apiVersion: gridops/v1\nkind: Mode\nscopes:\n  default:\n    mode: recommend\n",
}


def changed(file: str, old: str, new: str) -> dict[str, str]:
    """The good repository with one piece of one file replaced; the piece must be there."""
    text = GOOD[file]
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {file}"
    return {**GOOD, file: text.replace(old, new)}


def added(file: str, text: str) -> dict[str, str]:
    """The good repository with one file more, or another one in its place."""
    return {**GOOD, file: _text(text)}


def appended(file: str, text: str) -> dict[str, str]:
    """The good repository with lines at the end of a file."""
    return {**GOOD, file: GOOD[file] + text}


def checked(files: Mapping[str, str | bytes]) -> Checked:
    return check(MemoryTree(files))


def problems(files: Mapping[str, str | bytes]) -> tuple[Problem, ...]:
    return checked(files).problems
