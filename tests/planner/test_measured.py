"""A measured footprint stands for what was measured and nothing else: same files, arguments, hardware; not upward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, EngineName, short
from gridops.footprint.measured import covers, measured_need
from gridops.model.fleet import DeviceKind, Host
from gridops.model.measured import Measured, revision, settings
from gridops.model.profile import Config, DeviceNeed, EngineArg, Footprint, FootprintSource
from gridops.model.snapshot import DeviceReport
from gridops.planner.evidence import measured_by
from gridops.planner.render_explain import explain_lines
from gridops.planner.render_text import Style
from gridops.planner.render_words import UTF8, Context
from tests.planner import fleet as f

GIB = f.GIB
CARD = "NVIDIA H200"


def of(config: Config, size: float, **changes: object) -> Measured:
    made = Measured(
        engine=config.engine,
        backend=config.backends[0],
        revision=revision(config.artifact),
        settings=settings(config.args, config.devices),
        context=config.context,
        lanes=config.lanes,
        kind=DeviceKind.GPU,
        total_bytes=24 * GIB,
        device_bytes=int(size * GIB),
        host_bytes=0,
        at_ms=1,
        evidence=Digest(digest_bytes(f"evidence {size}".encode())),
        device=CARD,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def devices(host: Host, model: str = CARD) -> tuple[DeviceReport, ...]:
    """As declared, and what the driver calls its cards."""
    return tuple(
        DeviceReport(
            id=d.id,
            kind=d.kind,
            total_bytes=d.memory_bytes,
            model=model if d.kind is DeviceKind.GPU else None,
        )
        for d in host.devices
    )


def world(*measured: Measured, gib: float = 20, hosts: int = 1, **profile: object) -> f.Fleet:
    """Hosts with one card of 24 GiB each, of which the first has measured; one profile that declares `gib`."""
    names = [f"h{n}" for n in range(1, hosts + 1)]
    made = f.Fleet(
        hosts=tuple(f.host(n) for n in names),
        profiles=(f.profile("coder", gib=gib, **profile),),  # type: ignore[arg-type]
    )
    for name in names:
        made = made.reporting(name, devices=devices(made.host(name)))
    return made.reporting("h1", measured=measured or None)


def config() -> Config:
    return world().profiles[0].configs[0]


def test_a_host_that_measured_plans_with_what_it_measured() -> None:
    (a,) = world().plan().placement
    assert a.device_bytes == 20 * GIB
    (a,) = world(of(config(), 11)).plan().placement
    assert a.device_bytes == 11 * GIB
    (a,) = world(of(config(), 22)).plan().placement
    assert a.device_bytes == 22 * GIB, "a measurement is believed when it is more than was declared, too"


def test_a_config_that_nobody_could_size_is_placed_once_it_is_measured() -> None:
    unknown = replace(config(), footprint=Footprint(source=FootprintSource.UNKNOWN))
    assert world(configs=(unknown,)).plan().placement == ()
    (a,) = world(of(unknown, 11), configs=(unknown,)).plan().placement
    assert a.device_bytes == 11 * GIB


def test_two_that_were_declared_too_large_fit_beside_each_other_once_one_is_measured() -> None:
    made = world().but(profiles=(f.profile("coder", gib=20), f.profile("chat", gib=8)))
    assert len(made.plan().placement) == 1
    coder = made.profiles[0].configs[0]
    made = made.reporting("h1", measured=(of(coder, 11),))
    assert sorted(a.device_bytes // GIB for a in made.plan().placement) == [8, 11]


def test_the_same_card_on_another_host_is_the_same_hardware_and_another_card_is_not() -> None:
    two = world(of(config(), 11), hosts=2, replicas=2)
    assert [a.device_bytes // GIB for a in two.plan().placement] == [11, 11]
    other = two.reporting("h2", devices=devices(two.host("h2"), model="NVIDIA L4"))
    assert {a.seat.host: a.device_bytes // GIB for a in other.plan().placement} == {"h1": 11, "h2": 20}
    larger = two.reporting(
        "h2", devices=tuple(replace(d, total_bytes=d.total_bytes - GIB) for d in devices(two.host("h2")))
    )
    assert {a.seat.host: a.device_bytes // GIB for a in larger.plan().placement} == {"h1": 11, "h2": 20}


def test_what_runs_follows_what_is_measured_later() -> None:
    """More at once, and less when its process was started with less: until then its host counts all of it."""
    before = world()
    running = before.applied(before.plan())
    for gib, holds in ((21, 21), (11, 20)):
        (a,) = running.reporting("h1", measured=(of(config(), gib),)).plan().placement
        assert a.device_bytes == holds * GIB
    later = running.reporting("h1", measured=(of(config(), 11),)).restarted("coder/1", 11)
    assert [a.device_bytes for a in later.plan().placement] == [11 * GIB]


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": EngineName("vllm")},
        {"backend": "rocm"},
        {"revision": Digest(digest_bytes(b"other files"))},
        {"settings": settings((EngineArg(name="cache_type_k", value="q8_0"),), DeviceNeed())},
        {"settings": settings((), DeviceNeed(count=2))},
        {"context": 4_095},
        {"lanes": 0},
    ],
)
def test_a_measurement_of_anything_else_or_of_less_does_not_hold(changes: dict[str, object]) -> None:
    assert covers(of(config(), 11), config(), "cuda")
    assert covers(of(config(), 11, context=8_192, lanes=4), config(), "cuda")
    assert not covers(of(config(), 11, **changes), config(), "cuda")
    (a,) = world(of(config(), 11, **changes)).plan().placement
    assert a.device_bytes == 20 * GIB


def test_the_nearest_measurement_holds_and_devices_that_differ_settle_nothing() -> None:
    near, far = of(config(), 11), of(config(), 15, context=32_768)
    here = (DeviceKind.GPU, CARD)
    found = measured_need(config(), "cuda", (here, here), (far, near))
    assert found is not None
    assert (found.device_bytes, found.source) == (11 * GIB, FootprintSource.MEASURED)
    assert measured_need(config(), "cuda", (here, (DeviceKind.GPU, "NVIDIA L4")), (near,)) is None
    assert measured_need(config(), "cuda", (), (near,)) is None
    for other in ((DeviceKind.GPU, "NVIDIA L4"), (DeviceKind.GPU, None), (DeviceKind.CPU, CARD)):
        assert measured_need(config(), "cuda", (other,), (near,)) is None


def test_what_a_host_measured_on_a_card_that_it_has_no_more_says_nothing_of_the_one_that_it_has() -> None:
    (a,) = world(of(config(), 11, device="NVIDIA L4")).plan().placement
    assert a.device_bytes == 20 * GIB
    both = world(of(config(), 11, device="NVIDIA L4"), of(config(), 12))
    (a,) = both.plan().placement
    assert a.device_bytes == 12 * GIB


def test_an_engine_that_takes_a_share_is_not_measured_by_what_it_took() -> None:
    vllm = replace(config(), engine=EngineName("vllm"))
    assert measured_need(vllm, "cuda", ((DeviceKind.GPU, CARD),), (of(vllm, 11),)) is None


def test_explain_says_that_memory_was_measured_and_by_which_evidence() -> None:
    fleet = world(of(config(), 11))
    made = fleet.plan()
    (a,) = made.placement
    evidence = measured_by(fleet.inputs(), made)
    assert evidence == {a.replica: of(config(), 11).evidence}
    words = Context(now_ms=f.NOW, measured=evidence)
    lines = "\n".join(explain_lines(made, a.replica, words, Style(120, UTF8)) or ())
    assert f"11 GiB (measured, evidence {short(evidence[a.replica])})" in lines
    plain = world()
    assert measured_by(plain.inputs(), plain.plan()) == {}
