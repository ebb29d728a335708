"""`gridops trust add`, `revoke`, `rotate`, `demand`, `agents`, `renew`, `sign`: the next root, until it counts.

Each command makes root N+1 (or takes the one that waits), signs it with the root keys at hand and writes it where it
belongs: `policies/trust/root/` once enough people have signed, `policies/trust/draft.json` until then. What a root may
say is decided in `gridops.trust.amend`, whether it counts in `gridops.trust.root`. Nothing is committed here.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Annotated

import typer

from gridops import __version__
from gridops.base.errors import Failed
from gridops.base.ids import PersonName, is_name
from gridops.base.versions import precedes
from gridops.cli.client import fleet_settings, root_of
from gridops.cli.named import kind_at, naming, text_at
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.person import ROOTS, chain_of, key_folder, keys_at, load_signer
from gridops.cli.tables import fitted
from gridops.cli.trust_tls import next_certificate
from gridops.cli.trust_words import document, words
from gridops.controller.statedir import NEXT_SEED, SEED, TLS_CERT, StateDir, default_state
from gridops.disk.atomic import write_atomic
from gridops.disk.keyring import create_secret
from gridops.files.trusted import CATALOG
from gridops.trust import amend
from gridops.trust.draft import Draft, read_draft
from gridops.trust.envelope import countersign
from gridops.trust.found import renewed_root
from gridops.trust.keys import PublicKey, Signer, parse_key
from gridops.trust.release import KnownCatalog, again
from gridops.trust.root import RoleName, Root, RootChain, seal_root

DRAFT = Path("policies/trust/draft.json")
CATALOG_DRAFT = Path("policies/trust/catalog.draft.json")
CONTROLLER, TLS = "controller", "tls"

Named = Annotated[str, typer.Argument(metavar="NAME", help="A person, as the root calls them.")]
KeyFile = Annotated[Path, typer.Option("--key", metavar="FILE", help="Their public key, a line as ssh-keygen writes.")]
Roles = Annotated[
    list[str] | None, typer.Option("--role", metavar="ROLE", help="root, change, release or approver; may be repeated.")
]
Paths = Annotated[
    list[str] | None,
    typer.Option("--path", metavar="PATH", help="With --role change: all its commits may touch; a folder ends with /."),
]
State = Annotated[
    Path | None,
    typer.Option("--state", metavar="DIR", envvar="GRIDOPS_STATE", help="The controller's state folder."),
]


def register(trust: typer.Typer) -> None:
    trust.command("renew", epilog=RENEW, help="Write the next root document: the same keys, another year.")(renew)
    trust.command("add", epilog=ADD, help="Let somebody's key count, as an approver unless --role says otherwise.")(add)
    trust.command("revoke", epilog=REVOKE, help="Believe somebody no more, in every role or in those named.")(revoke)
    trust.command("rotate", epilog=ROTATE, help="Put a new key in the place of a person's, or of the controller's.")(
        rotate
    )
    trust.command("demand", epilog=DEMAND, help="Say how many people must sign as a role.")(demand)
    trust.command("agents", epilog=AGENTS, help="Say from which version on agents are driven; older ones only serve.")(
        agents
    )
    trust.command("sign", epilog=SIGN, help="Add your signature to a root document, or to a catalog.")(sign)


def renew(ctx: typer.Context) -> None:
    context, chain, now_ms = begin(ctx)
    hand_on(context, chain, renewed_root(chain, now_ms), "Renew the root")


def add(ctx: typer.Context, name: Named, key: KeyFile, role: Roles = None, path: Paths = None) -> None:
    context, chain, now_ms = begin(ctx)
    person, public = _person(name), _public(key)
    root = amend.added(chain, person, public, _roles(role, (RoleName.APPROVER,)), now_ms)
    if path:
        root = amend.confined(root, public, path)
    hand_on(context, chain, root, f"Trust {person}")


def revoke(ctx: typer.Context, name: Named, role: Roles = None) -> None:
    context, chain, now_ms = begin(ctx)
    person = _person(name)
    hand_on(context, chain, amend.revoked(chain, person, _roles(role, amend.PEOPLES), now_ms), f"Revoke {person}")


def demand(
    ctx: typer.Context,
    role: Annotated[str, typer.Argument(metavar="ROLE", help="root, change, release or approver.")],
    people: Annotated[int, typer.Argument(metavar="N", min=1, help="So many people must sign.")],
) -> None:
    context, chain, now_ms = begin(ctx)
    (name,) = _roles([role], ())
    hand_on(context, chain, amend.demanding(chain, name, people, now_ms), f"Demand {people} for {name}")


def agents(
    ctx: typer.Context,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="Such as 0.2.0; 0.1.0 lets every agent be driven.")],
) -> None:
    context, chain, now_ms = begin(ctx)
    hand_on(context, chain, amend.driving(chain, version, now_ms), f"Drive agents from {version} on")
    context.say("hosts with an older agent serve on and take nothing new: gridops status names them")
    if precedes(__version__, version):
        context.say(f"this program is {__version__} itself: no agent of its release may be driven then")


def rotate(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A person, `controller`, or `tls` for its certificate.")],
    key: Annotated[Path | None, typer.Option("--key", metavar="FILE", help="A person's new public key.")] = None,
    role: Roles = None,
    stolen: Annotated[bool, typer.Option("--stolen", help="The controller's old one counts no more, at once.")] = False,
    finish: Annotated[bool, typer.Option("--finish", help="End the controller's rotation: only the new one.")] = False,
    state: State = None,
) -> None:
    begun = context, chain, now_ms = begin(ctx)
    if name not in (CONTROLLER, TLS):
        if key is None or stolen or finish:
            raise Usage(f"trust rotate {name}: a person's new key is named with --key FILE, and nothing else")
        person = _person(name)
        root = amend.replaced(chain, person, _public(key), _roles(role, amend.PEOPLES), now_ms)
        hand_on(context, chain, root, f"Rotate the key of {person}")
        return
    if key is not None or role or (stolen and finish):
        raise Usage(f"trust rotate {name}: makes its key itself; --stolen or --finish, not both")
    if name == TLS:
        _rotate_tls(begun, finish=finish, stolen=stolen, state=state)
    elif finish:
        hand_on(context, chain, amend.only_controller(chain, now_ms), "Finish the rotation of the controller's key")
    else:
        folder = state if state is not None else default_state(chain.fleet)
        root = amend.next_controller(chain, _next_key(folder), stolen=stolen, now_ms=now_ms)
        hand_on(context, chain, root, "Replace the stolen key of the controller" if stolen else "Rotate the controller")
        if not stolen:
            context.say("when every host has seen it (gridops host list): gridops trust rotate controller --finish")


def _rotate_tls(begun: tuple[Context, RootChain, int], *, finish: bool, stolen: bool, state: Path | None) -> None:
    """The controller's certificate: agents pin both until the end, and a host that missed it asks for the documents."""
    context, chain, now_ms = begun
    if finish:
        root = amend.only_certificate(chain, now_ms)
        hand_on(context, chain, root, "Finish the rotation of the controller's certificate")
        return
    folder = state if state is not None else default_state(chain.fleet)
    pem = next_certificate(folder, fleet_settings(root_of(context.directory)), now_ms)
    root = amend.next_certificate(chain, pem, stolen=stolen, now_ms=now_ms)
    hand_on(context, chain, root, "Replace the controller's certificate" if stolen else "Rotate the certificate")
    if not stolen:
        context.say("when every host has seen it (gridops host list): gridops trust rotate tls --finish")


def sign(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="The document; left out: the one here.")] = None,
) -> None:
    context = context_of(ctx)
    context.check(("text", "json"))
    directory = root_of(context.directory)
    there = [directory / DRAFT, directory / CATALOG_DRAFT]
    path = file if file is not None else next((p for p in there if p.exists()), directory / DRAFT)
    try:
        text = text_at(path)
    except FileNotFoundError as error:
        raise Failed(
            f"{path}: no root document waits here, and no catalog",
            hints=("make one: gridops trust renew, add, revoke, rotate or catalog",),
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: cannot be read: {error}") from error
    chain = chain_of(directory)
    if kind_at(path, text) == "catalog":
        from gridops.cli import trust_catalog  # it makes roots too, by what stands here

        trust_catalog.sign(context, chain, path, text)
        return
    with naming(path):
        draft = read_draft(chain, text)
    _signed(context, chain, draft, "Sign the next root")


def begin(ctx: typer.Context) -> tuple[Context, RootChain, int]:
    """What every command that makes a next root asks first: nothing else waits for signatures."""
    context = context_of(ctx)
    context.check(("text", "json"))
    directory = root_of(context.directory)
    chain = chain_of(directory)
    if (directory / DRAFT).exists():
        raise Failed(
            f"{directory / DRAFT}: another root document waits for signatures; nothing was changed",
            hints=("who has to sign it: gridops trust verify", "give it up: git rm it, or delete it"),
        )
    return context, chain, int(time.time() * 1000)


def hand_on(context: Context, chain: RootChain, root: Root, why: str) -> None:
    """A new document with the first signatures."""
    signers = _at_hand(context, chain, root)
    if not signers:
        holders = sorted({e.holder for r in (chain.root, root) if (role := r.role(RoleName.ROOT)) for e in role.keys})
        raise Failed(
            f"{key_folder()}: holds none of the root keys that must sign; nothing was changed",
            hints=(f"root keys: {', '.join(f'{h}.root' for h in holders)}", "another folder: GRIDOPS_KEYS=DIR"),
        )
    _written(context, chain, read_draft(chain, seal_root(root, *signers)), why)


def _signed(context: Context, chain: RootChain, draft: Draft, why: str) -> None:
    """A document that others have signed, with the signatures that can be added here."""
    signers = [s for s in _at_hand(context, chain, draft.root) if not _has_signed(draft, chain, s)]
    if not signers:
        raise Failed(
            f"{key_folder()}: holds no root key whose signature is missing; nothing was changed",
            hints=(f"who may sign: {', '.join(draft.may_sign) or 'nobody is missing'}", "GRIDOPS_KEYS=DIR"),
        )
    text = draft.text
    for signer in signers:
        text = countersign(text, kind="root", signer=signer)
    _written(context, chain, read_draft(chain, text), why)


def _written(context: Context, chain: RootChain, draft: Draft, why: str) -> None:
    directory = root_of(context.directory)
    if not draft.complete:
        write_atomic(directory / DRAFT, draft.text.encode())
        context.emit({"text": lambda: _shown(context, waiting(draft)), "json": lambda: dump_json(state_of(draft))})
        context.say(f"hand it on, or commit it: git add {DRAFT} && git commit -m '{why}, to be signed'")
        return
    new = chain.advance(draft.text)
    written = ROOTS / f"{new.root.version}.json"
    write_atomic(directory / written, draft.text.encode())
    (directory / DRAFT).unlink(missing_ok=True)
    context.emit({"text": lambda: _shown(context, [f"Wrote {written}", *words(new)]), "json": lambda: _json(new)})
    context.say(f"commit it: git add policies/trust && git commit -m '{why}'")
    if (directory / CATALOG).exists():
        known = again(KnownCatalog(1, text_at(directory / CATALOG).strip()), new)
        if known.floor and known.catalog is None:
            context.say(f"with this root the catalog counts no more: gridops trust sign {CATALOG}, in the same commit")


def waiting(draft: Draft) -> list[str]:
    """How far a document is, in words."""
    lines = [f"Root {draft.root.version} waits for signatures."]
    for side, whose in ((draft.old, "now"), (draft.new, "then")):
        signed = ", ".join(side.signed) or "nobody"
        lines.append(f"  root {side.version} ({whose}): {len(side.signed)} of {side.need} signed: {signed}")
    return [*lines, f"Who may sign: {', '.join(draft.may_sign)}  (gridops trust sign)"]


def state_of(draft: Draft) -> dict[str, object]:
    sides = [
        {"root": s.version, "need": s.need, "signed": list(s.signed), "missing": list(s.missing)}
        for s in (draft.old, draft.new)
    ]
    return {"schema": "gridops.draft/1", "root": draft.root.version, "complete": draft.complete, "signatures": sides}


def _json(chain: RootChain) -> str:
    return dump_json(document(chain))


def _at_hand(context: Context, chain: RootChain, root: Root) -> list[Signer]:
    """The private root keys that lie here, of people of the present root or of the next one."""
    known = {e.key for r in (chain.root, root) if (role := r.role(RoleName.ROOT)) is not None for e in role.keys}
    folder = key_folder()
    found = [load_signer(path, context) for path in keys_at(folder, "*.root")]
    return [signer for signer in found if signer.public.text in known]


def _has_signed(draft: Draft, chain: RootChain, signer: Signer) -> bool:
    from_old = chain.holder(signer.public)
    return from_old in draft.old.signed and from_old in (*draft.new.signed, None)


def _next_key(folder: Path) -> PublicKey:
    """The controller's next key, made here unless one waits already."""
    if not any((folder / name).exists() for name in (SEED, TLS_CERT)):
        raise Failed(
            f"{folder / SEED}: missing, so this is not the controller's state folder; nothing was changed",
            hints=("run it on the controller's machine, or name the folder: --state DIR",),
        )
    if not (folder / NEXT_SEED).exists():
        create_secret(folder / NEXT_SEED, secrets.token_bytes(32))
    made = StateDir(folder).next_signer()
    assert made is not None
    return made.public


def _person(name: str) -> PersonName:
    if not is_name(name) or name in (CONTROLLER, TLS):
        form = "lower-case letters, digits, `-`, `.` and `_`, and is not `controller` or `tls`"
        raise Usage(f"{name}: a person's name has {form}")
    return PersonName(name)


def _public(path: Path) -> PublicKey:
    try:
        key = parse_key(text_at(path))
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}; nothing was changed") from error
    except ValueError as error:
        raise Failed(
            f"{path}: {error}; nothing was changed",
            hints=("a public key is one line: ssh-keygen -t ed25519 -f NAME, then NAME.pub",),
        ) from error
    if not key.of_person:
        raise Failed(f"{path}: a machine's key, and people sign with keys of OpenSSH; nothing was changed")
    return key


def _roles(given: list[str] | None, default: tuple[RoleName, ...]) -> tuple[RoleName, ...]:
    known = {role.value: role for role in amend.PEOPLES}
    for name in given or ():
        if name not in known:
            raise Usage(f"{name}: no role that people hold", hints=(f"roles: {', '.join(known)}",))
    return tuple(known[name] for name in dict.fromkeys(given)) if given else default


def _shown(context: Context, lines: list[str]) -> str:
    return "\n".join(fitted(lines, context.columns()))


RENEW = """\b
Examples:
  gridops trust renew
  GRIDOPS_KEYS=/media/usb/keys gridops trust renew
  gridops trust renew && git add policies/trust && git commit -m "Renew the root"
"""
ADD = """\b
Examples:
  gridops trust add jon --key jon.pub
  gridops trust add jon --key jon.pub --role approver --role change
  gridops trust add jon --key jon-root.pub --role root
  gridops trust add merge-bot --key bot.pub --role change --path profiles.d/
"""
REVOKE = """\b
Examples:
  gridops trust revoke jon
  gridops trust revoke jon --role approver
  GRIDOPS_KEYS=/media/usb/keys gridops trust revoke jon
"""
ROTATE = """\b
Examples:
  gridops trust rotate mira --key mira-2027.pub
  gridops trust rotate controller && git add policies/trust && git commit -m "Rotate the controller"
  gridops trust rotate controller --finish
  gridops trust rotate controller --stolen --state /var/lib/gridops/office
  gridops trust rotate tls
"""
DEMAND = """\b
Examples:
  gridops trust demand approver 2
  gridops trust demand root 2
  GRIDOPS_KEYS=/media/usb/keys gridops trust demand root 2
"""
AGENTS = """\b
Examples:
  gridops trust agents 0.2.0
  gridops trust agents 0.1.0
  GRIDOPS_KEYS=/media/usb/keys gridops trust agents 0.2.0
"""
SIGN = """\b
Examples:
  gridops trust sign
  gridops trust sign draft-from-mira.json
  GRIDOPS_KEYS=/media/usb/keys gridops trust sign
"""
