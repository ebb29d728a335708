"""The forms of the ledger's file, and the steps from each to the next. `ledger` takes them when it opens an older one.

A step is a list of statements; all steps that are due run in one transaction, so that a crash leaves the old form or
the new one. Rows are JSON of records whose new fields have defaults, so most changes of what is remembered need no
step that rewrites anything. A new form all the same: an older agent would take rows that it cannot read for damage,
and what bears a higher number it refuses instead.
"""

from __future__ import annotations

STEPS: tuple[tuple[str, ...], ...] = (
    # 0, an empty file, to 1: the table.
    (
        (
            "CREATE TABLE entry (kind TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, digest TEXT NOT NULL,"
            " PRIMARY KEY (kind, key)) WITHOUT ROWID"
        ),
    ),
    # 1 to 2: residencies may be kept in other ways than as children, give memory back, owe it, be excused for a sleep.
    (),
    # 2 to 3: the newest catalog that was proved, which an older agent would not ask for.
    (),
)
FORM = len(STEPS)


def migration(form: int, to: int = FORM) -> str:
    """The script from a form to a later one, whole or not at all."""
    due = [statement for step in STEPS[form:to] for statement in step]
    return "".join(f"{statement};" for statement in ("BEGIN IMMEDIATE", *due, f"PRAGMA user_version = {to}", "COMMIT"))
