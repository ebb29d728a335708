"""`gridops trust verify` and `doctor`: who really signed what one has in hand, and whether keys and root are in order.

`verify` opens any signed document by the keys of this checkout and says who signed it; `doctor` looks at the root and
at the keys on this machine. Both read only; whether a document counts for anything is decided where it is used.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.canon import digest_bytes
from gridops.base.codes.trust import BAD_SIGNATURE
from gridops.base.errors import Failed, GridopsError, Refusal
from gridops.base.ids import short
from gridops.base.units import counted, render_instant, render_ms
from gridops.cli import exits
from gridops.cli.client import root_of
from gridops.cli.doctor import Finding, finding_lines, findings_document
from gridops.cli.named import kind_at, naming, text_at
from gridops.cli.output import Context, context_of, dump_json
from gridops.cli.person import ROOTS, chain_of, key_folder
from gridops.cli.tables import fitted
from gridops.cli.trust_catalog import found_by_doctor
from gridops.cli.trust_catalog import state_of as state_of_catalog
from gridops.cli.trust_catalog import waiting as waiting_catalog
from gridops.cli.trust_change import DRAFT, state_of, waiting
from gridops.cli.trust_commits import commits
from gridops.cli.trust_tls import certificates
from gridops.cli.trust_words import former_document
from gridops.disk.keyring import read_secret
from gridops.files.catalogs import without
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.trust import former
from gridops.trust.draft import read_draft
from gridops.trust.envelope import Sealed, split, verified
from gridops.trust.former import Former
from gridops.trust.keys import PublicKey, parse_key
from gridops.trust.release import read_catalog
from gridops.trust.root import RoleName, RootChain, genesis, walk

_ROLES = {
    "root": (RoleName.ROOT,),
    "approval": (RoleName.APPROVER,),
    "operator": (RoleName.APPROVER, RoleName.CHANGE),
    "catalog": (RoleName.RELEASE,),
    "plan": (RoleName.CONTROLLER,),
    "grant": (RoleName.CONTROLLER,),
    "directive": (RoleName.CONTROLLER,),
    "join-reply": (RoleName.CONTROLLER,),
}
"""Whose word each kind is; of the other kinds it is a host's."""

VERIFY = """\b
Examples:
  gridops trust verify
  gridops trust verify policies/trust/draft.json
  gridops trust verify approval-by-mira.json -o json
"""
DOCTOR = """\b
Examples:
  gridops trust doctor
  gridops -C /srv/fleet trust doctor
  gridops trust doctor -o json
"""


def register(trust: typer.Typer) -> None:
    trust.command("verify", epilog=VERIFY, help="Say who signed a document, and whether this fleet believes them.")(
        verify
    )
    trust.command("doctor", epilog=DOCTOR, help="Check the root and the keys on this machine. Exit 1 if one fails.")(
        doctor
    )


def verify(
    ctx: typer.Context,
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Left out: the roots of this checkout.")] = None,
) -> int:
    context = context_of(ctx)
    context.check(("text", "json"))
    directory = root_of(context.directory)
    chain = chain_of(directory)
    if file is None:
        _roots(context, chain, directory)
        return exits.OK
    text = _read(file)
    kind = kind_at(file, text)
    newest = chain.root.version
    if kind == "root":
        then = _as_of(chain, directory, text)
        if then is None:
            with naming(file):
                draft = read_draft(chain, text)
            _emit(context, waiting(draft), state_of(draft))
            return exits.OK
        chain = then  # by the keys of its own time
    with naming(file):
        sealed = split(text, kind=kind)
    once = [one for _, one in former.signers(chain, sealed, kind, _ROLES.get(kind, ()))]
    if kind == "catalog":
        with naming(file):
            released = read_catalog(chain, text.strip())
        lines = [*waiting_catalog(released, chain), *(_looking_back(one, sealed) for one in once)]
        _emit(context, lines, state_of_catalog(released) | _once(once, sealed))
        return exits.OK
    keys = dict(_trusted(chain, kind, directory))
    signers = [keys[key] for key in verified(sealed, kind, tuple(keys))]
    if not signers and not once:
        raise Refusal(
            BAD_SIGNATURE.code,
            f"{file}: a signed {kind}, and not by any of the {counted(len(keys), 'key')} that this fleet trusts for it",
            evidence=tuple(f"it claims the key {hint}" for hint in sealed.hints),
        )
    digest, people = digest_bytes(sealed.payload), sorted(set(signers))
    by = ", ".join(people) or "nobody who counts now, so that it counts for nothing"
    article = "an" if kind[0] in "aeio" else "a"
    line = f"{file}: {article} {kind}, signed by {by}; what it says is {short(digest)}"
    if chain.root.version < newest:
        line += f"; root {chain.root.version} of this fleet, whose newest is {newest}"
    answer: dict[str, object] = {
        "schema": "gridops.verify/1",
        "kind": kind,
        "signed_by": people,
        "payload": digest,
    }
    _emit(context, [line, *(_looking_back(one, sealed) for one in once)], answer | _once(once, sealed))
    return exits.OK if people else exits.REFUSED


def _as_of(chain: RootChain, directory: Path, text: str) -> RootChain | None:
    """The chain up to this root document, where it is one of it."""
    then: RootChain | None = None
    for number in range(1, chain.root.version + 1):
        one = _read(directory / ROOTS / f"{number}.json")
        then = walk(then, (one,)) if then is not None else genesis(one)
        if one.strip() == text.strip():
            return then
    return None


def _looking_back(one: Former, sealed: Sealed) -> str:
    return f"  by a former key of {one.holder}, {former.words(one)}; {former.compared(one, sealed)}"


def _once(once: list[Former], sealed: Sealed) -> dict[str, object]:
    """Who signed it with a key that counts no more; nothing where nobody did."""
    at_ms = former.issued_ms(sealed)
    rows = [former_document(one) | {"issued_ms": at_ms} for one in once]
    return {"former": rows} if rows else {}


def doctor(ctx: typer.Context) -> int:
    context = context_of(ctx)
    context.check(("text", "json"))
    directory = root_of(context.directory)
    chain = chain_of(directory)
    found = [*_root(chain), *_people(chain, directory), *_waiting(chain, directory)]
    found += [*certificates(chain), *commits(chain, directory), *_catalog(chain, directory), *_keys()]
    context.emit({"text": lambda: "\n".join(finding_lines(found)), "json": lambda: dump_json(findings_document(found))})
    return exits.FAILED if any(f.level == "fail" for f in found) else exits.OK


def _roots(context: Context, chain: RootChain, directory: Path) -> None:
    number = chain.root.version
    documents = counted(number, "root document")
    lines = [f"{ROOTS}: {documents}, each signed by enough people of the one before", f"fleet {chain.fleet}"]
    answer: dict[str, object] = {"schema": "gridops.verify/1", "fleet": chain.fleet, "root": number}
    if (directory / DRAFT).exists():
        with naming(directory / DRAFT):
            draft = read_draft(chain, _read(directory / DRAFT))
        lines += waiting(draft)
        answer["draft"] = state_of(draft)
    _emit(context, lines, answer)


def _emit(context: Context, lines: list[str], answer: dict[str, object]) -> None:
    context.emit({"text": lambda: "\n".join(fitted(lines, context.columns())), "json": lambda: dump_json(answer)})


def _trusted(chain: RootChain, kind: str, directory: Path) -> Iterator[tuple[PublicKey, str]]:
    if kind in _ROLES:
        for role in reversed(_ROLES[kind]):
            for key in chain.plan_keys() if kind == "plan" else chain.keys(role):
                yield key, f"{chain.holder(key) or 'controller, before a rotation'} ({role.value})"
    else:
        for one in load(without(WorkingTree(directory))).desired.keys:
            for text in () if one.expunged else (one.key, *one.previous):
                yield parse_key(text), f"host {one.host}"


def _root(chain: RootChain) -> Iterator[Finding]:
    root, now_ms = chain.root, int(time.time() * 1000)
    left = root.expires_ms - now_ms
    if left <= 0:
        end = render_instant(root.expires_ms)
        yield Finding("fail", f"root {root.version} expired at {end}: nothing may change", "gridops trust renew")
    elif chain.ageing(now_ms):
        yield Finding("warn", f"root {root.version} expires in {render_ms(left)}", "gridops trust renew")
    else:
        yield Finding("ok", f"root {root.version} is good for {render_ms(left)}")
    controller = root.role(RoleName.CONTROLLER)
    if controller is not None and len(controller.keys) > 1:
        yield Finding("warn", "the controller's rotation is not finished", "gridops trust rotate controller --finish")


def _people(chain: RootChain, directory: Path) -> Iterator[Finding]:
    """Where one person, or one lost key, decides alone; and who is on a roster without a key."""
    for name in (RoleName.ROOT, RoleName.APPROVER):
        role = chain.root.role(name)
        people = sorted({entry.holder for entry in role.keys}) if role is not None else []
        if role is None:
            yield Finding("fail", f"nobody is {name}", f"gridops trust add NAME --key FILE.pub --role {name}")
        elif len(people) < 2:
            what = "nobody can replace it" if name is RoleName.ROOT else "nothing can be approved without it"
            hint = f"gridops trust add NAME --key FILE.pub --role {name}"
            yield Finding("warn", f"{people[0]} alone is {name}: if the key is lost, {what}", hint)
        elif role.threshold == 1:
            yield Finding("ok", f"{name}: one of {', '.join(people)} suffices; two are asked for by trust demand")
        else:
            yield Finding("ok", f"{name}: {role.threshold} of {', '.join(people)}")
    approvers = chain.root.role(RoleName.APPROVER)
    known = {entry.holder for entry in approvers.keys} if approvers is not None else set()
    roster = {p for role in load(without(WorkingTree(directory))).desired.approvals.roles for p in role.people}
    for person in sorted(roster - known):
        hint = f"gridops trust add {person} --key FILE.pub"
        yield Finding("warn", f"policies/approvals.yaml names {person}, who is no approver in the root", hint)


def _waiting(chain: RootChain, directory: Path) -> Iterator[Finding]:
    path = directory / DRAFT
    if path.exists():
        try:
            draft = read_draft(chain, _read(path))
        except GridopsError as error:
            yield Finding("fail", f"{DRAFT}: {error.message}", "delete it and make it anew")
        else:
            yield Finding(
                "warn", f"root {draft.root.version} waits for {', '.join(draft.may_sign)}", "gridops trust sign"
            )


def _catalog(chain: RootChain, directory: Path) -> Iterator[Finding]:
    said = found_by_doctor(chain, directory)
    if said is not None:
        yield Finding(*said)


def _keys() -> Iterator[Finding]:
    folder = key_folder()
    for path in sorted(folder.glob("*")) if folder.is_dir() else []:
        if path.suffix == ".pub":
            continue
        try:
            read_secret(path)
        except GridopsError as error:
            yield Finding("fail", error.message, error.hints[0] if error.hints else "")
            continue
        yield Finding("ok", f"key {path} is private")
        if path.suffix == ".root":
            yield Finding("warn", f"the root key {path} lies on this machine", "move it to a medium you can lock away")


def _read(path: Path) -> str:
    try:
        return text_at(path)
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: cannot be read: {error}") from error
