"""Every adapter keeps the same promises: declared honestly, safe to start, ready only when it is, and truly counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gridops_agent.engines import engines, services
from tests.agent.engine_cases import CASES
from tests.agent.engine_contract import ALL, ALL_LIVING, Case

NAMED = [pytest.param(case, id=case.name) for case in CASES]


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("promise", ALL)
def test_an_adapter_keeps_its_word(case: Case, promise: Callable[..., Any], tmp_path: Path) -> None:
    assert promise(case, tmp_path) is None, "a promise says what is broken by itself"


@pytest.mark.parametrize("case", NAMED)
@pytest.mark.parametrize("promise", ALL_LIVING)
async def test_a_living_engine_keeps_its_word(case: Case, promise: Callable[..., Any], tmp_path: Path) -> None:
    assert await promise(case, tmp_path) is None, "a promise says what is broken by itself"


def test_no_engine_is_left_out() -> None:
    assert {case.engine.name for case in CASES} == set(engines({}))
    assert sorted(services({"ollama": "http://127.0.0.1:1", "comfyui": "http://127.0.0.1:2"})) == ["comfyui", "ollama"]
