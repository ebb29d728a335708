"""The load bench runs at all: a real process, twenty hosts, a second of heartbeats. Its figures are no verdict."""

from __future__ import annotations

import pytest

from bench.load import __main__ as load


def test_twenty_hosts_are_answered_and_none_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    load.main(["beats", "--hosts", "20", "--models", "2", "--rate", "40", "--seconds", "1"])
    said = capsys.readouterr().out
    assert "lost                                         0 of 40; 1 answers verified" in said
    assert "CPU ms each" in said
