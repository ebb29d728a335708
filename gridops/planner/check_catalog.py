"""The checker's rule about the catalog: nothing starts by this plan that people did not sign.

Part of `check`: reads the entries with words of its own, and nothing of the rooms that plan or of those that judge for
hosts. What runs already and is left alone may go on, whatever a newer catalog says. Yields notes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gridops.base import canon
from gridops.model.catalog import Entry, Slot
from gridops.model.plan import Assignment, DecisionKind, Launch
from gridops.planner.check_view import View

STARTS = (DecisionKind.PLACE, DecisionKind.MOVE, DecisionKind.CHANGE)
ABILITY = "catalog"


def catalogued(view: View) -> Iterator[str]:
    """What starts anew is in an entry as a whole, on a host whose agent holds it against one."""
    catalog = view.desired.catalog
    if catalog is None:
        return
    for a in _starting(view):
        launch, report = view.launches.get(a.launch), view.reports.get(a.seat.host)
        files = _files(launch) if launch is not None else None
        if launch is not None and not any(_admits(entry, launch, a, files) for entry in catalog.entries):
            yield f"{a.replica} would be started on {a.seat.host}, and no entry of catalog {catalog.version} admits it"
        if report is not None and ABILITY not in (report.abilities or ()):
            yield f"{a.replica} would be started on {a.seat.host}, whose agent knows no catalog"


def _starting(view: View) -> Iterator[Assignment]:
    """New seats, and those of which a decision says that something is started there."""
    found = {a.replica: a for a in view.new}
    for d in view.plan.decisions:
        a = view.placed.get(d.replica)
        begins = d.kind is DecisionKind.PLACE or d.source != d.target or d.launch != view.old_launch(d)
        if a is not None and d.kind in STARTS and begins:
            found[a.replica] = a
    yield from (found[name] for name in sorted(found))


def _files(launch: Launch) -> str:
    """What an entry calls these files, written down a second time."""
    files = sorted([f.path, f.sha256] for f in launch.artifact.files)
    return canon.digest({"format": launch.artifact.format, "files": files})


def _admits(entry: Entry, launch: Launch, a: Assignment, files: str | None) -> bool:
    names = [arg.name for arg in launch.args]
    slots = {slot.name: slot for slot in entry.args}
    secret = launch.artifact.credential
    return (
        entry.engine == launch.engine
        and launch.backend in entry.backends
        and any(
            one.content == files
            and (secret is None or (one.credential, one.source) == (secret, launch.artifact.source))
            for one in entry.artifacts
        )
        and len(names) == len(set(names))
        and all(arg.name in slots and _fits(slots[arg.name], arg.value) for arg in launch.args)
        and all(slot.name in names for slot in entry.args if slot.needed)
        and launch.context <= entry.context
        and launch.lanes <= entry.lanes
        and len(a.seat.devices) <= entry.devices
        and a.device_bytes <= entry.device_bytes
        and a.host_bytes <= entry.host_bytes
    )


def _fits(slot: Slot, value: str) -> bool:
    if value in slot.values:
        return True
    try:
        number = int(value)
    except ValueError:
        return False
    return slot.low is not None and slot.high is not None and slot.low <= number <= slot.high and value == f"{number}"
