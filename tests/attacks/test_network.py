"""Somebody sits on the line between a controller and its hosts, and holds no key.

What was ever said, of every kind, is played to everybody, at every later step of a story: as the answer to a heartbeat,
as a heartbeat, as a receipt, as a request. Nothing of it is believed, nothing starts, and not one byte of a ledger or
of the journal changes. No refusal here is final. Slow and endless callers of the controller meet its real listener in
tests/e2e.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.errors import Refusal, Unreachable
from gridops.protocol.messages import Beat
from gridops.trust.envelope import MACHINE_KINDS, PERSON_KINDS
from gridops_agent.client import Controller
from tests.attacks.line import HOSTS, Line, Message
from tests.attacks.place import Place, payload_of

KINDS = {"approval", "catalog", "directive", "grant", "heartbeat", "join", "operator", "plan", "receipt", "rekey",
         "root", "tls-binding"}  # fmt: skip
NEVER_SENT = {"join-reply", "qualification"}
STEPS = (
    "both have spoken",
    "a stranger asked to join, and a host for its next key",
    "a model runs",
    "all is acknowledged",
    "a command was taken back",
    "the model has ended",
    "an agent began anew",
    "the controller began anew",
    "the controller's epoch was raised",
)


@pytest.fixture(scope="module", params=STEPS)
def line(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The story as far as one of its steps; every test leaves both hosts heard."""
    made = Line(tmp_path_factory.mktemp("line")).at(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """The story to its end."""
    made = Line(tmp_path_factory.mktemp("ended")).at(STEPS[-1])
    yield made
    made.close()


def test_the_story_says_every_kind_of_message_there_is(ended: Line) -> None:
    assert {m.kind for m in ended.heard.values()} == KINDS
    assert KINDS == (MACHINE_KINDS | PERSON_KINDS) - NEVER_SENT
    assert list(ended.steps) == list(STEPS)


def as_an_answer(place: Place, message: Message) -> str:
    """The code that a host has for a message that comes as the answer to its heartbeat."""
    if message.kind != "directive":
        return "wrong_kind"
    return "stale_session" if message.host == place.identity.host else "wrong_host"


@pytest.mark.parametrize("host", HOSTS)
def test_nothing_that_was_ever_said_moves_a_host(line: Line, host: str) -> None:
    place = line.places[host]
    before, started = place.durable(), list(place.started)
    for message in line.recorded():
        assert place.poll(message.text) == [as_an_answer(place, message)], (message.kind, message.host)
    assert (place.durable(), place.started) == (before, started)
    line.turn()


@pytest.mark.parametrize("host", HOSTS)
def test_no_command_runs_twice_or_elsewhere_even_if_the_controller_itself_repeats_it(line: Line, host: str) -> None:
    place = line.places[host]
    signer = line.desk.controller.signer
    term = place.host.fence.term
    if term.epoch == 0:
        return  # it has heard nobody yet
    place.poll(place.told(signer=signer, term=term, root_version=1))
    before, started = place.durable(), list(place.started)
    for message in [m for m in line.recorded() if m.kind == "grant"]:
        said = place.poll(place.told(message.text, signer=signer, term=term))
        elsewhere = message.host != host
        former = payload_of(message.text)["term"]["epoch"] < term.epoch
        again = payload_of(message.text)["term"]["counter"] < term.counter
        assert said == (["wrong_host"] if elsewhere else ["stale_term"] if former or again else []), said
    assert (place.durable(), place.started) == (before, started)
    line.turn()


def asked(line: Line, ask: Callable[[], object]) -> str:
    try:
        ask()
    except Refusal as refusal:
        return refusal.code
    return ""


def test_nothing_that_was_ever_said_moves_the_controller(line: Line) -> None:
    controller, before, known = line.desk.controller, line.journal(), dict(line.desk.controller.soft.hosts)
    for message in line.recorded():
        said = asked(line, lambda text=message.text: controller.beat(Beat(heartbeat=text)))  # type: ignore[misc]
        wanted = {"replayed", ""} if message.kind == "heartbeat" else {"bad_schema", "not_admitted", "wrong_kind"}
        assert said in wanted, (message.kind, said)
        said = asked(line, lambda text=message.text: controller.join(text))  # type: ignore[misc]
        wanted = {"", "GO427"} if message.kind == "join" else {"wrong_kind", "bad_schema", "bad_envelope"}
        assert said in wanted, (message.kind, said)
        said = asked(line, lambda text=message.text: asyncio.run(line.desk.planning.operator(text)))  # type: ignore[misc]
        wanted = {"GO425", "GO426", "expired"} if message.kind == "operator" else {"wrong_kind", "bad_envelope"}
        assert said in wanted, (message.kind, said)
    assert line.journal() == before, "something that was recorded became a row"
    assert controller.soft.hosts == known, "something that was recorded passed for news"
    line.calms()


@pytest.mark.parametrize("host", HOSTS)
def test_receipts_put_into_a_true_heartbeat_are_read_once_or_refused(line: Line, host: str) -> None:
    """What holds heartbeat and receipts together is not signed: somebody between may put others in."""
    place = line.places[host]
    for message in [m for m in line.recorded() if m.kind in ("receipt", "grant", "heartbeat")]:
        book = line.desk.state.hosts[host].outbox
        alarms = dict(line.desk.state.alarms)

        def between(beat: Beat, text: str = message.text) -> str:
            return line.post(replace(beat, receipts=(text, *beat.receipts)))

        known = set(line.heard)
        try:
            said = place.poll(between)
        finally:
            for text in set(line.heard) - known:
                if line.heard[text].kind == "receipt":
                    del line.heard[text]
        ours = message.kind == "receipt" and message.host == host
        assert said == ([] if ours else ["wrong_kind" if message.kind != "receipt" else "bad_signature"])
        assert line.desk.state.hosts[host].outbox == book
        assert line.desk.state.alarms == alarms
    line.turn()


def test_receipts_that_are_left_out_come_again_and_no_two_effects_follow(ended: Line) -> None:
    place = ended.places["alpha"]
    count = len(place.started)
    for _ in range(5):
        assert place.poll(lambda beat: ended.post(replace(beat, receipts=()))) == []
    assert len(place.started) == count
    ended.turn()


# -- what is changed on its way ----------------------------------------------------------------------------------------


def _envelope(text: str, **changes: object) -> str:
    return json.dumps(json.loads(text) | changes)


def _payload(text: str, **changes: object) -> str:
    raw = json.dumps(payload_of(text) | changes, sort_keys=True, separators=(",", ":")).encode()
    return _envelope(text, payload=base64.b64encode(raw).decode())


Bend = Callable[[str], str]
BENT: tuple[tuple[str, Bend, str, bool], ...] = (
    ("another nonce", lambda t: _payload(t, nonce="0" * 32), "bad_signature", False),
    ("a later end", lambda t: _payload(t, expires_ms=9_000_000_000_000), "bad_signature", False),
    ("another host's name", lambda t: _payload(t, host="beta"), "bad_signature", False),
    ("another type", lambda t: _envelope(t, payloadType="application/vnd.gridops.grant.v1+json"), "wrong_kind", False),
    ("no signature", lambda t: _envelope(t, signatures=[]), "bad_envelope", False),
    ("one signature twice", lambda t: _envelope(t, signatures=json.loads(t)["signatures"] * 2), "bad_envelope", False),
    ("cut in the middle", lambda t: t[: len(t) // 2], "bad_envelope", False),
    ("cut by one", lambda t: t[:-1], "bad_envelope", False),
    ("nothing", lambda _: "", "bad_envelope", False),
    ("endless", lambda t: t + " " * (2 * limits.DIRECTIVE_BYTES), "bad_envelope", False),
    ("endless brackets", lambda _: "[" * 100_000, "bad_envelope", False),
    ("one key twice", lambda t: t.replace('"payload"', '"payload":"e30=","payload"', 1), "bad_envelope", False),
    ("another alphabet", lambda t: _envelope(t, payload=json.loads(t)["payload"].replace("=", "") + "-_"),
     "bad_envelope", False),
)  # fmt: skip


@pytest.mark.parametrize(("bend", "code", "final"), [row[1:] for row in BENT], ids=[row[0] for row in BENT])
def test_an_answer_that_is_changed_on_its_way_is_no_answer(ended: Line, bend: Bend, code: str, final: bool) -> None:
    place = ended.places["alpha"]
    before = place.durable()
    assert place.poll(lambda beat: bend(ended.post(beat))) == [code]
    assert place.durable() == before
    assert not final
    ended.turn()


@pytest.mark.parametrize(("bend", "code", "final"), [row[1:] for row in BENT], ids=[row[0] for row in BENT])
def test_a_heartbeat_that_is_changed_on_its_way_is_not_heard(ended: Line, bend: Bend, code: str, final: bool) -> None:
    place, before = ended.places["alpha"], ended.journal()
    beats: list[Beat] = []
    place.poll(lambda beat: beats.append(beat) or "{}")  # type: ignore[func-returns-value]
    with pytest.raises(Refusal) as refusal:
        ended.desk.post(replace(beats[0], heartbeat=bend(beats[0].heartbeat)))
    assert refusal.value.code in (code, "bad_schema")
    assert ended.journal() == before
    ended.turn()


def test_a_frozen_answer_is_noticed_and_after_five_minutes_the_host_says_so(ended: Line) -> None:
    """The answer of the heartbeat before, again and again: the host goes on with what runs, and takes nothing new."""
    place = ended.places["alpha"]
    frozen = [m.text for m in ended.heard.values() if (m.kind, m.host) == ("directive", "alpha")][-1]
    before = place.durable()
    for _ in range(31):
        ended.desk.clock.pass_by(10_000)
        assert place.poll(frozen) == ["stale_session"]
    assert not place.hours.fresh()
    assert place.durable() == before
    ended.turn()
    assert place.hours.fresh()


def test_an_answer_to_one_host_is_none_to_another(ended: Line) -> None:
    alpha, beta = (ended.places[name] for name in HOSTS)
    answers: list[str] = []
    alpha.poll(lambda beat: answers.append(ended.post(beat)) or "{}")  # type: ignore[func-returns-value]
    assert beta.poll(answers[0]) == ["wrong_host"]
    ended.turn()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
DRIPS: list[tuple[str, bytes, bytes]] = [
    ("in the middle of its head", HEAD, b"x"),
    ("in the middle of its body", HEAD + b"content-length: 100000\r\n\r\n", b" "),
    ("in pieces without an end", HEAD + b"transfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
]


@pytest.mark.parametrize(("first", "drip"), [row[1:] for row in DRIPS], ids=[row[0] for row in DRIPS])
async def test_an_answer_that_drips_keeps_no_host_from_asking_again(
    first: bytes, drip: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time; the whole never does. The words are those of the host's own bound, not of an end."""
    monkeypatch.setattr(limits, "ANSWER_MS", 400)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(first)
            for _ in range(200):
                writer.write(drip)
                await writer.drain()
                await asyncio.sleep(0.02)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    controller = Controller.unproved(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        for _ in range(2):
            with pytest.raises(Unreachable, match="no whole answer within 400 ms"):
                await controller.roots()
    finally:
        await controller.close()
        server.close()


def test_two_whole_answers_are_waited_for_before_a_host_is_stale() -> None:
    assert 2 * limits.ANSWER_MS < limits.STALE_SESSION_MS
