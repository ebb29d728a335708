"""The table renderer: columns are dropped, values never cut."""

from __future__ import annotations

from gridops.cli.tables import table

HEAD = ("MODEL", "HOST", "NOTE")
ROWS = [("coder", "forge", "ready"), ("llama-70b", "a-host-with-a-very-long-name.example.org", "9.6 GiB short")]


def test_a_pipe_gets_every_column_whole() -> None:
    lines = table(HEAD, ROWS)
    assert lines[0].split() == list(HEAD)
    assert "a-host-with-a-very-long-name.example.org" in lines[2]
    assert lines[2].index("9.6") == lines[0].index("NOTE")


def test_a_narrow_terminal_loses_columns_from_the_right() -> None:
    assert table(HEAD, ROWS, 60) == [line[:52].rstrip() for line in table(HEAD, ROWS)]
    assert table(HEAD, ROWS, 20) == ["MODEL", "coder", "llama-70b"]


def test_one_column_stays_whole_however_narrow() -> None:
    assert table(("X",), [("abcdefghij",)], 3) == ["X", "abcdefghij"]


def test_wide_characters_keep_columns_aligned() -> None:
    lines = table(("A", "B"), [("模型", "1"), ("abcd", "2")])
    assert lines[1] == "模型  1"
    assert lines[2] == "abcd  2"
