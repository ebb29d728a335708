"""Another key for this host: made here, signed over to by the present one, and taken when people have committed it.

`request` is `gridops-agent rekey`. The running agent goes on with the present key until its controller knows it no
more, which is the commit; then `promote` puts the next one in its place. The ledger says first which key is the host's,
so that a crash between the two is finished at the next start (`settle`). Former public keys are kept, because what they
signed about this machine stays true.
"""

from __future__ import annotations

import json
import os
import secrets

from gridops.base.errors import BadSetup
from gridops.base.record import to_bytes
from gridops.disk.atomic import read_checked, sync_directory, write_checked
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


def prepare(config: Config) -> None:
    """Make the next key, unless one waits."""
    if config.next_seed.exists() and config.next_public.exists():
        return
    seed = os.urandom(32)
    create_secret(config.next_seed, seed, instead=True)  # of a try that was cut off, and asked for nothing
    write_checked(config.next_public, MachineSigner.from_seed(seed).public.text.encode())


def next_signer(config: Config) -> MachineSigner | None:
    """The key that waits for people's commit; None while there is none. Raises BadSetup for one that has rotted."""
    if not config.next_seed.exists():
        return None
    try:
        found = MachineSigner.from_seed(read_secret(config.next_seed))
        if read_checked(config.next_public) != found.public.text.encode():
            raise ValueError("it is not the key that was asked for")
    except (OSError, ValueError) as error:
        hints = (f"remove it and {config.next_public}, and call `gridops-agent rekey` again",)
        raise BadSetup(f"{config.next_seed}: not the next key of this host: {error}", hints=hints) from error
    return found


async def request(config: Config, chain: RootChain, facts: Facts) -> PublicKey:
    """Make the next key, unless one waits, and ask that it be admitted. The next public key. Raises Refusal."""
    present = MachineSigner.from_seed(read_secret(config.seed))
    prepare(config)
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
    former = MachineSigner.from_seed(read_secret(config.seed)).public
    kept = [key for key in former_keys(config)[0] if key != former]
    write_checked(config.former_keys, json.dumps([key.text for key in [*kept, former][-FORMER_KEPT:]]).encode())
    with point("host_key.promote"):
        config.next_seed.replace(config.seed)
        sync_directory(config.seed.parent)
    config.next_public.unlink(missing_ok=True)


def settle(config: Config) -> None:
    """Finish what a crash left half done: the ledger is that of the next key already."""
    whose = Ledger.whose(config.ledger)
    if whose is None or whose == MachineSigner.from_seed(read_secret(config.seed)).public.text:
        return
    coming = next_signer(config)
    if coming is not None and whose == coming.public.text:
        promote(config)


def former_keys(config: Config) -> tuple[tuple[PublicKey, ...], str | None]:
    """The public keys that this host had before; none, and why, where the file is not what was written."""
    try:
        texts = json.loads(read_checked(config.former_keys))  # a list, so that one that is cut off is none
        return tuple(parse_key(text) for text in texts), None
    except FileNotFoundError:
        return (), None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        return (), f"{config.former_keys} is not used: {error}"
