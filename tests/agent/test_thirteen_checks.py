"""The checks of a command in their order, from its bytes to its effect, on a real ledger: the first that fails wins.

A grant is made wrong in two ways at once, for every pair of checks, and its code has to be that of the earlier one.
What is refused for now leaves not one byte of the ledger changed; what is refused for good uses up its number, is
answered, and starts nothing. A stale session (check 9) is told before any command is looked at, and has its own tests.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gridops.base import limits
from gridops.base.canon import digest_bytes
from gridops.base.ids import HostId, ReplicaId
from gridops.base.record import digest_of, to_bytes
from gridops.model.action import Action, DeviceGeneration, Drain, Warm
from gridops.model.catalog import Catalog
from gridops.model.plan import Launch, Seat
from gridops.model.profile import EngineArg
from gridops.model.snapshot import ResidencyState
from gridops.protocol.messages import Authority, Grant, Head, Outcome, Term
from gridops.protocol.receipts import stored
from gridops.trust.envelope import pae, payload_type, seal
from gridops.trust.keys import MachineSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import RootChain, seal_root
from gridops_agent.core.events import Act, Began, Ended, Enqueue, Heard, Measured, RootsCame, Warn
from gridops_agent.core.heart import step
from gridops_agent.core.state import Brake, Held, Host
from gridops_agent.ledger import Ledger
from gridops_agent.ledger_rows import Identity
from tests.agent.story import DEVICES, GPU, Story
from tests.builders.approvals import placed
from tests.protocol import build as b
from tests.trust.catalogs import catalog, entry

OTHER = digest_bytes(b"other")
VERSION = 3
"""Of the catalog."""
SECOND = ReplicaId("coder/2")


@dataclass
class Case:
    """One grant in the making. Whoever makes it wrong changes one of these."""

    host: Host
    action: Action
    seq: int = 2
    body: dict[str, Any] = field(default_factory=dict)
    grant: dict[str, Any] = field(default_factory=dict)
    authority: Callable[[Action], Authority] = b.approved
    signer: MachineSigner = b.CONTROLLER
    bytes_of: Callable[[bytes], bytes] = bytes
    kind: str = "grant"
    text: Callable[[str], str] = str

    @property
    def made(self) -> Grant:
        body = replace(b.body(self.seq, self.host.fence.head.body, self.action), catalog=VERSION)
        body = replace(body, precondition=(DeviceGeneration(device=GPU, generation=self.host.generation(GPU)),))
        body = replace(body, **self.body)
        return replace(b.grant(body, authority=self.authority(body.action)), **self.grant)

    @property
    def sealed(self) -> str:
        """Bytes that no code of ours would sign are signed here by hand."""
        payload = self.bytes_of(to_bytes(self.made))
        if self.kind == "grant":
            return self.text(_signed(payload, self.signer))
        return self.text(seal(self.kind, payload, self.signer))


def _signed(payload: bytes, signer: MachineSigner) -> str:
    signature = base64.b64encode(signer.sign("grant", pae("grant", payload))).decode()
    return json.dumps(
        {
            "payload": base64.b64encode(payload).decode(),
            "payloadType": payload_type("grant"),
            "signatures": [{"keyid": signer.public.key_id, "sig": signature}],
        }
    )


def _expired() -> RootChain:
    """The same fleet, whose newest root document ended a moment ago."""
    root = b.RELEASED.root
    return b.RELEASED.advance(
        seal_root(
            replace(root, fleet=b.FLEET, version=root.version + 1, issued_ms=b.NOW - 9, expires_ms=b.NOW - 1), b.ADA
        )
    )


def _body(**changes: Any) -> Callable[[Case], None]:
    return lambda case: case.body.update(changes)


def _grant(**changes: Any) -> Callable[[Case], None]:
    return lambda case: case.grant.update(changes)


def _on_case(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        for name, value in changes.items():
            setattr(case, name, value)

    return change


def _action(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.action = replace(case.action, **changes)

    return change


def _host(**changes: Any) -> Callable[[Case], None]:
    def change(case: Case) -> None:
        case.host = replace(case.host, **changes)

    return change


def _other_fleet(case: Case) -> None:
    case.body["fleet"] = case.grant["fleet"] = OTHER


def _other_host(case: Case) -> None:
    named = HostId("gpu-08")
    case.body["host"], case.action = named, replace(case.action, host=named)


def _forgotten(case: Case) -> None:
    """Its number was decided so long ago that nothing is kept of it."""
    case.host, case.seq = replace(case.host, fence=replace(case.host.fence, decided=())), 1


def _crowded(case: Case) -> None:
    """As many commands unfinished as one host may have."""
    many = tuple(
        replace(case.host.fence.decided[0], seq=n, body=digest_bytes(b"%d" % n), rseq=None)
        for n in range(-limits.OPEN_BODIES_PER_HOST, 0)
    )
    case.host = replace(case.host, fence=replace(case.host.fence, decided=(*many, *case.host.fence.decided)))


def _another_decision(action: Action) -> Authority:
    assert isinstance(action, Warm)
    elsewhere = Seat(host=action.host, devices=(DEVICES[0].id,))
    return b.approved(action, decision=placed(action.replica, elsewhere, digest_of(action.launch)))


def _astray(launch: Launch) -> Launch:
    (file,) = launch.artifact.files
    return replace(launch, artifact=replace(launch.artifact, files=(replace(file, path="../../etc/passwd"),)))


def _outside(case: Case) -> None:
    assert isinstance(case.action, Warm)
    case.action = replace(case.action, launch=_astray(case.action.launch))


def _unlisted(case: Case) -> None:
    """An argument that people did not sign."""
    assert isinstance(case.action, Warm)
    launch = case.action.launch
    case.action = replace(case.action, launch=replace(launch, args=(EngineArg(name="rpc", value="thief:1"),)))


Defect = Callable[[Case], None]
CHECKS: tuple[tuple[int, str, bool, Defect], ...] = (
    (1, "bad_envelope", False, _on_case(text=lambda text: text[:-2])),
    (1, "bad_envelope", False, _on_case(text=lambda text: text + " " * (1 << 20))),
    (2, "bad_signature", False, _on_case(signer=b.OTHER_HOST)),
    (2, "wrong_kind", False, _on_case(kind="directive")),
    (3, "not_canonical", False, _on_case(bytes_of=lambda raw: raw.replace(b',"', b', "', 1))),
    (3, "bad_schema", False, _grant(v=2)),
    (4, "wrong_fleet", False, _other_fleet),
    (4, "wrong_host", False, _other_host),
    (4, "wrong_host_key", False, _body(host_key=b.OTHER_HOST.public.text)),
    (5, "stale_term", False, _grant(term=Term(epoch=1, counter=4))),
    (5, "term_jump", False, _grant(term=Term(epoch=1, counter=6 + limits.TERM_JUMP))),
    (6, "fork", False, _on_case(seq=1)),
    (6, "duplicate", False, _forgotten),
    (7, "gap", False, _body(prev=OTHER)),
    (8, "not_yet", False, _grant(issued_ms=b.NOW + 31_000, not_after_ms=b.NOW + 60_000)),
    (8, "expired", False, _grant(not_after_ms=b.NOW - 1)),
    (9, "root_expired", False, _host(chain=_expired())),
    (9, "agent_too_old", False, _host(chain=b.demanding(b.RELEASED, "0.0.9"), version="0.0.8")),
    (9, "too_many_open", False, _crowded),
    (10, "old_catalog", True, _body(catalog=VERSION - 1)),
    (10, "not_in_catalog", True, _unlisted),
    (11, "unapproved", True, _on_case(authority=lambda _: replace(b.APPROVED, approvals=()))),
    (11, "unapproved", True, _on_case(authority=_another_decision)),
    (12, "over_ceiling", True, _action(device_bytes=1 << 40)),
    (12, "over_ceiling", True, _action(devices=(GPU, GPU))),
    (12, "over_ceiling", True, _outside),
    (13, "precondition", True, _body(precondition=(DeviceGeneration(device=GPU, generation=99),))),
)
SIGNED_BY_HAND = {"wrong_kind", "not_canonical"}
"""Another kind is sealed by the product's own door, which makes no other bytes than canonical ones."""
PAIRS = [(one, two) for one, two in combinations(CHECKS, 2) if one[0] < two[0] and {one[1], two[1]} != SIGNED_BY_HAND]


def _catalog() -> Catalog:
    """What people signed: the files of these tests, also under a path that no host takes, and as much memory as one
    asks for: the host's own ceilings are another check."""
    one, two = b.warm(1).launch, b.warm(2).launch
    made = entry(two, device_bytes=1 << 50, devices=2)
    files = (entry(one).artifacts[0], made.artifacts[0], entry(_astray(two)).artifacts[0])
    named = tuple(sorted(files, key=lambda f: f.content))
    return catalog(b.FLEET, replace(made, artifacts=named), version=VERSION)


class Host13:
    """A host with one model up, its first command done, and everything of it in a ledger."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        identity = Identity(fleet=b.FLEET, host=b.HOST, host_key=b.HOST_KEY)
        self.ledger = Ledger.create(path, identity, (b.CHAIN.text,))
        self.host = self.ledger.load("b1")
        self.tell(Measured(DEVICES))
        self.tell(RootsCame((b.RELEASED.text,)))
        self.hear(catalog=seal_catalog(_catalog(), b.ANN, b.BOB))
        first = b.body(1, self.host.fence.head.body, replace(b.load(1), replica=ReplicaId("coder/9")))
        first = replace(first, catalog=VERSION)
        self.hear(b.sealed(b.grant(first)))
        self.tell(Began(digest_of(first)))
        self.tell(Ended(digest_of(first), Outcome.SUCCEEDED))
        self.hear()

    def tell(self, event: Any) -> tuple[Any, ...]:
        done = step(self.host, event, b.NOW)
        self.ledger.write(self.host, done.host)
        self.host = done.host
        return done.effects

    def hear(self, *grants: str, **changes: Any) -> tuple[Any, ...]:
        directive = b.directive(grants=grants, acked_rseq=self.host.receipts.acked, **changes)
        return self.tell(Heard(directive, floor_ms=b.NOW, epoch=1))

    def becomes(self, host: Host) -> None:
        """What a case needs to be true of the host, durable before the grant comes."""
        self.ledger.write(self.host, host)
        self.host = host

    def durable(self) -> str:
        """Every byte of the ledger's files."""
        found = hashlib.sha256()
        for file in sorted(self.folder.iterdir()):
            if not file.name.endswith("-shm"):  # SQLite's index of the log: no content, and not durable
                found.update(file.name.encode() + file.read_bytes())
        return found.hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Host13]:
    made = Host13(tmp_path / "ledger.sqlite")
    yield made
    made.ledger.close()


def case_of(place: Host13, *defects: Defect) -> Case:
    warm = replace(b.warm(2), replica=SECOND)
    case = Case(place.host, warm)
    for defect in defects:
        defect(case)
    return case


def meets(place: Host13, case: Case) -> tuple[str, bool]:
    """The code by which the host refuses it, and whether for good. Nothing may have been started."""
    place.becomes(case.host)
    before, known = place.durable(), place.host
    effects = place.hear(case.sealed)
    body = digest_of(case.made.body)
    if Enqueue(body) in effects:
        effects = place.tell(Began(body))
    assert not [e for e in effects if isinstance(e, Act)], "it was started"
    assert place.host.held == known.held
    receipt = stored(place.host.receipts, body)
    if receipt is None:
        (warned,) = [e for e in effects if isinstance(e, Warn)]
        assert place.durable() == before, "a refusal for now changed the ledger"
        assert place.host.fence == known.fence
        return warned.code, False
    assert (receipt.outcome, receipt.final, receipt.detail) == (Outcome.REFUSED, True, receipt.detail)
    assert receipt.detail
    assert place.durable() != before
    assert place.host.fence.head == Head(seq=known.fence.head.seq + 1, body=body), "its number is used up"
    assert place.host.commands == known.commands
    return receipt.code or "", True


def test_the_grant_without_a_defect_is_carried_out(place: Host13) -> None:
    case = case_of(place)
    body = digest_of(case.made.body)
    assert place.hear(case.sealed) == (Enqueue(body),)
    assert Act(body) in place.tell(Began(body))


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: f"{c[0]} {c[1]}")
def test_each_check_has_its_code_and_says_whether_it_is_for_good(
    place: Host13, check: tuple[int, str, bool, Defect]
) -> None:
    _, code, final, defect = check
    assert meets(place, case_of(place, defect)) == (code, final)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{p[0][0]} {p[0][1]} before {p[1][0]} {p[1][1]}")
def test_of_two_checks_that_fail_the_first_one_answers(
    place: Host13, pair: tuple[tuple[int, str, bool, Defect], tuple[int, str, bool, Defect]]
) -> None:
    (_, code, final, first), (_, _, _, second) = pair
    assert meets(place, case_of(place, second, first)) == (code, final)


def test_every_check_is_in_the_table_with_every_other() -> None:
    assert {number for number, *_ in CHECKS} == set(range(1, 14))
    assert len({(one[0], two[0]) for one, two in PAIRS}) == 13 * 12 // 2


def _ready(n: int) -> Held:
    warm = replace(b.warm(), replica=ReplicaId(f"coder/{n}"))
    return Held(
        body=digest_bytes(b"held %d" % n),
        warm=warm,
        state=ResidencyState.READY,
        since_ms=b.NOW,
        serves=warm.serves,
        restart=warm.restart,
        drain_ms=warm.drain_ms,
    )


BRAKED: tuple[tuple[int, str, bool, Defect], ...] = (
    (11, "unapproved", True, _on_case(authority=lambda _: replace(b.APPROVED, approvals=()))),
    (12, "brake", True, lambda _: None),
    (13, "precondition", True, _body(precondition=(DeviceGeneration(device=GPU, generation=99),))),
)


@pytest.mark.parametrize("pair", list(combinations(BRAKED, 2)), ids=lambda p: f"{p[0][1]} before {p[1][1]}")
def test_the_brake_stands_between_authority_and_precondition(place: Host13, pair: tuple[Any, Any]) -> None:
    (_, code, final, first), (_, _, _, second) = pair
    held = _ready(3)
    stops = (b.NOW,) * limits.STANDING_STOPS
    drain = Drain(host=b.HOST, replica=held.replica, profile=held.profile, incarnation=held.body, grace_ms=1)
    host = replace(place.host, held=MappingProxyType({held.body: held}), brake=Brake(stops_ms=stops))
    standing = {"authority": lambda _: b.STANDING}
    case = Case(host, drain, **(standing if "brake" in (code, pair[1][1]) else {}))  # type: ignore[arg-type]
    for defect in (second, first):
        defect(case)
    assert meets(place, case) == (code, final)


@pytest.mark.parametrize("change", [{"device_bytes": -1}, {"host_bytes": -1}, {"devices": ()}], ids=str)
def test_less_than_nothing_makes_no_room_on_a_host_without_a_catalog(story: Story, change: dict[str, Any]) -> None:
    """By a negative size more would seem to fit beside it than does."""
    body = story.issue(replace(b.warm(), **change))
    assert story.tell(Began(body)) != (Act(body),)
    assert story.said(body) == (Outcome.REFUSED, "over_ceiling")
    assert not story.host.held
