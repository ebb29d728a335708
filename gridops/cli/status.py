"""`gridops status`: one screen of what is: intent, mode, plans that wait, models, hosts, alarms.

Everything shown is the controller's answer; this module lays it out and counts nothing twice. A controller that does
not answer leaves what lies in git (`status_stored`), said to be that, and exit code 69.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gridops.base import limits
from gridops.base.errors import Unreachable
from gridops.base.ids import ScopeName, short
from gridops.base.units import counted, parse_instant, render_clock, render_ms
from gridops.cli import exits, status_host, status_line, status_trust
from gridops.cli.client import Client, connect, root_of
from gridops.cli.host import Controller, said_of
from gridops.cli.output import Context, context_of, dump_json
from gridops.cli.tables import fitted, noted
from gridops.planner.render_layout import cells

Doc = dict[str, Any]
CLOCKS_APART_MS = limits.ISSUED_AHEAD_MS
QUIET_STATES = ("Ready", "Idle", "Retired")


def register(app: typer.Typer) -> None:
    app.command("status")(status)


def status(
    ctx: typer.Context,
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="Only this host, in detail.")] = None,
    exit_status: Annotated[bool, typer.Option("--exit-status", help="Exit 1 if anything needs attention.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until Ctrl-C.")] = False,
    controller: Controller = None,
) -> int:
    """Show what is, per scope and model; of one host what it holds, what it fetches and how far that is.

    \b
    Examples:
      gridops status
      gridops status forge
      gridops status -o wide
      gridops status --exit-status -o json > status.json

    When the controller does not answer, the newest state in git is shown with its age, and the exit code is 69.
    """
    context = context_of(ctx)
    context.check(("text", "wide", "json"))
    client = connect(context, controller)
    code = show(context, client, host)
    while watch:
        time.sleep(2)
        code = show(context, client, host)
    return code if exit_status or code != exits.FAILED else exits.OK


def show(context: Context, client: Client, host: str | None = None) -> int:
    """Ask once and print; 0, 1 if anything needs attention, 69 if nobody answered. Raises when nothing can be shown."""
    try:
        document: Doc = client.get("/v1/status")
    except Unreachable as silence:
        return _show_stored(context, silence)
    if host is not None:
        return _show_host(context, status_host.document(document, host))
    document["scopes"] = [s for s in document["scopes"] if context.wants(ScopeName(s["scope"]))]
    view = status_line.compared(root_of(context.directory), document["intent"])
    if view is not None:
        document["intent"]["view"] = view
    now_ms = parse_instant(document["time"])
    _compare_clocks(context, now_ms - time.time_ns() // 1_000_000)
    context.emit(
        {
            "text": lambda: "\n".join(lines(document, now_ms, _columns(context), wide=False)),
            "wide": lambda: "\n".join(lines(document, now_ms, _columns(context), wide=True)),
            "json": lambda: dump_json(document),
        }
    )
    return exits.FAILED if attention(document) else exits.OK


def _show_host(context: Context, document: Doc) -> int:
    shown = "\n".join(status_host.lines(document, _columns(context)))
    context.emit({"text": lambda: shown, "wide": lambda: shown, "json": lambda: dump_json(document)})
    return exits.FAILED if status_host.attention(document) else exits.OK


def _compare_clocks(context: Context, ahead_ms: int) -> None:
    """A person whose clock differs hears of it before a signed request is refused for it."""
    if abs(ahead_ms) > CLOCKS_APART_MS:
        where = "ahead of" if ahead_ms > 0 else "behind"
        words = f"note: the controller's time is {render_ms(abs(ahead_ms))} {where} this machine's clock"
        context.say(f"{words}; what you sign here may be refused for it")


def _show_stored(context: Context, silence: Unreachable) -> int:
    from gridops.cli import status_stored  # it brings the planner, and nobody who is answered needs that

    document = status_stored.stored(context, silence, time.time_ns() // 1_000_000)
    context.say(f"error: {silence.message}", *(f"  hint: {hint}" for hint in silence.hints), level=-1)
    shown = "\n".join(status_stored.lines(document, _columns(context)))
    context.emit({"text": lambda: shown, "wide": lambda: shown, "json": lambda: dump_json(document)})
    return silence.exit_code


def lines(document: Doc, now_ms: int, width: int | None, *, wide: bool) -> Iterator[str]:
    """The screen, line by line."""
    yield from fitted(_warnings(document), width)
    yield from fitted([_intent(document["intent"], now_ms)], width)
    levels = status_trust.words(document.get("trust"))
    yield from fitted([levels] if levels else [], width)
    for scope in document["scopes"]:
        yield ""
        yield from _scope(scope, now_ms, width, wide=wide)
    yield ""
    yield from _hosts(document, now_ms, width, wide=wide)
    needs = attention(document)
    if needs:
        yield ""
        yield from _needs(needs, width)


def _needs(needs: list[str], width: int | None) -> Iterator[str]:
    """One line, or one for each where that would be wider than the terminal."""
    line = f"Needs attention: {'; '.join(needs)}"
    if width is None or cells(line) <= width:
        yield line
        return
    yield "Needs attention:"
    yield from fitted((f"  {need}" for need in needs), width)


def attention(document: Doc) -> list[str]:
    """What a person should look at, one phrase each, most urgent first."""
    found = [str(a["text"]) for a in document.get("alarms", [])]
    found += status_trust.attention(document.get("trust"))
    if document["controller"].get("project_error"):
        found.append("plans are not written to git")
    found += status_line.attention(document["intent"].get("view"))
    refused = document["intent"].get("refused")
    if refused:
        found.append(f"commit {refused['commit'][:7]} is refused")
    for scope in document["scopes"]:
        for model in scope["models"]:
            if model["state"] not in (*QUIET_STATES, "Progressing"):
                found.append(f"{model['profile']} ({model['command']})")
        if scope.get("proposal"):
            found.append(f"plan {short(scope['proposal']['decisions_digest'])}")
    found += [f"{p['host']} waits to be admitted" for p in document.get("pending", [])]
    found += [f"{h['host']}: {alarm}" for h in document["hosts"] for alarm in h["alarms"]]
    found += [f"{h['host']}: {words}" for h in document["hosts"] for words in status_host.outdated(h)]
    found += [doubt for h in document["hosts"] for doubt in status_host.doubts(h)]
    found += [silent for h in document["hosts"] if (silent := status_host.silence(h))]
    return found


def _warnings(document: Doc) -> Iterator[str]:
    if not document["controller"]["trusted"]:
        yield "THE JOURNAL CANNOT BE TRUSTED: no command is sent. Run: gridops controller rebuild"
    if document["controller"].get("project_error"):
        yield f"plans are not written to git, it is tried again: {document['controller']['project_error']}"
    for alarm in document.get("alarms", []):
        host = f" ({alarm['host']})" if alarm.get("host") else ""
        yield f"alarm{host}: {alarm['text']}"


def _intent(intent: Doc, now_ms: int) -> str:
    if intent.get("commit") is None:
        head = f"no commit of {intent['branch']} has been accepted yet"
    else:
        head = f'synced {intent["commit"][:7]} "{intent["subject"]}", {_ago(intent["accepted"], now_ms)}'
    refused = intent.get("refused")
    if refused:
        first = "".join(f"\n  {line}" for line in refused["problems"][:3])
        more = refused["count"] - len(refused["problems"][:3])
        head += f'\ncommit {refused["commit"][:7]} "{refused["subject"]}" is REFUSED and changes nothing:{first}'
        head += f"\n  and {more} more (gridops validate)" if more > 0 else ""
    view = status_line.words(intent.get("view"))
    head += f"\n{view}" if view else ""
    if intent.get("error"):
        head += f"\nthe repository could not be read: {intent['error']}"
    return head


def _scope(scope: Doc, now_ms: int, width: int | None, *, wide: bool) -> Iterator[str]:
    yield from fitted(_acting(scope, now_ms), width)
    yield from _models(scope, width, wide=wide)
    for gone in scope["retirements"]:
        yield from fitted([f"  retired: {gone['profile']} (removed; stays visible until it is declared again)"], width)


def _acting(scope: Doc, now_ms: int) -> Iterator[str]:
    """Mode, plans and applies of a scope."""
    mode = scope["mode"]
    allow = f" ({', '.join(mode['allow'])})" if mode["allow"] else ""
    freeze = mode.get("freeze")
    # A freeze has a line of its own, so neither its reason nor its sentence is said again.
    told = freeze and mode.get("reason") == freeze["reason"]
    reason = f'   "{mode["reason"]}"' if mode.get("reason") and not told else ""
    yield f"{scope['scope']}   {mode['effective']}{allow}{reason}"
    for line in mode["because"]:
        if not (freeze and line == f"frozen by {freeze['by']}: {freeze['reason']}"):
            yield f"  {line}"
    if freeze:
        late = ", OVERDUE" if freeze["overdue"] else ""
        yield f"  FROZEN by {freeze['by']}: {freeze['reason']}{late}   gridops thaw"
    if scope.get("target"):
        target = scope["target"]
        since, digest = _clock(target["since"]), short(target["decisions_digest"])
        yield f"  plan {digest} is in force since {since}: {counted(target['replicas'], 'replica')}"
    yield from _proposal(scope, now_ms)
    yield from _applying(scope)
    for line in scope["held"]:
        yield f"  held: {line}"
    if scope["quiet"]:
        yield f"  quiet: {counted(scope['quiet'], 'plan')} gave nothing new and wrote nothing"


def _proposal(scope: Doc, now_ms: int) -> Iterator[str]:
    proposal = scope.get("proposal")
    if not proposal:
        return
    needs = "; ".join(f"{n['risk']} needs {n['need']} of {', '.join(n['people'])}" for n in proposal["needs"])
    digest = short(proposal["decisions_digest"])
    yield f"  plan {digest} waits, {_ago(proposal['since'], now_ms)}: {proposal['headline']}"
    yield f"    {needs}" if needs else "    needs nobody"
    confirm = "".join(f" --confirm {name}" for name in proposal.get("last_replicas", []))
    yield f"    gridops plans show {digest}     gridops apply {digest}{confirm}"


def _applying(scope: Doc) -> Iterator[str]:
    apply = scope.get("apply")
    if not apply or apply.get("outcome") == "done":
        return
    state = apply.get("outcome") or "under way"
    yield f"  apply {apply['id'].rpartition('-')[2]} by {apply['by']}: {state}"
    for step in apply["steps"]:
        if step["state"] != "done":
            why = f": {step['detail']}" if step.get("detail") else ""
            host = f" {step['host']}" if step.get("host") else ""
            yield f"    {step['state']:<8} {step['action']} {step['replica']}{host} {step['phase']}{why}"


def _models(scope: Doc, width: int | None, *, wide: bool) -> Iterator[str]:
    if not scope["models"]:
        yield "  no models"
        return
    head = ("MODEL", "WANT", "READY", "STATE", *(("HOSTS",) if wide else ()), "NOTE")
    rows: list[tuple[str, ...]] = []
    for model in scope["models"]:
        where = (" ".join(model["hosts"]) or "-",) if wide else ()
        note = "; ".join(part for part in (model["note"], model["command"]) if part)
        rows.append((model["profile"], str(model["want"]), str(model["ready"]), model["state"], *where, note))
    for line in noted(head, rows, _inside(width)):
        yield f"  {line}"


def _hosts(document: Doc, now_ms: int, width: int | None, *, wide: bool) -> Iterator[str]:
    hosts = document["hosts"]
    heard = sum(h["heard"] for h in hosts)
    draining = sum(h["draining"] for h in hosts)
    yield f"hosts {len(hosts)}: {heard} heard" + (f", {draining} draining" if draining else "")
    if not wide and len(hosts) > 12:
        told = ("alarms", "transfers", "outdated")
        hosts = [h for h in hosts if not h["heard"] or said_of(h) or any(h.get(what) for what in told)]
    rows = [
        (
            h["host"],
            h["state"],
            _ago(h.get("seen"), now_ms) if h.get("seen") else "never seen",
            _running(h) or "-",
            ", ".join((*said_of(h), *status_host.outdated(h), *status_host.fetching(h), *h["alarms"])),
        )
        for h in hosts
    ]
    for line in noted(("HOST", "STATE", "SEEN", "RUNS", "NOTE"), rows, _inside(width)):
        yield f"  {line}".rstrip()
    for entry in document.get("pending", []):
        yield f"  pending  {entry['host']}   {entry['fingerprint'][:23]}...   gridops host admit {entry['host']}"


def _running(host: Doc) -> str:
    return " ".join(
        f"{r.get('replica') or r['profile']}:{r['state']}"
        for r in host["residencies"]
        if r["state"] not in ("absent", "cached")
    )


def _ago(instant: str | None, now_ms: int) -> str:
    return "-" if instant is None else f"{render_ms(max(0, now_ms - parse_instant(instant)))} ago"


def _clock(instant: str) -> str:
    return render_clock(parse_instant(instant))


def _columns(context: Context) -> int | None:
    """The terminal's width; none when the answer is piped, so that no column is dropped for a script."""
    return context.width() if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def _inside(width: int | None) -> int | None:
    return None if width is None else max(width - 2, 40)
