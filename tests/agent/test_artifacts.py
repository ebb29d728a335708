"""Artifacts: found by digest wherever they lie, proved before use, published whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from pathlib import Path
from threading import Event

import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts import Artifacts, TakenBack
from gridops_agent.ledger_rows import FileProof


def file_of(path: str, content: bytes) -> ArtifactFile:
    digest = Digest("sha256:" + hashlib.sha256(content).hexdigest())
    return ArtifactFile(path=path, sha256=digest, size_bytes=len(content))


def artifact(*files: ArtifactFile, source: str | None = None) -> Artifact:
    return Artifact(format="weights", files=files, source=source)


class Shelf:
    """One host's folders and what it has proved."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder, self.cache = tmp_path / "models", tmp_path / "cache"
        self.folder.mkdir()
        self.proofs: dict[str, FileProof] = {}
        self.kept: list[str] = []

    def put(self, path: str, content: bytes) -> Path:
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return target

    def here(self) -> Artifacts:
        def keep(path: str, proof: FileProof | None) -> None:
            assert proof is not None
            self.proofs[path] = proof
            self.kept.append(path)

        return Artifacts((self.folder,), self.cache, self.proofs, keep)

    def locate(self, wanted: Artifact) -> Path:
        here = self.here()
        here.obtain(wanted, Event())
        return here.locate(wanted, Event())


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_a_file_is_found_by_its_path_at_any_depth_or_under_any_name_by_its_digest(shelf: Shelf) -> None:
    wanted = artifact(file_of("m.gguf", b"weights"))
    deep = shelf.put("a/b/m.gguf", b"weights")
    assert shelf.locate(wanted) == deep
    deep.unlink()
    renamed = shelf.put("other-name.bin", b"weights")
    shelf.put("same-size.bin", b"WEIGHTS")
    assert shelf.locate(wanted) == renamed


def test_what_lies_in_a_folder_that_is_not_configured_any_more_is_not_said_to_be_here(shelf: Shelf) -> None:
    """It would be warmed, found by nobody, and never fetched."""
    wanted = artifact(file_of("m.gguf", b"weights"))
    shelf.put("m.gguf", b"weights")
    shelf.locate(wanted)
    assert shelf.here().cached() == (wanted.files[0].sha256,)
    shelf.folder = shelf.folder.with_name("others")
    shelf.folder.mkdir()
    assert shelf.here().cached() == ()
    assert shelf.here().finder.path_of(wanted.files[0].sha256) is None


def test_files_that_are_here_apart_are_not_said_to_be_here_once_they_were_wanted_together(shelf: Shelf) -> None:
    model, eyes = file_of("m.gguf", b"weights"), file_of("eyes.gguf", b"eyes")
    shelf.put("a/m.gguf", b"weights")
    shelf.put("b/eyes.gguf", b"eyes")
    here, both = shelf.here(), artifact(model, eyes)
    for one in (model, eyes):
        here.locate(artifact(one), Event())
    assert set(here.cached()) == {model.sha256, eyes.sha256}
    with pytest.raises(Refusal, match="no artifact folder"):
        here.locate(both, Event())
    assert here.cached() == (), "so that a load is ordered, which brings them together"
    here.locate(artifact(model), Event())
    assert here.cached() == (model.sha256,)
    shelf.put("a/eyes.gguf", b"eyes")
    here.obtain(both, Event())
    assert set(here.cached()) == {model.sha256, eyes.sha256}


def test_a_wrong_file_does_not_hide_a_right_one(shelf: Shelf) -> None:
    wanted = artifact(file_of("m.gguf", b"weights"))
    shelf.put("a/m.gguf", b"WEIGHTS")
    right = shelf.put("b/m.gguf", b"weights")
    assert shelf.locate(wanted) == right
    right.unlink()
    with pytest.raises(Refusal) as caught:
        shelf.locate(wanted)
    assert caught.value.code == "wrong_digest"
    assert str(shelf.folder / "a/m.gguf") in caught.value.message


def test_a_file_of_the_right_name_and_another_size_says_so(shelf: Shelf) -> None:
    shelf.put("m.gguf", b"weigh")
    with pytest.raises(Refusal, match="has 5 bytes, expected 7"):
        shelf.locate(artifact(file_of("m.gguf", b"weights")))


def test_files_of_a_split_model_stand_together_by_their_paths(shelf: Shelf) -> None:
    parts = (file_of("x/m-1.gguf", b"one"), file_of("x/m-2.gguf", b"two"))
    shelf.put("first/x/m-1.gguf", b"one")
    with pytest.raises(Refusal) as caught:
        shelf.locate(artifact(*parts))
    assert caught.value.code == "no_artifact"
    shelf.put("second/x/m-1.gguf", b"one")
    shelf.put("second/x/m-2.gguf", b"two")
    assert shelf.locate(artifact(*parts)) == shelf.folder / "second/x/m-1.gguf"
    shelf.put("second/x/m-2.gguf", b"TWO")
    with pytest.raises(Refusal, match=r"m-2\.gguf has SHA-256"):
        shelf.locate(artifact(*parts))


def test_a_proof_is_kept_over_restarts_while_the_file_looks_the_same(shelf: Shelf) -> None:
    wanted = artifact(file_of("m.gguf", b"weights"))
    path = shelf.put("m.gguf", b"weights")
    shelf.locate(wanted)
    shelf.locate(wanted)
    assert shelf.kept == [str(path)], "it is hashed once"
    assert shelf.here().cached() == (wanted.files[0].sha256,)
    before = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert shelf.here().cached() == ()
    with pytest.raises(Refusal):
        shelf.locate(wanted)


@pytest.mark.parametrize("path", ["/etc/passwd", "../m.gguf", "a/../../m.gguf", ""])
def test_a_path_that_leaves_its_folder_is_refused(shelf: Shelf, path: str) -> None:
    with pytest.raises(Refusal, match="not a relative path"):
        shelf.locate(artifact(file_of(path, b"x")))


def test_a_copy_is_published_whole_under_the_artifacts_digest(shelf: Shelf, tmp_path: Path) -> None:
    origin = tmp_path / "nas"
    (origin / "x").mkdir(parents=True)
    (origin / "x" / "1").write_bytes(b"one")
    (origin / "x" / "2").write_bytes(b"two")
    wanted = artifact(file_of("x/1", b"one"), file_of("x/2", b"two"), source=f"file://{origin}")
    found = shelf.locate(wanted)
    assert found.read_bytes() == b"one"
    assert (found.parent / "2").read_bytes() == b"two"
    assert [p.name for p in shelf.cache.iterdir()] == [found.parent.parent.name]
    shutil.rmtree(origin)
    assert shelf.locate(wanted) == found, "the cache is enough"


def test_an_artifact_tells_what_had_to_come_and_nothing_where_it_was(shelf: Shelf, tmp_path: Path) -> None:
    origin = tmp_path / "origin.gguf"
    origin.write_bytes(b"weights")
    wanted = artifact(file_of("m.gguf", b"weights"), source=f"file://{origin}")
    assert shelf.here().obtain(wanted, Event()) == len(b"weights")
    assert shelf.here().obtain(wanted, Event()) is None


def test_a_rotten_copy_in_the_cache_is_set_aside_and_fetched_again(shelf: Shelf, tmp_path: Path) -> None:
    origin = tmp_path / "m.gguf"
    origin.write_bytes(b"weights")
    wanted = artifact(file_of("m.gguf", b"weights"), source=f"file://{origin}")
    found = shelf.locate(wanted)
    found.write_bytes(b"rotten!")
    assert shelf.locate(wanted) == found
    assert found.read_bytes() == b"weights"
    assert [p.read_bytes() for p in shelf.cache.rglob("*.damaged-*/m.gguf")] == [b"rotten!"]


@pytest.mark.parametrize(
    ("content", "code"), [(b"weigh", "wrong_digest"), (b"weights and more", "wrong_digest"), (None, "no_artifact")]
)
def test_a_source_that_lies_or_is_not_there_leaves_nothing_behind(
    shelf: Shelf, tmp_path: Path, content: bytes | None, code: str
) -> None:
    origin = tmp_path / "m.gguf"
    if content is not None:
        origin.write_bytes(content)
    with pytest.raises(Refusal) as caught:
        shelf.locate(artifact(file_of("m.gguf", b"weights"), source=f"file://{origin}"))
    assert caught.value.code == code
    assert list(shelf.cache.iterdir()) == []


def test_a_full_disk_is_no_space_before_and_while_copying(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = tmp_path / "m.gguf"
    origin.write_bytes(b"weights")
    wanted = artifact(file_of("m.gguf", b"weights"), source=f"file://{origin}")
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(9, 6, 3))  # type: ignore[attr-defined]
        with pytest.raises(Refusal, match="has 3 B free, 7 B are needed") as caught:
            shelf.locate(wanted)
        assert caught.value.code == "no_space"

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr("gridops_agent.artifacts.part.os.fsync", fail)
        with pytest.raises(Refusal) as caught:
            shelf.locate(wanted)
        assert caught.value.code == "no_space"
    assert list(shelf.cache.iterdir()) == []
    assert shelf.locate(wanted).read_bytes() == b"weights"


def test_a_load_that_is_taken_back_stops_in_the_middle_and_publishes_nothing(shelf: Shelf, tmp_path: Path) -> None:
    origin = tmp_path / "m.gguf"
    origin.write_bytes(b"weights")
    stop = Event()
    stop.set()
    with pytest.raises(TakenBack):
        shelf.here().obtain(artifact(file_of("m.gguf", b"weights"), source=f"file://{origin}"), stop)
    assert all(path.name.startswith(".") for path in shelf.cache.iterdir())
    shelf.here().drop(artifact(file_of("m.gguf", b"weights")))
    assert list(shelf.cache.iterdir()) == []
    shelf.put("m.gguf", b"weights")
    with pytest.raises(TakenBack):
        shelf.here().locate(artifact(file_of("m.gguf", b"weights")), stop)
    assert shelf.proofs == {}


def test_a_file_that_cannot_be_read_is_a_refusal_and_no_fault(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = artifact(file_of("m.gguf", b"weights"))
    shelf.put("m.gguf", b"weights")

    def broken(self: Path, *args: object, **kwargs: object) -> object:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "open", broken)
    with pytest.raises(Refusal, match="cannot be read: Input/output error"):
        shelf.locate(wanted)
