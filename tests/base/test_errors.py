"""The exception tree: which family an error belongs to decides how the program ends."""

from __future__ import annotations

import pytest

from gridops.base.errors import (
    BadSetup,
    Bug,
    Busy,
    ConfigError,
    EdgeError,
    Failed,
    GridopsError,
    Refusal,
    Unreachable,
)

EXIT = {ConfigError: 3, Refusal: 4, Failed: 1, Unreachable: 69, Busy: 75, BadSetup: 78}


@pytest.mark.parametrize(("family", "code"), EXIT.items(), ids=lambda v: getattr(v, "__name__", str(v)))
def test_each_family_has_its_exit_code(family: type[GridopsError], code: int) -> None:
    assert family.exit_code == code
    assert issubclass(family, GridopsError)


def test_a_fault_of_ours_is_not_swallowed_with_the_users() -> None:
    assert not issubclass(Bug, GridopsError)


def test_the_world_is_one_branch() -> None:
    assert {e for e in EXIT if issubclass(e, EdgeError)} == {Failed, Unreachable, Busy, BadSetup}


def test_an_error_carries_its_evidence_and_hints_in_order() -> None:
    refusal = Refusal("GO413", "approval missing", subject="plan", evidence=["a", "b"], hints=["do this"])
    assert str(refusal) == "GO413: approval missing"
    assert (refusal.message, refusal.subject) == ("approval missing", "plan")
    assert (refusal.evidence, refusal.hints) == (("a", "b"), ("do this",))
    assert ConfigError("two problems", [1, 2], hints=["h"]).problems == (1, 2)
    assert str(Failed("cannot write")) == "cannot write"
