"""What `gridops host list` says of a host: in its text the same words as in its JSON."""

from __future__ import annotations

import pytest


def host(name: str, state: str, *, heard: bool) -> dict[str, object]:
    return {
        "host": name,
        "scope": "default",
        "state": state,
        "heard": heard,
        "admitted": True,
        "residencies": [],
        "draining": False,
        "reasons": [],
    }


STATES = [("accepting", True), ("silent", False), ("unheard", False), ("asleep", False), ("left", False)]


@pytest.mark.parametrize(("state", "heard"), STATES)
def test_text_and_json_use_one_word_for_the_state_of_a_host(state, heard, call, controller, trusted) -> None:
    controller.answers["/v1/status"] = (200, {"hosts": [host("forge", state, heard=heard)], "pending": []})
    line = call("-C", trusted.root, "host", "list").out.splitlines()[1]
    document = call("-C", trusted.root, "host", "list", "-o", "json").json
    assert line.split()[2] == document["hosts"][0]["state"] == state
