"""The long run: each durable file cut off at every 64th byte, and with one bit of every 256 bytes changed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.material import CUT_EVERY, FLIP_EVERY, copied, damages, judged, lived, read
from tests.crash.zygote import Nursery


def test_every_cut_and_every_changed_bit(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model = write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    with Nursery() as nursery:
        found = lived(tmp_path, model, nursery)
    seen = Counter[tuple[str, str]]()
    whole: dict[tuple[str, str], object] = {}
    wrong = []
    for number, damage in enumerate(damages(found, CUT_EVERY, FLIP_EVERY)):
        key = (damage.owner, damage.name)
        if key not in whole:
            whole[key] = read(copied(found, *key, tmp_path / f"whole-{number}"), *key)
        try:
            seen[damage.name, judged(found, damage, whole[key], tmp_path / str(number))] += 1
        except AssertionError as error:
            wrong.append(str(error)[:1_000])
    for (name, what), count in sorted(seen.items()):
        print(f"{count:>6} {name}: {what}")
    assert not wrong, "\n".join(wrong)
