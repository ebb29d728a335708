"""Somebody holds the controller's host and its key, and everything it ever said.

Catalogued models come and go by that hand, within ceilings and brakes. The table is what no host does for it. A refusal
that is not final leaves every byte of the host's ledger as it was; a final one writes its own record and no other;
neither starts anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gridops.base import canon, limits
from gridops.base.errors import Refusal
from gridops.base.ids import HostId, PersonName, ReplicaId
from gridops.base.record import digest_of, to_bytes
from gridops.model.action import Action, DeviceGeneration, Warm
from gridops.model.plan import Seat
from gridops.model.profile import EngineArg
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Authority, Outcome, Term
from gridops.protocol.open import open_receipt
from gridops.trust.keys import MachineSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import RoleKey, RoleName, seal_root
from gridops_agent.core.state import Brake
from tests.attacks.place import DEVICES, OTHER, Answer, Place, payload_of, signed_by_hand
from tests.builders.approvals import Approver, placed
from tests.controller.fleet import Desk, Fleet
from tests.controller.scripted_agent import ScriptedAgent
from tests.protocol import build as b
from tests.trust import catalogs

ENTRY = catalogs.entry(b.warm().launch, device_bytes=1 << 40)
"""People left how much memory it takes to the machine."""
CATALOG = seal_catalog(catalogs.catalog(b.FLEET, ENTRY, version=3), b.ANN, b.BOB)
OLDER = seal_catalog(catalogs.catalog(b.FLEET, replace(ENTRY, lanes=9), version=2), b.ANN, b.BOB)
OWN = {"decided", "fence", "receipt", "receipts"}
"""Kinds of rows in which a refused command is remembered."""
GPU = DEVICES[1].id


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A host at the catalog's level, with one model up by the word of people."""
    made = Place(tmp_path / "host")
    assert made.poll(made.told(roots=(b.RELEASED.text,), catalog=CATALOG)) == []
    made.catalog = 3
    made.obeys(b.load(1))
    made.obeys(b.warm(1))
    assert made.poll(made.told(acked_rseq=made.host.receipts.head)) == []
    yield made
    made.close()


def second(**changes: object) -> Warm:
    """One more copy of what the catalog holds."""
    return replace(b.warm(1), replica=ReplicaId("coder/2"), **changes)  # type: ignore[arg-type]


def launched(**changes: object) -> Warm:
    return second(launch=replace(b.warm(1).launch, **changes))  # type: ignore[arg-type]


def argument(name: str, value: str) -> Warm:
    return launched(args=(EngineArg(name=name, value=value),))


Attack = Callable[[Place], Answer]


def command(action: Action, of: dict[str, object] | None = None, **changes: object) -> Attack:
    """A command that is in order, signed by the true key, under the newest catalog; unless something is changed."""
    return lambda place: place.told(place.grant(action, of=of, **changes))


def _approved(authority: Callable[[], Authority]) -> Attack:
    return lambda place: command(second(), authority=authority())(place)


def _of_another_fleet() -> Authority:
    return b.approvals.approved(second(), Approver("ada", b.ADA, OTHER, b.NOW))


def _by_the_machine() -> Authority:
    """The thief signs as the approver, with the only key at hand."""
    true = b.approved(second())
    (text,) = true.approvals
    return replace(true, approvals=(signed_by_hand("approval", canon.dumps(payload_of(text))),))


def _elsewhere() -> Authority:
    seat = Seat(host=b.HOST, devices=(DEVICES[0].id,))
    return b.approved(second(), decision=placed(ReplicaId("coder/2"), seat, digest_of(second().launch)))


def _long_ago() -> Authority:
    ended = b.NOW - limits.APPROVAL_CARRIED_MS - 1
    return b.approvals.approved(second(), Approver("ada", b.ADA, b.FLEET, ended - b.approvals.HALF_HOUR))


def _forced(place: Place) -> Answer:
    (incarnation,) = place.host.held
    return place.told(place.grant(replace(b.unload(force=True), incarnation=incarnation), authority=b.STANDING))


def _unload_of_what_serves(place: Place) -> Answer:
    (incarnation,) = place.host.held
    return place.told(place.grant(replace(b.unload(), incarnation=incarnation), authority=b.STANDING))


def _mass_stop(place: Place) -> Answer:
    """As many models as a window allows went already; one more shall go by standing permission."""
    (incarnation,) = place.host.held
    full = replace(place.host, brake=Brake(stops_ms=(place.clock.wall,) * limits.STANDING_STOPS))
    place.ledger.write(place.host, full)
    place.memory.host = full
    return place.told(place.grant(replace(b.drain(), incarnation=incarnation), authority=b.STANDING))


def _equivocates(place: Place) -> Answer:
    """Two bodies under one number: the second one is for what the host has decided already."""
    head = place.host.fence.head
    other = replace(place.body(second()), seq=head.seq, prev=place.host.fence.decided[-2].body)
    return place.told(place.granted(other))


def _twice(place: Place) -> Answer:
    """Two bodies under one number in one breath: the first is carried out, the second is a fork."""
    (incarnation,) = place.host.held
    first = place.body(replace(b.operate(), incarnation=incarnation))
    place.poll(place.told(place.granted(first)))
    place.poll(place.told(acked_rseq=place.host.receipts.head))
    return place.told(place.granted(replace(first, action=second())))


def _skips(place: Place) -> Answer:
    return place.told(place.grant(second(), of={"seq": place.host.fence.head.seq + 2}))


def _forgets(place: Place) -> Answer:
    return place.told(place.grant(second(), of={"prev": OTHER}))


def _catalog(text: str) -> Attack:
    return lambda place: place.told(catalog=text)


def _own_catalog(place: Place) -> Answer:
    forged = catalogs.catalog(b.FLEET, replace(ENTRY, lanes=9), version=4)
    return place.told(catalog=signed_by_hand("catalog", to_bytes(forged)))


def _own_root(place: Place) -> Answer:
    """A root in which approvers are nobody's business, signed by the key at hand."""
    root = replace(place.host.chain.root, version=place.host.chain.root.version + 1, fleet=b.FLEET, controller_epoch=9)
    return place.told(roots=(signed_by_hand("root", to_bytes(root)),))


def _term(**changes: int) -> Attack:
    def attack(place: Place) -> Answer:
        term = replace(place.host.fence.term, **changes)
        return place.told(place.grant(second(), term=term), term=place.host.fence.term)

    return attack


def _directive_term(**changes: int) -> Attack:
    return lambda place: place.told(term=replace(place.host.fence.term, **changes))


def _times(**changes: int) -> Attack:
    return lambda place: place.told(place.grant(second(), **{k: place.clock.wall + v for k, v in changes.items()}))


def _clock(by_ms: int) -> Attack:
    def attack(place: Place) -> Answer:
        said = place.clock.wall + by_ms
        return place.told(now_ms=said, expires_ms=said + b.MINUTE)

    return attack


def _other_fleet(place: Place) -> Answer:
    return place.told(place.grant(second(), of={"fleet": OTHER}))


def _other_host(place: Place) -> Answer:
    body = replace(place.body(replace(second(), host="gpu-08")), host="gpu-08", catalog=3)  # type: ignore[arg-type]
    return place.told(place.granted(replace(body, action=replace(body.action, host="gpu-08"))))


def _bytes(old: bytes, new: bytes) -> Attack:
    """A payload that our own code would not make."""

    def attack(place: Place) -> Answer:
        grant = b.grant(place.body(second()))
        payload = to_bytes(grant)
        assert old in payload
        return place.told(signed_by_hand("grant", payload.replace(old, new, 1)))

    return attack


ATTACKS: tuple[tuple[str, Attack, str, bool], ...] = (
    ("an argument that nobody signed", command(argument("rpc", "evil.example:1")), "not_in_catalog", True),
    (
        "an argument that ends in another",
        command(argument("threads", "1 --rpc evil.example:1")),
        "not_in_catalog",
        True,
    ),
    ("files off the catalog, to be brought", command(b.load(2)), "not_in_catalog", True),
    ("files off the catalog, to be started", command(launched(artifact=b.artifact(2))), "not_in_catalog", True),
    ("another engine", command(launched(engine="vllm")), "not_in_catalog", True),
    ("another backend", command(launched(backend="cuda")), "not_in_catalog", True),
    ("more context than people signed", command(launched(context=1 << 20)), "not_in_catalog", True),
    ("a command under an older catalog", command(second(), {"catalog": 2}), "old_catalog", True),
    ("a command under no catalog", command(second(), {"catalog": None}), "old_catalog", True),
    ("an older catalog", _catalog(OLDER), "old_catalog", False),
    ("a catalog of one's own", _own_catalog, "catalog_threshold", False),
    ("no approval", _approved(lambda: replace(b.approved(second()), approvals=())), "unapproved", True),
    ("an approval of something else", _approved(lambda: b.approved(b.warm(1))), "unapproved", True),
    ("an approval for another device", _approved(_elsewhere), "unapproved", True),
    ("an approval of another fleet", _approved(_of_another_fleet), "unapproved", True),
    ("an approval used again days later", _approved(_long_ago), "unapproved", True),
    ("an approval by the controller's key", _approved(_by_the_machine), "unapproved", True),
    ("a forced end without anybody's word", _forced, "unapproved", True),
    ("an end of what has not been drained", _unload_of_what_serves, "not_drained", True),
    ("a mass stop", _mass_stop, "brake", True),
    ("more memory than there is", command(second(device_bytes=1 << 39)), "over_ceiling", True),
    ("on a device that is not there", command(second(devices=("gpu9",))), "over_ceiling", True),
    (
        "on a machine as it was before",
        command(second(), {"precondition": (DeviceGeneration(device=GPU, generation=99),)}),
        "precondition",
        True,
    ),
    ("two bodies, one number", _equivocates, "fork", False),
    ("another body for a number just used", _twice, "fork", False),
    ("a number left out", _skips, "gap", False),
    ("a chain begun elsewhere", _forgets, "gap", False),
    ("an inflated counter", _term(counter=limits.TERM_JUMP + 6), "term_jump", False),
    ("an inflated counter of a directive", _directive_term(counter=limits.TERM_JUMP + 6), "term_jump", False),
    ("an epoch of one's own", _directive_term(epoch=2), "term_jump", False),
    ("a term from before", _term(counter=4), "stale_term", False),
    ("a directive from a term before", _directive_term(counter=4), "stale_term", False),
    ("a clock of the day after tomorrow", _clock(limits.CLOCK_DISAGREE_MS + 1), "clock_disagrees", False),
    ("a clock of an hour ago", _clock(-3_600_000), "clock_disagrees", False),
    ("a grant for next week", _times(issued_ms=604_800_000, not_after_ms=604_860_000), "not_yet", False),
    ("a grant without end", _times(issued_ms=0, not_after_ms=limits.GRANT_VALID_MS + 1), "expired", False),
    ("a root document of one's own", _own_root, "root_threshold", False),
    ("a command of another fleet", _other_fleet, "wrong_fleet", False),
    ("a command for another host", _other_host, "wrong_host", False),
    ("one key twice", _bytes(b'"mode":"execute"', b'"mode":"void","mode":"execute"'), "not_canonical", False),
    ("a number that is none", _bytes(b'"not_after_ms":', b'"not_after_ms":1e400,"x":'), "not_canonical", False),
    ("a field that nobody knows", _bytes(b'"v":1}', b'"v":1,"w":"rm -rf"}'), "bad_schema", False),
    ("a version that nobody speaks", _bytes(b'"v":1}', b'"v":2}'), "bad_schema", False),
)


@pytest.mark.parametrize(("attack", "code", "final"), [row[1:] for row in ATTACKS], ids=[row[0] for row in ATTACKS])
def test_what_the_controllers_key_cannot_make_a_host_do(place: Place, attack: Attack, code: str, final: bool) -> None:
    answer = attack(place)
    bytes_before, rows, started = place.durable(), place.rows(), list(place.started)
    serving, kept = place.host.held, place.host.receipts.head
    said = place.poll(answer)
    assert place.started == started, "something was started"
    assert place.host.held == serving
    if not final:
        assert said == [code]
        assert place.durable() == bytes_before, "a refusal for now changed the ledger"
        return
    assert said == []
    receipt = place.host.receipts.kept[-1]
    assert (receipt.rseq, receipt.outcome, receipt.final, receipt.code) == (kept + 1, Outcome.REFUSED, True, code)
    assert place.changed(rows) <= OWN, "more than its own record"


# -- what rotation takes back ------------------------------------------------------------------------------------------

ROTATED = b.RELEASED.advance(
    seal_root(
        replace(
            b.RELEASED.root,
            version=3,
            controller_epoch=2,
            roles=tuple(
                replace(r, keys=(RoleKey(holder=PersonName("controller"), key=b.NEXT_CONTROLLER.public.text),))
                if r.name is RoleName.CONTROLLER
                else r
                for r in b.RELEASED.root.roles
            ),
        ),
        b.ADA,
    )
)
"""The people's answer to the theft: another key, a new epoch."""
ANEW = Term(epoch=2, counter=1)


def rotated(place: Place, **changes: object) -> Answer:
    """The first word of the new controller, whose list of roots is asked for as soon as its key is not known."""
    place.wire.roots_shown = (b.CHAIN.text, b.RELEASED.text, ROTATED.text)
    said = {"signer": b.NEXT_CONTROLLER, "term": ANEW} | changes
    return place.told(**said)  # type: ignore[arg-type]


def test_an_inflated_counter_is_undone_by_a_rotation(place: Place) -> None:
    """A thousand at a time is believed: the true controller, with its small counter, is refused until then."""
    for _ in range(3):
        term = replace(place.host.fence.term, counter=place.host.fence.term.counter + limits.TERM_JUMP)
        assert place.poll(place.told(term=term)) == []
    assert place.poll(place.told(term=b.TERM)) == ["stale_term"]
    assert place.poll(rotated(place)) == []
    assert place.host.fence.term == ANEW
    body = place.body(second())
    assert place.poll(rotated(place, grants=(place.granted(body, b.NEXT_CONTROLLER),))) == []
    assert place.started[-1] == digest_of(body)


def test_a_poisoned_clock_is_undone_by_a_rotation(place: Place) -> None:
    """Twenty-three hours ahead are believed; then the true time is a step back, until a new epoch begins time anew."""
    ahead = place.clock.wall + 23 * 3_600_000
    assert place.poll(place.told(now_ms=ahead, expires_ms=ahead + b.MINUTE)) == []
    assert place.host.last_word.floor_ms == ahead
    assert place.poll(place.told()) == ["clock_disagrees"]
    place.restart()
    assert place.poll(place.told()) == ["clock_disagrees"], "a restart forgives nothing"
    assert place.poll(rotated(place)) == []
    assert place.host.last_word.floor_ms == place.clock.wall
    body = place.body(second())
    assert place.poll(rotated(place, grants=(place.granted(body, b.NEXT_CONTROLLER),))) == []
    assert place.started[-1] == digest_of(body)


def test_after_the_rotation_the_stolen_key_says_nothing_that_is_heard(place: Place) -> None:
    """What it signed before, what it signs now, and roots without the newest one: nothing of it moves a byte."""
    old = place.granted(place.body(second()))
    assert place.poll(rotated(place)) == []
    before, started = place.durable(), list(place.started)
    for answer in (
        place.told(),
        place.told(old),
        place.told(term=Term(epoch=2, counter=900)),
        place.told(old, roots=(b.CHAIN.text, b.RELEASED.text)),
    ):
        place.wire.roots_shown = (b.CHAIN.text, b.RELEASED.text)
        assert place.poll(answer) == ["bad_signature"]
    assert place.poll(rotated(place, grants=(old,))) == ["bad_signature"], "nor through the true one"
    assert (place.durable(), place.started) == (before, started)


def test_a_hidden_rotation_is_learnt_wherever_a_root_is_shown(place: Place) -> None:
    """Who holds the endpoint can hide the newest root. One look at any list of roots is enough, whoever shows it."""
    assert place.poll(place.told()) == [], "the thief is believed while nobody shows the newest root"
    assert place.poll(rotated(place)) == []
    assert place.host.chain.root.version == 3
    assert place.poll(place.told()) == ["bad_signature"]


def test_hiding_it_ends_with_the_expiry_of_the_root_and_what_runs_goes_on(place: Place) -> None:
    serving, started = place.host.held, list(place.started)
    place.clock.pass_by(place.host.chain.root.expires_ms - place.clock.wall)
    assert place.poll(place.told()) == []
    before = place.durable()
    assert place.poll(place.told(place.grant(second()))) == ["root_expired"]
    assert (place.durable(), place.started) == (before, started)
    assert place.host.held == serving, "what runs goes on"


def test_no_receipt_of_a_host_is_forged_with_it(place: Place) -> None:
    receipt = replace(place.host.receipts.kept[-1], rseq=9, outcome=Outcome.SUCCEEDED)
    with pytest.raises(Refusal) as refusal:
        open_receipt(b.sealed(receipt, b.CONTROLLER), place.signer.public)
    assert refusal.value.code == "bad_signature"


def test_no_host_is_enrolled_with_it(tmp_path: Path) -> None:
    """A roster is what commits say. A directive about a host that no commit admits changes nothing on any other."""
    fleet = Fleet(tmp_path)
    fleet.begin()
    desk = Desk(fleet)
    stranger = MachineSigner.from_seed(b"x" * 32)
    agent = ScriptedAgent(HostId("gamma"), stranger, fleet.chain)
    with pytest.raises(Refusal) as refusal:
        desk.post(agent.beat())
    assert refusal.value.code == "not_admitted"
    desk.controller.close()


def test_a_mass_stop_ends_at_the_brake(tmp_path: Path) -> None:
    """Every model of a large host, by standing permission: so many go, then the host holds on."""
    place = Place(tmp_path / "host", chain=b.CHAIN)
    up = [replace(b.warm(1, ()), replica=ReplicaId(f"coder/{n}")) for n in range(1, limits.STANDING_STOPS + 4)]
    bodies = []
    for start in up:
        body = place.obeys(replace(start, devices=("gpu0",), device_bytes=10, host_bytes=1))
        bodies.append((start.replica, digest_of(body)))
        place.poll(place.told(acked_rseq=place.host.receipts.head))
    for replica, incarnation in bodies:
        drain = replace(b.drain(), replica=replica, incarnation=incarnation)
        place.poll(place.told(place.grant(drain, authority=b.STANDING)))
        place.poll(place.told(acked_rseq=place.host.receipts.head))
    serving = [h.warm.replica for h in place.host.held.values() if h.state is ResidencyState.READY]
    assert len(serving) == 3
    assert [r.code for r in place.host.receipts.kept[-3:]] == ["brake"] * 3
    place.close()
