"""The adapter on the how-to page is a real one: taken from the page as it stands, it keeps every promise."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.agent import small_server
from tests.agent.engine_cases import gguf
from tests.agent.engine_contract import ALL, ALL_LIVING, Case, as_child

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "add-an-engine.md"
MOST_LINES = 110


def code() -> str:
    found = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert len(found) == 1, "the page holds one whole module"
    return str(found[0])


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Case:
    module = types.ModuleType("small")
    monkeypatch.setitem(sys.modules, "small", module)
    exec(compile(code(), str(PAGE), "exec"), module.__dict__)  # noqa: S102 - the page under test
    start = gguf(tmp_path, "small")
    return Case(
        name="small (from the page)",
        engine=module.Small((sys.executable, "-P", small_server.__file__)),
        start=lambda _: start,
        serve=as_child,
        args=(("threads", "2"), ("sampling", "random")),
        busy_request={"max_tokens": 20_000},
    )


def test_the_example_is_short_enough_to_read() -> None:
    assert len(code().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("promise", ALL)
def test_the_example_keeps_its_word(case: Case, promise: Any, tmp_path: Path) -> None:
    assert promise(case, tmp_path) is None, "a promise says what is broken by itself"


@pytest.mark.parametrize("promise", ALL_LIVING)
async def test_the_living_example_keeps_its_word(case: Case, promise: Any, tmp_path: Path) -> None:
    assert await promise(case, tmp_path) is None, "a promise says what is broken by itself"
