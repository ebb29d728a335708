"""The fence, check by check: which code, whether the number is used up, and that nothing else ever changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import Digest, HostId
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.protocol.fence import (
    Cancel,
    Decided,
    Execute,
    Fence,
    Reject,
    Repeat,
    Standing,
    Voided,
    decided,
    examine,
    open_heads,
    raise_term,
    settle,
)
from gridops.protocol.messages import Authority, AuthorityKind, Grant, GrantMode, Head, Term
from gridops.trust.envelope import seal
from tests.protocol import build
from tests.protocol.build import CONTROLLER, MINUTE, NOW, OTHER_HOST, TERM

FIRST = build.body(1)
SECOND = build.body(2, digest_of(FIRST))
OTHER = digest_bytes(b"other")


def accepted(of: Fence, grant: Grant, how: Standing | None = None) -> Fence:
    ruling = examine(of, build.sealed(grant), how or build.standing())
    assert isinstance(ruling, Execute), ruling
    return ruling.fence


ONE_DONE = settle(accepted(build.fence(), build.grant(FIRST)), digest_of(FIRST), 1)
"""A host that has carried out its first command and waits for number 2."""


def test_a_grant_in_order_is_executed_and_remembered_before_it_is() -> None:
    ruling = examine(ONE_DONE, build.sealed(build.grant(SECOND)), build.standing())
    assert isinstance(ruling, Execute)
    assert ruling.grant.body == SECOND
    assert ruling.fence.head == Head(seq=2, body=digest_of(SECOND))
    assert ruling.fence.term == TERM
    assert open_heads(ruling.fence) == (ruling.fence.head,)
    assert decided(ruling.fence, 1) == Decided(seq=1, body=digest_of(FIRST), rseq=1)


# --- what is refused ----------------------------------------------------------------------------------------------

Case = tuple[Grant, Standing]
Defect = Callable[[Case], Case]


def _grant(**changes: Any) -> Defect:
    return lambda case: (replace(case[0], **changes), case[1])


def _body(**changes: Any) -> Defect:
    return lambda case: (replace(case[0], body=replace(case[0].body, **changes)), case[1])


def _standing(**changes: Any) -> Defect:
    return lambda case: (case[0], replace(case[1], **changes))


def _other_fleet(case: Case) -> Case:
    return _grant(fleet=OTHER)(_body(fleet=OTHER)(case))


def _other_host(case: Case) -> Case:
    named = HostId("gpu-08")
    return _body(host=named, action=replace(case[0].body.action, host=named))(case)


# In the order of the checks: of two defects the earlier one gives its code.
DEFECTS: dict[str, tuple[str, bool, Defect]] = {
    "for another fleet": ("wrong_fleet", False, _other_fleet),
    "for another host": ("wrong_host", False, _other_host),
    "for the key this host had before": ("wrong_host_key", False, _body(host_key=OTHER_HOST.public.text)),
    "by a former term": ("stale_term", False, _grant(term=Term(epoch=1, counter=4))),
    "another body under a decided number": ("fork", False, _body(seq=1)),
    "one number too high": ("gap", False, _body(seq=3)),
    "after another body": ("gap", False, _body(prev=OTHER)),
    "issued in the future": ("not_yet", False, _grant(issued_ms=NOW + 30_001, not_after_ms=NOW + MINUTE)),
    "expired": ("expired", False, _grant(not_after_ms=NOW - 1)),
    "without a fresh session": ("stale_session", False, _standing(fresh=False)),
    "with too many receipts owed": ("too_many_open", False, _standing(owed=limits.RECEIPTS_OWED)),
    "with nobody's approval": ("unapproved", True, _grant(authority=replace(build.APPROVED, approvals=()))),
}
ALONE: dict[str, tuple[str, bool, Defect]] = {
    "term too far ahead": ("term_jump", False, _grant(term=Term(epoch=1, counter=5 + limits.TERM_JUMP + 1))),
    "epoch before the root's": ("stale_term", False, _standing(chain=build.ROTATED)),
    "epoch after the root's": ("term_jump", False, _grant(term=Term(epoch=2, counter=6))),
    "valid for too long": ("expired", False, _grant(not_after_ms=NOW - MINUTE + limits.GRANT_VALID_MS + 1)),
    "ends before it begins": ("expired", False, _grant(issued_ms=NOW + 2_000, not_after_ms=NOW + 1_000)),
    "an agent older than the root demands": (
        "agent_too_old",
        False,
        _standing(chain=build.DEMANDING, agent="0.9.0"),
    ),
    "an agent of no readable version": ("agent_too_old", False, _standing(chain=build.DEMANDING, agent="newest")),
    "root expired": ("root_expired", False, _standing(now_ms=NOW + build.YEAR)),
    "standing without the root's leave": (
        "unapproved",
        True,
        lambda case: _grant(authority=build.STANDING)(_standing(chain=build.NO_STANDING)(case)),
    ),
    "forced unload without an approval": (
        "unapproved",
        True,
        lambda case: _grant(authority=build.STANDING)(_body(action=build.unload(force=True))(case)),
    ),
    "unknown version": ("bad_schema", False, _grant(v=2)),
    "unknown version of the body": ("bad_schema", False, _body(v=2)),
    "number zero": ("bad_schema", False, _body(seq=0)),
    "action for another host": ("bad_schema", False, _body(action=replace(build.load(), host=HostId("gpu-08")))),
    "two fleets in one grant": ("bad_schema", False, _grant(fleet=OTHER)),
    "a heap of approvals": ("bad_schema", False, _grant(authority=replace(build.APPROVED, approvals=("{}",) * 9))),
}


def _examine(*defects: Defect) -> Reject:
    case: Case = (build.grant(SECOND), build.standing())
    for defect in defects:
        case = defect(case)
    signer = build.NEXT_CONTROLLER if case[1].chain is build.ROTATED else CONTROLLER
    if case[1].now_ms > NOW + MINUTE:
        case = (replace(case[0], issued_ms=case[1].now_ms, not_after_ms=case[1].now_ms), case[1])
    ruling = examine(ONE_DONE, build.sealed(case[0], signer), case[1])
    assert isinstance(ruling, Reject), ruling
    return ruling


@pytest.mark.parametrize("name", [*DEFECTS, *ALONE])
def test_each_defect_has_its_code(name: str) -> None:
    code, final, defect = (DEFECTS | ALONE)[name]
    ruling = _examine(defect)
    assert (ruling.code, ruling.final) == (code, final)
    assert ruling.detail


@pytest.mark.parametrize(
    ("first", "second"),
    [p for p in combinations(DEFECTS, 2) if not {"another body under a decided number", "one number too high"} <= {*p}],
)
def test_the_first_failing_check_wins(first: str, second: str) -> None:
    assert _examine(DEFECTS[second][2], DEFECTS[first][2]).code == DEFECTS[first][0]


@pytest.mark.parametrize("name", [*DEFECTS, *ALONE])
def test_a_refusal_changes_nothing_unless_it_is_final(name: str) -> None:
    before = to_bytes(ONE_DONE)
    _, final, defect = (DEFECTS | ALONE)[name]
    ruling = _examine(defect)
    assert to_bytes(ONE_DONE) == before
    if final:
        assert ruling.fence.head.seq == ONE_DONE.head.seq + 1
        assert ruling.fence.decided[:-1] == ONE_DONE.decided
        assert ruling.fence.decided[-1].rseq is None
    else:
        assert ruling.fence is ONE_DONE


def _spaced(grant: Grant) -> str:
    """Signed with the right key, in another byte form: only this test makes such a thing."""
    import base64

    from gridops.trust.envelope import pae, payload_type

    payload = to_bytes(grant).replace(b',"', b', "', 1)
    parts = {
        "payload": base64.b64encode(payload).decode(),
        "payloadType": payload_type("grant"),
        "signatures": [
            {
                "keyid": CONTROLLER.public.key_id,
                "sig": base64.b64encode(CONTROLLER.sign("grant", pae("grant", payload))).decode(),
            }
        ],
    }
    return json.dumps(parts)


def _twice(text: str) -> str:
    parts = json.loads(text)
    parts["signatures"] *= 2
    return json.dumps(parts)


GOOD = build.sealed(build.grant(SECOND))
ENVELOPES = {
    "nothing": ("", "bad_envelope"),
    "not JSON": ("}{", "bad_envelope"),
    "cut short": (GOOD[:-9], "bad_envelope"),
    "two signatures": (_twice(GOOD), "bad_envelope"),
    "endless": (GOOD + " " * (2 * limits.ENVELOPE_BYTES), "bad_envelope"),
    "signed by a host": (build.sealed(build.grant(SECOND), OTHER_HOST), "bad_signature"),
    "signed by the next controller too early": (
        build.sealed(build.grant(SECOND), build.NEXT_CONTROLLER),
        "bad_signature",
    ),
    "another kind": (seal("directive", to_bytes(build.directive()), CONTROLLER), "wrong_kind"),
    "a grant under another kind": (seal("plan", to_bytes(build.grant(SECOND)), CONTROLLER), "wrong_kind"),
    "another byte form": (_spaced(build.grant(SECOND)), "not_canonical"),
    "another form": (seal("grant", b'{"v":1}', CONTROLLER), "bad_schema"),
    "one field too many": (
        seal("grant", to_bytes(build.grant(SECOND)).replace(b'"v":1}', b'"v":1,"w":0}'), CONTROLLER),
        "bad_schema",
    ),
}


@pytest.mark.parametrize("name", ENVELOPES)
def test_an_envelope_that_proves_nothing_changes_nothing(name: str) -> None:
    text, code = ENVELOPES[name]
    ruling = examine(ONE_DONE, text, build.standing())
    assert isinstance(ruling, Reject)
    assert (ruling.code, ruling.final, ruling.grant) == (code, False, None)
    assert ruling.fence is ONE_DONE


# --- terms ----------------------------------------------------------------------------------------------------------


def test_a_fresh_body_under_a_lower_term_is_never_executed() -> None:
    """Simulation misses this one: with a fenced journal nothing else goes wrong when the check is gone."""
    for number in range(3, 20):
        of = raise_term(ONE_DONE, Term(epoch=1, counter=number + 6), build.CHAIN)
        body = build.body(2, digest_of(FIRST), build.load(number))
        stale = build.grant(body, term=Term(epoch=1, counter=number))
        ruling = examine(of, build.sealed(stale), build.standing())
        assert isinstance(ruling, Reject)
        assert ruling.code == "stale_term"
        assert ruling.fence is of


def test_a_new_term_grants_the_same_body_again_and_it_runs_once() -> None:
    of = accepted(ONE_DONE, build.grant(SECOND))
    again = build.grant(SECOND, term=Term(epoch=1, counter=9))
    assert examine(of, build.sealed(again), build.standing()) == Repeat(digest_of(SECOND), 2)


def test_accepting_raises_the_term_for_good() -> None:
    of = accepted(ONE_DONE, build.grant(SECOND, term=Term(epoch=1, counter=9)))
    third = build.body(3, digest_of(SECOND))
    ruling = examine(of, build.sealed(build.grant(third, term=Term(epoch=1, counter=8))), build.standing())
    assert isinstance(ruling, Reject)
    assert ruling.code == "stale_term"


def test_the_first_term_a_host_ever_hears_may_be_high() -> None:
    high = Term(epoch=1, counter=50_000)
    assert accepted(build.fence(), build.grant(FIRST, term=high)).term == high


def test_a_rotated_controller_key_undoes_an_inflated_counter() -> None:
    inflated = replace(ONE_DONE, term=Term(epoch=1, counter=10**12))
    grant = build.grant(SECOND, term=Term(epoch=2, counter=6))
    ruling = examine(inflated, build.sealed(grant, build.NEXT_CONTROLLER), build.standing(chain=build.ROTATED))
    assert isinstance(ruling, Execute)
    assert ruling.fence.term == Term(epoch=2, counter=6)


def test_a_directive_raises_the_term_and_never_lowers_it() -> None:
    up = raise_term(ONE_DONE, Term(epoch=1, counter=7), build.CHAIN)
    assert up.term.counter == 7
    assert raise_term(up, up.term, build.CHAIN) is up
    with pytest.raises(Refusal, match="stale_term"):
        raise_term(up, TERM, build.CHAIN)
    with pytest.raises(Refusal, match="term_jump"):
        raise_term(up, Term(epoch=1, counter=2_000), build.CHAIN)


# --- execute and void -----------------------------------------------------------------------------------------------

VOID = build.grant(SECOND, mode=GrantMode.VOID)


def test_void_beats_execute_if_it_comes_first() -> None:
    ruling = examine(ONE_DONE, build.sealed(VOID), build.standing())
    assert isinstance(ruling, Voided)
    late = examine(ruling.fence, build.sealed(build.grant(SECOND)), build.standing())
    assert late == Repeat(digest_of(SECOND), 2)


def test_void_for_an_accepted_body_can_only_ask_to_cancel() -> None:
    of = accepted(ONE_DONE, build.grant(SECOND))
    assert examine(of, build.sealed(VOID), build.standing()) == Cancel(digest_of(SECOND), 2)
    done = settle(of, digest_of(SECOND), 2)
    assert examine(done, build.sealed(VOID), build.standing()) == Repeat(digest_of(SECOND), 2)


def test_void_needs_no_authority_but_a_fresh_session_and_its_turn() -> None:
    bare = replace(VOID, authority=replace(build.APPROVED, approvals=()))
    assert isinstance(examine(ONE_DONE, build.sealed(bare), build.standing()), Voided)
    ruling = examine(ONE_DONE, build.sealed(bare), build.standing(fresh=False))
    assert isinstance(ruling, Reject)
    assert ruling.code == "stale_session"
    third = build.grant(build.body(3, digest_of(SECOND)), mode=GrantMode.VOID)
    ruling = examine(ONE_DONE, build.sealed(third), build.standing())
    assert isinstance(ruling, Reject)
    assert ruling.code == "gap"


def _long_after() -> Fence:
    done = tuple(Decided(seq=n, body=digest_bytes(b"%d" % n), rseq=n) for n in range(3, 3 + limits.DECIDED_KEPT))
    return replace(ONE_DONE, head=Head(seq=done[-1].seq, body=done[-1].body), decided=done)


LATER = {
    "open": accepted(ONE_DONE, build.grant(SECOND)),
    "done": settle(accepted(ONE_DONE, build.grant(SECOND)), digest_of(SECOND), 2),
    "voided": examine(ONE_DONE, build.sealed(VOID), build.standing()).fence,  # type: ignore[union-attr]
    "overtaken": accepted(
        accepted(ONE_DONE, build.grant(SECOND)), build.grant(build.body(3, digest_of(SECOND), build.load(3)))
    ),
    "long after": _long_after(),
    "read from disk": from_bytes(Fence, to_bytes(accepted(ONE_DONE, build.grant(SECOND)))),
}


@pytest.mark.parametrize("state", LATER)
@pytest.mark.parametrize("mode", [GrantMode.EXECUTE, GrantMode.VOID])
def test_a_replayed_grant_never_runs_again_in_any_later_state(state: str, mode: GrantMode) -> None:
    of = LATER[state]
    ruling = examine(of, build.sealed(build.grant(SECOND, mode=mode)), build.standing())
    match ruling:
        case Repeat(body, seq) | Cancel(body, seq):
            assert (body, seq) == (digest_of(SECOND), 2)
        case Reject(code, _, final, _, after):
            assert (code, final, state) == ("duplicate", False, "long after")
            assert after is of
        case _:
            pytest.fail(f"a replay became {ruling}")


# --- bounds and promises --------------------------------------------------------------------------------------------


def _grown(count: int, *, done: bool) -> Fence:
    of = build.fence()
    for number in range(1, count + 1):
        of = accepted(of, build.grant(build.body(number, of.head.body, build.load(number))))
        if done:
            of = settle(of, of.head.body, number)
    return of


def test_a_host_takes_no_more_than_it_can_have_open() -> None:
    of = _grown(limits.OPEN_BODIES_PER_HOST, done=False)
    one_more = build.grant(build.body(of.head.seq + 1, of.head.body))
    ruling = examine(of, build.sealed(one_more), build.standing())
    assert isinstance(ruling, Reject)
    assert (ruling.code, ruling.final) == ("too_many_open", False)


def test_what_is_decided_is_bounded_and_open_bodies_never_fall_out() -> None:
    items = tuple(
        Decided(seq=n, body=digest_bytes(b"%d" % n), rseq=None if n == 2 else n)
        for n in range(1, limits.DECIDED_KEPT + 1)
    )
    of = replace(build.fence(), head=Head(seq=items[-1].seq, body=items[-1].body), decided=items)
    for _ in range(3):
        of = accepted(of, build.grant(build.body(of.head.seq + 1, of.head.body)))
        of = settle(of, of.head.body, of.head.seq)
    assert len(of.decided) == limits.DECIDED_KEPT + 1
    assert decided(of, 1) is None
    assert open_heads(of) == (Head(seq=2, body=items[1].body),)
    assert len(settle(of, items[1].body, 9).decided) == limits.DECIDED_KEPT


def test_a_body_has_one_final_receipt() -> None:
    with pytest.raises(Bug, match="already has the final receipt 1"):
        settle(ONE_DONE, digest_of(FIRST), 2)
    with pytest.raises(Bug, match="never accepted"):
        settle(ONE_DONE, OTHER, 2)


def test_standing_authority_counts_where_the_root_permits_it() -> None:
    standing = Authority(kind=AuthorityKind.STANDING, action_class=build.STANDING.action_class)
    assert accepted(ONE_DONE, build.grant(SECOND, authority=standing)).head.seq == 2


def test_a_fence_comes_back_from_disk_as_it_was() -> None:
    of = LATER["overtaken"]
    assert from_bytes(Fence, to_bytes(of)) == of


# --- anything at all ------------------------------------------------------------------------------------------------


@given(at=st.integers(0, len(GOOD) - 1), to=st.characters(max_codepoint=255), cut=st.integers(0, len(GOOD)))
def test_no_bytes_make_the_fence_raise_or_execute(at: int, to: str, cut: int) -> None:
    for text in (GOOD[:at] + to + GOOD[at + 1 :], GOOD[:cut], GOOD[cut:] + GOOD[:cut]):
        ruling = examine(ONE_DONE, text, build.standing())
        if isinstance(ruling, Execute):  # white space and escapes may change without changing the meaning
            assert ruling.grant == build.grant(SECOND)
        else:
            assert isinstance(ruling, Reject)
            assert ruling.fence is ONE_DONE


SCRAPS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**53) + 1, 2**53 - 1), st.text(max_size=8), st.just([]), st.just({})
)


def _paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _paths(item, (*at, key))
    return found


PAYLOAD = json.loads(to_bytes(build.grant(SECOND)))
PATHS = _paths(PAYLOAD)


@given(path=st.sampled_from(PATHS), scrap=SCRAPS, remove=st.booleans())
def test_no_signed_payload_makes_the_fence_raise(path: tuple[Any, ...], scrap: Any, remove: bool) -> None:
    """A thief with the controller's key may sign what he likes: the answer is a ruling, never about another host."""
    from gridops.base.canon import NotCanonical, dumps

    payload = json.loads(to_bytes(build.grant(SECOND)))
    inner = payload
    for step in path[:-1]:
        inner = inner[step]
    if remove:
        del inner[path[-1]]
    else:
        inner[path[-1]] = scrap
    try:
        raw = dumps(payload)
    except NotCanonical:
        return
    ruling = examine(ONE_DONE, seal("grant", raw, CONTROLLER), build.standing())
    if isinstance(ruling, Execute):
        assert ruling.grant.body.host == build.HOST
        assert ruling.fence.head.seq == 2
    elif isinstance(ruling, Reject) and not ruling.final:
        assert ruling.fence is ONE_DONE


def test_digests_are_of_the_body_and_not_of_the_envelope() -> None:
    other_grant = build.grant(SECOND, issued_ms=NOW, not_after_ms=NOW + 1)
    of: Digest = accepted(ONE_DONE, build.grant(SECOND)).head.body
    assert accepted(ONE_DONE, other_grant).head.body == of
