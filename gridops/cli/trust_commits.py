"""`gridops trust commits` and `mirrors`: which commits count, whether git here is ready, where roots lie besides.

The level stands in the root document, so that it takes the root's people to switch it on or off, and whoever may only
push can do neither. What a signature has to be is decided in `gridops.trust.commit`. Nothing is committed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gridops.base import limits
from gridops.base.errors import Failed, GridopsError, Refusal
from gridops.base.ids import CommitId, PersonName
from gridops.cli.client import root_of
from gridops.cli.doctor import Finding
from gridops.cli.named import text_at
from gridops.cli.output import Usage
from gridops.cli.trust_change import begin, hand_on
from gridops.files.git import Checkout
from gridops.files.trusted import root_texts
from gridops.trust import amend
from gridops.trust.keys import parse_key
from gridops.trust.root import RoleName, RootChain

COMMITS = """\b
Examples:
  gridops trust commits signed
  gridops trust commits any
  gridops trust commits signed --from HEAD
  GRIDOPS_KEYS=/media/usb/keys gridops trust commits signed
"""
MIRRORS = """\b
Examples:
  gridops trust mirrors https://git.example.com/ops/raw/main/policies/trust/root/
  gridops trust mirrors http://files.internal/roots/ https://bucket.example.com/roots/
  gridops trust mirrors
"""
SIGN = ("git config gpg.format ssh", "git config user.signingkey FILE.pub", "git config commit.gpgsign true")
"""What makes git sign every commit; FILE.pub is a change key of the root."""


class Which(StrEnum):
    """Which commits may become the intent in force."""

    SIGNED = "signed"
    ANY = "any"


def register(trust: typer.Typer) -> None:
    trust.command(
        "commits", epilog=COMMITS, help="Demand that every commit is signed by a change key, or stop demanding it."
    )(demand)
    trust.command("mirrors", epilog=MIRRORS, help="Say where hosts find root documents besides the controller.")(
        mirrors
    )


def demand(
    ctx: typer.Context,
    which: Annotated[Which, typer.Argument(metavar="signed|any", help="Which commits may count from now on.")],
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="COMMIT", help="The branch was rewritten on purpose: its line begins anew at this commit."
        ),
    ] = None,
) -> None:
    context, chain, now_ms = begin(ctx)
    if start is not None:
        if which is not Which.SIGNED:
            raise Usage("trust commits any: --from says where a line of signed commits begins")
        commit = _rewritten(Checkout(root_of(context.directory)), chain, start)
        hand_on(context, chain, amend.beginning_anew(chain, commit, now_ms), f"Begin the line anew at {commit[:12]}")
        context.say("sign that commit with a change key, put nothing else into it, and push the branch by force")
        return
    on = which is Which.SIGNED
    root = amend.signing_commits(chain, on, now_ms)
    hand_on(context, chain, root, "Demand signed commits" if on else "Demand no signature of commits")
    if on:
        context.say("the commit after that one is the first that must be signed; make git ready for it:")
        context.say(*(f"  {line}" for line in SIGN))


def _rewritten(checkout: Checkout, chain: RootChain, start: str) -> CommitId:
    """The commit that a line may begin with anew. Raises Failed where a controller would not take it."""
    commit = checkout.resolve(start)
    if commit is None:
        raise Failed(f"{start}: no commit here; nothing was changed")
    if commit != checkout.head() and commit not in checkout.first_parents(checkout.head(), limits.COMMITS_PER_INTAKE):
        raise Failed(f"{start}: not on the line of this branch's first parents; nothing was changed")
    there = root_texts(checkout.tree(commit))
    if not there or there[-1] != chain.text:
        why = f"its newest root document is not root {chain.root.version}, the newest here"
        raise Failed(
            f"commit {commit[:12]}: {why}: rewritten history keeps all of them; nothing was changed",
            hints=("rewrite it again without touching policies/trust/root",),
        )
    return commit


def mirrors(
    ctx: typer.Context,
    url: Annotated[
        list[str] | None, typer.Argument(metavar="URL...", help="Below it lie 1.json, 2.json, ...; none: no mirror.")
    ] = None,
) -> None:
    """Any place that serves policies/trust/root as files; each URL ends with a slash."""
    context, chain, now_ms = begin(ctx)
    why = "Name mirrors of the root" if url else "Name no mirror of the root"
    hand_on(context, chain, amend.mirrored(chain, url or (), now_ms), why)


def commits(chain: RootChain, directory: Path) -> Iterator[Finding]:
    """What `trust doctor` finds about signed commits."""
    if not chain.root.signed_commits:
        yield Finding("ok", "commits need no signature: who may push to the watched branch speaks for intent")
        return
    role = chain.root.role(RoleName.CHANGE)
    people = sorted({entry.holder for entry in role.keys}) if role is not None else []
    yield Finding("ok", f"every commit must be signed by one of {', '.join(people)}")
    if len(people) == 1:
        hint = "gridops trust add NAME --key FILE.pub --role change"
        yield Finding("warn", f"{people[0]} alone may change intent: if the key is lost, the root has to help", hint)
    try:
        checkout = Checkout(directory)
        yield from _ready(chain, checkout)
    except GridopsError as error:
        yield Finding("warn", f"git here could not be asked: {error.message}")
        return
    from gridops.controller.lineage import signer_of  # it brings the controller's rows, and only this asks

    try:
        entry = signer_of(checkout, checkout.head())
        yield Finding("ok", f"the newest commit here is signed by {entry.holder}")
    except Refusal as refusal:
        what = f"the newest commit here would not be believed: {refusal.message}"
        yield Finding("warn", what, f"gridops rule {refusal.code}")
    except GridopsError as error:
        yield Finding("warn", f"the newest commit here could not be read: {error.message}")


def _ready(chain: RootChain, checkout: Checkout) -> Iterator[Finding]:
    """Whether a commit made here would be signed, and by a key that counts."""
    if checkout.setting("gpg.format") != "ssh" or checkout.setting("commit.gpgsign") != "true":
        yield Finding("warn", "git does not sign every commit that is made here", "; ".join(SIGN))
        return
    holder = _holder(chain, checkout.setting("user.signingkey") or "")
    if holder is None:
        hint = "gridops trust add NAME --key FILE.pub --role change"
        yield Finding("warn", "git signs commits here with a key that is no change key of the root", hint)
    else:
        yield Finding("ok", f"git signs commits here with the change key of {holder}")


def _holder(chain: RootChain, setting: str) -> PersonName | None:
    """Whose change key git is told to sign with: a public key itself, its file, or the private one's beside it."""
    text = setting.removeprefix("key::")
    if not text.startswith("ssh-"):
        path = Path(text).expanduser()
        public = path if path.suffix == ".pub" else path.with_name(path.name + ".pub")
        try:
            text = text_at(public)
        except (OSError, UnicodeDecodeError):
            return None
    try:
        key = parse_key(text)
    except ValueError:
        return None
    return chain.holder(key) if key in chain.keys(RoleName.CHANGE) else None
