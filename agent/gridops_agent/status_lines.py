"""The answer of `gridops-agent status` as text for people: one line for each thing, and what keeps it from serving.

Called by the command. It renders the document that `status` makes and looks at nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gridops.base.ids import short
from gridops.base.units import counted, render_bytes, render_ms
from gridops_agent import readouts


def render(seen: Mapping[str, Any], now_ms: int) -> str:
    """The answer as text for people."""
    heard = seen["heard_ms"]
    ago = f", last word {render_ms(max(0, now_ms - heard))} ago" if heard is not None else ""
    lines = [f"{seen['host']}  {_standing(seen)}, controller {seen['talk']}{ago}"]
    lines += [f"  {reason}" for reason in seen["reasons"]]
    if (said := seen["override"]) is not None and not seen["running"]:
        left = f", {render_ms(said['left_ms'])} left" if said["left_ms"] is not None else ""
        lines.append(f"  {said['kind']} by a person: {said['reason']}{left}")
    lines += _past(seen)
    if seen["endpoint"]:
        lines.append(f"front {seen['endpoint']}")
    for device in seen["devices"]:
        total, external = render_bytes(device["total_bytes"]), render_bytes(device["external_bytes"])
        at_ms = device.get("external_ms")
        when = f" at most, {render_ms(max(0, now_ms - at_ms))} ago" if at_ms is not None else ""
        lines.append(f"{device['id']}  {total}, {external} used by others{when}")
    for row in seen["residencies"]:
        lines += _shown(row, now_ms)
    if not seen["residencies"]:
        lines.append("no residency")
    for row in seen["transfers"]:
        done, size = render_bytes(row["done_bytes"]), render_bytes(row["size_bytes"])
        lines.append(f"fetching {short(row['artifact'])}  {done} of {size}  from {row['source'] or 'nowhere yet'}")
    for row in seen["prefetched"]:
        lines.append(f"fetched on a guess for {row['profile']}  {render_bytes(row['size_bytes'])}, not used yet")
    unsent = f", {seen['receipts_owed']} receipts not yet acknowledged" if seen["receipts_owed"] else ""
    lines.append(f"last command {seen['last_command']}, {seen['open_commands']} open{unsent}")
    if (catalog := seen.get("catalog")) is not None:
        version = catalog["version"]
        here = f"catalog {version}: nothing else starts here"
        lines.append(here if version is not None else f"catalog {catalog['asked']} is asked for: nothing starts before")
    lines += readouts.lines(seen["sensors"], now_ms)
    lines += [f"not read: {reason}" for reason in seen.get("unread", [])]
    for row in seen["external"]:
        lines.append(f"{row['model']}  external  port {row['port']}  {row['detail']}")
    for row in seen["handed_over"]:
        models = ", ".join(row["models"])
        lines.append(f"{row['called']}  handed over, {row['state']}  {row['engine']} port {row['port']}  {models}")
    lines += [f"alarm: {alarm}" for alarm in seen["alarms"]]
    return "\n".join(lines) + "\n"


def _past(seen: Mapping[str, Any]) -> list[str]:
    """What became of the host's belonging to a fleet."""
    left = ["  it has left its fleet"] if seen["left_ms"] is not None else []
    return [*left, *([f"  pinned {seen['repinned']}"] if seen.get("repinned") else [])]


def _shown(row: Mapping[str, Any], now_ms: int) -> list[str]:
    """One residency, and what keeps it from serving."""
    lines: list[str] = []
    where = f"pid {row['pid']} port {row['port']}" if row["pid"] else "no process"
    more = f"  restarted {counted(row['restarts'], 'time')}" if row["restarts"] else ""
    more += f"  as {row['keeper']} {row['kept_as'] or ''}".rstrip() if row["keeper"] not in (None, "child") else ""
    was = f" (recorded as {row['recorded']})" if row["state"] != row["recorded"] else ""
    lines.append(f"{row['replica']}  {row['state']}{was}  {where}  {row['in_flight']} in flight{more}")
    if row["detail"] or row["code"]:
        lines.append(f"  {': '.join(w for w in (row['code'], row['detail']) if w)}")
    if row["retry_at_ms"] is not None:
        count = f"{row['restarts_counted']} of {counted(row['restarts_allowed'], 'restart')} used"
        lines.append(f"  starts again in {render_ms(max(0, row['retry_at_ms'] - now_ms))}, {count}")
    for owed in row["owed"]:
        amount = render_bytes(owed["bytes"]) if owed["bytes"] is not None else "an unknown amount"
        lines.append(f"  {amount} on {owed['device']} has to come back before a start there")
    return lines


def _standing(seen: Mapping[str, Any]) -> str:
    """The host's state; of an agent that does not run, that it is the agent that does not."""
    return str(seen["state"]) if seen["running"] else "agent not running"
