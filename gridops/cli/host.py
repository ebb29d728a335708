"""`gridops host`: invite a machine, admit it by a file to commit, list hosts, write off one that will not come back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from gridops.base.codes.control import GO422
from gridops.base.codes.protocol import WRONG_HOST_KEY
from gridops.base.errors import Failed, Refusal
from gridops.base.ids import HostId, PersonName, is_name
from gridops.base.units import parse_ms, render_bytes
from gridops.cli.client import connect, root_of
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.person import chain_of, signer_as
from gridops.cli.requests import desk
from gridops.cli.tables import fitted, noted
from gridops.files.catalogs import without
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.files.write import write_host_key
from gridops.model.fleet import HostKey

As = Annotated[str | None, typer.Option("--as", metavar="PERSON", help="Sign as this person.")]
Controller = Annotated[str | None, typer.Option("--controller", metavar="URL", help="Ask this controller.")]


def register(app: typer.Typer) -> None:
    from gridops.cli.reject import reject_host  # it names its options as this module does

    host = typer.Typer(help="Invite, admit, reject, list and write off hosts.", no_args_is_help=True)
    host.command("invite")(invite)
    host.command("admit")(admit)
    host.command("reject")(reject_host)
    host.command("list")(list_hosts)
    host.command("write-off")(write_off)
    app.add_typer(host, name="host")


def invite(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="HOST", help="The host, as fleet.d names it.")],
    ttl: Annotated[str, typer.Option("--ttl", metavar="DUR", help="How long the token is good.")] = "1h",
    who: As = None,
    controller: Controller = None,
) -> None:
    """Make a one-use token by which a machine may ask to become a host.

    The token proves who was invited and pins the fleet; it admits nobody. A commit does: see `gridops host admit`.

    \b
    Examples:
      gridops host invite forge
      gridops host invite ana-mac --ttl 24h
      gridops host invite forge -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    answer = desk(context, who, controller).ask("invite", host=_name(name), ttl_ms=_duration("--ttl", ttl))
    token, url = str(answer["token"]), connect(context, controller).url
    context.say(
        f"good until {answer['expires']}, for one join as `{name}`. On that machine:",
        f"  gridops-agent join TOKEN --controller {url}",
        f"then here: gridops host admit {name}",
    )
    context.emit({"text": lambda: token, "json": lambda: dump_json({"schema": "gridops.invite/1", **answer})})


def admit(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="HOST", help="The pending host.")],
    fingerprint: Annotated[
        str | None, typer.Option("--fingerprint", metavar="TEXT", help="What the machine itself printed; compared.")
    ] = None,
    who: As = None,
    controller: Controller = None,
) -> None:
    """Write the key of a pending host to fleet.d/keys/HOST.yaml. Committing that file admits the host.

    Compare the fingerprint with what the machine printed, by another way than this network.

    \b
    Examples:
      gridops host admit forge
      gridops host admit forge --fingerprint sha256:4ab19c
      gridops host admit forge && git add fleet.d/keys && git commit -m "Admit forge"
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    waiting = connect(context, controller).get("/v1/pending")["pending"]
    found = next((p for p in waiting if p["host"] == name), None)
    if found is None:
        names = ", ".join(p["host"] for p in waiting) or "nobody"
        raise Failed(f"{name} is not pending; waiting: {names}", hints=(f"invite it: gridops host invite {name}",))
    if fingerprint is not None and not _same(fingerprint, found["fingerprint"]):
        raise Refusal(
            WRONG_HOST_KEY.code,
            f"the pending key of {name} is not the one you expect. Nothing was written.",
            subject=name,
            evidence=(f"expected {fingerprint}", f"pending  {found['fingerprint']}"),
            hints=("somebody else may have used the token: gridops host invite again",),
        )
    directory = root_of(context.directory)
    person, _ = signer_as(chain_of(directory), who, context)
    key = HostKey(
        host=HostId(name),
        key=found["host_key"],
        previous=_signed_over(directory, name, found.get("former")),
        admitted_by=PersonName(person),
        admitted_at_ms=int(time.time()) * 1000,
    )
    path = write_host_key(directory, key)
    shown = path.relative_to(directory)
    context.emit(
        {
            "text": lambda: f"Wrote {shown}   {found['fingerprint'][:23]}...",
            "json": lambda: dump_json({"schema": "gridops.admit/1", "file": str(shown), **found}),
        }
    )
    told = (*_facts(found), "compare the fingerprint with the one that the machine printed, then commit the file:")
    context.say(*fitted(told, context.talk_columns()), f"  git add {shown} && git commit -m 'Admit {name}'")


def _signed_over(directory: Path, name: str, former: str | None) -> tuple[str, ...]:
    """The keys that the host has signed over from, the newest last. Raises Failed where the checkout says otherwise."""
    if former is None:
        return ()
    known = next((k for k in load(without(WorkingTree(directory))).desired.keys if k.host == name), None)
    if known is None or known.expunged or known.key != former:
        raise Failed(
            f"{name} does not sign over from the key in fleet.d/keys/{name}.yaml here. Nothing was written.",
            hints=("git pull, and look at that file again",),
        )
    return (*known.previous, former)


def list_hosts(ctx: typer.Context, controller: Controller = None) -> None:
    """Hosts of the fleet and hosts that wait to be admitted.

    \b
    Examples:
      gridops host list
      gridops host list -o json
      gridops -C /srv/fleet host list
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    status = connect(context, controller).get("/v1/status")
    context.emit(
        {
            "text": lambda: "\n".join(_listing(status, context)),
            "json": lambda: dump_json(
                {"schema": "gridops.hosts/1", "hosts": status["hosts"], "pending": status.get("pending", [])}
            ),
        }
    )


def write_off(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="HOST", help="A host that is silent and will not come back.")],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; recorded.")],
    confirm: Annotated[str | None, typer.Option("--confirm", metavar="HOST", help="Type the host's name.")] = None,
    who: As = None,
    controller: Controller = None,
) -> None:
    """Release what a silent host holds, so that its replicas may be placed elsewhere.

    If the machine still runs after all, its models then run twice. A host that answers is drained instead.

    \b
    Examples:
      gridops host write-off forge --reason "burnt down"
      gridops host write-off forge --reason "sold" --confirm forge
      gridops host write-off forge --reason "sold" --confirm forge --as mira
    """
    context = context_of(ctx)
    typed = confirm if confirm is not None else context.ask(f"Type {name} to write it off", f"--confirm {name}")
    if typed != name:
        raise Refusal(GO422.code, f"`{typed}` is not `{name}`. Nothing was changed.", subject=name)
    desk(context, who, controller).ask("write_off", host=_name(name), reason=reason)
    context.emit(
        {"text": lambda: f"{name} is written off; what it held is free.", "json": lambda: dump_json({"host": name})}
    )


def _listing(status: Any, context: Context) -> list[str]:
    rows = [
        (
            h["host"],
            h["scope"],
            h["state"],
            "yes" if h["admitted"] else "no",
            str(len([r for r in h["residencies"] if r["state"] not in ("absent", "cached")])),
            ", ".join((*said_of(h), *([h["outdated"]] if h.get("outdated") else []))),
        )
        for h in status["hosts"]
    ]
    lines = noted(("HOST", "SCOPE", "STATE", "ADMITTED", "MODELS", "NOTE"), rows, context.columns())
    for entry in status.get("pending", []):
        lines.append(f"pending  {entry['host']}  {entry['fingerprint'][:23]}...  gridops host admit {entry['host']}")
    return lines


def said_of(host: Any) -> tuple[str, ...]:
    """What people decided about a host, then what it says itself."""
    decided = (("written off", host.get("written_off")), ("draining", host["draining"]))
    return (*(word for word, is_so in decided if is_so), *host["reasons"])


def _facts(found: Any) -> list[str]:
    facts = found["facts"]
    devices = ", ".join(f"{d['id']} {render_bytes(d['total_bytes'])}" for d in facts["devices"])
    over = [f"its present key signed over to this one: {found['former']}"] if found.get("former") else []
    return [f"{found['host']}: {facts['platform']}, {devices}", f"fingerprint {found['fingerprint']}", *over]


def _same(typed: str, found: str) -> bool:
    """A person may type the first digits, but not so few that somebody else's key would match."""
    text = typed.strip().removeprefix("sha256:").removesuffix("...")
    return len(text) >= 6 and found.removeprefix("sha256:").startswith(text)


def _name(text: str) -> HostId:
    if not is_name(text):
        raise Usage(f"`{text}` is not a host name: lower-case letters, digits, `-`, `.` and `_`")
    return HostId(text)


def _duration(flag: str, text: str) -> int:
    try:
        return parse_ms(text)
    except ValueError as error:
        raise Usage(f"{flag} {text}: {error}") from error
