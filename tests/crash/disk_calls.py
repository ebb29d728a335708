"""The n-th call to a disk fails, for every n: SQLite's own way of testing, behind libc instead of its file interface.

`python -m tests.crash.disk_calls WORK` runs with `disk_calls.c` loaded before libc's names, forks one child for each
call and each way to fail, and judges what is on the disk afterwards. `test_disk_calls.py` builds, starts and reads it.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from gridops.base.errors import BadSetup, Failed, GridopsError
from gridops.base.ids import Digest, HostId
from gridops.disk.atomic import read_checked, write_checked
from gridops.disk.keyring import create_secret, read_secret
from gridops.store.authority import JOURNAL, Authority
from gridops.store.journal import Entry, Journal
from gridops_agent.ledger import Ledger, Unwritable
from gridops_agent.ledger_rows import Identity

WAYS = {"eio": 1, "full": 2, "kill": 3, "torn": 4, "power": 5}
GROUP = 3
IDENTITY = Identity(fleet=Digest("sha256:" + "0" * 64), host=HostId("forge"), host_key="ed25519:" + "0" * 64)
Say = Callable[[int], None]
MEMORY = Path("/dev/shm")
"""Where it is: what is lost here is taken away by us, and a real sync only costs time."""
MOST = 400
"""Calls of one work: more is a work that does not end."""


# -- works: what is done to a disk, and what must be there afterwards -------------------------------------------------


def must(holds: bool, words: str) -> None:
    assert holds, words


def journal(folder: Path, say: Say) -> None:
    """Begin, append in groups, snapshot, append: as a controller, that ends when it may not go on."""
    with Authority.open(folder, 1) as authority:
        book = authority.journal
        for number in range(1, 5):
            first = (number - 1) * GROUP
            entries = [Entry("noted", n, {"n": n, "text": "x" * 3_000}) for n in range(first + 1, first + GROUP + 1)]
            try:
                say(book.append(entries, authority.term))
                if number == 2:
                    book.save_snapshot(book.head, {"n": book.head})
            except Failed as error:
                must(JOURNAL in error.message, error.message)
                try:
                    book.append(entries, authority.term)
                except Failed as again:
                    must("nothing more is written" in again.message, again.message)
                else:
                    raise AssertionError("it went on after it had failed") from error
                raise


def journal_is(folder: Path, said: int) -> None:
    book = Journal.open(folder / JOURNAL)
    rows = list(book.replay())
    saved = book.latest_snapshot()
    assert len(rows) >= said, f"{said} were acknowledged, {len(rows)} are there"
    assert len(rows) % GROUP == 0, "a group is whole or not there"
    assert [row.value["n"] for row in rows] == list(range(1, len(rows) + 1))
    assert saved is None or saved.value == {"n": saved.n}
    assert book.append([Entry("noted", 1, {})], book.take_term(1)) == len(rows) + 1, "it can be written again"
    book.close()


def ledger(folder: Path, say: Say) -> None:
    """Begin, and remember step by step: as an agent, that goes on when a step could not be written."""
    path = folder / "ledger.sqlite"
    book = Ledger.open(path, IDENTITY, (), 1) if path.exists() else Ledger.create(path, IDENTITY, ("a root",))
    for number in range(1, 7):
        try:
            book.keep_note("step", f"{number}" + "x" * 3_000)
            say(number)
        except Unwritable as error:
            must(str(folder) in error.message, error.message)
    book.close()


def ledger_is(folder: Path, said: int) -> None:
    try:
        book = Ledger.open(folder / "ledger.sqlite", IDENTITY, (), 1)
    except BadSetup as error:
        must("is missing" in error.message and said == 0, error.message)
        return
    assert book.damage is None, book.damage
    step = int((book.note("step") or "0").rstrip("x"))
    assert step >= said, f"step {said} was acknowledged, {step} is there"
    book.keep_note("step", "again")
    book.close()


def files(folder: Path, say: Say) -> None:
    """A key, and a small file that is written twice."""
    keys = folder / "keys"
    if not (keys / "host.seed").exists():
        create_secret(keys / "host.seed", b"s" * 32)
    for number in (1, 2):
        write_checked(folder / "word.json", b"%d" % number * 2_000)
        say(number)


def files_are(folder: Path, said: int) -> None:
    seed, word = folder / "keys" / "host.seed", folder / "word.json"
    if seed.exists():
        assert read_secret(seed) == b"s" * 32
    found = read_checked(word) if word.exists() else b"0"
    number = int(found[:1])
    assert found in (b"0", b"%d" % number * 2_000)
    assert number >= said
    assert said == 0 or seed.exists()


WORKS = {"journal": (journal, journal_is), "ledger": (ledger, ledger_is), "files": (files, files_are)}


# -- one child for each call ------------------------------------------------------------------------------------------


def lived(library: ctypes.CDLL, work: str, folder: Path, nth: int, way: int) -> tuple[int, int, str]:
    """Do the work with one failure; the newest number that was acknowledged, the calls it made, and what was wrong."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = [0]

        def say(number: int) -> None:
            said[0] = number
            os.write(writing, json.dumps([number, library.disk_seen(), ""]).encode() + b"\n")

        wrong = ""
        try:
            library.disk_arm(str(folder).encode(), nth, way)
            WORKS[work][0](folder, say)
        except GridopsError as error:
            wrong = "" if str(folder) in error.message else f"no file is named: {error.message}"
        except BaseException:  # noqa: BLE001 - whatever it is, the parent has to hear of it
            wrong = traceback.format_exc()
        finally:
            os.write(writing, json.dumps([said[0], library.disk_seen(), wrong]).encode() + b"\n")
            os._exit(0)
    os.close(writing)
    heard = b""
    while chunk := os.read(reading, 65_536):
        heard += chunk
    os.close(reading)
    os.waitpid(pid, 0)
    lines = [json.loads(line) for line in heard.splitlines()]
    return (
        max((line[0] for line in lines), default=0),
        max((line[1] for line in lines), default=0),
        "".join(line[2] for line in lines),
    )


def main(work: str, library: ctypes.CDLL) -> dict[str, object]:
    """Every way to fail at every call."""
    library.disk_seen.restype = ctypes.c_long
    library.disk_arm.argtypes = (ctypes.c_char_p, ctypes.c_long, ctypes.c_int)
    wrong: list[str] = []
    done: Counter[str] = Counter()
    root = Path(tempfile.mkdtemp(prefix="gridops-disk-", dir=MEMORY if MEMORY.is_dir() else None))
    try:
        for name, way in WAYS.items():
            for nth in range(1, MOST):
                folder = root / f"{name}-{nth}"
                folder.mkdir(mode=0o700)
                said, calls, words = lived(library, work, folder, nth, way)
                words = words or judged(work, folder, said)
                if words:
                    wrong.append(f"{work} {name} at call {nth}: {words}")
                shutil.rmtree(folder)
                done[name] += 1
                if 0 < calls < nth:
                    break
            else:
                wrong.append(f"{work} {name}: it never ends")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return {"done": done, "wrong": wrong}


def judged(work: str, folder: Path, said: int) -> str:
    """What is wrong on the disk; empty when nothing is."""
    try:
        if work == "journal" and not (folder / JOURNAL).exists():
            assert said == 0, f"{said} were acknowledged, and there is no journal"
        WORKS[work][1](folder, said)
    except Exception:  # noqa: BLE001 - a finding, whatever it is
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1], ctypes.CDLL(os.environ["LD_PRELOAD"]))) + "\n")
