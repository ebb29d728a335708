"""What would have to be signed for an intent, and what of a catalog in the tree is a problem of its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base.ids import Digest
from gridops.files import catalogs
from gridops.files.load import check, load
from gridops.files.tree import MemoryTree, WorkingTree
from gridops.files.trusted import CATALOG, catalog_text, root_texts
from gridops.model.catalog import Catalog, Network, Slot
from gridops.model.intent import Desired
from gridops.model.profile import EngineArg, Footprint, FootprintSource
from gridops.trust.release import seal_catalog
from gridops.trust.root import RootChain
from tests.trust.catalogs import released, signed, then
from tests.trust.people import NOW, person

FLEET = Digest("sha256:" + "0" * 64)
NOTHING = Catalog(fleet=FLEET, version=0, issued_ms=0, entries=())
PROFILE = """
apiVersion: gridops/v1
kind: Profile
name: coder
configs:
  q4:
    engine: llama.cpp
    backends: [cuda, cpu]
    artifact: {format: gguf, files: [{path: m.gguf, sha256: sha256:%s, size: 1MiB}]}
    context: 4096
    lanes: 2
    args: {threads: 8, flash_attn: "on"}
    footprint: {source: declared, device: 1000MiB, host: 100MiB}
"""
MIB = 1 << 20


def tree(chain: RootChain | None = None, catalog: str | None = None, sha: str = "a" * 64) -> MemoryTree:
    files = {"profiles.d/coder.yaml": PROFILE % sha}
    if chain is not None:
        files["policies/trust/root/1.json"] = chain.text
    return MemoryTree(files | ({CATALOG: catalog} if catalog is not None else {}))


def intent(sha: str = "a" * 64) -> Desired:
    return load(tree(sha=sha)).desired


def sign_all(desired: Desired, base: Catalog = NOTHING) -> Catalog:
    entries = [one.entry for one in catalogs.missing(base, desired) if one.entry is not None]
    return catalogs.grown(base, entries, now_ms=NOW)


def test_what_is_made_admits_the_config_as_it_stands_and_bounds_all_of_it() -> None:
    (lack,) = catalogs.missing(NOTHING, intent())
    assert (lack.name, lack.why) == ("coder/q4", "catalog 0 has no entry for llama.cpp at all")
    entry = lack.entry
    assert entry is not None
    assert (entry.engine, entry.backends) == ("llama.cpp", ("cpu", "cuda"))
    assert (entry.context, entry.lanes, entry.devices) == (4_096, 2, 1)
    assert (entry.device_bytes, entry.host_bytes) == (1_210 * MIB, 110 * MIB), "both parts where they are one pool"
    assert entry.args == (Slot(name="flash_attn", values=("on",)), Slot(name="threads", values=("8",)))
    assert entry.environment == ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    assert entry.artifacts[0].source is None
    made = sign_all(intent())
    assert made.version == 1
    assert catalogs.missing(made, intent()) == ()
    assert catalogs.unneeded(made, intent()) == ()


def test_a_secret_is_bound_to_where_it_is_shown() -> None:
    desired = intent()
    config = desired.profiles[0].configs[0]
    secret = replace(config.artifact, source="https://models.example/m", credential="secret:models")
    changed = replace(desired, profiles=(replace(desired.profiles[0], configs=(replace(config, artifact=secret),)),))
    (files,) = sign_all(changed).entries[0].artifacts
    assert (files.source, files.credential) == ("https://models.example/m", "secret:models")


def test_what_nobody_can_bound_is_left_out_and_named() -> None:
    desired = intent()
    unknown = replace(desired.profiles[0].configs[0], footprint=Footprint(source=FootprintSource.UNKNOWN))
    (lack,) = catalogs.missing(NOTHING, replace(desired, profiles=(replace(desired.profiles[0], configs=(unknown,)),)))
    assert lack.entry is None
    assert "footprint is unknown" in lack.why


def test_another_revision_stands_beside_the_one_before_until_somebody_drops_it() -> None:
    first = sign_all(intent())
    second = sign_all(intent(sha="b" * 64), first)
    assert [entry.name for entry in second.entries] == ["coder/q4", "coder/q4@1"]
    assert second.version == 2
    assert catalogs.missing(second, intent()) == (), "what still runs may still be moved"
    assert catalogs.unneeded(second, intent(sha="b" * 64)) == ("coder/q4@1",)
    assert [e.name for e in catalogs.dropped(second, ["coder/q4@1"]).entries] == ["coder/q4"]


def test_bounds_that_people_widened_stay_as_wide() -> None:
    first = sign_all(intent())
    (entry,) = first.entries
    threads = Slot(name="threads", low=1, high=16, needed=True)
    wide = replace(
        entry,
        context=32_768,
        device_bytes=9_000 * MIB,
        builds=("b7000",),
        network=Network.OWN,
        args=(Slot(name="flash_attn", values=("off", "on")), threads),
    )
    made = sign_all(intent(sha="b" * 64), replace(first, entries=(wide,)))
    now = made.entries[0]
    assert (now.context, now.device_bytes, now.builds, now.network) == (32_768, 9_000 * MIB, ("b7000",), Network.OWN)
    assert now.args == (Slot(name="flash_attn", values=("off", "on")), replace(threads, values=("8",)))
    assert now.artifacts != wide.artifacts


def test_a_value_that_was_exact_is_exact_again() -> None:
    first, desired = sign_all(intent()), intent()
    config = desired.profiles[0].configs[0]
    args = (EngineArg(name="threads", value="4"),)
    changed = replace(desired, profiles=(replace(desired.profiles[0], configs=(replace(config, args=args),)),))
    (now,) = sign_all(changed, first).entries
    assert now.args == (Slot(name="threads", values=("4",)),)


# --- a catalog in the tree ------------------------------------------------------------------------------------------

CHAIN = released(1)
GOOD = sign_all(intent())


def by_ann(version: int = 1) -> str:
    return signed(replace(GOOD, fleet=CHAIN.fleet, version=version))


def test_a_catalog_that_holds_is_part_of_the_intent() -> None:
    desired = load(tree(CHAIN, by_ann())).desired
    assert desired.catalog == replace(GOOD, fleet=CHAIN.fleet)
    assert load(tree(CHAIN)).desired.catalog is None


BROKEN = {
    "not signed by a release key": (CHAIN, signed(replace(GOOD, fleet=CHAIN.fleet), "zoe"), "signed by 0 of the 1"),
    "not an envelope": (CHAIN, "hello", "it is not JSON"),
    "of another fleet": (CHAIN, signed(GOOD), "the catalog is of fleet"),
    "without any root": (None, by_ann(), "no root document"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_one_that_does_not_hold_is_an_error_of_its_file(name: str) -> None:
    chain, text, words = BROKEN[name]
    checked = check(tree(chain, text))
    assert checked.intent is None
    (problem,) = checked.problems
    assert (problem.file, problem.code) == (CATALOG, "bad_catalog")
    assert words in problem.message
    assert load(catalogs.without(tree(chain, text))).desired.catalog is None, "whoever makes the next one looks past it"


def test_where_the_root_asks_for_none_it_says_nothing() -> None:
    off = then(CHAIN, catalog=0)
    files = {
        "profiles.d/coder.yaml": PROFILE % ("a" * 64),
        "policies/trust/root/1.json": CHAIN.text,
        "policies/trust/root/2.json": off.text,
        CATALOG: by_ann(),
    }
    assert load(MemoryTree(files)).desired.catalog is None
    assert root_texts(MemoryTree(files)) == (CHAIN.text, off.text)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "policies/trust"
    folder.mkdir(parents=True)
    (tmp_path / "elsewhere.json").write_text(seal_catalog(replace(GOOD, fleet=CHAIN.fleet), person("ann")))
    (folder / "catalog.json").symlink_to(tmp_path / "elsewhere.json")
    checked = check(WorkingTree(tmp_path))
    assert [(p.file, p.code) for p in checked.problems] == [(CATALOG, "bad_catalog")]
    assert catalog_text(MemoryTree({})) is None
