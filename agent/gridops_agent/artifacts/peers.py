"""Other agents on the same network that may have a file already: asked by digest before the artifact's own source.

A peer proves itself by the certificate that agent.toml names, this host by the key that such hosts share. Whatever a
peer sends, the digest decides: one that lies or is slow costs time and nothing else.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from gridops.model.profile import ArtifactFile
from gridops_agent.artifacts.http import bearer
from gridops_agent.artifacts.settings import Peer, Secrets, Settings
from gridops_agent.artifacts.sources import Source, Stream
from gridops_agent.artifacts.wire import Ask, Wire

BLOBS = "/v1/blobs/"


def peers_of(settings: Settings, secrets: Secrets) -> tuple[Source, ...]:
    """The peers of this host, in the order of agent.toml. Raises Refusal when their key cannot be read."""
    if not settings.peers:
        return ()
    secret = bearer(secrets, settings.peer_credential)
    return tuple(PeerSource(peer, secret) for peer in settings.peers)


class PeerSource:
    """One mirror."""

    kind, trusted = "peer", False

    def __init__(self, peer: Peer, secret: str | None) -> None:
        self._peer = peer
        self._secret = secret

    def open(
        self, wire: Wire, file: ArtifactFile, offset: int, etag: str | None
    ) -> AbstractAsyncContextManager[Stream]:
        url = f"{self._peer.url}{BLOBS}{file.sha256}"
        ask = Ask(url, secret=self._secret, offset=offset, cert=bytes.fromhex(self._peer.cert))
        return wire.bytes_of(ask, file.size_bytes)
