"""The controller's state folder: where its keys lie and how they are read. State never lies in the checkout.

`gridops trust init` writes the keys; `watch` reads them here, or from what systemd hands over. A missing or open key is
a BadSetup that says what to do; a key's bytes never leave this module except as a signer or a file name for the TLS
listener.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from gridops.base.errors import BadSetup
from gridops.base.ids import CommitId, Digest, HostId, short
from gridops.base.record import Malformed, from_bytes, record, to_bytes
from gridops.disk.atomic import read_checked, sync_directory, write_checked
from gridops.disk.credentials import credential, read_credential
from gridops.disk.failpoint import point
from gridops.disk.keyring import create_secret, read_secret
from gridops.protocol.messages import GatewayKey
from gridops.trust.keys import MachineSigner
from gridops.trust.secret import Secret, digest_of_secret

SEED = "keys/controller.seed"
NEXT_SEED = "keys/controller.next.seed"
"""Waits for the root document that names it: `gridops trust rotate controller` writes it."""
TLS_CERT = "keys/controller.tls.pem"
TLS_KEY = "keys/controller.tls.key"
NEXT_TLS_CERT = "keys/controller.next.tls.pem"
NEXT_TLS_KEY = "keys/controller.next.tls.key"
"""Wait, both, for the root document that pins that certificate alone: `gridops trust rotate tls` writes them."""
GATEWAY = "keys/gateway.key"
CREDENTIALS = {
    SEED: "gridops.controller.seed",
    TLS_KEY: "gridops.controller.tls.key",
    GATEWAY: "gridops.gateway.key",
}
"""What the service manager may hand over instead (`LoadCredential=`). A file in the folder comes first: a rotation
writes the newer key there."""
INVITES = "keys/invites"
ACCEPTED = "accepted.json"


@record
class Kept:
    """What was in force last, beside the journal: a lost journal must not let a branch begin anew."""

    v: int = 1
    commit: CommitId
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateDir:
    """One folder, by its paths."""

    path: Path

    @property
    def tls_cert(self) -> Path:
        return self.path / TLS_CERT

    @property
    def tls_key(self) -> Path:
        return self._handed(TLS_KEY) or self.path / TLS_KEY

    def signer(self) -> MachineSigner:
        """The controller's signing key."""
        path = self._handed(SEED) or self._present(SEED)
        try:
            return MachineSigner.from_seed(self.secret(SEED))
        except ValueError as error:
            raise BadSetup(f"{path}: not a controller key: {error}") from error

    def _handed(self, name: str) -> Path | None:
        """Where the service manager put a secret that lies not in the folder."""
        return None if os.path.lexists(self.path / name) else credential(CREDENTIALS[name])

    def secret(self, name: str) -> bytes:
        """One of the secrets that may come from either place. Raises BadSetup."""
        handed = self._handed(name)
        return read_credential(handed) if handed is not None else read_secret(self._present(name))

    @property
    def whole(self) -> bool:
        """Nothing that a controller needs is missing, be it good or not."""
        found = (name for name in (SEED, TLS_KEY) if self._handed(name) is not None or (self.path / name).exists())
        return self.tls_cert.exists() and len(tuple(found)) == 2

    def doubled(self) -> tuple[str, ...]:
        """Secrets that lie in the folder and are handed over with another content: the folder's count."""
        found = []
        for name, called in CREDENTIALS.items():
            handed = credential(called)
            if handed is not None and (self.path / name).exists():
                found += [called] if read_credential(handed) != read_secret(self.path / name) else []
        return tuple(found)

    def next_signer(self) -> MachineSigner | None:
        """The key that takes its place once the root names that one alone; None while no rotation is under way."""
        path = self.path / NEXT_SEED
        return self._key(path) if path.exists() else None

    def promote(self) -> None:
        """The next key is the key. The one before is gone for good: nothing that it could sign would be believed."""
        path = self.path / NEXT_SEED
        with point("key.promote"):
            path.replace(self.path / SEED)
            sync_directory(path.parent)

    def next_tls(self) -> str | None:
        """The certificate that takes the place of the present one; None while no rotation is under way."""
        cert = self.path / NEXT_TLS_CERT
        return cert.read_text("ascii") if cert.exists() and (self.path / NEXT_TLS_KEY).exists() else None

    def promote_tls(self) -> None:
        """The next certificate and its key are the ones to show from now on."""
        key = self.path / NEXT_TLS_KEY
        key.replace(self.path / TLS_KEY)
        sync_directory(key.parent)
        self.settle_tls()

    def settle_tls(self) -> None:
        """Finish what a crash left half done: a certificate whose key has taken its place already."""
        cert = self.path / NEXT_TLS_CERT
        if cert.exists() and not (self.path / NEXT_TLS_KEY).exists():
            cert.replace(self.path / TLS_CERT)
            sync_directory(cert.parent)

    def _key(self, path: Path) -> MachineSigner:
        try:
            return MachineSigner.from_seed(read_secret(path))
        except ValueError as error:
            raise BadSetup(f"{path}: not a controller key: {error}") from error

    def gateway_keys(self) -> tuple[GatewayKey, ...]:
        """What hosts may believe clients by: digests, never the values."""
        if not (self.path / GATEWAY).exists() and self._handed(GATEWAY) is None:
            return ()
        value = Secret(self.secret(GATEWAY).strip())
        return (GatewayKey(name="gateway", sha256=digest_of_secret(value)),)

    def accepted(self) -> Kept | None:
        """What was in force when the newest commit was accepted; None before the first."""
        path = self.path / ACCEPTED
        try:
            return from_bytes(Kept, read_checked(path))
        except FileNotFoundError:
            return None
        except (Malformed, ValueError) as error:
            hints = ("a controller that knows its journal writes it again: move it away, and start",)
            raise BadSetup(f"{path}: cannot be read: {error}", hints=hints) from error

    def keep_accepted(self, kept: Kept) -> None:
        if self.accepted() != kept:
            write_checked(self.path / ACCEPTED, to_bytes(kept))

    def check_tls(self) -> None:
        """Both halves are there, and the private one is private."""
        self._present(TLS_CERT)
        self.secret(TLS_KEY)

    def keep_invite(self, host: HostId, key: bytes) -> None:
        """Keep the MAC key of an invitation; a newer invitation of the same host replaces it."""
        folder = self.path / INVITES
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        create_secret(folder / f"{host}.key", key, instead=True)

    def invite_key(self, host: HostId) -> bytes | None:
        path = self.path / INVITES / f"{host}.key"
        return read_secret(path) if path.exists() else None

    def forget_invite(self, host: HostId) -> None:
        (self.path / INVITES / f"{host}.key").unlink(missing_ok=True)

    def _present(self, name: str) -> Path:
        path = self.path / name
        if not path.exists():
            hints = ["make the keys of a new fleet: gridops trust init", "or name the folder: --state DIR"]
            if name in CREDENTIALS:
                hints.append(f"or let systemd hand it over: LoadCredential={CREDENTIALS[name]}:PATH")
            raise BadSetup(f"{path}: missing", hints=hints)
        return path


def default_state(fleet: Digest, uid: int | None = None) -> Path:
    """Where a fleet's state lies when nobody says: the system's place for root, the XDG state folder for a person."""
    base = os.environ.get("XDG_STATE_HOME")
    if (os.geteuid() if uid is None else uid) == 0 and not base:  # an empty one counts as unset, says XDG
        return Path("/var/lib/gridops") / short(fleet, 16)
    base = base or str(Path.home() / ".local" / "state")
    return Path(base) / "gridops" / short(fleet, 16)
