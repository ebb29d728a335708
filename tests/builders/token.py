"""A hardware token in software, and an SSH agent that holds it: what a person with a real one has at hand.

Signs as PROTOCOL.u2f of OpenSSH says; `ssh-keygen` is the judge of it (`tests/trust/test_token.py`).
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gridops.trust import sshsig
from gridops.trust.keys import PublicKey, namespace

TOUCHED, KNOWN = b"\x01", b"\x05"
IDENTITIES, IDENTITIES_ANSWER, SIGN, SIGN_RESPONSE, FAILURE = 11, 12, 13, 14, 5


def string(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


@dataclass
class Token:
    """One key for one application. `flags` is what it says of its holder; its counter rises with each signature."""

    seed: bytes
    application: str = "ssh:"
    flags: bytes = TOUCHED
    counter: int = 0
    asked: list[bytes] = field(default_factory=list)

    @property
    def ssh(self) -> sshsig.SshKey:
        raw = Ed25519PrivateKey.from_private_bytes(self.seed).public_key().public_bytes_raw()
        return sshsig.SshKey(raw, self.application)

    @property
    def public(self) -> PublicKey:
        return PublicKey.of_ssh(self.ssh)

    def raw_signature(self, data: bytes) -> bytes:
        """What the token itself gives for some bytes, as OpenSSH writes it."""
        self.asked.append(data)
        self.counter += 1
        tail = self.flags + struct.pack(">I", self.counter)
        application = hashlib.sha256(self.application.encode()).digest()
        private = Ed25519PrivateKey.from_private_bytes(self.seed)
        signature = private.sign(application + tail + hashlib.sha256(data).digest())
        return string(sshsig.TOKEN_TYPE.encode()) + string(signature) + tail

    def sign_for(self, space: str, message: bytes) -> bytes:
        """The block that `ssh-keygen -Y sign` makes of it."""
        inner = string(space.encode()) + string(b"") + string(b"sha512")
        data = b"SSHSIG" + inner + string(hashlib.sha512(message).digest())
        head = b"SSHSIG" + struct.pack(">I", 1) + string(self.ssh.blob)
        return head + inner + string(self.raw_signature(data))

    def sign(self, kind: str, pae: bytes) -> bytes:
        return self.sign_for(namespace(kind), pae)


@contextmanager
def agent(token: Token, where: Path) -> Iterator[str]:
    """An SSH agent that holds the token, on a socket in `where`; gives the value of `SSH_AUTH_SOCK`."""
    path = where / "agent"
    listener = socket.socket(socket.AF_UNIX)
    # A path of a test may be longer than a socket's may.
    before = Path.cwd()
    os.chdir(where)
    try:
        listener.bind("agent")
    finally:
        os.chdir(before)
    listener.listen()
    thread = threading.Thread(target=_serve, args=(listener, token), daemon=True)
    thread.start()
    try:
        yield str(path)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)


def _serve(listener: socket.socket, token: Token) -> None:
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller, caller.makefile("rb") as asks:
            while len(head := asks.read(4)) == 4:
                caller.sendall(string(_answer(asks.read(struct.unpack(">I", head)[0]), token)))


def _answer(ask: bytes, token: Token) -> bytes:
    if ask[0] == IDENTITIES:
        return bytes([IDENTITIES_ANSWER]) + struct.pack(">I", 1) + string(token.ssh.blob) + string(b"a token")
    own = string(token.ssh.blob)
    if ask[0] == SIGN and ask[1:].startswith(own):
        size = struct.unpack(">I", ask[1 + len(own) : 5 + len(own)])[0]
        return bytes([SIGN_RESPONSE]) + string(token.raw_signature(ask[5 + len(own) : 5 + len(own) + size]))
    return bytes([FAILURE])
