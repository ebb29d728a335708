"""A thief with the controller's key who sits on the wire and makes of each directive what it must not be (B5, 1 to 8).

Each is refused for its own reason and changes nothing for long: the next true directive says it again. Who gives
commands of his own, for good refused or by numbers that are decided, is in `usurper`.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import replace

from gridops.base.ids import Digest, HostId
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.lab.dice import Dice
from gridops.lab.options import Options
from gridops.lab.trace import Trace
from gridops.protocol.messages import Directive, Grant
from gridops.trust.envelope import pae, payload_type, seal
from gridops.trust.keys import MachineSigner

FAR_MS = 3_600_000
KEPT = 20


class Forger:
    """One wire-tapper of one run."""

    def __init__(self, options: Options, machine: MachineSigner, trace: Trace) -> None:
        self._options = options
        self._machine = machine
        self._trace = trace
        self._dice = Dice(options.seed, "forger")
        self._directives: dict[HostId, str] = {}
        self._grants: list[str] = []
        self.spoilt: set[Digest] = set()
        """Commands that came with a grant whose time was over."""

    def passes_on(self, host: HostId, envelope: str) -> str:
        """A directive on its way to a host."""
        if not self._options.forger_ppm:
            return envelope
        said = from_bytes(Directive, b64decode(json.loads(envelope)["payload"]))
        self._directives[host] = envelope
        self._grants = [*self._grants, *said.grants][-KEPT:]
        if not self._dice.happens(self._options.forger_ppm):
            return envelope
        self._trace.saw("a directive was forged")
        return self._whole(host, envelope, said) if self._dice.happens(400_000) else self._with(said)

    def _whole(self, host: HostId, envelope: str, said: Directive) -> str:
        """Something else in its place."""
        match self._dice.between(1, 6):
            case 1:
                return envelope[: len(envelope) // 2]
            case 2:
                return seal("directive", to_bytes(said), MachineSigner.from_seed(b"t" * 32))
            case 3:
                others = [text for name, text in sorted(self._directives.items()) if name != host]
                return self._dice.one_of(others) if others else envelope
            case 4:
                return self._loose(b" " + to_bytes(said))
            case 5:
                return seal("grant", to_bytes(said), self._machine)
            case _:
                return self._sealed(replace(said, fleet=Digest("sha256:" + "f" * 64)))

    def _with(self, said: Directive) -> str:
        """The same with grants that are not good."""
        changes: tuple[Callable[[Grant], Grant], ...] = (
            lambda g: replace(g, issued_ms=g.issued_ms + FAR_MS, not_after_ms=g.not_after_ms + FAR_MS),
            lambda g: replace(g, issued_ms=g.issued_ms - FAR_MS, not_after_ms=g.not_after_ms - FAR_MS),
            lambda g: replace(g, term=replace(g.term, counter=0)),
            lambda g: replace(g, term=replace(g.term, counter=g.term.counter + 5_000)),
            lambda g: replace(g, body=replace(g.body, seq=g.body.seq + 7)),
            lambda g: replace(g, body=replace(g.body, host_key="ed25519:" + "0" * 64)),
            lambda g: replace(g, fleet=Digest("sha256:" + "f" * 64)),
        )
        grants = said.grants or tuple(self._grants[-1:])
        change = self._dice.one_of(changes)
        forged = [change(from_bytes(Grant, b64decode(json.loads(text)["payload"]))) for text in grants]
        self.spoilt |= {digest_of(g.body) for g in forged if g.not_after_ms < said.now_ms}
        return self._sealed(replace(said, grants=tuple(seal("grant", to_bytes(g), self._machine) for g in forged)))

    def _loose(self, payload: bytes) -> str:
        """Well signed, and not in the one form that a payload has: the product signs no such thing."""
        signature = b64encode(self._machine.sign("directive", pae("directive", payload))).decode()
        signed = {"keyid": self._machine.public.key_id, "sig": signature}
        texts = {"payload": b64encode(payload).decode(), "payloadType": payload_type("directive")}
        return json.dumps({**texts, "signatures": [signed]})

    def _sealed(self, said: Directive) -> str:
        return seal("directive", to_bytes(said), self._machine)
