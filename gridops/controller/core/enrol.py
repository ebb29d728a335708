"""Who may become a host: a join request proves a token, waits, and is admitted by a commit and by nothing else.

`join` judges one request; `settled` notices that a commit admitted or refused a pending host. The MAC key of the
invitation is an argument, because it lies in the keyring and never in the journal.
"""

from __future__ import annotations

from gridops.base import limits
from gridops.base.codes.control import GO427
from gridops.base.codes.trust import KEY_EXPUNGED, WRONG_FLEET
from gridops.base.errors import Refusal
from gridops.controller.core import rows as r
from gridops.controller.core.roster import Roster
from gridops.controller.core.state import State
from gridops.protocol.messages import JoinReply, JoinRequest
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


def settled(state: State, roster: Roster) -> tuple[r.Row, ...]:
    """Pending hosts whose very key a commit has admitted."""
    rows: list[r.Row] = []
    for host, pending in sorted(state.pending.items()):
        key = roster.keys.get(host)
        if key is not None and key.key == pending.host_key and not key.expunged:
            rows.append(r.JoinSettled(host=host, why="admitted"))
    return tuple(rows)
