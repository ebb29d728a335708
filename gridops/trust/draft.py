"""A root document that is not signed by enough people yet: who has signed it, and who may still.

People sign one after the other, each at home; the document goes from hand to hand until `RootChain.advance` takes it.
This says in between how far it is. The CLI calls it. Must never say that a document counts: only the chain does.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.ids import PersonName
from gridops.trust import envelope
from gridops.trust.keys import PublicKey
from gridops.trust.root import RoleName, Root, RootChain, keys_of, read_root


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two roots whose people have to sign."""

    version: int
    need: int
    signed: tuple[PersonName, ...]
    missing: tuple[PersonName, ...]
    """Who may sign and has not."""

    @property
    def enough(self) -> bool:
        return len(self.signed) >= self.need


@dataclass(frozen=True, slots=True)
class Draft:
    """Root N+1 on its way."""

    root: Root
    text: str
    old: Side
    """The people of root N."""
    new: Side

    @property
    def complete(self) -> bool:
        return self.old.enough and self.new.enough

    @property
    def may_sign(self) -> tuple[PersonName, ...]:
        """Everybody whose signature would still count for one of the two."""
        asked = [*(() if self.old.enough else self.old.missing), *(() if self.new.enough else self.new.missing)]
        return tuple(sorted(set(asked)))


def read_draft(chain: RootChain, text: str) -> Draft:
    """A document and who signed it so far. Raises Refusal where it is no root document, or could never follow."""
    sealed = envelope.split(text, kind="root")
    root = read_root(sealed)
    chain.require_next(root)
    return Draft(root, text, _side(chain.root, sealed), _side(root, sealed))


def _side(root: Root, sealed: envelope.Sealed) -> Side:
    role = root.role(RoleName.ROOT)
    assert role is not None  # `read_root` refuses a root without it
    signers: tuple[PublicKey, ...] = envelope.verified(sealed, "root", keys_of(root, RoleName.ROOT))
    texts = {key.text for key in signers}
    signed = {entry.holder for entry in role.keys if entry.key in texts}
    everybody = {entry.holder for entry in role.keys}
    return Side(root.version, role.threshold, tuple(sorted(signed)), tuple(sorted(everybody - signed)))
