"""`gridops plans reject`: what it says of what goes on without anybody's yes."""

from __future__ import annotations

from typing import Any

from tests.builders.calls import Call

ANSWER = {"plan": "20270115T0800Z-7f3a2c19", "scope": "default"}


def test_a_no_says_what_goes_on_by_itself_and_how_to_stop_it(trusted: Any, controller: Any, call: Call) -> None:
    controller.answers["/v1/operator"] = (200, ANSWER | {"automatic": ["repair", "scale_up"]})
    said = call("-C", trusted.root, "plans", "reject", "7f3a2c19")
    assert said.out == (
        "Plan 20270115T0800Z-7f3a2c19 of default is rejected: no approval carries it.\n"
        "What automatic.allow names (repair, scale_up) needs none and goes on; to stop that too: "
        "gridops freeze default --reason TEXT\n"
    )


def test_where_nothing_goes_by_itself_nothing_of_it_is_done(trusted: Any, controller: Any, call: Call) -> None:
    for answer in (ANSWER, ANSWER | {"automatic": []}):
        controller.answers["/v1/operator"] = (200, answer)
        said = call("-C", trusted.root, "plans", "reject", "7f3a2c19")
        assert said.out == "Plan 20270115T0800Z-7f3a2c19 of default is rejected; nothing of it is done.\n"
