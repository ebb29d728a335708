"""`gridops status HOST`: one host as the controller last heard it: its state and why, what it holds, what it fetches.

Called by `cli.status` with the controller's answer. Lays out and counts nothing; what a silent host fetched is not
shown, since its progress is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gridops.base.codes.trust import AGENT_TOO_OLD
from gridops.base.errors import Failed
from gridops.base.ids import short
from gridops.base.units import parse_instant, render_bytes, render_ms
from gridops.cli.host import said_of
from gridops.cli.tables import fitted, table

Doc = dict[str, Any]
SCHEMA = "gridops.status-host/1"
ASLEEP, LEFT = "asleep", "left"


def document(whole: Doc, name: str) -> Doc:
    """The host's part of the status. Raises Failed when the fleet has no such host."""
    found = next((host for host in whole["hosts"] if host["host"] == name), None)
    if found is None:
        names = ", ".join(host["host"] for host in whole["hosts"][:8]) or "none"
        waits = any(entry["host"] == name for entry in whole.get("pending", []))
        way = f"it waits: gridops host admit {name}" if waits else f"hosts: {names}"
        raise Failed(f"the fleet has no host {name}", hints=(way,))
    return {"schema": SCHEMA, "time": whole["time"], "host": found}


def silence(host: Doc) -> str:
    """Why a person should look at a host that is not heard; empty when nobody has to."""
    if not host["admitted"] or host["heard"] or host["state"] == ASLEEP:
        return ""  # one that said goodbye is where it said it would be
    if host["state"] == LEFT:
        return f"{host['host']} has left: set `expunged: true` in fleet.d/keys/{host['host']}.yaml"
    return f"{host['host']} is {host['state']}"


def outdated(host: Doc) -> list[str]:
    """That the root lets nobody drive its agent, unless the host says so itself: nothing new is sent there."""
    words = host.get("outdated")
    said = any(alarm.startswith(f"{AGENT_TOO_OLD.code}:") for alarm in host["alarms"])
    return [words] if words and not said else []


def doubts(host: Doc) -> list[str]:
    """Commands of which nobody knows what became of them, each with the way to say so."""
    return [
        f"nobody knows what became of {one['what']}: gridops reconcile-outcome {short(one['command'])}"
        for one in host.get("uncertain", [])
    ]


def attention(document: Doc) -> list[str]:
    """What a person should look at."""
    host = document["host"]
    silent = silence(host)
    return [*host["alarms"], *outdated(host), *doubts(host), *([silent] if silent else [])]


def lines(document: Doc, width: int | None) -> Iterator[str]:
    """The screen, line by line."""
    host, now_ms = document["host"], parse_instant(document["time"])
    seen = host.get("seen")
    ago = f"seen {render_ms(max(0, now_ms - parse_instant(seen)))} ago" if seen else "never seen"
    version = f", agent {host['agent_version']}" if host.get("agent_version") else ""
    yield from fitted([f"{host['host']}   {host['state']}   {host['scope']}   {ago}{version}"], width)
    yield from fitted((f"  {line}" for line in said_of(host)), width)
    yield from fitted((f"  alarm: {line}" for line in host["alarms"]), width)
    yield from fitted((f"  {line}" for line in (*outdated(host), *doubts(host))), width)
    if host.get("disk_free_bytes") is not None:
        yield f"  {render_bytes(host['disk_free_bytes'])} free for artifacts"
    yield from fitted((f"  {progress(row)}" for row in host.get("transfers", [])), width)
    rows = [
        (
            r.get("replica") or r["profile"],
            r["state"],
            " ".join(r.get("devices", [])) or "-",
            str(r.get("in_flight", 0)),
            "; ".join((*(("external",) if r.get("ownership") == "external" else ()), r.get("detail") or "")).strip(
                "; "
            ),
        )
        for r in host["residencies"]
    ]
    if not rows:
        yield "  holds nothing"
        return
    for line in table(("REPLICA", "STATE", "DEVICES", "IN FLIGHT", "NOTE"), rows, width):
        yield f"  {line}".rstrip()


def progress(row: Doc) -> str:
    """One transfer: how far it is, and where from."""
    done, size, source = row["done_bytes"], row["size_bytes"], row["source"] or "nowhere yet"
    share = f" ({done * 100 // size} %)" if size else ""
    return f"fetching {short(row['artifact'])}: {render_bytes(done)} of {render_bytes(size)}{share} from {source}"


def fetching(host: Doc) -> tuple[str, ...]:
    """The same as a few words for the list of hosts."""
    rows = host.get("transfers", [])
    done, size = sum(row["done_bytes"] for row in rows), sum(row["size_bytes"] for row in rows)
    return (f"fetches {render_bytes(done)} of {render_bytes(size)}",) if rows else ()
