"""Who may become a host: a join request proves a token, waits, and is admitted by a commit and by nothing else.

`join` judges one request, `sign_over` that of a host that takes another key; `settled` notices that a commit admitted
or refused a pending host. The MAC key of the invitation is an argument, because it lies in the keyring and never in the
journal.
"""

from __future__ import annotations

from gridops.base import limits
from gridops.base.codes.control import GO427
from gridops.base.codes.trust import BAD_SCHEMA, KEY_EXPUNGED, WRONG_FLEET
from gridops.base.errors import Refusal
from gridops.controller.core import rows as r
from gridops.controller.core.roster import Roster
from gridops.controller.core.state import State
from gridops.protocol.messages import JoinReply, JoinRequest, Rekey
from gridops.protocol.open import sealed_bytes
from gridops.trust.envelope import open_record
from gridops.trust.join import reply_mac, request_mac, require_mac
from gridops.trust.root import RootChain


def join(
    state: State, chain: RootChain, key: bytes | None, request: JoinRequest, now_ms: int
) -> tuple[tuple[r.Row, ...], JoinReply]:
    """Rows and the answer. The same host key may ask again while the invitation lives: an answer can get lost."""
    host = request.host
    if request.fleet != chain.fleet:
        raise Refusal(WRONG_FLEET.code, f"the join request of {host} is for another fleet", subject=host)
    invite = state.invites.get(host)
    if invite is None or key is None or now_ms >= invite.expires_ms:
        raise Refusal(GO427.code, f"there is no open invitation for {host}", subject=host, hints=(GO427.remedy,))
    require_mac(request_mac(key, chain.fleet, request.host_key, request.nonce), request.mac, host)
    if request.host_key in state.ended:
        raise Refusal(
            KEY_EXPUNGED.code,
            f"the key of {host} is one that {state.ended[request.host_key]} was expunged with or signed over from",
            subject=host,
            hints=("remove the state folder that it lies in, and join anew",),
        )
    pending = state.pending.get(host)
    if pending is not None and pending.host_key != request.host_key:
        raise Refusal(
            GO427.code, f"the invitation for {host} was used by another key", subject=host, hints=(GO427.remedy,)
        )
    rows: tuple[r.Row, ...] = ()
    if pending is None:
        if len(state.pending) >= limits.PENDING_HOSTS:
            raise Refusal(
                GO427.code, f"{len(state.pending)} hosts are pending already", hints=("admit or reject some",)
            )
        rows = (r.JoinPending(host=host, host_key=request.host_key, facts=request.facts),)
    roots = tuple(state.roots)[-limits.ROOTS_IN_CHAIN :]
    return rows, JoinReply(roots=roots, mac=reply_mac(key, request.host_key, request.nonce, roots))


def sign_over(
    state: State, chain: RootChain, roster: Roster, request: JoinRequest, over: str
) -> tuple[tuple[r.Row, ...], JoinReply]:
    """Rows and the answer for a host whose present key has signed over to its next one. Both keys have signed."""
    host, present = request.host, roster.key_of(request.host)
    if present is None:
        raise Refusal("not_admitted", f"{host} is not admitted, so it has no key to sign over from", subject=host)
    said, _ = open_record(Rekey, over, kind="rekey", keys=(present,), limit=sealed_bytes(limits.JOIN_BYTES))
    if said.fleet != chain.fleet or request.fleet != chain.fleet:
        raise Refusal(WRONG_FLEET.code, f"the keys of {host} are signed over in another fleet", subject=host)
    meant = (said.host, said.host_key, said.next_key, said.nonce)
    if meant != (host, present.text, request.host_key, request.nonce):
        raise Refusal(BAD_SCHEMA.code, f"what the present key of {host} signed is not what is asked for", subject=host)
    held = next((h for h, k in roster.keys.items() if k.key == said.next_key), None)
    taken = state.ended.get(said.next_key, held)
    if taken is not None:
        raise Refusal(KEY_EXPUNGED.code, f"the next key of {host} is one that {taken} has, or had", subject=host)
    rows: tuple[r.Row, ...] = ()
    pending = state.pending.get(host)
    if pending is None or pending.host_key != request.host_key:
        if len(state.pending) >= limits.PENDING_HOSTS:
            words = f"{len(state.pending)} hosts are pending already"
            raise Refusal(GO427.code, words, hints=("admit or reject some",))
        rows = (r.JoinPending(host=host, host_key=request.host_key, facts=request.facts, former=present.text),)
    return rows, JoinReply(roots=(), mac="")


def settled(state: State, roster: Roster) -> tuple[r.Row, ...]:
    """Pending hosts whose very key a commit has admitted."""
    rows: list[r.Row] = []
    for host, pending in sorted(state.pending.items()):
        key = roster.keys.get(host)
        if key is not None and key.key == pending.host_key and not key.expunged:
            rows.append(r.JoinSettled(host=host, why="admitted"))
    return tuple(rows)
