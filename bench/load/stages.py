"""What is asked of a controller under load, one function a question. Each prints what it found beside what is wanted.

CPU seconds are the controller's own, read from outside; milliseconds are the caller's, and count from the moment a
heartbeat was due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.load.crowd import GREETING_AT_ONCE, Crowd, now_ms
from bench.load.history import lengthen
from bench.load.line import request_of
from bench.load.site import Crowded, Process, Usage
from gridops.base.record import to_bytes
from gridops.protocol import receipts as owing
from gridops.protocol.messages import Outcome
from tests.controller.scripted_agent import ScriptedAgent

BURST = 500
COMPANY = 50
SETTLE_S = 180.0
TRIED_AGAIN_S = 1.0
AFTER_S = 15.0
"""So long hosts go on polling after a failover before it is asked whom the controller calls lost."""


@dataclass
class Site:
    fleet: Crowded
    process: Process
    chosen: argparse.Namespace
    crowd: Crowd = field(init=False)

    def __post_init__(self) -> None:
        self.crowd = Crowd(self.fleet.agents.values(), self.fleet.tls.cert_pem)

    @property
    def journal(self) -> Path:
        return self.fleet.state / "journal.sqlite"


def say(what: str, found: str, wanted: str = "") -> None:
    print(f"  {what:44} {found:44} {wanted}", flush=True)


def spread(values: Sequence[float], unit_ms: float = 1000.0) -> str:
    """Median, p99 and the worst, in milliseconds."""
    if not values:
        return "nothing"
    ordered = sorted(v * unit_ms for v in values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    return f"p50 {statistics.median(ordered):.1f}  p99 {p99:.1f}  most {ordered[-1]:.1f} ms"


def cost(before: Usage, after: Usage, count: int) -> str:
    spent, share = after.since(before)
    return f"{1000 * spent / max(count, 1):.2f} CPU ms each, {100 * share:.1f} % of a core"


async def arrive(site: Site) -> None:
    """Every host opens a connection and is believed; in companies, because a connection may not stand idle for long."""
    crowd, process = site.crowd, site.process
    handshakes = words = 0.0
    print("arrival")
    while company := crowd.standing[:COMPANY]:
        before = process.usage()
        seats = [await crowd.sit(process.url, agent) for agent in company]
        seated = process.usage()
        await crowd.greet(seats)
        handshakes += seated.since(before)[0]
        words += process.usage().since(seated)[0]
    hosts = len(crowd.seats)
    say("a connection, with its TLS handshake", f"{1000 * handshakes / hosts:.2f} CPU ms each")
    say("a first word of a host", f"{1000 * words / hosts / 2:.2f} CPU ms each")
    await calm(site)


async def calm(site: Site) -> None:
    """Wait until the controller has nothing more to do about what just happened."""
    for _ in range(60):
        before = site.process.usage()
        await asyncio.sleep(1.0)
        if site.process.usage().since(before)[0] < 0.25:
            return


async def beats(site: Site) -> None:
    rate, seconds = site.chosen.rate or 100.0, site.chosen.seconds or 30.0
    print(f"{rate:.0f} heartbeats a second for {seconds:.0f} s")
    idle = site.process.usage()
    await asyncio.sleep(min(seconds, 10.0))
    before = site.process.usage()
    say("idle", f"{100 * before.since(idle)[1]:.1f} % of a core")
    started = time.monotonic()
    found = await site.crowd.drive(rate, seconds)
    signing = time.monotonic() - started - seconds
    after = site.process.usage()
    spent, _ = after.since(before)
    share = spent / seconds
    say("answered", spread(found.answers), "p99 < 50 ms")
    say("generator late by", spread(found.lags))
    each = f"{1000 * spent / max(len(found.answers), 1):.2f} CPU ms each, {100 * share:.1f} % of a core"
    say("controller", each, "< 20 % of a core")
    say("lost", f"{len(found.lost)} of {int(rate * seconds)}; {found.verified} answers verified", "none")
    for line in found.lost[:3]:
        say("", line)
    say("signed ahead in", f"{signing:.1f} s")


async def stress(site: Site) -> None:
    rate, seconds = 600.0 if site.chosen.rate is None else site.chosen.rate, site.chosen.seconds or 60.0
    print(f"{rate:.0f} heartbeats a second for {seconds:.0f} s")
    marks: list[Usage] = []

    async def watch() -> None:
        while True:
            marks.append(site.process.usage())
            await asyncio.sleep(1.0)

    watching = asyncio.create_task(watch())
    found = await site.crowd.drive(rate, seconds)
    watching.cancel()
    busy = marks[-int(seconds) :]
    middle, last = busy[len(busy) // 2], busy[-1]
    say("answered", spread(found.answers))
    say("generator late by", spread(found.lags))
    say("controller", cost(busy[0], last, len(found.answers)))
    say("lost", f"{len(found.lost)} of {int(rate * seconds)}; {found.verified} answers verified", "none")
    for line in found.lost[:3]:
        say("", line)
    grown = f"{busy[0].rss_mib:.0f} MiB at first, {middle.rss_mib:.0f} half way, {last.rss_mib:.0f} at the end"
    say("resident", grown, "no growth in the second half")


async def commands(site: Site) -> None:
    """A commit wants models on every host: planned, commanded, carried out and told, hosts polling as they are told."""
    each = max(1, len(site.crowd.seats) // site.chosen.models)
    wanted = each * site.chosen.models
    print(f"{wanted} replicas of {site.chosen.models} models are wanted")
    began, before = time.monotonic(), site.process.usage()
    since_ms = now_ms()
    site.fleet.want(each)
    done = await site.crowd.live(lambda: ready(site) >= wanted, SETTLE_S)
    after = site.process.usage()
    say("all ready" if done else f"only {ready(site)} ready", f"{time.monotonic() - began:.1f} s after the commit")
    taken = taken_s(site.journal, since_ms)
    polls = [p for seat in site.crowd.seats for p in seat.polls]
    say("from command to receipt", spread(taken), f"p99 < poll ({max(polls, default=0)} ms) + 2 s")
    say("controller", cost(before, after, len(taken)))
    await site.crowd.live(lambda: False, 3.0)
    await calm(site)


def ready(site: Site) -> int:
    return sum(len(seat.agent.room.residencies) for seat in site.crowd.seats)


def rows_of(journal: Path, since_ms: int) -> list[tuple[str, int, Any]]:
    """Commands, receipts and targets of a journal: kind, time, value. Read beside the writer, without a lock."""
    connection = sqlite3.connect(f"file:{journal}?mode=ro", uri=True)
    try:
        query = (
            "SELECT kind, at_ms, value FROM rows WHERE at_ms >= ? "
            "AND kind IN ('body_queued', 'receipt_taken', 'target_set') ORDER BY n"
        )
        return [(kind, at_ms, json.loads(value)) for kind, at_ms, value in connection.execute(query, (since_ms,))]
    finally:
        connection.close()


def taken_s(journal: Path, since_ms: int) -> list[float]:
    """Seconds from each command's row to its receipt's."""
    queued: dict[tuple[str, int], int] = {}
    found = []
    for kind, at_ms, value in rows_of(journal, since_ms):
        if kind == "body_queued":
            queued[value["body"]["host"], value["body"]["seq"]] = at_ms
        elif kind == "receipt_taken":
            key = value["receipt"]["host"], value["receipt"]["seq"]
            if key in queued:
                found.append((at_ms - queued.pop(key)) / 1000)
    return found


async def receipts(site: Site) -> None:
    """Hosts that were all asked for something say at one moment that it is done."""
    crowd = site.crowd
    for seat in crowd.seats:
        seat.agent.room.slow = {"load"}
    each = max(1, min(BURST, len(crowd.seats)) // site.chosen.models)
    wanted, had = each * site.chosen.models, ready(site)
    site.fleet.want(each, "later")
    await crowd.live(lambda: sum(len(seat.agent.open) for seat in crowd.seats) >= wanted, SETTLE_S)
    await calm(site)
    volley = []
    for seat in crowd.seats:
        seat.agent.now_ms = now_ms()
        seat.agent.finish("load", Outcome.SUCCEEDED)
        if owing.owed(seat.agent.receipts):
            volley.append((seat, request_of(to_bytes(seat.agent.beat()))))
        seat.agent.room.slow = set()
    owed = sum(owing.owed_count(seat.agent.receipts) for seat, _ in volley)
    print(f"{owed} receipts of {len(volley)} hosts at once")
    before = site.process.usage()
    answers = await crowd.volley(volley)
    after = site.process.usage()
    for seat, _, text in answers:
        seat.agent.hear(text)
    rest = sum(owing.owed_count(seat.agent.receipts) for seat, _ in volley)
    last = max((took for _, took, _ in answers), default=0.0)
    say("durable and acknowledged", f"{owed - rest} of {owed}, the last after {last:.2f} s", "< 2 s")
    say("controller", cost(before, after, owed))
    # To the end, however slow the machine: what is still to be commanded then would count against the failover.
    await crowd.live(lambda: ready(site) >= had + wanted, SETTLE_S)
    await crowd.live(lambda: False, 3.0)
    await calm(site)


async def failover(site: Site) -> None:
    """The process is killed and a second one takes the folder over, tried once a second as a service manager does."""
    process, crowd = site.process, site.crowd
    print("failover: kill -9, and a second process on the same state folder")
    assert process.process is not None
    process.process.kill()
    died, died_ms = time.monotonic(), now_ms()
    process.process.wait(10)
    await crowd.leave()
    await asyncio.sleep(TRIED_AGAIN_S)
    process.start()
    say("the next one listens", f"{time.monotonic() - died:.1f} s after the kill")
    before = process.usage()
    gate = asyncio.Semaphore(GREETING_AT_ONCE)
    back: list[float] = []

    async def returns(agent: ScriptedAgent) -> None:
        async with gate:
            seat = await crowd.sit(process.url, agent)
            wait_s = await seat.talk()
        await asyncio.sleep(wait_s)
        async with gate:
            await seat.talk()
        back.append(time.monotonic() - died)

    await asyncio.gather(*(returns(agent) for agent in site.fleet.agents.values()))
    say("controller", cost(before, process.usage(), len(crowd.seats) * 2))
    period_s = max(seat.polls[-1] for seat in crowd.seats) / 1000
    say("all heard and believed", f"{max(back):.1f} s after the kill", f"< 3 x {period_s:.1f} s")
    await crowd.live(lambda: False, AFTER_S)
    status = await asyncio.to_thread(process.get, "/v1/status")
    silent = sum(not host["heard"] for host in status["hosts"])
    say("hosts called lost, commands, plans set", f"{silent}, {decided_since(site.journal, died_ms)}", "0, 0, 0")


def decided_since(journal: Path, since_ms: int) -> str:
    """How many commands and targets a journal holds from a moment on."""
    counts = [
        sum(kind == wanted for kind, _, _ in rows_of(journal, since_ms)) for wanted in ("body_queued", "target_set")
    ]
    return ", ".join(str(count) for count in counts)


async def start(site: Site) -> None:
    """A journal of a million rows: from the start of the process to the first heartbeat that it answers."""
    process, fleet = site.process, site.fleet
    await site.crowd.leave()
    process.end()
    began = time.monotonic()
    rows = await asyncio.to_thread(lengthen, fleet.state, fleet.chain.root.controller_epoch, site.chosen.rows)
    size = site.journal.stat().st_size >> 20
    print(f"start on a journal of {rows} rows, {size} MiB, made in {time.monotonic() - began:.0f} s")
    began = time.monotonic()
    process.start()
    listens = time.monotonic() - began
    seat = await site.crowd.sit(process.url, next(iter(fleet.agents.values())))
    await seat.talk()
    used = process.usage()
    say("listens, and has answered a host", f"{listens:.2f} s, {time.monotonic() - began:.2f} s", "< 5 s")
    say("controller", f"{used.cpu_s:.2f} CPU s, {used.rss_mib:.0f} MiB")
