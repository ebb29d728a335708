"""`gridops trust`: make the keys and the first root document of a fleet, and say in words what each key can do.

Makes keys with the system's randomness, writes private ones to the keyring and the public root into the checkout.
What a root may say is decided in `gridops.trust`.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.errors import Failed
from gridops.base.ids import PersonName, is_name, short
from gridops.cli import trust_catalog, trust_change, trust_check, trust_commits
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.person import ROOTS, chain_of, key_folder, lies_at, load_signer
from gridops.cli.tables import fitted
from gridops.cli.trust_tls import new_identity
from gridops.cli.trust_words import document, words
from gridops.controller.statedir import GATEWAY, SEED, TLS_CERT, TLS_KEY, default_state
from gridops.disk.atomic import write_atomic
from gridops.disk.keyring import create_secret
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.model.intent import Desired
from gridops.trust.found import Founders, first_root
from gridops.trust.keys import MachineSigner, PersonSigner, Signer
from gridops.trust.root import RootChain, genesis, seal_root
from gridops.trust.secret import new_api_key

INIT_EXAMPLES = """\b
Examples:
  gridops trust init --person mira
  gridops trust init --person mira --state /var/lib/gridops/office
  GRIDOPS_KEYS=/media/usb/keys gridops trust init --person mira
"""
SHOW_EXAMPLES = """\b
Examples:
  gridops trust show
  gridops trust show -o json
  gridops -C /srv/fleet trust show
"""


@dataclass(frozen=True, slots=True)
class Ring:
    """Private keys of a new fleet, not yet on disk where `fresh` names them."""

    person: Signer
    root: Signer
    controller_seed: bytes
    fresh: tuple[tuple[Path, bytes], ...]


def register(app: typer.Typer) -> None:
    trust = typer.Typer(help="Make and show keys and root documents.", no_args_is_help=True)
    trust.command(
        "init", epilog=INIT_EXAMPLES, help="Make the keys of a one-person fleet and its first root document."
    )(init)
    trust.command("show", epilog=SHOW_EXAMPLES, help="Say in words who may do what in this fleet.")(show)
    trust_change.register(trust)
    trust_check.register(trust)
    trust_commits.register(trust)
    trust_catalog.register(trust)
    app.add_typer(trust, name="trust")


def init(
    ctx: typer.Context,
    person: Annotated[str, typer.Option("--person", metavar="NAME", help="Who holds the first keys.")],
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", envvar="GRIDOPS_STATE", help="The controller's state folder."),
    ] = None,
) -> None:
    context = context_of(ctx)
    context.check(("text", "json"))
    if not is_name(person):
        raise Usage(f"--person {person}: a name has lower-case letters, digits, `-`, `.` and `_`")
    if (context.directory / ROOTS / "1.json").exists():
        raise Failed(
            f"{context.directory / ROOTS / '1.json'}: this fleet has a root already; nothing was changed",
            hints=("who may do what: gridops trust show",),
        )
    desired = load(WorkingTree(context.directory)).desired
    ring = _ring(PersonName(person), context)
    now_ms = int(time.time() * 1000)
    tls = new_identity(desired.fleet, now_ms)
    founders = Founders(
        person=PersonName(person),
        root_key=ring.root.public,
        person_key=ring.person.public,
        controller_key=MachineSigner.from_seed(ring.controller_seed).public,
        controller_tls=tls.cert_pem,
    )
    text = seal_root(first_root(founders, now_ms), ring.root)
    chain = genesis(text)
    folder = state if state is not None else default_state(chain.fleet)
    _refuse_used(folder)
    for path, content in ring.fresh:
        create_secret(path, content)
    create_secret(folder / SEED, ring.controller_seed)
    create_secret(folder / TLS_KEY, tls.key_pem)
    create_secret(folder / GATEWAY, new_api_key(secrets.token_bytes(32)).reveal())
    write_atomic(folder / TLS_CERT, tls.cert_pem.encode())
    written = context.directory / ROOTS / "1.json"
    written.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(written, text.encode())
    context.emit(
        {"text": lambda: _shown(context, _made(chain, ring, folder)), "json": lambda: dump_json(document(chain))}
    )
    _warn_roster(context, desired, PersonName(person))


def show(ctx: typer.Context) -> None:
    context = context_of(ctx)
    chain = chain_of(context.directory)
    lines = [*words(chain, int(time.time() * 1000)), *trust_catalog.shown_with(chain, context.directory)]
    context.emit({"text": lambda: _shown(context, lines), "json": lambda: dump_json(document(chain))})


def _ring(person: PersonName, context: Context) -> Ring:
    """The person's keys, taken over where they exist already (one person may run several fleets)."""
    fresh: list[tuple[Path, bytes]] = []

    def key(path: Path) -> Signer:
        if lies_at(path):
            return load_signer(path, context)
        made = PersonSigner.from_seed(secrets.token_bytes(32))
        fresh.append((path, made.to_openssh()))
        return made

    own = key_folder() / person
    return Ring(key(own), key(own.with_name(f"{person}.root")), secrets.token_bytes(32), tuple(fresh))


FURTHER = (
    "Further, each when you want it",
    "  gridops trust add NAME --key FILE.pub    a second person: a key that is lost stops nothing",
    "  gridops trust demand approver 2          two people for every plan: one stolen key approves nothing",
    "  gridops trust catalog --write            people sign what may run: a stolen controller runs nothing new",
    "  gridops trust commits signed             every commit is signed: a stolen account at the forge changes nothing",
)
"""What each step beyond a root of one person buys."""


def _refuse_used(folder: Path) -> None:
    for name in (SEED, TLS_KEY, TLS_CERT, GATEWAY):
        if (folder / name).exists():
            raise Failed(
                f"{folder / name}: this folder holds the keys of another fleet; nothing was changed",
                hints=("choose an empty folder: --state DIR",),
            )


def _made(chain: RootChain, ring: Ring, folder: Path) -> list[str]:
    lines = [f"Fleet {short(chain.fleet, 16)} has its root of trust.", ""]
    lines += [f"  {path}  (private, 0600)" for path, _ in ring.fresh]
    lines += [
        f"  {folder}/keys/  (the controller's keys, private)",
        f"  {ROOTS}/1.json  (public: commit it)",
        "",
        *words(chain),
        "",
        "Next",
        f"  git add {ROOTS} && git commit -m 'Found the fleet'",
        "  gridops watch                     start the reconciler",
        "  gridops host invite NAME          a join token for the first host",
        "",
        f"Move {ring.fresh[-1][0].name} off this machine once you have a second place for it."
        if ring.fresh
        else "Your existing keys were taken over.",
        "",
        *FURTHER,
    ]
    return lines


def _shown(context: Context, lines: list[str]) -> str:
    return "\n".join(fitted(lines, context.columns()))


def _warn_roster(context: Context, desired: Desired, person: PersonName) -> None:
    people = {p for role in desired.approvals.roles for p in role.people}
    if people and person not in people:
        named = ", ".join(sorted(people))
        note = f"note: policies/approvals.yaml names {named}, and not {person}: nobody here can approve"
        context.say(*fitted([note], context.talk_columns()))
