"""`gridops advice`: what the newest plans advise for disks, and a person's word that lets one of it be done.

Where the mode allows the class nothing has to be said; elsewhere a signed request names the very step that was shown.
Decides nothing: the controller says whether it is still advised and whether this person may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from gridops.base.errors import Failed
from gridops.base.ids import Digest, ScopeName
from gridops.base.units import render_bytes
from gridops.cli.client import connect
from gridops.cli.host import As, Controller
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.requests import desk
from gridops.cli.tables import fitted

Doc = dict[str, Any]
VERBS = {"prefetch": "fetch", "evict": "delete"}


def register(app: typer.Typer) -> None:
    app.command("advice")(advice)


def advice(
    ctx: typer.Context,
    profile: Annotated[str | None, typer.Argument(metavar="PROFILE", help="Whose files.")] = None,
    host: Annotated[str | None, typer.Argument(metavar="HOST", help="On which host.")] = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="DIGEST", help="First digits of the step, if several are advised.")
    ] = None,
    who: As = None,
    controller: Controller = None,
) -> None:
    """List what the newest plans advise for disks, or let the advised step of PROFILE on HOST be done.

    A fetch ahead of demand and its way back stand in no plan's decisions. In automatic mode they are done where
    scale_up and scale_down are allowed; elsewhere a person says so, for exactly the files that were advised.

    \b
    Examples:
      gridops advice
      gridops advice chat forge
      gridops advice chat forge --as mira -o json
    """
    context = context_of(ctx)
    context.check(("text", "json"))
    if (profile is None) != (host is None) or (step is not None and host is None):
        raise Usage("name both PROFILE and HOST, or neither")
    found = _advised(context, controller)
    if profile is None or host is None:
        shown = {"schema": "gridops.advice/1", "errands": found}
        context.emit({"text": lambda: "\n".join(lines(found, None)), "json": lambda: dump_json(shown)})
        return
    one = choose(found, (profile, host), step)
    if one["by_itself"]:
        context.say(f"the mode of {one['scope']} does this by itself; your word is recorded all the same")
    answer = desk(context, who, controller).ask("errand", scope=ScopeName(one["scope"]), errand=Digest(one["errand"]))
    context.emit(
        {
            "text": lambda: said(one, answer),
            "json": lambda: dump_json({"schema": "gridops.advice-approved/1", **answer}),
        }
    )


def _advised(context: Context, controller: str | None) -> list[Doc]:
    document = connect(context, controller).get("/v1/status")
    scopes = [scope for scope in document["scopes"] if context.wants(ScopeName(scope["scope"]))]
    return [{"scope": scope["scope"], **errand} for scope in scopes for errand in scope.get("errands", [])]


def choose(found: list[Doc], meant: tuple[str, str], step: str | None = None) -> Doc:
    """The one step that is meant, by profile and host, and by its digits where that is not enough. Raises Failed."""
    there = [one for one in found if (one["profile"], one["host"]) == meant]
    matching = [one for one in there if step is None or short_of(one).startswith(step.removeprefix("sha256:"))]
    if not matching:
        which = "nothing is advised" if step is None else f"no step {step} is advised"
        raise Failed(f"{which} for {meant[0]} on {meant[1]} now", hints=("what is: gridops advice",))
    if len(matching) > 1:
        names = [
            f"{one['kind']} of {render_bytes(one['size_bytes'])} in {one['scope']}: --step {short_of(one)[:12]}"
            for one in matching
        ]
        raise Failed("more than one step is advised there: name one", hints=names)
    return matching[0]


def short_of(one: Doc) -> str:
    """The digits of a step's name."""
    return str(one["errand"]).removeprefix("sha256:")


def lines(found: list[Doc], width: int | None) -> Iterator[str]:
    """One step a line, and the command that lets it be done."""
    if not found:
        yield "nothing is advised for disks now"
    for one in found:
        what = f"{VERBS[one['kind']]} {one['profile']} on {one['host']}: {render_bytes(one['size_bytes'])}"
        yield from fitted([f"{what}: {one['detail']}" if one["detail"] else what], width)
        yes = ", ".join(one.get("approved_by", []))
        if one["by_itself"]:
            yield "  the mode does it by itself"
        elif yes and len(one["approved_by"]) >= one["need"]:
            yield f"  let be done by {yes}"
        else:
            have, people = f", {yes} so far" if yes else "", ", ".join(one.get("people", []))
            yield f"  needs {one['need']} of {people}{have}   gridops advice {one['profile']} {one['host']}"


def said(one: Doc, answer: Doc) -> str:
    """What came of a person's word."""
    missing = answer["need"] - len(answer["approved_by"])
    if missing > 0:
        return f"{answer['what']}: recorded; {missing} more of {', '.join(one['people'])} must say so"
    return f"{answer['what']}: it is done as soon as the host answers. Look: gridops status {one['host']}"
