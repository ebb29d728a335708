"""`gridops status HOST`: one host in detail, with how far its fetching is; and the same in a few words in the list."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gridops.base.errors import Failed
from gridops.cli import exits, status_host
from gridops.cli.output import Context, Output
from gridops.cli.status import _hosts, attention, show

GIB = 1 << 30
HOST: dict[str, Any] = {
    "host": "forge", "scope": "default", "admitted": True, "heard": True, "state": "accepting",
    "seen": "2026-11-29T16:28:10Z", "reasons": [], "draining": False, "agent_version": "0.2.0", "alarms": [],
    "residencies": [{"replica": "coder/1", "profile": "coder", "state": "ready", "devices": ["gpu0"], "in_flight": 2}],
    "transfers": [{"artifact": "sha256:" + "ab" * 32, "source": "hf", "done_bytes": 6 * GIB, "size_bytes": 18 * GIB}],
    "disk_free_bytes": 40 * GIB,
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "time": "2026-11-29T16:28:15Z", "hosts": [HOST], "scopes": [], "pending": [{"host": "anvil"}],
    "controller": {"trusted": True}, "intent": {"commit": None, "branch": "main"},
}  # fmt: skip


class Answers:
    """A controller's side of one question."""

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/v1/status"
        return json.loads(json.dumps(WHOLE))  # type: ignore[no-any-return]


def test_one_host_is_shown_with_how_far_its_fetching_is() -> None:
    text = list(status_host.lines(status_host.document(WHOLE, "forge"), None))
    assert text[0] == "forge   accepting   default   seen 5 s ago, agent 0.2.0"
    assert "  40 GiB free for artifacts" in text
    assert "  fetching abababab: 6 GiB of 18 GiB (33 %) from hf" in text
    assert any(line.split()[:4] == ["coder/1", "ready", "gpu0", "2"] for line in text)


def test_the_list_of_hosts_says_it_in_a_few_words() -> None:
    text = "\n".join(_hosts(WHOLE | {"pending": []}, 1, None, wide=False))
    assert "fetches 6 GiB of 18 GiB" in text
    assert "fetches" not in "\n".join(_hosts({"hosts": [HOST | {"transfers": []}]}, 1, None, wide=False))


def test_a_controller_of_before_tells_no_transfers() -> None:
    old = {name: value for name, value in HOST.items() if name not in ("transfers", "disk_free_bytes")}
    text = "\n".join(status_host.lines(status_host.document(WHOLE | {"hosts": [old]}, "forge"), None))
    assert "fetching" not in text


def test_a_host_whose_agent_is_not_driven_is_named_once() -> None:
    words = "agent 0.1.0, and root 4 demands 0.2.0 or later: upgrade it"
    old = HOST | {"agent_version": "0.1.0", "outdated": words}
    text = "\n".join(status_host.lines(status_host.document(WHOLE | {"hosts": [old]}, "forge"), None))
    assert text.count("demands 0.2.0") == 1
    assert words in "\n".join(_hosts({"hosts": [old]}, 1, None, wide=False))
    whole = WHOLE | {"hosts": [old], "pending": []}
    assert attention(whole) == [f"forge: {words}"]
    said = old | {"alarms": [f"agent_too_old: {words}; serving goes on, change waits"]}
    assert len(attention(whole | {"hosts": [said]})) == 1
    crowd = [HOST | {"host": f"h{n}", "transfers": []} for n in range(20)]
    assert words in "\n".join(_hosts({"hosts": [*crowd, old | {"transfers": []}]}, 1, None, wide=False))


@pytest.mark.parametrize(
    ("name", "hint"), [("nobody", "hosts: forge"), ("anvil", "it waits: gridops host admit anvil")]
)
def test_a_host_that_is_not_there_is_said_to_be_none(name: str, hint: str) -> None:
    with pytest.raises(Failed, match=f"no host {name}") as failed:
        status_host.document(WHOLE, name)
    assert failed.value.hints == (hint,)


def test_machines_get_the_same_and_the_exit_says_whether_to_look(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(outputs=(Output("json"),))
    assert show(context, Answers(), "forge") == exits.OK  # type: ignore[arg-type]
    said = json.loads(capsys.readouterr().out)
    assert said["schema"] == "gridops.status-host/1"
    assert said["host"]["transfers"][0]["done_bytes"] == 6 * GIB
    monkeypatch.setitem(WHOLE, "hosts", [HOST | {"alarms": ["disk_full: /var"]}])
    assert show(context, Answers(), "forge") == exits.FAILED  # type: ignore[arg-type]
