"""A hardware token signs: `ssh-keygen` is asked, because it knows how to reach tokens and their holders' agent.

Called by `person` for a key whose `.pub` file says `sk-ssh-ed25519`. What comes back counts only if it verifies here;
no private part is ever seen. The one place of the command line that starts a process.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from gridops.base.errors import Failed
from gridops.cli.named import text_at
from gridops.trust import sshsig
from gridops.trust.keys import PublicKey, namespace, parse_key

KEYGEN = "ssh-keygen"
TOUCH_S = 120
"""How long a person may look for the token. Tokens themselves give up sooner."""


@dataclass(frozen=True, slots=True)
class TokenSigner:
    """Signs as the holder of a token. The file is the handle that OpenSSH wrote, or the `.pub` file of a key that an
    SSH agent holds."""

    path: Path
    public: PublicKey

    def sign(self, kind: str, pae: bytes) -> bytes:
        """The token's signature. Raises Failed where none came, or not the one that was asked for."""
        asks = [KEYGEN, "-Y", "sign", "-f", str(self.path), "-n", namespace(kind)]
        try:
            done = subprocess.run(asks, input=pae, stdout=subprocess.PIPE, timeout=TOUCH_S, check=False)
        except FileNotFoundError:
            raise Failed(
                f"{self.path}: a key of a hardware token, and there is no ssh-keygen here to ask it",
                hints=("install OpenSSH's client (on Debian: openssh-client)",),
            ) from None
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.path}: the token was not touched within {TOUCH_S} s; nothing was signed") from None
        hints = ("is it plugged in, or does the SSH agent that holds it run?", f"alone: {' '.join(asks[:-1])} test")
        if done.returncode != 0:
            raise Failed(f"{self.path}: the token did not sign (what ssh-keygen says stands above)", hints=hints)
        try:
            block = sshsig.dearmor(done.stdout.decode("ascii", "replace"))
        except ValueError as error:
            raise Failed(f"{self.path}: what ssh-keygen answered is {error}", hints=hints) from error
        if not self.public.verifies(kind, pae, block):
            raise Failed(
                f"{self.path}: what came back is no signature of this key with a touch; nothing was signed",
                hints=("a key that was made with no-touch-required does not count here", *hints),
            )
        return block


def token_at(path: Path) -> TokenSigner | None:
    """The signer of the token whose key is named by `path`, or by the `.pub` file beside it; None where it is none."""
    public = path.with_name(path.name + ".pub")
    try:
        key = parse_key(text_at(public))
    except (OSError, ValueError):
        return None
    return TokenSigner(path if path.exists() else public, key) if key.in_token else None
