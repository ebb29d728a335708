"""Disks that take nothing more: every durable writer says which file, leaves what was, and leaves nothing half behind.

The whole agent: its engine serves on, its status answers, no change begins, and with room everything goes on. The
controller's side of it, on a file system of its own, is `tests/e2e/test_disk.py`.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops.base.ids import CommitId, HostId
from gridops.controller.statedir import Kept, StateDir
from gridops.disk.atomic import write_atomic, write_checked
from gridops.disk.keyring import create_secret
from gridops_agent.clock import SystemClock
from gridops_agent.config import read_config, write_config
from gridops_agent.core.protection import OverrideKind
from gridops_agent.keep import taken
from gridops_agent.life.left import note_left
from gridops_agent.overrides import Wish, say
from gridops_agent.statefolder import keep_roots
from gridops_agent.status import status
from tests.agent.site import Site
from tests.builders.tiny_gguf import Made, write_tiny_gguf
from tests.crash.pair import AGENT, audit, founded, paired
from tests.crash.zygote import Nursery

NOTHING = (0, resource.RLIM_INFINITY)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return write_tiny_gguf(tmp_path_factory.mktemp("models") / "tiny.gguf")


WRITERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a small file": ("x.json", lambda f: write_atomic(f / "x.json", b"new")),
    "one with a sum": ("y.json", lambda f: write_checked(f / "y.json", b"new")),
    "a key": ("new.seed", lambda f: create_secret(f / "keys" / "new.seed", b"s" * 32)),
    "a word": ("override.json", lambda f: say(f / "override.json", Wish(OverrideKind.PAUSE, "mine"), SystemClock())),
    "what was handed over": ("hands.json", lambda f: taken.write(f / "hands.json", taken.Hands())),
    "that it left": ("left.json", lambda f: note_left(read_config(f), 1)),
    "its settings": ("agent.toml", lambda f: write_config(replace(read_config(f), front="10.0.0.7:1"))),
    "root documents": ("2.json", lambda f: keep_roots(read_config(f), ("one", "two"))),
    "an invitation": ("beta.key", lambda f: StateDir(f).keep_invite(HostId("beta"), b"k" * 32)),
    "what is in force": ("accepted.json", lambda f: StateDir(f).keep_accepted(KEPT)),
}
KEPT = Kept(commit=CommitId("0" * 40), roots=())


@pytest.mark.parametrize("what", WRITERS)
def test_a_writer_that_has_no_room_names_its_file_and_leaves_what_was(what: str, tmp_path: Path, model: Made) -> None:
    site = Site(tmp_path / "state", model).join()
    for old in ("x.json", "y.json", "override.json", "hands.json"):
        (site.state / old).write_text("old")
    (site.state / "roots" / "1.json").write_text("one")
    StateDir(site.state).keep_invite(HostId("beta"), b"o" * 32)
    before = {p: p.read_bytes() for p in site.state.rglob("*") if p.is_file()}
    name, write = WRITERS[what]
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = "it was written"
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, NOTHING)
            write(site.state)
        except Failed as error:
            words = error.message
        except BaseException as other:  # noqa: BLE001 - whatever it is, the parent has to hear of it
            words = repr(other)
        finally:
            os.write(writing, words.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    said = os.read(reading, 4_096).decode()
    os.close(reading)
    os.close(writing)
    assert said.startswith("cannot "), said
    assert name in said
    assert {p: p.read_bytes() for p in site.state.rglob("*") if p.is_file()} == before


def test_an_agent_whose_disk_takes_nothing_serves_on_and_begins_nothing(tmp_path: Path, model: Made) -> None:
    founded(tmp_path / "template", model)
    with Nursery() as nursery:
        pair = paired(tmp_path / "full", tmp_path / "template", model, nursery)
        try:
            pair.serve()
            (engine,) = pair.engines()
            agent, config = pair.running[AGENT], read_config(pair.state(AGENT))
            resource.prlimit(agent, resource.RLIMIT_FSIZE, NOTHING)
            pair.want(0)

            def told() -> bool:
                return any(a.startswith("ledger_unwritable") for a in pair.alarms())

            pair.until("the controller hears that the ledger takes nothing", told)
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                pair.look()
                assert [e.pid for e in pair.engines()] == [engine.pid], "it serves on"
                time.sleep(0.1)
            seen = status(config, running=True)
            assert [r["state"] for r in seen["residencies"]] == ["ready"], "and its host still answers"
            assert pair.running[AGENT] == agent, "the same process"
            resource.prlimit(agent, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            pair.until("with room it goes on by itself", pair.idle)
            assert pair.ends == []
            pair.end()
            audit(pair)
        finally:
            pair.clear()
