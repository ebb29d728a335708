"""Catalogs as they are signed: made, read, and the one rule by which a newer one takes an older one's place.

A catalog counts when as many people of the root's role `release` signed it as that role demands. Versions only rise,
for whoever has seen one; the newest that was seen is kept with its envelope and asked again whenever a newer root
document comes, because a key that is believed no more takes its word along. Controller, hosts and the CLI use the same
functions. What a catalog admits is `catalog`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gridops.base import canon, limits
from gridops.base.codes import protocol as fence_codes
from gridops.base.codes import trust as codes
from gridops.base.errors import Refusal
from gridops.base.ids import PersonName
from gridops.base.record import to_bytes
from gridops.base.units import counted
from gridops.model.catalog import Catalog, Entry, Slot
from gridops.trust import envelope
from gridops.trust.keys import PublicKey, Signer
from gridops.trust.root import RoleName, RootChain, keys_of, walk


@dataclass(frozen=True, slots=True)
class KnownCatalog:
    """What somebody knows of catalogs. Only `take` and `again` make one that knows anything."""

    floor: int = 0
    """The highest version that was ever proved here; 0 for none."""
    text: str | None = None
    """Its envelope."""
    catalog: Catalog | None = None
    """What it says. None: there is none, or the newest root believes its signatures no more."""


NONE_KNOWN = KnownCatalog()


def demanded(known: KnownCatalog, chain: RootChain) -> int:
    """The least version that everything has to stand in; 0 where no catalog is asked for.

    The root may demand a version of everybody, also of a host that has never seen one, and it alone may say that no
    catalog is asked for any more (0). Where it says nothing, whoever has seen a catalog goes on asking for one.
    """
    said = chain.root.catalog
    return 0 if said == 0 else max(known.floor, said or 0)


def open_catalog(chain: RootChain, text: str | bytes) -> Catalog:
    """A catalog that enough release people of the newest root signed. Raises Refusal."""
    draft = read_catalog(chain, text)
    if len(draft.signed) < max(1, draft.need):
        people = counted(max(1, draft.need), "person", "people")
        raise Refusal(
            codes.CATALOG_THRESHOLD.code,
            f"catalog {draft.catalog.version} is signed by {len(draft.signed)} of the {people} that root "
            f"{chain.root.version} demands for a release",
            evidence=(f"signed by {', '.join(draft.signed) if draft.signed else 'nobody it trusts'}",),
            hints=("sign it: gridops trust sign policies/trust/catalog.json",),
        )
    return draft.catalog


def take(known: KnownCatalog, chain: RootChain, text: str) -> KnownCatalog:
    """The knowledge with this catalog. Raises Refusal and changes nothing where it may not take the place.

    The same one signed anew is taken: identity is the payload's. Another one of the same version is not.
    """
    if chain.root.catalog == 0:
        return NONE_KNOWN
    catalog, least = open_catalog(chain, text), demanded(known, chain)
    if catalog.version < least:
        raise Refusal(
            fence_codes.OLD_CATALOG.code,
            f"catalog {catalog.version} came, and version {least} is the least that counts here",
        )
    if catalog.version == known.floor and known.text is not None and _payload(known.text) != _payload(text):
        raise Refusal(
            fence_codes.OLD_CATALOG.code, f"another catalog {catalog.version} than the one that is known here came"
        )
    return KnownCatalog(catalog.version, text, catalog)


def again(known: KnownCatalog, chain: RootChain) -> KnownCatalog:
    """The same knowledge judged by a newer root: what its people did not sign says nothing any more."""
    if chain.root.catalog == 0 or known.text is None:
        return NONE_KNOWN if chain.root.catalog == 0 else known
    try:
        catalog: Catalog | None = open_catalog(chain, known.text)
    except Refusal:
        catalog = None
    return replace(known, catalog=catalog)


def walked(chain: RootChain, known: KnownCatalog, texts: Sequence[str]) -> tuple[RootChain, KnownCatalog]:
    """Chain and knowledge after these root documents. Each on the way is asked: one of them may end what the last one
    asks for anew. Raises Refusal, as `root.walk` does."""
    for text in texts:
        ahead = walk(chain, (text,))
        if ahead is not chain:
            chain, known = ahead, again(known, ahead)
    return chain, known


def seal_catalog(catalog: Catalog, *signers: Signer) -> str:
    """Sign a catalog. One that could never hold is refused; thresholds are not asked here."""
    _check(catalog)
    return envelope.seal("catalog", to_bytes(catalog), *signers)


@dataclass(frozen=True, slots=True)
class CatalogDraft:
    """A catalog on its way from hand to hand."""

    catalog: Catalog
    text: str
    need: int
    signed: tuple[PersonName, ...]
    missing: tuple[PersonName, ...]
    """Who may sign and has not."""

    @property
    def complete(self) -> bool:
        return self.need > 0 and len(self.signed) >= self.need


def read_catalog(chain: RootChain, text: str | bytes) -> CatalogDraft:
    """A catalog and who of the newest root's release people signed it. Raises Refusal where it could never hold."""
    sealed = envelope.split(text, kind="catalog")
    try:
        canon.loads(sealed.payload)
    except canon.NotCanonical as error:
        raise Refusal(
            codes.NOT_CANONICAL.code, f"the payload of the signed catalog is not canonical: {error}"
        ) from error
    catalog = envelope.read_record(Catalog, sealed.payload, "catalog")
    _check(catalog)
    if catalog.fleet != chain.fleet:
        raise Refusal(codes.WRONG_FLEET.code, f"the catalog is of fleet {catalog.fleet}, not of {chain.fleet}")
    signers = envelope.verified(sealed, "catalog", keys_of(chain.root, RoleName.RELEASE))
    role = chain.root.role(RoleName.RELEASE)
    entries = role.keys if role is not None else ()
    signed = _people(signers, {entry.key: entry.holder for entry in entries})
    missing = {entry.holder for entry in entries} - set(signed)
    said = text if isinstance(text, str) else text.decode()
    return CatalogDraft(catalog, said, chain.threshold(RoleName.RELEASE), signed, tuple(sorted(missing)))


def _people(signers: Sequence[PublicKey], holders: dict[str, PersonName]) -> tuple[PersonName, ...]:
    """Distinct people with distinct keys: the root lets no key have two holders, and one with two keys is one."""
    return tuple(sorted({holders[key.text] for key in signers}))


def _payload(text: str) -> bytes:
    return envelope.split(text, kind="catalog").payload


def _check(catalog: Catalog) -> None:
    """Refuse a catalog that contradicts itself, or is larger than one may be."""
    where = f"catalog {catalog.version}"
    if catalog.v != 1 or catalog.version < 1:
        raise _no(where, "its version begins at 1, and its form `v` is 1")
    names = [entry.name for entry in catalog.entries]
    if names != sorted(set(names)):
        raise _no(where, "its entries are not sorted by name, each once")
    if len(names) > limits.CATALOG_ENTRIES:
        raise _no(where, f"it has {len(names)} entries, at most {limits.CATALOG_ENTRIES} are read")
    for entry in catalog.entries:
        _check_entry(where, entry)


def _check_entry(where: str, entry: Entry) -> None:
    sorted_sets = {
        "backends": entry.backends,
        "builds": entry.builds,
        "variables": entry.environment,
        "artifacts": tuple(f"{files.content} {files.source or ''}" for files in entry.artifacts),
        "arguments": tuple(slot.name for slot in entry.args),
    }
    for what, names in sorted_sets.items():
        if list(names) != sorted(set(names)):
            raise _no(where, f"the {what} of entry {entry.name} are not sorted, each once")
        if len(names) > limits.CATALOG_LIST:
            raise _no(where, f"entry {entry.name} has {len(names)} {what}, at most {limits.CATALOG_LIST} are read")
    if not entry.name or not entry.backends or not entry.artifacts:
        raise _no(where, f"entry {entry.name[:80]!r} needs a name, a backend and files")
    if min(entry.context, entry.lanes, entry.devices) < 1 or min(entry.device_bytes, entry.host_bytes) < 0:
        raise _no(where, f"entry {entry.name} has a bound that admits nothing")
    for slot in entry.args:
        _check_slot(where, entry, slot)


def _check_slot(where: str, entry: Entry, slot: Slot) -> None:
    name = f"the argument {slot.name} of entry {entry.name}"
    if list(slot.values) != sorted(set(slot.values)) or len(slot.values) > limits.CATALOG_LIST:
        raise _no(where, f"{name} has values that are not sorted, each once, at most {limits.CATALOG_LIST}")
    if (slot.low is None) != (slot.high is None) or (slot.low or 0) > (slot.high or 0):
        raise _no(where, f"{name} has a range without an end, or one that ends before it begins")


def _no(where: str, why: str) -> Refusal:
    return Refusal(codes.BAD_SCHEMA.code, f"{where} cannot hold: {why}", subject=where)
