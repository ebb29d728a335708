"""Another key for this host: made here, signed over to by the present one, and taken when people have committed it.

`request` is `gridops-agent rekey`. The running agent goes on with the present key until its controller knows it no
more, which is the commit; then `promote` puts the next one in its place. The ledger says first which key is the host's,
so that a crash between the two is finished at the next start (`settle`). Former public keys are kept, because what they
signed about this machine stays true.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from gridops.base.errors import BadSetup, Failed
from gridops.base.record import to_bytes
from gridops.disk.atomic import sync_directory, write_atomic
from gridops.disk.failpoint import point
from gridops.disk.keyring import create_secret, read_secret
from gridops.protocol.messages import Facts, JoinRequest, Rekey
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner, PublicKey, parse_key
from gridops.trust.root import RootChain
from gridops_agent.client import Controller
from gridops_agent.config import Config
from gridops_agent.ledger import Ledger

FORMER_KEPT = 64
"""Former public keys of one host. Double: nothing; half: what a host that takes a key each month measured five years
ago is still believed."""


def next_signer(config: Config) -> MachineSigner | None:
    """The key that waits for people's commit; None while there is none."""
    if not config.next_seed.exists():
        return None
    try:
        return MachineSigner.from_seed(read_secret(config.next_seed))
    except ValueError as error:
        hints = ("remove it, and call `gridops-agent rekey` again",)
        raise BadSetup(f"{config.next_seed}: not a host key: {error}", hints=hints) from error


async def request(config: Config, chain: RootChain, facts: Facts) -> PublicKey:
    """Make the next key, unless one waits, and ask that it be admitted. The next public key. Raises Refusal."""
    present = MachineSigner.from_seed(read_secret(config.seed))
    if not config.next_seed.exists():
        create_secret(config.next_seed, os.urandom(32))
    coming = next_signer(config)
    assert coming is not None
    nonce = secrets.token_hex(16)
    names = {"fleet": config.fleet, "host": config.host, "nonce": nonce}
    over = Rekey(host_key=present.public.text, next_key=coming.public.text, **names)  # type: ignore[arg-type]
    asked = JoinRequest(
        host_key=coming.public.text,
        facts=facts,
        mac="",
        over=seal("rekey", to_bytes(over), present),
        **names,  # type: ignore[arg-type]
    )
    controller = Controller.pinned(config.controller, chain.root.controller_tls)
    try:
        await controller.join(seal("join", to_bytes(asked), coming))
    finally:
        await controller.close()
    return coming.public


def promote(config: Config) -> None:
    """The next key is the key. The seed of the one before is gone for good: nobody believes what it could sign."""
    former = MachineSigner.from_seed(read_secret(config.seed)).public.text
    kept = [text for text in _former_lines(config.former_keys) if text != former]
    write_atomic(config.former_keys, "".join(f"{text}\n" for text in [*kept, former][-FORMER_KEPT:]).encode())
    with point("host_key.promote"):
        config.next_seed.replace(config.seed)
        sync_directory(config.seed.parent)


def settle(config: Config) -> None:
    """Finish what a crash left half done: the ledger is that of the next key already."""
    coming = next_signer(config)
    if coming is not None and Ledger.whose(config.ledger) == coming.public.text:
        promote(config)


def former_keys(config: Config) -> tuple[PublicKey, ...]:
    """The public keys that this host had before."""
    return tuple(parse_key(text) for text in _former_lines(config.former_keys))


def _former_lines(file: Path) -> list[str]:
    try:
        return file.read_text("ascii").split()
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{file}: cannot be read: {error}") from error
