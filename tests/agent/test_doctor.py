"""The doctor: whatever is wrong is found, named with what to do, and nothing is changed by looking."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from gridops.base.units import render_instant
from gridops.model.policy import Sensor
from gridops.trust.tls import TlsIdentity, self_signed
from gridops_agent.cli import lifecycle
from gridops_agent.cli.entry import main
from gridops_agent.clock import SystemClock
from gridops_agent.config import write_config
from gridops_agent.core.protection import OverrideKind
from gridops_agent.life import finding
from gridops_agent.life.doctor import examine
from gridops_agent.life.finding import Finding, Level
from gridops_agent.life.install import Machine, install, place, standing
from gridops_agent.life.left import note_left
from gridops_agent.overrides import Wish, say
from gridops_agent.readouts import minded
from gridops_agent.sensors.cards import Card, Cards, Condition
from gridops_agent.sensors.senses import CardSense
from gridops_agent.statefolder import only_one
from tests.agent.desk import Desk, listening
from tests.agent.service_manager import PROGRAM, ServiceManager, machine
from tests.agent.site import DAY, HOST, Site, command, receipt, until, wall_ms


@pytest.fixture(scope="module")
def tls() -> TlsIdentity:
    return self_signed(("127.0.0.1",), wall_ms() - DAY, 300)


@pytest.fixture
def site(make_site: Callable[..., Site], tls: TlsIdentity) -> Site:
    return make_site(tls=tls)


@pytest.fixture
def office(site: Site, tls: TlsIdentity) -> Desk:
    return Desk(site, tls, hosts=[{"host": HOST, "admitted": True, "heard": True}])


@pytest.fixture
def here(tmp_path: Path) -> Machine:
    return machine(tmp_path, ServiceManager())


async def told(site: Site, here: Machine, office: Desk | None = None) -> tuple[Finding, ...]:
    if office is None:
        return (await examine(site.state, here))[1]
    async with listening(office) as url:
        site.config = replace(site.config, controller=url)
        write_config(site.config)
        return (await examine(site.state, here))[1]


def about(found: tuple[Finding, ...], subject: str) -> list[tuple[str, str]]:
    return [(f.level.value, f.words) for f in found if f.subject == subject]


async def test_a_host_that_is_well_has_nothing_bad(site: Site, here: Machine, office: Desk) -> None:
    install(place(site.config, here), site.config, Path(PROGRAM), here)
    before = tree(site.state)
    with only_one(site.config):
        found = await told(site, here, office)
    assert [f for f in found if f.level is Level.BAD] == []
    for subject in ("agent.toml", "host key", "ledger", "trust", "controller", "admission", "runtime", "disk", "ports"):
        assert about(found, subject)[0][0] == "ok", subject
    assert about(found, "service") == [("ok", f"{place(site.config, here).name} is enabled and runs as pid 4711")]
    assert tree(site.state) - {"agent.lock"} == before, "looking changes nothing"


def tree(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.name.endswith(("-shm", "-wal"))}


@dataclass(frozen=True)
class Ill:
    """Something that is wrong, and how it must be told."""

    wrong: Callable[[Site], Any]
    subject: str
    level: str
    says: str
    hint: str = ""


def set_config(**changes: Any) -> Callable[[Site], None]:
    def change(site: Site) -> None:
        site.config = replace(site.config, **changes)
        write_config(site.config)

    return change


def rot(site: Site) -> None:
    database = sqlite3.connect(site.config.ledger)
    database.execute("UPDATE entry SET value = ? WHERE kind = 'root'", (b'{"text":"other"}',))
    database.commit()
    database.close()


ILLS = {
    "not joined": Ill(lambda s: s.config.file.unlink(), "agent.toml", "bad", "has not joined", "gridops-agent join"),
    "not TOML": Ill(lambda s: s.config.file.write_text("= ="), "agent.toml", "bad", "is not TOML"),
    "an open key": Ill(lambda s: s.config.seed.chmod(0o644), "keys", "bad", "host.seed", "chmod 600"),
    "no key": Ill(lambda s: s.config.seed.unlink(), "keys", "bad", "host.seed"),
    "no certificate": Ill(lambda s: s.config.front_cert.unlink(), "front key", "bad", "front.pem is missing"),
    "an open folder": Ill(lambda s: s.state.chmod(0o755), "state", "warn", "mode 755", "chmod 700"),
    "a rotten ledger": Ill(rot, "ledger", "bad", "not what was written", "enrol"),
    "no ledger": Ill(lambda s: s.config.ledger.unlink(), "ledger", "bad", "cannot read"),
    "nobody answers": Ill(lambda s: None, "controller", "bad", "does not answer", "what runs goes on"),
    "models are gone": Ill(
        set_config(artifact_folders=(Path("/nowhere/models"),)), "artifacts", "bad", "/nowhere/models is not there"
    ),
    "it has left": Ill(lambda s: note_left(s.config, 1), "controller", "warn", "has left its fleet"),
    "a person said so": Ill(
        lambda s: say(s.config.override, Wish(OverrideKind.QUARANTINE, "smoke"), SystemClock()),
        "protection",
        "warn",
        "quarantine by a person: smoke",
        "resume",
    ),
    "no service": Ill(lambda s: None, "service", "warn", "is not installed"),
    "nobody runs": Ill(lambda s: None, "agent", "warn", "no agent runs", "gridops-agent run"),
    "another runtime": Ill(lambda s: s.config.runtime.mkdir(), "runtime", "warn", "is not xllamacpp==", "runtime"),
}


@pytest.mark.parametrize("name", ILLS)
async def test_each_ill_is_found_and_told_with_what_to_do(name: str, site: Site, here: Machine) -> None:
    ill = ILLS[name]
    ill.wrong(site)
    found = await told(site, here)
    (match,) = [f for f in found if f.subject == ill.subject and ill.says in f.words]
    assert match.level.value == ill.level
    assert ill.hint in match.hint


async def test_the_controllers_side_is_told(site: Site, here: Machine, office: Desk) -> None:
    real = office.status

    async def says(hosts: list[dict[str, Any]], time_ms: int) -> tuple[Finding, ...]:
        office.hosts = hosts

        async def status(request: Any) -> Any:
            answer = await real(request)
            document = json.loads(answer.body) | {"time": render_instant(time_ms)}
            from aiohttp import web

            return web.json_response(document)

        office.status = status  # type: ignore[method-assign]
        return await told(site, here, office)

    found = await says([], wall_ms())
    assert about(found, "admission") == [("warn", "the key of this host is not committed")]
    assert about(found, "clock")[0][0] == "ok"
    found = await says([{"host": HOST, "admitted": True}], wall_ms() - 60_000)
    assert about(found, "clock")[0][0] == "warn"
    found = await says([{"host": HOST, "admitted": True}], wall_ms() - 3 * DAY)
    assert about(found, "clock")[0][0] == "bad"


async def test_another_certificate_than_the_pinned_one_is_no_controller(
    site: Site, here: Machine, office: Desk
) -> None:
    office.tls = self_signed(("127.0.0.1",), wall_ms() - DAY, 300)
    ((level, words),) = about(await told(site, here, office), "controller")
    assert level == "bad"
    assert "another certificate than the pinned one" in words


async def test_ports_that_others_hold_are_counted(site: Site, here: Machine) -> None:
    first, last = site.config.ports
    held = [socket.create_server(("127.0.0.1", port)) for port in range(first, last + 1)]
    assert about(await told(site, here), "ports")[0][0] == "bad"
    for one in held[1:]:
        one.close()
    ((level, words),) = about(await told(site, here), "ports")
    assert (level, f"others have {first}" in words) == ("warn", True)
    held[0].close()


async def test_cards_are_told_as_their_driver_tells_them(
    site: Site, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Cards(
        cards=(
            Card(id="gpu0", model="A", total_bytes=1 << 30),  # type: ignore[arg-type]
            Card(id="gpu1", condition=Condition.LOST, why=("fell off the bus",)),  # type: ignore[arg-type]
            Card(id="gpu2", condition=Condition.SILENT),  # type: ignore[arg-type]
        ),
        why=("power: not supported",),
    )
    monkeypatch.setattr(CardSense, "look", lambda self: seen)
    found = about(await told(site, here), "cards")
    assert [level for level, _ in found] == ["ok", "bad", "warn", "warn"]
    monkeypatch.setattr(CardSense, "look", lambda self: Cards(absent="driver and library differ"))
    assert about(await told(site, here), "cards") == [("bad", "driver and library differ")]


async def test_with_an_agent_running_its_engines_and_its_word_are_told(site: Site, here: Machine, office: Desk) -> None:
    async with listening(office) as url:
        site.config = replace(site.config, controller=url)
        write_config(site.config)
        async with site.agent() as agent:
            body = await command(agent, site, site.warm())
            await receipt(agent, body)
            work = asyncio.ensure_future(agent.run())
            await until(lambda: site.config.status.exists())
            found = (await examine(site.state, here))[1]
            assert about(found, "engine") == [("ok", "tiny/1 is ready")]
            assert about(found, "agent")[0][1].endswith("talks with its controller")
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(work, 60)
    stray = site.processes()[0]
    database = sqlite3.connect(site.config.ledger)
    database.execute("DELETE FROM entry WHERE kind = 'held'")
    database.commit()
    database.close()
    ((level, words),) = about(await told(site, here), "stray")
    assert level == "bad"
    assert f"{stray}" in words


def test_exit_code_and_documents(
    site: Site, here: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("gridops_agent.life.install.Machine", lambda: here)
    assert main(["doctor", "--state", str(site.state), "-o", "json"]) == 1
    seen = json.loads(capsys.readouterr().out)
    assert (seen["schema"], seen["host"], seen["healthy"]) == ("gridops.agent-doctor/1", "forge", False)
    assert {"level", "subject", "words", "hint"} == set(seen["checks"][0])
    assert sum(seen["counts"].values()) == len(seen["checks"])
    assert main(["doctor", "--state", str(site.state)]) == 1
    assert "bad   controller" in capsys.readouterr().out
    assert main(["doctor", "-o", "xml"]) == 64
    well = (finding.ok("a", "b"), finding.warn("c", "d", "e"))
    assert finding.document("h", well)["healthy"] is True
    assert finding.render(well).splitlines()[2].strip() == "e"
    assert lifecycle.doctor.__doc__ is not None


async def test_a_service_that_keeps_another_process_running_than_this_agent_is_told(
    site: Site, here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(place(site.config, here), site.config, Path(PROGRAM), here)
    name = place(site.config, here).name
    assert about(await told(site, here), "service") == [("bad", f"{name} is active, and no agent has its state folder")]
    with only_one(site.config):
        assert about(await told(site, here), "service") == [("ok", f"{name} is enabled and runs as pid 4711")]
        site.config.status.write_text(json.dumps({"pid": 4_711}))
        assert about(await told(site, here), "service")[0][0] == "ok"
        site.config.status.write_text(json.dumps({"pid": 4_712}))
        ((level, words),) = about(await told(site, here), "service")
        assert (level, words) == (
            "bad",
            f"{name} keeps pid 4711 running, and the agent of this state folder is pid 4712",
        )
    mac = replace(here, system="darwin")
    install(place(site.config, mac), site.config, Path(PROGRAM), mac)
    assert standing(place(site.config, mac), mac).pid == 4_711


async def test_sensors_that_cannot_be_read_are_named_with_their_reason_unless_their_class_minds_them_not(
    site: Site, here: Machine
) -> None:
    def row(name: str, value: int | None) -> dict[str, Any]:
        return {"sensor": name, "unit": "ms", "value": value, "last": None, "at_ms": None}

    rows = [row("idle", None), row("memory", None), row("cpu", 5), row("gpu0 temperature", None)]
    note = {"pid": 1, "sensors": rows, "unread": ["idle: loginctl is not there", "ram_ppm: no RAM is seen"]}
    with only_one(site.config):
        site.config.status.write_text(json.dumps(note))
        found = [f for f in await told(site, here) if f.subject == "sensor"]
        assert [(f.level.value, f.words) for f in found] == [
            ("warn", "idle cannot be read: loginctl is not there"),
            ("warn", "memory cannot be read: no RAM is seen"),
            ("warn", "gpu0 temperature cannot be read"),
            ("ok", "1 of 4 readings of protection are known"),
        ]
        assert "policies/protection.yaml" in found[0].hint
    ignored = minded(rows, {Sensor.ACTIVITY, Sensor.GPU_TEMPERATURE})
    assert [r["sensor"] for r in ignored] == ["memory", "cpu"]


async def test_without_an_agent_the_doctor_looks_at_the_sensors_itself(site: Site, here: Machine) -> None:
    found = about(await told(site, here), "sensor")
    assert found[-1][1].endswith("readings of protection are known")
    assert not any(words.startswith("cpu cannot") for _, words in found), "its share is between two looks"
