"""What an entry admits, and the sentence that it says to everything else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gridops.base.ids import Digest, EngineName, ProfileName
from gridops.model.catalog import Catalog, Network, Slot
from gridops.model.plan import Launch
from gridops.model.profile import Artifact, ArtifactFile, DeviceNeed, EngineArg
from gridops.trust.catalog import Program, Start, content, loads, runs, starts
from tests.protocol import build
from tests.trust import catalogs

FLEET = Digest("sha256:" + "0" * 64)
LAUNCH = replace(
    build.warm().launch,
    artifact=replace(build.artifact(), source="https://models.example/coder", credential="secret:models"),
    args=(EngineArg(name="flash_attn", value="on"), EngineArg(name="threads", value="8")),
)
ENTRY = catalogs.entry(
    LAUNCH,
    artifacts=(
        replace(catalogs.entry(LAUNCH).artifacts[0], source="https://models.example/coder", credential="secret:models"),
    ),
    args=(
        Slot(name="flash_attn", values=("off", "on"), needed=True),
        Slot(name="jinja", values=("false",)),
        Slot(name="threads", values=("auto",), low=1, high=16),
    ),
    builds=("b7000", "b7001"),
    environment=("HF_HUB_OFFLINE",),
    network=Network.OWN,
)
CATALOG = catalogs.catalog(FLEET, ENTRY)
START = Start(LAUNCH, 1, 1_000, 10)
PROGRAM = Program("b7000", ("HF_HUB_OFFLINE",), Network.OWN)


def test_what_an_entry_describes_may_come_and_start() -> None:
    assert loads(CATALOG, LAUNCH.artifact) is None
    assert starts(CATALOG, START) is None
    assert runs(CATALOG, START, PROGRAM) is None


def _launch(**changes: Any) -> Start:
    return replace(START, launch=replace(LAUNCH, **changes))


def _args(*pairs: tuple[str, str]) -> Start:
    return _launch(args=tuple(EngineArg(name=n, value=v) for n, v in pairs))


def _file(**changes: Any) -> Start:
    (only,) = LAUNCH.artifact.files
    return _launch(artifact=replace(LAUNCH.artifact, files=(replace(only, **changes),)))


ON = ("flash_attn", "on")
NOT_ADMITTED: dict[str, tuple[Start, str]] = {
    "another engine": (_launch(engine=EngineName("vllm")), "no entry for vllm at all"),
    "another backend": (_launch(backend="cuda"), "is for cpu"),
    "other bytes": (_file(sha256=build.artifact(2).files[0].sha256), "does not hold these files"),
    "the same bytes under another name": (_file(path="config.json"), "does not hold these files"),
    "the same bytes read as another format": (
        _launch(artifact=replace(LAUNCH.artifact, format="safetensors")),
        "does not hold these files",
    ),
    "one file more": (
        _launch(
            artifact=replace(
                LAUNCH.artifact,
                files=(*LAUNCH.artifact.files, ArtifactFile(path="x", sha256=FLEET, size_bytes=1)),
            )
        ),
        "does not hold these files",
    ),
    "a secret shown to somebody else": (
        _launch(artifact=replace(LAUNCH.artifact, source="https://evil.example/coder")),
        "is not to be shown",
    ),
    "another secret": (_launch(artifact=replace(LAUNCH.artifact, credential="secret:bank")), "is not to be shown"),
    "an argument without a slot": (_args(ON, ("rpc", "evil.example:1")), "has no slot"),
    "a flag smuggled in as a name": (_args(ON, ("--threads", "8")), "has no slot"),
    "a word that no slot has": (_args(("flash_attn", "auto")), "may not be 'auto'"),
    "a value with another argument behind it": (_args(ON, ("threads", "8 --rpc evil")), "may not be"),
    "a number above its bound": (_args(ON, ("threads", "17")), "only auto or 1 to 16"),
    "a number below its bound": (_args(ON, ("threads", "0")), "may not be '0'"),
    "a number below zero": (_args(ON, ("threads", "-1")), "may not be '-1'"),
    "a number with a sign": (_args(ON, ("threads", "+8")), "may not be '+8'"),
    "a number with an underscore": (_args(ON, ("threads", "1_0")), "may not be '1_0'"),
    "a number with a leading zero": (_args(ON, ("threads", "08")), "may not be '08'"),
    "a number in other digits": (_args(ON, ("threads", "\u0668")), "may not be"),
    "a number without an end": (_args(ON, ("threads", "9" * 5_000)), "may not be"),
    "an argument twice": (_args(ON, ("threads", "8"), ("threads", "9")), "is given twice"),
    "without what has to be said": (_args(("threads", "8")), "'flash_attn' is missing"),
    "more context than the bound": (_launch(context=LAUNCH.context + 1), f"not {LAUNCH.context + 1}"),
    "context without a bound": (_launch(context=0), "not 0"),
    "more lanes": (_launch(lanes=2), "lanes from 1 to 1, not 2"),
    "more devices by its own word": (_launch(devices=DeviceNeed(count=2)), "devices from 1 to 1, not 2"),
    "more devices than it says": (replace(START, devices=2), "devices from 1 to 1, not 2"),
    "more of a device": (replace(START, device_bytes=1_001), "of a device"),
    "less than nothing of a device": (replace(START, device_bytes=-1), "of a device"),
    "more of the host": (replace(START, host_bytes=11), "of the host"),
    "an alias that is an argument": (_launch(profile=ProfileName("--rpc=evil.example:1")), "is no name of a model"),
    "a config that is a path": (_launch(config="../../x"), "is no name of a model"),
}


@pytest.mark.parametrize("name", sorted(NOT_ADMITTED))
def test_everything_beyond_an_entry_is_refused_in_words(name: str) -> None:
    start, words = NOT_ADMITTED[name]
    said = starts(CATALOG, start)
    assert words in (said or "it is admitted"), said


PROGRAMS: dict[str, tuple[Program, str]] = {
    "another build": (replace(PROGRAM, build="b6999"), "is to be b7000 or b7001"),
    "a build that nobody knows": (replace(PROGRAM, build=""), "one that nobody knows"),
    "one variable more": (replace(PROGRAM, environment=("HF_HUB_OFFLINE", "LD_PRELOAD")), "LD_PRELOAD may not be set"),
    "the network of its host": (replace(PROGRAM, network=Network.HOST), "a network of its own"),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_host_is_held_to_how_it_would_start_it(name: str) -> None:
    program, words = PROGRAMS[name]
    said = runs(CATALOG, START, program)
    assert words in (said or "it is admitted"), said


def test_an_entry_without_builds_takes_what_a_host_has_installed() -> None:
    whichever = catalogs.catalog(FLEET, replace(ENTRY, builds=()))
    assert runs(whichever, START, replace(PROGRAM, build="")) is None


def test_a_network_of_its_own_is_more_than_was_asked_for() -> None:
    shared = catalogs.catalog(FLEET, replace(ENTRY, network=Network.HOST))
    for network in Network:
        assert runs(shared, START, replace(PROGRAM, network=network)) is None


def test_one_entry_has_to_admit_everything() -> None:
    """Two entries, each of which admits a half, admit nothing of the whole."""
    wide = replace(ENTRY, name="a", context=LAUNCH.context * 2, lanes=1, builds=())
    many = replace(ENTRY, name="b", lanes=2)
    both = catalogs.catalog(FLEET, wide, many)
    assert starts(both, _launch(context=LAUNCH.context * 2)) is None
    assert starts(both, _launch(lanes=2)) is None
    assert starts(both, _launch(lanes=2, context=LAUNCH.context * 2)) is not None
    assert runs(both, _launch(lanes=2), replace(PROGRAM, build="other")) is not None


def test_the_sentence_is_of_the_entry_that_comes_nearest() -> None:
    foreign = replace(ENTRY, name="a/other", artifacts=catalogs.entry(build.warm(2).launch).artifacts)
    said = starts(catalogs.catalog(FLEET, foreign, ENTRY), _launch(lanes=3))
    assert said == "catalog 1, entry coder/q4: lanes from 1 to 1, not 3"


LOADS: dict[str, tuple[Callable[[Artifact], Artifact], str]] = {
    "other bytes": (lambda a: build.artifact(2), "no files like these"),
    "a secret shown elsewhere": (lambda a: replace(a, source="https://evil.example"), "with it from"),
}


@pytest.mark.parametrize("name", sorted(LOADS))
def test_what_no_entry_holds_is_not_even_brought(name: str) -> None:
    change, words = LOADS[name]
    said = loads(CATALOG, change(LAUNCH.artifact))
    assert words in (said or "it is admitted"), said


def test_where_proved_bytes_come_from_does_not_matter_without_a_secret() -> None:
    bare = replace(LAUNCH.artifact, source="https://mirror.example/x", credential=None)
    assert loads(CATALOG, bare) is None
    assert content(bare) == content(LAUNCH.artifact)


def test_an_empty_catalog_admits_nothing() -> None:
    empty: Catalog = catalogs.catalog(FLEET)
    assert starts(empty, START) == "catalog 1 has no entry for llama.cpp at all"
    assert loads(empty, LAUNCH.artifact) is not None


def test_a_launch_is_asked_for_each_bound_at_its_edge() -> None:
    edge: Launch = replace(
        LAUNCH, args=(EngineArg(name="flash_attn", value="off"), EngineArg(name="threads", value="16"))
    )
    assert starts(CATALOG, replace(START, launch=edge)) is None
