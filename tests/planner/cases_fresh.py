"""Placement cases of our own about devices and memory: a fleet, and what may be answered.

Each `want` was written from the rules before the planner was asked. Run by `test_cases`, like those of
`cases_rules`. An answer is `host[0,1]` with
the numbers of its devices, `host`, or NONE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gridops.base.codes import Code
from gridops.base.codes import placement as codes
from gridops.base.ids import HostId
from gridops.model.fleet import Device, HostClass, HostKey
from gridops.model.profile import (
    Config,
    DeviceNeed,
    Footprint,
    FootprintSource,
    Heads,
    Profile,
)
from gridops.model.snapshot import HostReport
from tests.planner.fleet import GIB, Fleet, config, device, digest, host, laptop, profile, report

NONE = "none"
GUEST = "guest"
FIRST = "guest/1"
GBPS = 10**9


@dataclass(frozen=True)
class Case:
    id: str
    fleet: Fleet
    want: tuple[str, ...]
    """Answers that are right for the first guest."""
    lines: Mapping[str, Code] = field(default_factory=dict)
    """What is said of a host that does not hold it."""
    headline: Code | None = None
    short: Code | None = None
    """The promise that the report must say is not kept; None: none may be named."""
    kinds: tuple[str, ...] | None = None
    """The kinds of all decisions against the parent, sorted."""
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Where other replicas may stand."""


def cases() -> Iterator[Case]:
    """Ten kinds, each in a few variants."""
    kinds = (_links, _numa_and_pcie, _instances, _uneven, _kv_heads, _vocabulary, _shared_memory, _two_ledgers, _disk)
    for kind in (*kinds, _known_and_unknown):
        yield from kind()


def guest(gib: float = 20, **more: Any) -> Profile:
    """One config of so many GiB on each device; `devices`, `heads`, `host_gib` and `size` go to it."""
    mine = {k: more.pop(k) for k in ("devices", "heads", "host_gib", "size", "backends", "args") if k in more}
    return profile(GUEST, more.pop("replicas", 1), configs=(config("q", gib, **mine),), **more)


def _cards(*cards: Device) -> dict[str, Any]:
    return {"devices": (*cards, device("cpu0", 64))}


def _pair(size: float = 24, **more: Any) -> dict[str, Any]:
    """Two equal cards; what is given as a pair goes to one each."""
    each = [{k: v[n] for k, v in more.items()} for n in (0, 1)]
    return _cards(*(device(f"gpu{n}", size, model="a", **each[n]) for n in (0, 1)))


def _links() -> Iterator[Case]:
    """Linked cards: unknown is not linked, and a link that one end alone knows of is none."""
    silent, mutual = host("silent", **_pair()), host("mutual", **_pair(peers=(("gpu1",), ("gpu0",))))
    half = host("half", **_pair(peers=(("gpu1",), ())))
    asks = guest(devices=DeviceNeed(count=2, link="peer"))
    yield Case("links: the one that says so", Fleet((silent, half, mutual), (asks,)), ("mutual[0,1]",))
    busy = Fleet((silent, half, mutual), (asks,), reports={"mutual": _used(report(mutual), "gpu1", 8)})
    said = {
        "silent": codes.LINK_UNKNOWN,
        "half": codes.LINK_UNKNOWN,
        "mutual": codes.INSUFFICIENT_DEVICE_MEMORY,
    }
    yield Case("links: others hold one of them", busy, (NONE,), said)
    word = guest(devices=DeviceNeed(count=2, link="nvswitch"))
    yield Case("links: a word that nobody knows", Fleet((mutual,), (word,)), (NONE,), {"mutual": codes.LINK_UNKNOWN})
    anything = guest(devices=DeviceNeed(count=2, link="any"))
    yield Case("links: any link is no link asked for", Fleet((silent,), (anything,)), ("silent[0,1]",))


def _numa_and_pcie() -> Iterator[Case]:
    """What is asked of NUMA and PCIe has to be known of every device."""
    fast = 32 * 8 * GBPS
    hosts = (
        host("silent", **_pair()),
        host("apart", **_pair(numa=(0, 1), pcie_bps=(fast, fast))),
        host("unrated", **_pair(numa=(0, 0))),
        host("whole", **_pair(numa=(1, 1), pcie_bps=(fast, fast))),
        host("slow", **_pair(numa=(0, 0), pcie_bps=(fast, fast - 1))),
    )
    both = guest(devices=DeviceNeed(count=2, numa="same", pcie_bps=fast))
    yield Case("numa: and a rate", Fleet(hosts, (both,)), ("whole[0,1]",))
    said = {
        "silent": codes.PCIE_TOO_SLOW,
        "apart": codes.NUMA_APART,
        "unrated": codes.PCIE_TOO_SLOW,
        "slow": codes.PCIE_TOO_SLOW,
    }
    without = tuple(h for h in hosts if h.id != "whole")
    yield Case("numa: nobody has both", Fleet(without, (both,)), (NONE,), said)
    near = guest(devices=DeviceNeed(count=2, numa="same"))
    yield Case("numa: alone", Fleet(hosts[:3], (near,)), ("unrated[0,1]",))
    one = guest(devices=DeviceNeed(count=1, pcie_bps=fast))
    yield Case("numa: one fast card is enough for one", Fleet((hosts[0], hosts[4]), (one,)), ("slow[0]",))


def _instances() -> Iterator[Case]:
    """A card that is cut up is no place; its instances are, each alone."""
    parts = [device(f"gpu{n}", size, parent="gpu0") for n, size in ((1, 40), (2, 20), (3, 20))]
    cut = host("cut", **_cards(device("gpu0", 80), *parts))
    yield Case("instances: the smallest that holds it", Fleet((cut,), (guest(18),)), ("cut[2]", "cut[3]"))
    yield Case("instances: the large one", Fleet((cut,), (guest(30),)), ("cut[1]",))
    said = {"cut": codes.INSUFFICIENT_DEVICE_MEMORY}
    yield Case("instances: never the card, never their sum", Fleet((cut,), (guest(60),)), (NONE,), said)
    pair = guest(18, devices=DeviceNeed(count=2))
    yield Case("instances: two do not work together", Fleet((cut,), (pair,)), (NONE,), {"cut": codes.NO_DEVICES})
    whole = host("whole", (80.0,))
    seen = report(whole)
    found = replace(seen.devices[0], id="gpu1", total_bytes=40 * GIB, parent="gpu0")  # type: ignore[arg-type]
    surprised = Fleet((whole,), (guest(18),), reports={"whole": replace(seen, devices=(*seen.devices, found))})
    yield Case("instances: known to the host alone", surprised, (NONE,))


def _uneven() -> Iterator[Case]:
    """Unequal cards carry equal parts only where the config says so, and the smaller one decides."""
    odd = host("odd", (48.0, 24.0))
    said = {"odd": codes.UNEQUAL_DEVICES}
    yield Case("uneven: not allowed", Fleet((odd,), (guest(20, devices=DeviceNeed(count=2)),)), (NONE,), said)
    loose = DeviceNeed(count=2, uneven=True)
    yield Case("uneven: allowed", Fleet((odd,), (guest(20, devices=loose),)), ("odd[0,1]",))
    said = {"odd": codes.INSUFFICIENT_DEVICE_MEMORY}
    yield Case("uneven: the small one is too small", Fleet((odd,), (guest(30, devices=loose),)), (NONE,), said)
    twins = host("twins", (24.0, 24.0))
    yield Case("uneven: equal cards are preferred to none", Fleet((odd, twins), (_two(20),)), ("twins[0,1]",))


def _two(gib: float, **more: Any) -> Profile:
    return guest(gib, devices=DeviceNeed(count=2, **more))


def _tensor(count: int, name: str = "q", gib: float = 20, **heads: int) -> Config:
    return config(name, gib, devices=DeviceNeed(count=count, shard="tensor"), heads=Heads(**heads))


def _kv_heads() -> Iterator[Case]:
    """Key and value heads divide, or are copied where there are fewer of them than devices; nothing between."""
    four = host("four", (24.0,) * 4)
    said = {"four": codes.SHARD_INDIVISIBLE}

    def one(*configs: Config) -> Fleet:
        return Fleet((four,), (profile(GUEST, configs=configs),))

    yield Case("kv: six on four", one(_tensor(4, attention=48, kv=6, vocabulary=32_000)), (NONE,), said)
    yield Case("kv: two on four are copied", one(_tensor(4, attention=32, kv=2, vocabulary=32_000)), ("four[0,1,2,3]",))
    yield Case("kv: eight on four", one(_tensor(4, attention=32, kv=8, vocabulary=32_000)), ("four[0,1,2,3]",))
    yield Case("kv: three on two", one(_tensor(2, attention=12, kv=3)), (NONE,), said)
    yield Case("kv: eyes count as well", one(_tensor(2, attention=32, kv=8, vision=15)), (NONE,), said)
    fewer = one(_tensor(4, "x4", attention=48, kv=6), _tensor(3, "x3", attention=48, kv=6))
    yield Case("kv: the next config divides", fewer, ("four[0,1,2]", "four[0,1,3]", "four[0,2,3]", "four[1,2,3]"))


def _vocabulary() -> Iterator[Case]:
    """The vocabulary divides as well, and only where tensors are split."""
    three = host("three", (24.0,) * 3)
    said = {"three": codes.SHARD_INDIVISIBLE}
    odd = profile(GUEST, configs=(_tensor(2, attention=24, kv=8, vocabulary=32_001),))
    yield Case("vocabulary: odd on two", Fleet((three,), (odd,)), (NONE,), said, codes.SHARD_INDIVISIBLE)
    thirds = profile(GUEST, configs=(_tensor(3, attention=24, kv=3, vocabulary=32_001),))
    yield Case("vocabulary: odd on three", Fleet((three,), (thirds,)), ("three[0,1,2]",))
    single = profile(GUEST, configs=(_tensor(1, attention=25, vocabulary=32_001),))
    yield Case(
        "vocabulary: one card divides everything", Fleet((three,), (single,)), ("three[0]", "three[1]", "three[2]")
    )
    layers = Heads(attention=25, kv=5, vocabulary=32_001)
    stages = guest(20, devices=DeviceNeed(count=2, shard="pipeline"), heads=layers)
    yield Case(
        "vocabulary: layers are not tensors", Fleet((three,), (stages,)), ("three[0,1]", "three[0,2]", "three[1,2]")
    )


def _shared_memory() -> Iterator[Case]:
    """Unified memory: weights and host part are one claim of GPU work, which has its share; what is carved out is gone.

    A host measures a process on shared memory as one figure, so the host part of GPU work is bound by the share too.
    """
    mac = laptop("mac", 64, host_class=HostClass.DEDICATED, devices=(device("unified0", 64, gpu_share_ppm=750_000),))
    short = {"mac": codes.INSUFFICIENT_DEVICE_MEMORY}

    def on(gib: float, ram: float = 0) -> Fleet:
        return Fleet((mac,), (guest(gib, host_gib=ram, backends=("metal",)),))

    yield Case("shared: up to its share", on(48), ("mac",))
    yield Case("shared: above its share", on(48.1), (NONE,), short)
    yield Case("shared: both parts fit", on(44, 4), ("mac",))
    yield Case("shared: both parts do not", on(44, 4.1), (NONE,), short)
    everything = replace(mac, devices=(device("unified0", 64),))
    both = guest(44, host_gib=16.8, backends=("metal",))
    yield Case("shared: beside the headroom", Fleet((everything,), (both,)), ("mac",))
    more = guest(44, host_gib=16.9, backends=("metal",))
    yield Case("shared: into the headroom", Fleet((everything,), (more,)), (NONE,), short)
    seen = report(mac)
    carved = replace(seen, devices=(replace(seen.devices[0], total_bytes=40 * GIB),))
    yield Case("shared: what is carved out is gone", replace(on(38.1), reports={"mac": carved}), (NONE,), short)
    elsewhere = guest(20, backends=("cuda",))
    yield Case("shared: another backend", Fleet((mac,), (elsewhere,)), (NONE,), {"mac": codes.WRONG_BACKEND})


def applied(hosts: tuple[Any, ...], *profiles: Profile, **more: Any) -> Fleet:
    fleet = Fleet(hosts, profiles, **more)
    return fleet.applied(fleet.plan(), later_ms=3_600_000)


def _two_ledgers() -> Iterator[Case]:
    """What runs may stay in the headroom; what is new keeps it free; what is gone by reserve leaves if it can."""
    card = host("card")
    snug = guest(22.8)
    yield Case("ledgers: to the last byte", Fleet((card,), (snug,)), ("card[0]",), kinds=("place",))
    yield Case("ledgers: into the headroom", Fleet((card,), (guest(22.9),)), (NONE,))
    runs = applied((card,), snug)
    grown = runs.reporting("card", devices=_used(runs.reports["card"], "gpu0", 1.2).devices)
    yield Case("ledgers: who runs stays in the headroom", grown, ("card[0]",), kinds=())
    over = runs.reporting("card", devices=_used(runs.reports["card"], "gpu0", 2).devices)
    yield Case("ledgers: over, and nowhere else", over, ("card[0]",), short=codes.OVER_MEMORY, kinds=())
    peer = over.but(hosts=(card, host("peer", (48.0,))))
    yield Case("ledgers: over, and a peer has room", peer, ("peer[0]",), kinds=("move",))


def _disk() -> Iterator[Case]:
    """Files need disk where they are not; where they are they need none."""
    full, roomy = host("full"), host("roomy", (80.0,))
    large = guest(20, size=40)
    little = report(full, disk_free_bytes=30 * GIB)
    yield Case("disk: not where it is full", Fleet((full, roomy), (large,), reports={"full": little}), ("roomy",))
    said = {"full": codes.DISK_FULL}
    yield Case("disk: only a full one", Fleet((full,), (large,), reports={"full": little}), (NONE,), said)
    there = replace(little, cached=(digest("q"),))
    yield Case("disk: the files are there", Fleet((full, roomy), (large,), reports={"full": there}), ("full",))


def _known_and_unknown() -> Iterator[Case]:
    """A size that nobody knows is a refusal; RAM that nobody declared cannot be counted; a lent host comes last."""
    plain, blind = host("plain"), host("blind", ram=0)
    unknown = profile(GUEST, configs=(config("q", footprint=Footprint(source=FootprintSource.UNKNOWN)),))
    said = {"plain": codes.FOOTPRINT_UNKNOWN}
    yield Case("unknown: the size", Fleet((plain,), (unknown,)), (NONE,), said, codes.FOOTPRINT_UNKNOWN)
    beside = guest(20, host_gib=4)
    said = {"blind": codes.HOST_MEMORY_UNKNOWN}
    yield Case("unknown: the RAM", Fleet((blind,), (beside,)), (NONE,), said)
    yield Case("unknown: the RAM elsewhere", Fleet((blind, plain), (beside,)), ("plain",))
    lent = host("lent", host_class=HostClass.OPPORTUNISTIC)
    yield Case(
        "unknown: a lent machine is the second choice", Fleet((lent, host("own", (80.0,))), (guest(),)), ("own",)
    )
    keys = tuple(HostKey(host=HostId(h), key="ed25519:" + "0" * 64, expunged=h == "plain") for h in ("plain", "own"))
    expunged = Fleet((plain, host("own", (80.0,))), (guest(),), keys=keys)
    yield Case("unknown: an expunged key", expunged, ("own",))


def _used(seen: HostReport | None, name: str, gib: float) -> HostReport:
    """The report with so much of a device held by others."""
    assert seen is not None
    changed = tuple(replace(d, external_bytes=int(gib * GIB)) if d.id == name else d for d in seen.devices)
    return replace(seen, devices=changed)
