"""Disk for artifacts: admission at the moment of the fetch, and what may go to make room."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from gridops.base.errors import Refusal
from gridops.model.profile import Artifact
from gridops_agent.artifacts import TakenBack
from gridops_agent.artifacts.find import name_of
from gridops_agent.artifacts.room import Claims
from tests.agent.origin import Origin, Trick, until
from tests.agent.shelf import Desk, artifact, file_of

MIB = 1 << 20


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "host")


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as made:
        yield made


def model(origin: Origin, name: str, size: int = MIB) -> Artifact:
    content = (name.encode() * size)[:size]
    origin.files[f"/{name}"] = content
    return artifact(file_of(name, content), source=f"{origin.url}/{name}")


def age(desk: Desk, of: Artifact, hours: int) -> None:
    os.utime(desk.cache / name_of(of), (time.time() - hours * 3_600,) * 2)


def has(desk: Desk, of: Artifact) -> bool:
    return (desk.cache / name_of(of)).is_dir()


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 0, size))  # type: ignore[attr-defined]


def no_space(desk: Desk, of: Artifact, *, guess: bool = False) -> Refusal:
    with pytest.raises(Refusal) as caught:
        desk.fetch(of, guess=guess)
    assert caught.value.code == "no_space", caught.value
    return caught.value


def test_what_must_stay_free_stays_free(desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = model(origin, "a")
    free(monkeypatch, 3 * MIB - 1)
    refusal = no_space(desk.with_(keep_free_bytes=2 * MIB), wanted)
    assert "2 MiB stay free" in refusal.message
    assert origin.asked == []
    free(monkeypatch, 3 * MIB)
    desk.fetch(wanted)


def test_what_has_arrived_already_needs_no_more_room(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = model(origin, "a")
    origin.tricks = [Trick(cut_after=MIB - 100), *(Trick(status=503) for _ in range(4))]
    with pytest.raises(Refusal):
        desk.fetch(wanted)
    free(monkeypatch, 100)
    desk.fetch(wanted)


def test_what_other_transfers_still_need_is_counted(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.with_(stall_ms=60_000)
    first, second = model(origin, "a"), model(origin, "b")
    origin.tricks = [Trick(stall_after=100)]
    free(monkeypatch, 2 * MIB - 101)
    shelf, stop = desk.shelf(), Event()

    def hang() -> None:
        with contextlib.suppress(TakenBack):
            shelf.obtain(first, stop)

    thread = threading.Thread(target=hang)
    thread.start()
    until(lambda: sum(map(len, desk.parts())) == 100, "the first bytes")
    with pytest.raises(Refusal, match="more by transfers under way"):
        shelf.obtain(second, Event())
    free(monkeypatch, 2 * MIB - 100)
    shelf.obtain(second, Event())
    stop.set()
    thread.join()


# -- what makes room --------------------------------------------------------------------------------------------------


def test_guesses_make_room_for_what_is_needed_longest_unused_first(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young, used = (model(origin, name) for name in ("old", "young", "used"))
    for one, hours in ((old, 3), (young, 1), (used, 9)):
        desk.fetch(one, guess=True)
        age(desk, one, hours)
    desk.claims = Claims(guesses=frozenset({name_of(old), name_of(young)}))
    free(monkeypatch, MIB // 2)
    desk.fetch(model(origin, "new"))
    assert [has(desk, one) for one in (old, young, used)] == [False, True, True]
    assert [p for p in desk.proofs if name_of(old) in p] == [], "its proof is forgotten with it"


def test_a_guess_makes_no_room_for_a_guess(desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    old = model(origin, "old")
    desk.fetch(old, guess=True)
    desk.claims = Claims(guesses=frozenset({name_of(old)}))
    free(monkeypatch, MIB // 2)
    no_space(desk, model(origin, "new"), guess=True)
    assert has(desk, old)


def test_nothing_goes_where_all_of_it_would_not_be_enough(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = model(origin, "old")
    desk.fetch(old, guess=True)
    desk.claims = Claims(guesses=frozenset({name_of(old)}))
    free(monkeypatch, 0)
    no_space(desk, model(origin, "new", 3 * MIB))
    assert has(desk, old)


def test_downloads_that_were_used_go_only_where_the_operator_set_a_limit(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = model(origin, "old")
    desk.fetch(old)
    free(monkeypatch, MIB // 2)
    refusal = no_space(desk, model(origin, "new"))
    assert "`limit` under [artifacts]" in refusal.hints[0]
    assert has(desk, old)
    desk.with_(limit_bytes=100 * MIB).fetch(model(origin, "new"))
    assert not has(desk, old)


def test_a_limit_is_kept_by_the_longest_unused_and_never_by_what_is_in_use(desk: Desk, origin: Origin) -> None:
    busy, idle, fresh = (model(origin, name) for name in ("busy", "idle", "fresh"))
    for one, hours in ((busy, 9), (idle, 5), (fresh, 1)):
        desk.fetch(one)
        age(desk, one, hours)
    desk.claims = Claims(busy=frozenset({name_of(busy)}))
    desk.with_(limit_bytes=3 * MIB)
    desk.fetch(model(origin, "new"))
    assert [has(desk, one) for one in (busy, idle, fresh)] == [True, False, True]
    desk.claims = Claims(busy=frozenset(name_of(one) for one in (busy, fresh, model(origin, "new"))))
    assert "may hold 3 MiB" in no_space(desk, model(origin, "more")).message


def test_use_counts_as_use(desk: Desk, origin: Origin) -> None:
    first, second = model(origin, "first"), model(origin, "second")
    for one, hours in ((first, 9), (second, 5)):
        desk.fetch(one)
        age(desk, one, hours)
    desk.shelf().locate(first, Event())
    desk.with_(limit_bytes=2 * MIB).fetch(model(origin, "new"))
    assert [has(desk, one) for one in (first, second)] == [True, False]


def test_what_people_put_there_is_never_deleted(desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "theirs").write_bytes(b"x" * MIB)
    desk.cache.mkdir()
    (desk.cache / "notes").mkdir()
    (desk.cache / ("a" * 64)).symlink_to(desk.folder)
    free(monkeypatch, 0)
    no_space(desk.with_(limit_bytes=MIB), model(origin, "new"))
    assert sorted(p.name for p in desk.cache.iterdir()) == ["a" * 64, "notes"]
    assert (desk.folder / "theirs").exists()


def test_what_a_crash_left_half_deleted_is_gone_after_the_next_start(desk: Desk, origin: Origin) -> None:
    kept = model(origin, "kept")
    desk.fetch(kept)
    for name in (f".{'a' * 64}.gone", f".{'b' * 64}.part", f".{'c' * 64}.part"):
        (desk.cache / name).mkdir()
        (desk.cache / name / "m").write_bytes(b"x")
    for path in (desk.cache / f".{'b' * 64}.part" / "m", desk.cache / f".{'b' * 64}.part"):
        os.utime(path, (0, 0))
    desk.shelf().tidy()
    assert desk.left() == sorted([f".{'c' * 64}.part", name_of(kept)])


def left_behind(desk: Desk, origin: Origin, of: Artifact, hours: int = 0) -> None:
    """A fetch that broke off in its middle, and how long ago anything arrived of it."""
    size = len(origin.files[f"/{of.files[0].path}"])
    origin.tricks = [Trick(cut_after=size // 2), *(Trick(status=503) for _ in range(4))]
    with pytest.raises(Refusal):
        desk.fetch(of)
    part = desk.cache / f".{name_of(of)}.part"
    for path in (part / of.files[0].path, part):
        os.utime(path, (time.time() - hours * 3_600,) * 2)


def parts(desk: Desk, *of: Artifact) -> list[bool]:
    return [(desk.cache / f".{name_of(one)}.part").exists() for one in of]


def test_a_part_that_still_grows_is_young_however_old_its_folder_is(desk: Desk, origin: Origin) -> None:
    slow = model(origin, "slow")
    left_behind(desk, origin, slow)
    os.utime(desk.cache / f".{name_of(slow)}.part", (0, 0))
    desk.shelf().tidy()
    assert parts(desk, slow) == [True]


def test_an_agent_that_runs_for_years_keeps_no_part_for_ever(desk: Desk, origin: Origin) -> None:
    old, young, new = (model(origin, name) for name in ("old", "young", "new"))
    shelf = desk.shelf()
    left_behind(desk, origin, old, hours=24 * 8)
    left_behind(desk, origin, young, hours=24 * 6)
    shelf.obtain(new, Event())
    assert parts(desk, old, young) == [False, True]
    assert [p.name for p in desk.cache.iterdir() if p.name.endswith(".etags")] == [f".{name_of(young)}.etags"]


def test_what_is_left_of_a_fetch_makes_room_the_oldest_first_and_never_for_a_guess(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, young, waited, new = (model(origin, name) for name in ("old", "young", "waited", "new"))
    for one, hours in ((old, 30), (young, 3), (waited, 90)):
        left_behind(desk, origin, one, hours)
    desk.claims = Claims(busy=frozenset({name_of(waited)}))
    free(monkeypatch, MIB // 2)
    no_space(desk, new, guess=True)
    assert parts(desk, old, young, waited) == [True, True, True]
    desk.fetch(new)
    assert parts(desk, old, young, waited) == [False, True, True], "a load that waits goes on where it was"


def test_a_limit_counts_what_is_left_of_fetches_too(desk: Desk, origin: Origin) -> None:
    part, new = model(origin, "part"), model(origin, "new")
    desk.with_(limit_bytes=MIB + MIB // 4)
    left_behind(desk, origin, part)
    desk.fetch(new)
    assert (parts(desk, part), has(desk, new)) == ([False], True)
