"""What the ledger remembers, as rows: which kinds there are, a host into rows, and rows into a host again.

A row is named by its kind and its key and carries the digest of both and of its content. Called by `ledger`, which
alone reads and writes the file; nothing here opens anything. A row's kind is what older and newer agents know it by:
a record may get new fields with defaults, and its kind never gets another meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gridops.base import canon
from gridops.base.errors import BadSetup, Refusal
from gridops.base.ids import DeviceId, Digest, HostId
from gridops.base.record import digest_of, record
from gridops.protocol.fence import Decided, Fence, new_fence
from gridops.protocol.messages import Head, Receipt, Term
from gridops.protocol.receipts import Receipts, new_receipts
from gridops.trust.release import NONE_KNOWN, KnownCatalog, again
from gridops.trust.root import RootChain, genesis, walk
from gridops_agent.core.state import Brake, Command, Count, Guess, Held, Host, LastWord

Rows = Mapping[tuple[str, str], Any]
"""Records by kind and key."""


@record
class Identity:
    """Whose ledger this is."""

    fleet: Digest
    host: HostId
    host_key: str


@record
class FenceRow:
    term: Term
    head: Head


@record
class ReceiptsRow:
    head: int
    prev: Digest
    acked: int


@record
class RootRow:
    text: str


@record
class CatalogRow:
    """The newest catalog that was proved here. The floor stays where a newer root believes its signatures no more."""

    floor: int
    text: str | None = None


@record
class FileProof:
    """A file whose SHA-256 was computed, and how the file looked then. Any change of the look voids it."""

    sha256: Digest
    look: str
    """Size, times to the nanosecond, inode and device; as text, since such numbers exceed what JSON keeps exactly."""


@record
class Note:
    """A small fact that is kept over restarts, such as the front's port."""

    text: str


KINDS: Mapping[str, type[Any]] = MappingProxyType(
    {
        "identity": Identity,
        "root": RootRow,
        "fence": FenceRow,
        "decided": Decided,
        "receipts": ReceiptsRow,
        "receipt": Receipt,
        "word": LastWord,
        "brake": Brake,
        "catalog": CatalogRow,
        "command": Command,
        "held": Held,
        "count": Count,
        "guess": Guess,
        "proof": FileProof,
        "note": Note,
    }
)
HOST_KINDS = tuple(sorted(KINDS.keys() - {"proof", "note"}))
"""What a host is made of; the others are kept beside it, read and written one by one."""
STEP_KINDS = tuple(kind for kind in HOST_KINDS if kind != "identity")
"""What a step of the heart changes; whose the ledger is changes only when the host takes another key or fleet."""


def rows_of(host: Host) -> Rows:
    """A host as rows. Values are the very objects of the host, so that an unchanged row is found without comparing."""
    fence = host.fence
    rows: dict[tuple[str, str], Any] = {
        ("identity", ""): Identity(fleet=fence.fleet, host=fence.host, host_key=fence.host_key),
        ("fence", ""): FenceRow(term=host.fence.term, head=host.fence.head),
        ("receipts", ""): ReceiptsRow(head=host.receipts.head, prev=host.receipts.prev, acked=host.receipts.acked),
        ("word", ""): host.last_word,
        ("brake", ""): host.brake,
    }
    if host.known.floor:
        rows["catalog", ""] = CatalogRow(floor=host.known.floor, text=host.known.text)
    rows |= root_rows(host.roots)
    rows |= {("decided", f"{d.seq:012d}"): d for d in host.fence.decided}
    rows |= {("receipt", f"{r.rseq:012d}"): r for r in host.receipts.kept}
    rows |= {("command", digest): command for digest, command in host.commands.items()}
    rows |= {("held", digest): held for digest, held in host.held.items()}
    rows |= {("count", device): count for device, count in host.counts.items()}
    rows |= {("guess", digest): guess for digest, guess in host.guesses.items()}
    return rows


def root_rows(roots: tuple[str, ...]) -> Rows:
    return {("root", f"{n:06d}"): RootRow(text=text) for n, text in enumerate(roots, start=1)}


def host_of(rows: Rows, boot: str) -> Host:
    """Everything a host remembers. Raises BadSetup when it is nobody's, or when the root documents do not hold."""
    identity = rows.get(("identity", ""))
    if identity is None:
        raise BadSetup("the ledger names no host")
    chain, roots = _chain(tuple(row.text for row in _each(rows, "root").values()), identity)
    return Host(
        boot=boot,
        chain=chain,
        roots=roots,
        fence=_fence(rows, identity),
        receipts=_receipts(rows, identity),
        last_word=rows.get(("word", "")) or LastWord(),
        brake=rows.get(("brake", "")) or Brake(),
        known=_catalog(rows, chain),
        commands=MappingProxyType({Digest(key): row for key, row in _each(rows, "command").items()}),
        held=MappingProxyType({Digest(key): row for key, row in _each(rows, "held").items()}),
        counts=MappingProxyType({DeviceId(key): row for key, row in _each(rows, "count").items()}),
        guesses=MappingProxyType({Digest(key): row for key, row in _each(rows, "guess").items()}),
    )


def _each(rows: Rows, kind: str) -> dict[str, Any]:
    return {key: rows[of, key] for of, key in sorted(rows) if of == kind}


def _chain(roots: tuple[str, ...], identity: Identity) -> tuple[RootChain, tuple[str, ...]]:
    if not roots:
        raise BadSetup(
            "the ledger holds no root document any more",
            hints=("join this host again with a new token: gridops-agent join TOKEN",),
        )
    try:
        return walk(genesis(roots[0], identity.fleet), roots[1:]), roots
    except Refusal as refusal:
        raise BadSetup(f"the root documents in the ledger do not hold: {refusal.message}") from refusal


def _catalog(rows: Rows, chain: RootChain) -> KnownCatalog:
    """It was proved when it was written; whether the newest root still believes it is asked again."""
    row = rows.get(("catalog", ""))
    return NONE_KNOWN if row is None else again(KnownCatalog(row.floor, row.text), chain)


def _fence(rows: Rows, identity: Identity) -> Fence:
    row = rows.get(("fence", ""))
    if row is None:
        return new_fence(identity.fleet, identity.host, identity.host_key)
    return Fence(
        fleet=identity.fleet,
        host=identity.host,
        host_key=identity.host_key,
        term=row.term,
        head=row.head,
        decided=tuple(_each(rows, "decided").values()),
    )


def _receipts(rows: Rows, identity: Identity) -> Receipts:
    row = rows.get(("receipts", ""))
    if row is None:
        return new_receipts(identity.fleet, identity.host, identity.host_key)
    return Receipts(
        fleet=identity.fleet,
        host=identity.host,
        head=row.head,
        prev=row.prev,
        acked=row.acked,
        kept=tuple(_each(rows, "receipt").values()),
    )


def row_digest(kind: str, key: str, value: bytes) -> str:
    """What a row carries, so that neither its content nor its name can change unnoticed."""
    return canon.digest_bytes(b"\x00".join((kind.encode(), key.encode(), value)))


def broken_chain(kept: tuple[Receipt, ...], chained: ReceiptsRow | None) -> str | None:
    """Where the newest receipts do not follow each other without a gap up to the head; None when they do."""
    by_number = {receipt.rseq: receipt for receipt in kept}
    if chained is None:
        return "receipts without their head" if kept else None
    newest = by_number.get(chained.head)
    if chained.head and (newest is None or digest_of(newest) != chained.prev):
        return f"receipt {chained.head} is missing or is not the one the chain ends with"
    for receipt in kept:
        before = by_number.get(receipt.rseq - 1)
        if before is not None and receipt.prev != digest_of(before):
            return f"receipt {receipt.rseq} does not follow receipt {before.rseq}"
    return None
