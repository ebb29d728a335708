"""The registry of codes: each problem, refusal and placement reason has one stable code with one page of help.

`gridops rule CODE` prints an entry and the reference page is generated from all of them. The tables stand beside
this file, one per family; code that reports something uses the constant's `code`, never a literal string.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """One entry: `code` (stable), `title` (one line), `meaning` (why it matters), `remedy` (what to do)."""

    code: str
    title: str
    meaning: str
    remedy: str


def registry() -> dict[str, Code]:
    """All codes by name, sorted. Built on demand: only `gridops rule` and the docs need it whole."""
    from gridops.base.codes import commits, control, devices, files, host, placement, protection, protocol, sense, trust

    found: dict[str, Code] = {}
    for module in (commits, control, devices, files, host, placement, protection, protocol, sense, trust):
        for value in vars(module).values():
            if isinstance(value, Code):
                if value.code in found:
                    raise AssertionError(f"code {value.code} stands in two tables")
                found[value.code] = value
    return dict(sorted(found.items()))
