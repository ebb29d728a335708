"""What earlier programs wrote is read, and means the same; and what this one writes can be read by them.

Each folder beside this file was written once, by `write.py`, at the state of the house that its name says.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from gridops.base import canon
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.controller.core.pack import pack, unpack
from gridops.controller.core.row_kinds import KINDS, decode, encode
from gridops.controller.writer import Writer
from gridops.protocol.messages import Term
from gridops.store.journal import Entry, Journal
from gridops.trust.envelope import open_envelope
from gridops.trust.keys import parse_key
from tests.builders.reading import Reading
from tests.recorded.write import HERE, SIGNED, WIRE, called, forms, payload, reached, values_of_enums

CORPORA = sorted(path.name for path in HERE.iterdir() if (path / "journal.json").exists())


def corpus(name: str, part: str) -> Any:
    return json.loads((HERE / name / f"{part}.json").read_text("utf-8"))


def test_there_are_corpora() -> None:
    """One for each release, and none is ever taken away or changed."""
    assert CORPORA == ["before-0.1.0"]


def journalled(rows: list[dict[str, Any]], path: Path) -> Journal:
    """The recorded rows in a journal of today, each under its own term."""
    journal = Journal.open(path)
    term = Term(epoch=0, counter=0)
    for row in rows:
        wanted = Term(epoch=row["epoch"], counter=row["counter"])
        if wanted != term:
            term = journal.take_term(wanted.epoch, above=wanted.counter - 1)
            assert term == wanted
        journal.append([Entry(row["kind"], row["at_ms"], row["value"])], term)
    return journal


@pytest.mark.parametrize("name", CORPORA)
def test_an_old_journal_says_what_it_said(name: str, tmp_path: Path) -> None:
    found = corpus(name, "journal")
    journal = journalled(found["rows"], tmp_path / "journal.sqlite")
    writer = Writer(Reading(journal))
    assert writer.replay() == len(found["rows"])
    writer.state.term = unpack(found["state"]).term
    assert lacks(found["state"], json.loads(canon.dumps(pack(writer.state)))) == []
    journal.close()


@pytest.mark.parametrize("name", CORPORA)
def test_an_old_snapshot_is_taken_in_and_still_says_all_of_it(name: str) -> None:
    said = corpus(name, "journal")["state"]
    assert lacks(said, json.loads(canon.dumps(pack(unpack(said))))) == []


def lacks(old: Any, new: Any, at: str = "state") -> list[str]:
    """What an old state said and a new one does not. The new one may say more: it has learned to ask more of a row."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [line for key in sorted(old) for line in lacks(old[key], new.get(key), f"{at}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [line for n, one in enumerate(old) for line in lacks(one, new[n], f"{at}[{n}]")]
    return [] if old == new else [f"{at} was {old}, is {new}"]


def test_what_a_state_lacks_is_found() -> None:
    assert lacks({"a": [{"b": 1}]}, {"a": [{"b": 1, "c": 2}], "d": 3}) == []
    assert lacks({"a": [{"b": 1}]}, {"a": [{"b": 2}]}) == ["state.a[0].b was 1, is 2"]
    assert lacks({"a": [1]}, {"a": []}) == ["state.a was [1], is []"]
    assert lacks({"a": 1}, {}) == ["state.a was 1, is None"]


@pytest.mark.parametrize("name", CORPORA)
def test_an_old_row_is_written_again_as_it_was(name: str) -> None:
    """Else its digest, or that of what it holds, would be another."""
    for row in corpus(name, "journal")["rows"]:
        known = decode(row["kind"], canon.dumps(row["value"]))
        assert known is not None, row["kind"]
        assert json.loads(encode(known)) == row["value"], row["kind"]


@pytest.mark.parametrize("name", CORPORA)
def test_old_messages_verify_and_have_the_digest_that_they_had(name: str) -> None:
    for message in corpus(name, "wire"):
        kind, opens = SIGNED[message["kind"]]
        key = parse_key(message["key"])
        raw = open_envelope(message["envelope"], kind=message["kind"], keys=(key,), limit=1 << 20).payload
        assert raw == payload(message["envelope"])
        record = from_bytes(kind, raw) if opens is None else opens(message["envelope"], key)
        assert digest_of(record) == message["digest"]
        assert to_bytes(record) == raw


def differences(old: dict[str, Any], new: dict[str, Any], wire: set[str]) -> list[str]:
    """Why an older program and this one would not understand each other."""
    wrong = []
    for name, fields in sorted(old["records"].items()):
        now = new["records"].get(name)
        if now is None:
            wrong.append(f"{name} is gone: what was written of it cannot be read")
            continue
        for entry, need in sorted(fields.items()):
            wrong += _changed(f"{name}.{entry}", need, now.get(entry))
        for entry in sorted(now.keys() - fields.keys()):
            if now[entry] == "needed":
                wrong.append(f"{name}.{entry} is new and needed: what was written before lacks it")
            elif now[entry] == "written" and name in wire:
                wrong.append(f"{name}.{entry} is new and always written: an older program refuses it")
    for name, values in sorted(old["enums"].items()):
        wrong += [f"{name} has no `{v}` any more" for v in values if v not in new["enums"].get(name, ())]
    wrong += [f"rows of kind {k} mean another record" for k, of in old["rows"].items() if new["rows"].get(k) != of]
    return wrong


def _changed(what: str, need: str, now: str | None) -> list[str]:
    if now is None:
        return [f"{what} is gone: what was written with it cannot be read"]
    if now == "needed" and need != "needed":
        return [f"{what} is needed now: what was written before may lack it"]
    if now == "optional" and need == "needed":
        return [f"{what} may be left out now: an older program needs it"]
    return []


def present() -> dict[str, Any]:
    return {
        "records": forms(),
        "enums": values_of_enums(),
        "rows": {kind: called(of) for kind, of in KINDS.items()},
    }


@pytest.mark.parametrize("name", CORPORA)
def test_no_record_has_changed_so_that_older_programs_are_shut_out(name: str) -> None:
    assert differences(corpus(name, "forms"), present(), reached(WIRE)) == []


def change(*path: str, to: str | None) -> Callable[[dict[str, Any]], None]:
    def work(forms_: dict[str, Any]) -> None:
        at = forms_
        for step in path[:-1]:
            at = at[step]
        if to is None:
            del at[path[-1]]
        else:
            at[path[-1]] = to  # type: ignore[assignment]

    return work


BREAKS = {
    "messages.Grant.extra is new and needed": change("records", "messages.Grant", "extra", to="needed"),
    "messages.Grant.extra is new and always written": change("records", "messages.Grant", "extra", to="written"),
    "rows.Started.extra is new and needed": change("records", "rows.Started", "extra", to="needed"),
    "messages.Body.seq is gone": change("records", "messages.Body", "seq", to=None),
    "messages.Body.seq may be left out now": change("records", "messages.Body", "seq", to="optional"),
    "messages.Receipt.detail is needed now": change("records", "messages.Receipt", "detail", to="needed"),
    "messages.Receipt is gone": change("records", "messages.Receipt", to=None),
    "rows of kind started mean another record": change("rows", "started", to="rows.Thawed"),
}


@pytest.mark.parametrize("what", BREAKS)
def test_the_comparison_finds_it(what: str) -> None:
    new = copy.deepcopy(present())
    BREAKS[what](new)
    assert any(words.startswith(what) for words in differences(present(), new, reached(WIRE)))


def test_an_enum_that_lost_a_word_is_found() -> None:
    new = copy.deepcopy(present())
    new["enums"]["messages.Outcome"].remove("voided")
    assert differences(present(), new, reached(WIRE)) == ["messages.Outcome has no `voided` any more"]


def test_a_new_optional_field_shuts_nobody_out() -> None:
    new = copy.deepcopy(present())
    new["records"]["messages.Grant"]["extra"] = "optional"
    assert differences(present(), new, reached(WIRE)) == []


def test_corpora_follow_each_other() -> None:
    """What a later one has recorded, an earlier program could read."""
    for old, new in pairwise(CORPORA):
        assert differences(corpus(old, "forms"), corpus(new, "forms"), reached(WIRE)) == []
