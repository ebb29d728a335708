"""Records what this state of the house writes, so that every later one can show that it still reads it.

`python -m tests.recorded.write NAME` is run once for each release, by hand, and its folder is committed: the journal
of one full story with the state that it folds to, the signed messages of that story, and the form of every record.
Nothing here is ever run to make a test pass: what an older program has written does not change.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import sys
import tempfile
import types
import typing
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Any

from gridops.base.ids import HostId, PersonName
from gridops.base.record import digest_of, from_bytes
from gridops.controller.core import rows as r
from gridops.controller.core.pack import pack
from gridops.controller.core.row_kinds import KINDS
from gridops.model.plan import Plan
from gridops.protocol.messages import Beat, Directive, Facts, Grant, Heartbeat, JoinReply, JoinRequest, Receipt, Rekey
from gridops.protocol.open import open_directive, open_grant, open_heartbeat, open_receipt
from gridops.store.journal import Journal
from gridops.trust.approval import Approval
from gridops.trust.operator import OperatorRequest
from gridops.trust.root import Root
from tests.controller.fleet import AUTOMATIC, DEFAULT, NOW, Desk, Fleet, profile

HERE = Path(__file__).parent
WIRE = (Approval, Beat, Directive, Grant, Heartbeat, JoinReply, JoinRequest, OperatorRequest, Plan, Receipt, Rekey,
        Root)  # fmt: skip
"""What travels or is signed. A journal row holds some of these, and records of its own."""
SIGNED = {
    "heartbeat": (Heartbeat, open_heartbeat),
    "receipt": (Receipt, open_receipt),
    "directive": (Directive, lambda text, key: open_directive(text, (key,))),
    "grant": (Grant, lambda text, key: open_grant(text, (key,))),
    "operator": (OperatorRequest, None),
    "approval": (Approval, None),
}
"""Kinds of signed messages, their record, and who opens them where that takes no more than a key."""
FACTS = Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="Linux")
EACH = 6
"""So many of each kind of message: the newest say the most."""


class Ears:
    """A desk's messages, as they pass."""

    def __init__(self, desk: Desk) -> None:
        self.heard: list[tuple[str, str, str]] = []
        """Kind, key of who signed it, envelope."""
        self._post, self._desk = desk.post, desk
        desk.post = self.post  # type: ignore[method-assign]
        self._request = desk.fleet.request
        desk.fleet.request = self.request  # type: ignore[method-assign]

    def post(self, beat: Beat) -> str:
        host = json.loads(payload(beat.heartbeat))["host"]
        key = self._desk.fleet.agents[host].signer.public.text
        self.heard.append(("heartbeat", key, beat.heartbeat))
        self.heard += [("receipt", key, text) for text in beat.receipts]
        answer = self._post(beat)
        ours = self._desk.controller.signer.public.text
        self.heard.append(("directive", ours, answer))
        self.heard += [("grant", ours, text) for text in json.loads(payload(answer))["grants"]]
        return answer

    def request(self, *args: Any, **fields: Any) -> str:
        made = self._request(*args, **fields)
        person = self._desk.fleet.person.public.text
        self.heard.append(("operator", person, made))
        self.heard += [("approval", person, text) for text in json.loads(payload(made)).get("approvals", ())]
        return made


def payload(envelope: str) -> bytes:
    """What a signed message says; nobody has verified it."""
    return base64.b64decode(json.loads(envelope)["payload"])


def told(root: Path) -> tuple[Desk, Ears]:
    """One story with something of most of what can happen."""
    fleet = Fleet(root)
    fleet.begin()
    desk = Desk(fleet)
    ears = Ears(desk)
    desk.settle(2)
    desk.apply()
    desk.settle()
    desk.project()
    desk.ask("freeze", reason="smoke", until_ms=NOW + 10_000_000)
    desk.ask("thaw")
    desk.ask("invite", host="gamma")
    desk.commit({"profiles.d/broken.yaml": "kind: ["})
    wide = {"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)}
    desk.commit({"profiles.d/broken.yaml": None, **wide})
    desk.settle()
    desk.restart()
    desk.settle(4)
    for _ in range(20):
        desk.clock.pass_by(1_000)
        desk.beat("beta")
    desk.ask("write_off", host="alpha", reason="stolen")
    desk.settle(4)
    desk.commit({"profiles.d/coder.yaml": None})
    desk.pass_()
    desk.apply(names=("coder",))
    desk.settle()
    desk.project()
    desk.clock.wall += 100_000
    desk.settle(1)
    mira, gamma = PersonName("mira"), HostId("gamma")
    desk.controller.commit(
        (
            r.AlarmRaised(key="a key", text="smoke"),
            r.AlarmCleared(key="a key"),
            r.TermSeen(counter=1),
            r.Unlocked(scope=DEFAULT, by=mira, reason="stuck"),
            r.JoinPending(host=gamma, host_key="ed25519:" + "0" * 64, facts=FACTS),
            r.JoinSettled(host=gamma, why="forgotten", by=mira),
            r.Distrusted(reason="an exercise"),
            r.Rebuilt(),
        ),
        desk.now,
    )
    return desk, ears


# -- the form of records ----------------------------------------------------------------------------------------------


def forms() -> dict[str, dict[str, str]]:
    """Every record that travels or is journalled, by name: each field with `needed`, `written` or `optional`.

    `written`: it has a default that is not None, so that it is always there. What is None is left out.
    """
    found: dict[str, dict[str, str]] = {}
    seen: set[type[Any]] = set()
    for kind in (*WIRE, *KINDS.values()):
        _form(kind, found, seen)
    return {name: found[name] for name in sorted(found)}


def called(kind: type[Any]) -> str:
    """A record's name here: its own, behind that of its module."""
    return f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"


def _form(kind: Any, found: dict[str, dict[str, str]], seen: set[type[Any]]) -> None:
    if typing.get_origin(kind) is not None or isinstance(kind, types.UnionType):
        for part in typing.get_args(kind):
            _form(part, found, seen)
        return
    if not dataclasses.is_dataclass(kind):
        return
    assert isinstance(kind, type)
    if kind in seen:
        return
    name = called(kind)
    assert name not in found, f"two records are called {name}"
    seen.add(kind)
    found[name] = {}
    hints = typing.get_type_hints(kind)
    for entry in dataclasses.fields(kind):
        found[name][entry.name] = _need(entry)
        _form(hints[entry.name], found, seen)


def _need(entry: dataclasses.Field[Any]) -> str:
    if entry.default is dataclasses.MISSING and entry.default_factory is dataclasses.MISSING:
        return "needed"
    return "optional" if entry.default is None else "written"


def reached(kinds: Iterable[Any]) -> set[str]:
    """The names of all records that these are made of."""
    found: dict[str, dict[str, str]] = {}
    seen: set[type[Any]] = set()
    for kind in kinds:
        _form(kind, found, seen)
    return set(found)


def values_of_enums() -> dict[str, list[str]]:
    """What each enum on the wire or in the journal may say."""
    seen: set[type[Any]] = set()
    for kind in (*WIRE, *KINDS.values()):
        _form(kind, {}, seen)
    found: dict[str, list[str]] = {}
    for kind in sorted(seen, key=lambda k: k.__name__):
        for hint in typing.get_type_hints(kind).values():
            for part in _parts(hint):
                if isinstance(part, type) and issubclass(part, Enum):
                    found[called(part)] = sorted(str(m.value) for m in part)
    return {name: found[name] for name in sorted(found)}


def _parts(hint: Any) -> list[Any]:
    return [hint, *(p for part in typing.get_args(hint) for p in _parts(part))]


def write(folder: Path) -> None:
    """Record everything into a folder that is not there yet."""
    folder.mkdir()
    with tempfile.TemporaryDirectory() as scratch:
        desk, ears = told(Path(scratch))
        state = pack(desk.state)
        desk.controller.close()
        journal = Journal.open(desk.fleet.state / "journal.sqlite")
        rows = [
            {"kind": w.kind, "at_ms": w.at_ms, "epoch": w.term.epoch, "counter": w.term.counter, "value": w.value}
            for w in journal.replay()
        ]
        journal.close()
    _save(folder / "journal.json", {"rows": rows, "state": state})
    messages = []
    for kind in SIGNED:
        for _, key, text in [m for m in ears.heard if m[0] == kind][-EACH:]:
            record = from_bytes(SIGNED[kind][0], payload(text))
            messages.append({"kind": kind, "key": key, "envelope": text, "digest": digest_of(record)})
    _save(folder / "wire.json", messages)
    _save(folder / "forms.json", {"records": forms(), "enums": values_of_enums(), "rows": _kinds()})


def _kinds() -> dict[str, str]:
    return {kind: called(of) for kind, of in sorted(KINDS.items())}


def _save(path: Path, what: Any) -> None:
    path.write_text(json.dumps(what, indent=0, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    write(HERE / sys.argv[1])
