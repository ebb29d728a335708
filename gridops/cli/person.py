"""Who is calling: the fleet's roots as this checkout holds them, and the private key of the person at the keyboard.

Used by every command that signs. Keys lie in `$GRIDOPS_KEYS`, else in the XDG configuration folder, one OpenSSH file
a person, so that `ssh-keygen` reads them too; of a hardware token's key its handle, or the `.pub` file alone where an
SSH agent holds it. Must never print a key and never take one from a flag.
"""

from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path

from gridops.base.codes.trust import GO414
from gridops.base.errors import BadSetup, Failed, Refusal
from gridops.base.ids import PersonName
from gridops.cli.named import naming, text_at
from gridops.cli.output import Context, Usage
from gridops.cli.standing import holds_fleet, no_fleet
from gridops.cli.token import token_at
from gridops.disk.keyring import read_secret
from gridops.trust.keys import PassphraseNeeded, PersonSigner, Signer
from gridops.trust.root import RoleName, RootChain, genesis, walk

ROOTS = Path("policies/trust/root")


def key_folder() -> Path:
    """Where this person's private keys lie."""
    given = os.environ.get("GRIDOPS_KEYS")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "gridops" / "keys"


def chain_of(directory: Path) -> RootChain:
    """The chain of root documents of a checkout. Raises Failed where there is none, Usage where no fleet is."""
    folder = directory / ROOTS
    first = folder / "1.json"
    if not first.is_file():
        if not holds_fleet(directory):
            raise no_fleet(directory)
        raise Failed(
            f"{first}: this fleet has no root of trust yet", hints=("make one: gridops trust init --person NAME",)
        )
    numbers = sorted(int(p.stem) for p in folder.glob("*.json") if p.stem.isdigit() and p.stem != "1")
    at, chain = first, None
    try:
        for at in (first, *(folder / f"{n}.json" for n in numbers)):
            text = text_at(at)
            with naming(at):
                chain = walk(chain, (text,)) if chain is not None else genesis(text)
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{at}: cannot be read: {error}") from error
    assert chain is not None, "the first is always there"
    return chain


def lies_at(path: Path) -> bool:
    """Whether a person's key can be used from here: its file, or the name of a token's key."""
    return path.exists() or token_at(path) is not None


def keys_at(folder: Path, pattern: str) -> tuple[Path, ...]:
    """The keys of a folder whose names match, those of tokens among them, in order."""
    files, tokens = folder.glob(pattern), folder.glob(pattern + ".pub")
    return tuple(sorted({*files, *(found for p in tokens if lies_at(found := p.with_suffix("")))}))


def load_signer(path: Path, context: Context) -> Signer:
    """The private key in a file; asks for its passphrase at a terminal. Raises BadSetup or Usage.

    A token's key is asked for when it signs (`cli.token`).
    """
    token = token_at(path)
    if token is not None:
        return token
    content = read_secret(path)
    try:
        try:
            return PersonSigner.from_openssh(content)
        except PassphraseNeeded:
            if context.no_input or not sys.stdin.isatty():
                raise Usage(f"{path} is protected by a passphrase, and nobody can be asked here") from None
            return PersonSigner.from_openssh(content, getpass.getpass(f"Passphrase for {path}: ").encode())
    except ValueError as error:
        raise BadSetup(f"{path}: {error}") from error


def signer_as(
    chain: RootChain, who: str | None, context: Context, also: tuple[RoleName, ...] = ()
) -> tuple[PersonName, Signer]:
    """The approver who calls: the one named, else the only one of this fleet whose private key lies here.

    `also`: where no approver does, somebody of these roles may call as well.
    """
    folder = key_folder()
    by_role = [_holders(chain, role) for role in (RoleName.APPROVER, *also)]
    people = sorted({person for holders in by_role for person in holders})
    here = next((found for found in ([p for p in holders if lies_at(folder / p)] for holders in by_role) if found), [])
    called = "nobody of this fleet who may ask for that" if also else "no such approver in this fleet"
    if who is not None and who not in people:
        raise Usage(f"--as {who}: {called}", hints=(f"{'people' if also else 'approvers'}: {', '.join(people)}",))
    if who is None and len(here) != 1:
        whose = "anybody who may" if also else "an approver"
        found = f"keys of {', '.join(here)} lie" if here else f"no key of {whose} ({', '.join(people)}) lies"
        raise Usage(
            f"who are you? {found} in {folder}", hints=("name yourself: --as NAME", "another folder: GRIDOPS_KEYS=DIR")
        )
    person = PersonName(who if who is not None else here[0])
    signer = load_signer(folder / person, context)
    if chain.holder(signer.public) != person:
        raise Refusal(
            GO414.code,
            f"the key in {folder / person} is not the one that this fleet knows for {person}",
            subject=person,
        )
    return person, signer


def _holders(chain: RootChain, name: RoleName) -> list[PersonName]:
    role = chain.root.role(name)
    return sorted({entry.holder for entry in role.keys}) if role is not None else []
