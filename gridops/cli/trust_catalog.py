"""`gridops trust catalog`: what may run by what people signed, what the files need beyond it, and the next version.

Prints in words what is to be signed before anybody signs; `--write` makes the next version and signs it with the
release keys at hand. It goes from hand to hand (`policies/trust/catalog.draft.json`) until enough have signed. What an
entry is made of is decided in `gridops.files.catalogs`, whether a catalog counts in `gridops.trust.release`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from gridops.base.errors import Failed, Refusal
from gridops.base.record import to_data
from gridops.base.units import counted
from gridops.cli.catalog_words import bounds_of, entry_lines, next_lines
from gridops.cli.client import root_of
from gridops.cli.named import naming, text_at
from gridops.cli.output import Context, Usage, context_of, dump_json
from gridops.cli.person import chain_of, key_folder, lies_at, load_signer
from gridops.cli.tables import fitted
from gridops.cli.trust_change import CATALOG_DRAFT, hand_on
from gridops.disk.atomic import write_atomic
from gridops.files.catalogs import Missing, dropped, grown, missing, unneeded, without
from gridops.files.load import load
from gridops.files.tree import WorkingTree
from gridops.files.trusted import CATALOG
from gridops.model.catalog import Catalog, Entry
from gridops.model.intent import Desired
from gridops.trust.amend import asking
from gridops.trust.envelope import countersign
from gridops.trust.keys import Signer
from gridops.trust.release import NONE_KNOWN, CatalogDraft, open_catalog, read_catalog, seal_catalog, take
from gridops.trust.root import RoleName, RootChain

DRAFT = CATALOG_DRAFT


@dataclass(frozen=True, slots=True)
class Wishes:
    """What one call asks for besides what the files need."""

    drop: bool
    builds: tuple[str, ...]
    allow: tuple[str, ...]

    @property
    def any(self) -> bool:
        return self.drop or bool(self.builds) or bool(self.allow)


def register(trust: typer.Typer) -> None:
    trust.command("catalog", epilog=CATALOG_EXAMPLES, help="Say what may run by what people signed, or sign more.")(
        catalog
    )


def catalog(
    ctx: typer.Context,
    write: Annotated[bool, typer.Option("--write", help="Make the next version and sign it here.")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="Take out what nothing in the files needs.")] = False,
    build: Annotated[
        list[str] | None, typer.Option("--build", metavar="ENTRY=BUILD", help="Only this build may start it.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="ENTRY:NAME=VALUES", help="Widen a bound: 1..16, on,off or one value."),
    ] = None,
    require: Annotated[bool, typer.Option("--require", help="The next root: every host asks for it.")] = False,
    off: Annotated[bool, typer.Option("--off", help="The next root: no host asks for a catalog any more.")] = False,
) -> None:
    context = context_of(ctx)
    context.check(("text", "json"))
    wishes = Wishes(drop, tuple(build or ()), tuple(allow or ()))
    if sum((write, require, off)) > 1 or (wishes.any and not write):
        raise Usage("trust catalog: --write, with --drop, --build and --allow, or --require, or --off")
    directory = root_of(context.directory)
    chain = chain_of(directory)
    if off or require:
        _ask(context, chain, directory, 0 if off else None)
        return
    now = _in_force(chain, directory)
    desired = load(without(WorkingTree(directory))).desired
    base = now or Catalog(fleet=chain.fleet, version=0, issued_ms=0, entries=())
    lacks = missing(base, desired)
    if write and (directory / DRAFT).exists():
        raise Failed(
            f"{directory / DRAFT}: another catalog waits for signatures; nothing was changed",
            hints=(f"who has to sign it: gridops trust verify {DRAFT}", "give it up: git rm it, or delete it"),
        )
    if write:
        _write(context, chain, _next(base, desired, lacks, wishes), lacks)
        return
    spare = unneeded(base, desired)
    context.emit(
        {
            "text": lambda: _shown(context, next_lines(now, lacks, spare)),
            "json": lambda: dump_json(_document(now, lacks, spare)),
        }
    )


def sign(context: Context, chain: RootChain, path: Path, text: str) -> None:
    """Add the signatures that can be added here to a catalog that others may have signed."""
    with naming(path):
        draft = read_catalog(chain, text)
    signers = [s for s in _at_hand(context, chain) if chain.holder(s.public) not in draft.signed]
    if not signers:
        raise Failed(
            f"{key_folder()}: holds no release key whose signature is missing; nothing was changed",
            hints=(f"who may sign: {', '.join(draft.missing) or 'nobody is missing'}", "GRIDOPS_KEYS=DIR"),
        )
    for line in entry_lines(draft.catalog):
        context.say(*fitted([line], context.talk_columns()))
    for signer in signers:
        text = countersign(text, kind="catalog", signer=signer)
    _written(context, chain, read_catalog(chain, text), replaces=path)


def waiting(draft: CatalogDraft, chain: RootChain) -> list[str]:
    """How far a catalog is, and what it says, in words."""
    people = ", ".join(draft.signed) or "nobody"
    state = "counts" if draft.complete else "waits for signatures"
    count = f"{len(draft.signed)} of {draft.need or 1} signed: {people} (release in root {chain.root.version})"
    lines = [f"Catalog {draft.catalog.version} {state}: {count}"]
    if not draft.complete:
        lines.append(f"Who may sign: {', '.join(draft.missing) or 'nobody: add a release key'}  (gridops trust sign)")
    return [*lines, *entry_lines(draft.catalog)]


def state_of(draft: CatalogDraft) -> dict[str, object]:
    return {
        "schema": "gridops.catalog/1",
        "catalog": to_data(draft.catalog),
        "complete": draft.complete,
        "need": draft.need,
        "signed": list(draft.signed),
        "missing": list(draft.missing),
    }


def _in_force(chain: RootChain, directory: Path) -> Catalog | None:
    """The catalog of the checkout, as people signed it. One that nobody signed is not gone on from: whoever can write
    into the repository would have his own entries signed along."""
    path = directory / CATALOG
    if not path.exists():
        return None
    try:
        return open_catalog(chain, text_at(path).strip())
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from error
    except Refusal as error:
        hints = (
            f"if it is yours, read it: gridops trust verify {CATALOG}",
            *error.hints,
            "or take the one before it back",
        )
        raise Refusal(error.code, f"{path}: {error.message}", evidence=error.evidence, hints=hints) from error


def _next(base: Catalog, desired: Desired, lacks: tuple[Missing, ...], wishes: Wishes) -> Catalog:
    entries = tuple(lack.entry for lack in lacks if lack.entry is not None)
    made = grown(base, entries, now_ms=int(time.time() * 1000))
    if wishes.drop:
        made = dropped(made, unneeded(made, desired))
    named = {entry.name: entry for entry in made.entries}
    for said in wishes.builds:
        name, _, value = said.partition("=")
        entry = _named(named, name, said)
        named[name] = replace(entry, builds=tuple(sorted({*entry.builds, value})) if value else ())
    for said in wishes.allow:
        name, _, bound = said.partition(":")
        named[name] = bounds_of(_named(named, name, said), bound, said)
    return replace(made, entries=tuple(named[name] for name in sorted(named)))


def _named(entries: dict[str, Entry], name: str, said: str) -> Entry:
    if name not in entries:
        raise Usage(f"{said}: no entry is called {name!r}", hints=(f"entries: {', '.join(sorted(entries)) or 'none'}",))
    return entries[name]


def _write(context: Context, chain: RootChain, made: Catalog, lacks: tuple[Missing, ...]) -> None:
    for lack in lacks:
        if lack.entry is None:
            context.say(f"left out: {lack.name}: {lack.why}")
    signers = _at_hand(context, chain)
    if not signers:
        role = chain.root.role(RoleName.RELEASE)
        people = sorted({entry.holder for entry in role.keys}) if role is not None else []
        raise Failed(
            f"{key_folder()}: holds no release key of this fleet; nothing was changed",
            hints=(f"release: {', '.join(people) or 'nobody'}", "another folder: GRIDOPS_KEYS=DIR"),
        )
    _written(context, chain, read_catalog(chain, seal_catalog(made, *signers)), replaces=None)


def _written(context: Context, chain: RootChain, draft: CatalogDraft, replaces: Path | None) -> None:
    directory = root_of(context.directory)
    target = directory / (CATALOG if draft.complete else DRAFT)
    if draft.complete:
        take(NONE_KNOWN, chain, draft.text)  # what counts is asked once more, by the rule of controller and hosts
    write_atomic(target, draft.text.encode())
    if draft.complete:
        (directory / DRAFT).unlink(missing_ok=True)
    lines = [f"Wrote {target.relative_to(directory)}", *waiting(draft, chain)]
    context.emit({"text": lambda: _shown(context, lines), "json": lambda: dump_json(state_of(draft))})
    if replaces is not None and replaces.resolve() not in ((directory / DRAFT).resolve(), target.resolve()):
        context.say(f"{replaces} is as it was")
    why = f"Catalog {draft.catalog.version}"
    if draft.complete:
        context.say(f"commit it: git add policies/trust && git commit -m '{why}'")
    else:
        context.say(f"hand it on, or commit it: git add {DRAFT} && git commit -m '{why}, to be signed'")


def _ask(context: Context, chain: RootChain, directory: Path, version: int | None) -> None:
    """The next root asks for the catalog of this checkout, or for none."""
    if version is None:
        if (now := _in_force(chain, directory)) is None:
            raise Failed(f"{directory / CATALOG}: there is none to ask for", hints=("gridops trust catalog --write",))
        version = take(NONE_KNOWN, chain, text_at(directory / CATALOG).strip()).floor or now.version
    why = "Ask for no catalog any more" if version == 0 else f"Ask for catalog {version} everywhere"
    hand_on(context, chain, asking(chain, version, int(time.time() * 1000)), why)


def _at_hand(context: Context, chain: RootChain) -> list[Signer]:
    """The private release keys that lie here, by the names of the root."""
    role, folder = chain.root.role(RoleName.RELEASE), key_folder()
    known = {entry.key: entry.holder for entry in role.keys} if role is not None else {}
    paths = [folder / holder for holder in sorted(set(known.values()))]
    found = [load_signer(path, context) for path in paths if lies_at(path)]
    return [signer for signer in found if signer.public.text in known]


def _document(now: Catalog | None, lacks: tuple[Missing, ...], spare: tuple[str, ...]) -> dict[str, object]:
    return {
        "schema": "gridops.catalog/1",
        "catalog": to_data(now) if now is not None else None,
        "missing": [
            {"name": lack.name, "why": lack.why, "entry": to_data(lack.entry) if lack.entry is not None else None}
            for lack in lacks
        ],
        "unneeded": list(spare),
    }


def found_by_doctor(chain: RootChain, directory: Path) -> tuple[str, str, str] | None:
    """Level, sentence and hint for `trust doctor`; None where there is no catalog and none is asked for."""
    if not (directory / CATALOG).exists():
        if chain.root.catalog:
            return "fail", f"root {chain.root.version} asks for a catalog, and there is none", "gridops trust catalog"
        return None
    try:
        known = take(NONE_KNOWN, chain, text_at(directory / CATALOG).strip())
    except (OSError, Refusal) as error:
        return "fail", f"{CATALOG}: {error}", f"gridops trust sign {CATALOG}"
    if known.catalog is None:
        return "warn", f"{CATALOG} stands, and root {chain.root.version} asks for none", "delete it, or --require it"
    entries = counted(len(known.catalog.entries), "entry", "entries")
    if chain.root.catalog is None:
        hint = "gridops trust catalog --require"
        return "warn", f"catalog {known.floor}, {entries}: a host that joins does not know that there is one", hint
    return "ok", f"catalog {known.floor}, {entries}: nothing else may run", ""


def shown_with(chain: RootChain, directory: Path) -> list[str]:
    """What `trust show` says of the catalog of a checkout; nothing where there is none."""
    if not (directory / CATALOG).exists():
        return []
    draft = read_catalog(chain, text_at(directory / CATALOG).strip())
    alone = ["Hosts that have seen it ask for it; one that joins does not: gridops trust catalog --require"]
    return ["", *waiting(draft, chain), *(alone if chain.root.catalog is None else [])]


def _shown(context: Context, lines: list[str]) -> str:
    return "\n".join(fitted(lines, context.columns()))


CATALOG_EXAMPLES = """\b
Examples:
  gridops trust catalog
  gridops trust catalog --write && git add policies/trust && git commit -m "Catalog 1"
  gridops trust catalog --write --allow chat/q4:context=32768 --allow chat/q4:threads=1..16
  gridops trust catalog --require
"""
