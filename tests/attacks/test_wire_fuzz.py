"""Messages that are signed by the true key and say anything at all: schema and judgement are reached, and hold.

One value of a true message, anywhere in it, becomes something else, and the true key signs that. Whatever it is, the
answer is a refusal in words or an ordinary one: no other error, no start but of the very command that people
approved, and nothing that was ordered of another host changes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gridops.base import canon
from gridops.base.errors import Refusal
from gridops.base.record import digest_of, to_bytes
from gridops.model.action import Load, Warm
from gridops.protocol.messages import Beat
from tests.attacks.place import Place, payload_of, signed_by_hand
from tests.controller.fleet import Desk, Fleet
from tests.protocol import build as b

MANY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, -1, 2**53, 2**53 - 1, 1.5, float("inf"), "", "\x00", "\ud800", "../../etc", "a" * 5_000]),
    st.text(max_size=20),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value of a document."""
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def bent(payload: dict[str, Any], draw: st.DataObject) -> bytes:
    """The document with one value changed, left out or given twice in a list."""
    document = json.loads(json.dumps(payload))
    *way, last = draw.draw(st.sampled_from(sorted(places(document), key=repr)))
    inner = document
    for key in way:
        inner = inner[key]
    if draw.draw(st.booleans()):
        inner[last] = draw.draw(ODD)
    elif isinstance(inner, list):
        inner.append(inner[last])
    else:
        del inner[last]
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("fuzz") / "host")
    assert made.poll(made.told()) == []
    yield made
    made.close()


@MANY
@given(st.data())
def test_whatever_the_controller_signs_as_a_command_starts_nothing_but_what_was_approved(
    place: Place, data: st.DataObject
) -> None:
    assert place.poll(place.told(acked_rseq=place.host.receipts.head)) == []
    action = data.draw(st.sampled_from([b.load(1), b.warm(1)]))
    true, before = payload_of(place.grant(action)), len(place.did)
    place.poll(place.told(signed_by_hand("grant", bent(true, data))))
    for done in place.did[before:]:
        assert (type(done), done.replica) == (type(action), action.replica)
        if isinstance(done, Warm) and isinstance(action, Warm):
            assert (digest_of(done.launch), done.devices) == (digest_of(action.launch), action.devices)
        elif isinstance(done, Load) and isinstance(action, Load):
            assert done.artifact.files == action.artifact.files


@MANY
@given(st.data())
def test_whatever_the_controller_signs_as_an_answer_is_taken_or_refused(place: Place, data: st.DataObject) -> None:
    def answer(said: Beat) -> str:
        true = payload_of(place.told()(said))
        return signed_by_hand("directive", bent(true, data))

    started = list(place.started)
    place.poll(answer)
    assert place.started == started
    assert place.host.fence.head.seq >= 0


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    fleet = Fleet(Path(tmp_path_factory.mktemp("fuzz-desk")))
    fleet.begin()
    made = Desk(fleet)
    made.settle(3)
    made.apply()
    made.settle(8)
    yield made
    made.controller.close()


@MANY
@given(st.data(), st.booleans())
def test_whatever_a_host_signs_is_heard_or_refused_and_touches_nobody_else(
    desk: Desk, data: st.DataObject, of_receipt: bool
) -> None:
    alpha = desk.fleet.agents["alpha"]
    spared = desk.state.hosts["beta"].outbox
    desk.clock.pass_by(1_000)
    alpha.now_ms = desk.now
    beat = alpha.beat()
    if of_receipt and alpha.receipts.kept:
        true = payload_of(signed_by_hand("receipt", to_bytes(alpha.receipts.kept[-1]), alpha.signer))
        beat = Beat(heartbeat=beat.heartbeat, receipts=(signed_by_hand("receipt", bent(true, data), alpha.signer),))
    else:
        bytes_ = bent(payload_of(beat.heartbeat), data)
        beat = Beat(heartbeat=signed_by_hand("heartbeat", bytes_, alpha.signer))
    with contextlib.suppress(Refusal):
        desk.post(beat)
    assert desk.state.hosts["beta"].outbox == spared
    desk.pass_()


def test_a_replica_by_a_name_that_is_none_keeps_nobodys_plans_from_being_made(desk: Desk) -> None:
    """What the search above found first: one host's word, and the plan of the whole scope met a fault."""
    alpha = next(a for a in desk.fleet.agents.values() if a.replicas())
    alpha.now_ms = desk.now
    beat = alpha.beat()
    true = payload_of(beat.heartbeat)
    true["inventory"]["residencies"][0]["replica"] = "../etc"
    with pytest.raises(Refusal, match="by a name that is none"):
        desk.post(Beat(heartbeat=signed_by_hand("heartbeat", canon.dumps(true), alpha.signer)))
    desk.pass_()


def test_a_signed_number_beyond_the_canonical_form_is_refused_in_words(place: Place) -> None:
    def answer(said: Beat) -> str:
        true = payload_of(place.told()(said)) | {"acked_rseq": 2**53}
        return signed_by_hand("directive", json.dumps(true, sort_keys=True, separators=(",", ":")).encode())

    assert place.poll(answer) == ["not_canonical"]
