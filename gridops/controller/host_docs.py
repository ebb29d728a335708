"""Hosts and standing alarms as documents: how each host stands in one word, and what a person has to look at.

Called by `views`. Decides nothing: whether a host is heard, and what is held, is asked of what the controller goes by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridops.base import limits
from gridops.base.ids import HostId
from gridops.base.units import counted, render_instant, render_ms
from gridops.controller import documents as d
from gridops.controller.core.learned import named
from gridops.controller.core.observe import fresh
from gridops.controller.core.state import HostBook
from gridops.model.snapshot import HostReport
from gridops.protocol import outbox as ob

if TYPE_CHECKING:
    from gridops.controller.views import View


def _word(report: HostReport | None, is_fresh: bool) -> str:
    """How a host stands, in one word: its own while it is heard, else what is known of its silence."""
    if report is None:
        return "unheard"
    if is_fresh:
        return report.state.value
    if report.left:
        return "left"
    return "asleep" if report.goodbye else "silent"


def host_doc(view: View, host: HostId) -> d.HostDoc:
    """One host as it is known now."""
    roster, heard, book = view.roster, view.soft.hosts.get(host), view.state.hosts.get(host)
    report = heard.report if heard is not None else None
    is_fresh = fresh(view.soft, roster, host, view.now_ms)
    return d.HostDoc(
        host=host,
        scope=roster.hosts[host].scope,
        admitted=roster.admitted(host) is not None,
        heard=is_fresh,
        state=_word(report, is_fresh),
        seen=render_instant(report.observed_ms) if report is not None else None,
        reasons=report.reasons if report is not None else (),
        generation=report.generation if report is not None else 0,
        agent_version=report.agent_version if report is not None else None,
        endpoint=report.endpoint if report is not None else None,
        front_cert=heard.front_cert if heard is not None else None,
        draining=host in roster.draining,
        written_off=book is not None and book.written_off_ms is not None,
        open_commands=len(ob.open_entries(book.outbox)) if book is not None else 0,
        held=(book.outbox.held if book is not None else None) or view.state.held(host),
        alarms=heard.alarms if heard is not None else (),
        residencies=report.residencies if report is not None else (),
        # Progress of a host that is silent is no progress.
        transfers=(heard.heartbeat.inventory.transfers or ()) if heard is not None and is_fresh else (),
        disk_free_bytes=report.disk_free_bytes if report is not None else None,
        uncertain=_uncertain(book) or None if book is not None else None,
        outdated=view.soft.chain.outdated(report.agent_version) if report is not None else None,
    )


def _uncertain(book: HostBook) -> tuple[d.UncertainDoc, ...]:
    return tuple(
        d.UncertainDoc(command=body, what=named(u.action), since=render_instant(u.at_ms), code=u.code, detail=u.detail)
        for body, u in sorted(book.uncertain.items())
    )


def alarm_docs(view: View) -> tuple[d.AlarmDoc, ...]:
    """What stands, the journal's own first: alarms, faults of this process, and a clock that was set back."""
    found = [
        d.AlarmDoc(key=key, text=a.text, since=render_instant(a.at_ms), host=a.host)
        for key, a in sorted(view.state.alarms.items())
    ]
    found += [
        d.AlarmDoc(key=f"fault:{work}", text=fault.text, since=render_instant(fault.since_ms))
        for work, fault in view.faults
    ]
    if view.behind_ms:
        found.append(d.AlarmDoc(key="clock", text=_behind(view.behind_ms), since=render_instant(view.now_ms)))
    ahead = _ahead(view)
    if ahead is not None:
        found.append(d.AlarmDoc(key="hosts_clock", text=ahead, since=render_instant(view.now_ms)))
    if view.state.distrust is not None:
        since = render_instant(view.soft.started_ms)
        found.insert(0, d.AlarmDoc(key="journal", text=view.state.distrust, since=since))
    return tuple(found)


def _ahead(view: View) -> str | None:
    """Hosts that were once told a later time than it is here: a journal from before the clock went on was put back.

    They believe no directive until that time, and only they know it: what they say of it moves nothing here, since one
    host could push the time of a whole fleet ahead.
    """
    told = {h: heard.heartbeat.heard_ms for h, heard in view.soft.hosts.items() if view.roster.admitted(h)}
    late = sorted(h for h, told_ms in told.items() if told_ms - view.now_ms > limits.ISSUED_AHEAD_MS)
    if not late:
        return None
    most, names = max(told[h] for h in late) - view.now_ms, ", ".join(late[:4]) + (", ..." if len(late) > 4 else "")
    return (
        f"{counted(len(late), 'host')} ({names}) once heard a controller's time that is {render_ms(most)} ahead of "
        "this one's: was the journal put back, or the clock set back? What runs goes on, and they take no command "
        "until then. Wait, or begin time anew with a new epoch: gridops trust rotate controller --stolen"
    )


def _behind(behind_ms: int) -> str:
    return (
        f"the controller's time is {render_ms(behind_ms)} ahead of its machine's clock, which was set back, and never "
        "goes back itself: requests that people sign by a right clock may be refused as expired. Stop the controller "
        f"for {render_ms(behind_ms)} (engines go on), then start it; to freeze meanwhile, commit `mode: observe`"
    )
