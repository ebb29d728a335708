"""`gridops advice`: what is advised for disks, what each step needs, and the word that lets one be done."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gridops.base.errors import Failed
from gridops.base.ids import Digest
from gridops.cli import advice as command
from gridops.cli.output import Context, Output, Usage

STEP: dict[str, Any] = {
    "scope": "default", "errand": "sha256:" + "a" * 64, "kind": "prefetch", "host": "forge", "profile": "chat",
    "size_bytes": 3 << 30, "detail": "demand for chat is expected", "by_itself": False, "need": 2,
    "people": ["jon", "mira"], "approved_by": [],
}  # fmt: skip
GONE = STEP | {"kind": "evict", "host": "anvil", "detail": "", "approved_by": ["jon", "mira"]}


def test_each_step_says_what_it_needs_and_how() -> None:
    assert list(command.lines([STEP, GONE], None)) == [
        "fetch chat on forge: 3 GiB: demand for chat is expected",
        "  needs 2 of jon, mira   gridops advice chat forge",
        "delete chat on anvil: 3 GiB",
        "  let be done by jon, mira",
    ]
    assert list(command.lines([STEP | {"approved_by": ["jon"]}], None))[1].startswith(
        "  needs 2 of jon, mira, jon so far"
    )
    assert list(command.lines([STEP | {"by_itself": True}], None))[1] == "  the mode does it by itself"
    assert list(command.lines([], None)) == ["nothing is advised for disks now"]


def test_one_step_is_meant_or_none() -> None:
    assert command.choose([STEP, GONE], ("chat", "anvil")) is GONE
    with pytest.raises(Failed, match="nothing is advised for chat on nowhere"):
        command.choose([STEP], ("chat", "nowhere"))
    other = STEP | {"errand": "sha256:" + "b" * 64}
    with pytest.raises(Failed, match="more than one step") as caught:
        command.choose([STEP, other], ("chat", "forge"))
    assert caught.value.hints[1] == f"prefetch of 3 GiB in default: --step {'b' * 12}"
    assert command.choose([STEP, other], ("chat", "forge"), "bbb") is other
    assert command.choose([STEP, other], ("chat", "forge"), other["errand"]) is other
    with pytest.raises(Failed, match="no step ccc is advised for chat on forge"):
        command.choose([STEP, other], ("chat", "forge"), "ccc")


class Asked:
    """The desk and the controller of one call."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def get(self, path: str) -> Any:
        assert path == "/v1/status"
        bare = {name: value for name, value in STEP.items() if name != "scope"}
        return {"scopes": [{"scope": "default", "errands": [bare]}, {"scope": "old"}]}

    def ask(self, verb: str, **fields: Any) -> Any:
        self.asked.append((verb, fields))
        return {"scope": "default", "what": "prefetch chat on forge", "need": 2, "approved_by": ["mira"]}


def test_the_very_step_that_was_shown_is_signed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = Asked()
    monkeypatch.setattr(command, "connect", lambda *_: both)
    monkeypatch.setattr(command, "desk", lambda *_: both)
    for form in ("text", "json"):
        monkeypatch.setattr(command, "context_of", lambda _, form=form: Context(outputs=(Output(form),)))
        command.advice(None, "chat", "forge")  # type: ignore[arg-type]
        said = capsys.readouterr().out
        if form == "text":
            assert said == "prefetch chat on forge: recorded; 1 more of jon, mira must say so\n"
        else:
            assert json.loads(said)["schema"] == "gridops.advice-approved/1"
    assert both.asked == [("errand", {"scope": "default", "errand": Digest(STEP["errand"])})] * 2
    with pytest.raises(Usage, match="name both"):
        command.advice(None, "chat")  # type: ignore[arg-type]
