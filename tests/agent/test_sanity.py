"""Model files that are cut off, swapped or made to harm are refused before any process, and cost next to nothing."""

from __future__ import annotations

import hashlib
import json
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from gguf import GGML_QUANT_SIZES
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import limits
from gridops.base.errors import Refusal
from gridops.base.ids import Digest
from gridops.model.profile import Artifact, ArtifactFile
from gridops_agent.artifacts import gguf, safetensors, sanity
from gridops_agent.artifacts.reading import Unsound
from tests.builders.gguf_bytes import ARRAY, STRING, U32, made, number, tensor, text
from tests.builders.tiny_gguf import Made


def judged(tmp_path: Path, raw: bytes, check: Callable[[Path], None] = gguf.check) -> str:
    """Why it is refused; empty when it passes."""
    path = tmp_path / "m"
    path.write_bytes(raw)
    try:
        check(path)
    except Unsound as error:
        return str(error)
    return ""


def test_the_table_of_tensor_types_is_that_of_the_format() -> None:
    assert dict(gguf.TYPES) == {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}


def test_a_real_model_is_sound_and_every_way_to_cut_it_off_is_not(model: Made, tmp_path: Path) -> None:
    raw = model.path.read_bytes()
    assert judged(tmp_path, raw) == ""
    for size in (0, 3, 4, 23, 24, 100, 5_000, len(raw) // 2, len(raw) - 1):
        assert judged(tmp_path, raw[:size]) != "", size


SOUND = {
    "plain": made(),
    "an alignment of its own": made(keys=(number(b"general.alignment", 64),), tensors=(tensor(offset=64),)),
    "arrays in arrays": made(
        keys=(text(b"k") + struct.pack("<IIQ", ARRAY, ARRAY, 1) + struct.pack("<IQ", U32, 2) + bytes(8),)
    ),
    "a type that is newer than we are": made(tensors=(tensor(kind=99),)),
    "quantised": made(tensors=(tensor(dims=(256, 4), kind=12),)),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_the_format_allows_passes(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, SOUND[name]) == ""


BIG = (1 << 64) - 1
HOSTILE = {
    "another magic": (b"GGML" + made()[4:], "begin with GGUF"),
    "a zip": (b"PK\x03\x04" + bytes(1_000), "begin with GGUF"),
    "an html page": (b"<!DOCTYPE html>" + bytes(1_000), "begin with GGUF"),
    "version 1": (b"GGUF" + struct.pack("<I", 1) + made()[8:], "version 1"),
    "big-endian": (b"GGUF" + struct.pack(">I", 3) + made()[8:], "version"),
    "countless tensors": (b"GGUF" + struct.pack("<IQQ", 3, BIG, 0) + bytes(1_000), "tensors"),
    "no tensors": (b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(1_000), "0 tensors"),
    "countless keys": (b"GGUF" + struct.pack("<IQQ", 3, 1, BIG) + bytes(1_000), "keys"),
    "a key without end": (made(keys=(struct.pack("<Q", BIG) + b"k",)), "long"),
    "a key longer than the file": (made(keys=(struct.pack("<Q", 60_000) + b"k",), room=100), "ends in a key"),
    "a key twice": (made(keys=(number(b"k", 1), number(b"k", 2))), "twice"),
    "a text without end": (made(keys=(text(b"k") + struct.pack("<IQ", STRING, BIG),)), "long"),
    "an unknown type of value": (made(keys=(text(b"k") + struct.pack("<I", 77),)), "unknown type 77"),
    "countless numbers": (made(keys=(text(b"k") + struct.pack("<IIQ", ARRAY, 12, 1 << 61),)), "numbers"),
    "numbers beyond the file": (made(keys=(text(b"k") + struct.pack("<IIQ", ARRAY, 12, 60_000),)), "ends in"),
    "countless texts": (made(keys=(text(b"k") + struct.pack("<IIQ", ARRAY, STRING, 1 << 62),)), "texts"),
    "arrays without bottom": (
        made(keys=(text(b"k") + struct.pack("<I", ARRAY) + struct.pack("<IQ", ARRAY, 1) * 50,)),
        "nested too deep",
    ),
    "an alignment of nothing": (made(keys=(number(b"general.alignment", 0),)), "alignment is 0"),
    "an odd alignment": (made(keys=(number(b"general.alignment", 24),)), "alignment is 24"),
    "an alignment that is a text": (
        made(keys=(text(b"general.alignment") + struct.pack("<I", STRING) + text(b"32"),)),
        "not a number",
    ),
    "a tensor twice": (made(tensors=(tensor(), tensor(offset=256))), "twice"),
    "tensors in one place": (made(tensors=(tensor(), tensor(b"u"))), "overlaps"),
    "a tensor off its place": (made(tensors=(tensor(offset=7),)), "not aligned"),
    "a tensor beyond the end": (made(tensors=(tensor(offset=1 << 40),)), "cut off"),
    "an offset that wraps around": (made(tensors=(tensor(offset=BIG - 31),)), "cut off"),
    "a product that wraps around": (made(tensors=(tensor(dims=(1 << 32, 1 << 32)),)), "more values"),
    "a product that wraps to little": (made(tensors=(tensor(dims=(1 << 40, 1 << 24, 1 << 10)),)), "more values"),
    "a dimension of nothing": (made(tensors=(tensor(dims=(32, 0)),)), "more values"),
    "no dimensions": (made(tensors=(tensor(dims=()),)), "0 dimensions"),
    "too many dimensions": (made(tensors=(tensor(dims=(1, 1, 1, 1, 1)),)), "5 dimensions"),
    "rows of broken blocks": (made(tensors=(tensor(dims=(33, 2), kind=12),)), "no multiple of 256"),
    "a name that breaks lines": (made(tensors=(tensor(b"a\n\x1b[31m", dims=(32, 0)),)), r"'a\n\x1b[31m'"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_gguf_is_refused_for_what_it_is_and_costs_nothing(tmp_path: Path, name: str) -> None:
    raw, why = HOSTILE[name]
    began = time.process_time()
    assert why in judged(tmp_path, raw)
    assert time.process_time() - began < 0.5


def test_names_of_keys_are_remembered_within_a_bound(tmp_path: Path) -> None:
    """As many as are allowed, each as long as one may be, would be four gigabytes of the host's RAM."""
    keys = tuple(number(b"%08d" % n + bytes(60_000), 1) for n in range(limits.GGUF_KEYS_BYTES // 60_000 + 2))
    raw = made(keys=keys)
    tracemalloc.start()
    try:
        assert "a key is" in judged(tmp_path, raw)
        assert tracemalloc.get_traced_memory()[1] < 2 * limits.GGUF_KEYS_BYTES
    finally:
        tracemalloc.stop()


def test_texts_are_counted_over_all_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridops.base.limits.GGUF_TEXTS", 10)

    def texts(key: bytes) -> bytes:
        return text(key) + struct.pack("<IIQ", ARRAY, STRING, 6) + text(b"") * 6

    assert judged(tmp_path, made(keys=(texts(b"a"),))) == ""
    assert "says 6 texts" in judged(tmp_path, made(keys=(texts(b"a"), texts(b"b"))))


@given(st.binary(max_size=600), st.integers(min_value=0, max_value=400))
def test_whatever_the_bytes_are_the_answer_is_yes_or_no(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int
) -> None:
    raw = bytearray(SOUND["arrays in arrays"])
    raw[at : at + len(noise)] = noise
    judged(tmp_path_factory.mktemp("noise"), bytes(raw))
    judged(tmp_path_factory.mktemp("noise"), bytes(raw[at:]), safetensors.check)


# -- safetensors ------------------------------------------------------------------------------------------------------


def tensors(header: object, size: int, length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + bytes(size)


def row(begin: int, end: int, shape: tuple[int, ...], kind: str = "F16") -> dict[str, object]:
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


TWO = {"__metadata__": {"format": "pt"}, "a": row(0, 8, (2, 2)), "b": row(8, 12, (2,))}


def test_a_sound_safetensors_file_passes(tmp_path: Path) -> None:
    assert judged(tmp_path, tensors(TWO, 12), safetensors.check) == ""
    assert judged(tmp_path, tensors({"a": row(0, 2, ())}, 2), safetensors.check) == "", "a scalar has no shape"


BAD_TENSORS = {
    "empty": (b"", "ends in the length"),
    "a header without end": (tensors(TWO, 12, length=1 << 62), "a header of"),
    "a header longer than the file": (tensors(TWO, 12, length=10_000), "ends in its header"),
    "no JSON": (tensors(b"{'a': 1}", 0), "not the JSON"),
    "deep JSON": (tensors(b'{"__metadata__":' + b"[" * 100_000, 0), "not the JSON"),
    "a list": (tensors([], 0), "not an object"),
    "a tensor twice": (tensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{}}', 0), "twice"),
    "cut off": (tensors(TWO, 11), "cut off, or has more"),
    "more than its tensors": (tensors(TWO, 13), "cut off, or has more"),
    "a hole": (tensors({"a": row(0, 8, (2, 2)), "b": row(10, 14, (2,))}, 14), "begins at 10"),
    "an overlap": (tensors({"a": row(0, 8, (2, 2)), "b": row(4, 8, (2,))}, 8), "begins at 4"),
    "a shape that is not its size": (tensors({"a": row(0, 8, (9, 9))}, 8), "by its shape"),
    "a product that wraps around": (tensors({"a": row(0, 8, (1 << 40, 1 << 40))}, 8), "more values"),
    "a negative place": (tensors({"a": row(-8, 0, (2, 2))}, 0), "no sensible"),
    "an end before its beginning": (tensors({"a": row(8, 0, (2, 2))}, 8), "by its place"),
    "an unknown type": (tensors({"a": row(0, 8, (2, 2), "F17")}, 8), "no sensible"),
    "a type that is no text": (tensors({"a": {"dtype": [], "shape": [1], "data_offsets": [0, 1]}}, 1), "no sensible"),
    "a value that is no object": (tensors({"a": []}, 0), "not the JSON"),
    "a value with a part": (tensors({"a": row(0, 8, (2, 2)) | {"dtype": {}}}, 8), "not the JSON"),
    "a field twice": (
        tensors(b'{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}', 0),
        "not the JSON",
    ),
    "NaN": (tensors(b'{"a":{"dtype":"U8","shape":[NaN],"data_offsets":[0,0]}}', 0), "not the JSON"),
    "bytes that are no text": (tensors(b'{"\xff":{}}', 0), "not the JSON"),
    "half of a pair of surrogates": (tensors(b'{"\\ud800":{}}', 0), "not the JSON"),
    "more after it": (tensors(b"{} {}", 0), "not the JSON"),
    "no end": (tensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},', 0), "not the JSON"),
    "a name twice in another spelling": (
        tensors(b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\\u0061":{}}', 0),
        "twice",
    ),
    "metadata twice": (tensors(b'{"__metadata__":{},"__metadata__":{}}', 0), "twice"),
    "a name as long as a book": (tensors({"a" * 5_000: {}}, 0), "a name of 5002 bytes"),
    "a row as long as a book": (tensors({"a": row(0, 8, (1,) * 5_000)}, 8), "not the JSON"),
    "true as a number": (tensors({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, 1), "no sensible"),
}


@pytest.mark.parametrize("name", BAD_TENSORS)
def test_a_hostile_safetensors_file_is_refused(tmp_path: Path, name: str) -> None:
    raw, why = BAD_TENSORS[name]
    assert why in judged(tmp_path, raw, safetensors.check)


def filled(pattern: bytes, before: bytes = b'{"__metadata__":{"a":', after: bytes = b"}}") -> bytes:
    """A header of all the bytes that one may have, made of one thing again and again."""
    raw = before + pattern * ((limits.SAFETENSORS_HEADER_BYTES - len(before) - len(after)) // len(pattern)) + after
    return struct.pack("<Q", len(raw)) + raw


GREEDY = {
    "brackets": lambda: filled(b"[],", b'{"__metadata__":{"a":[', b"[]]}}"),
    "brackets that never close": lambda: filled(b"["),
    "one text of escapes": lambda: filled(b"\\\\", b'{"__metadata__":{"a":"', b'"}}'),
    "one name in a rare script": lambda: filled("\U0001f600".encode(), b'{"', b'":{}}'),
    "tensors of nothing": lambda: no_tensors(),
}


def no_tensors() -> bytes:
    """As many different ones as there is place for, each of no bytes."""
    rows = (b'"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(560_000))
    raw = b"{" + b",".join(rows) + b"}"
    assert limits.SAFETENSORS_HEADER_BYTES * 0.9 < len(raw) <= limits.SAFETENSORS_HEADER_BYTES
    return struct.pack("<Q", len(raw)) + raw


def test_what_a_safetensors_header_says_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gridops.base.limits.SAFETENSORS_PAIRS", 4)
    assert judged(tmp_path, tensors(TWO, 12), safetensors.check) == "its header says more than 4 things"


LOOK = """
import pathlib, resource, sys
from gridops_agent.artifacts import reading, safetensors
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
before = most()
try:
    safetensors.check(pathlib.Path(sys.argv[1]))
except reading.Unsound:
    pass
print(most() - before)
"""


@pytest.mark.parametrize("name", GREEDY)
def test_a_hostile_safetensors_header_takes_a_bounded_part_of_the_hosts_memory(tmp_path: Path, name: str) -> None:
    file = tmp_path / "m"
    file.write_bytes(GREEDY[name]())
    asked = (sys.executable, "-c", LOOK, str(file))
    took = int(subprocess.run(asked, check=True, capture_output=True, text=True).stdout)
    assert took < 4 * limits.SAFETENSORS_HEADER_BYTES


def sharded(folder: Path, weights: dict[str, str]) -> Artifact:
    one, two = tensors({"a": row(0, 8, (2, 2))}, 8), tensors({"b": row(0, 4, (2,))}, 4)
    index = json.dumps({"metadata": {}, "weight_map": weights}).encode()
    content = {"m/1.safetensors": one, "m/2.safetensors": two, "m/model.safetensors.index.json": index}
    files = []
    for name, raw in content.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(raw)
        files.append(
            ArtifactFile(path=name, sha256=Digest("sha256:" + hashlib.sha256(raw).hexdigest()), size_bytes=len(raw))
        )
    return Artifact(format="safetensors", files=tuple(files))


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ({"a": "1.safetensors", "b": "2.safetensors"}, ""),
        ({"a": "1.safetensors", "b": "1.safetensors"}, "'b' is not in m/1.safetensors"),
        ({"a": "1.safetensors", "b": "3.safetensors"}, "no file of the artifact"),
        ({"a": "../../etc/passwd"}, "no file of the artifact"),
        ({}, "no weight_map"),
    ],
)
def test_an_index_names_only_what_is_there(tmp_path: Path, weights: dict[str, str], why: str) -> None:
    artifact = sharded(tmp_path, weights)
    first = tmp_path / "m/1.safetensors"
    if not why:
        sanity.check(artifact, first)
        return
    with pytest.raises(Refusal, match="bad_model_file") as caught:
        sanity.check(artifact, first)
    assert why in caught.value.message


def test_a_format_that_nothing_is_known_of_passes(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"anything")
    file = ArtifactFile(path="m", sha256=Digest("sha256:" + "0" * 64), size_bytes=8)
    sanity.check(Artifact(format="onnx", files=(file,)), tmp_path / "m")
    with pytest.raises(Refusal):
        sanity.check(Artifact(format="gguf", files=(file,)), tmp_path / "m")
