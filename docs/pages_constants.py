"""The reference page of the planner's constants, from the tables that the planner reads them from."""

from __future__ import annotations

from gridops.planner import constants, constants_room

HEAD = """\
Numbers that steer a choice of the planner and that nobody needs to set. Whatever people should be able to set stands in
`policies/planning.yaml` or in a profile instead. `python -m bench.constants` measures anew what half and twice do."""

SECTIONS = (
    ("Weighing seats, targets and caches", constants.TABLE),
    ("Making room", constants_room.TABLE),
)


def constants_page() -> str:
    """docs/reference/constants.md: every row of both tables."""
    parts = ["# Constants", HEAD]
    for title, table in SECTIONS:
        rows = [
            f"| `{c.name}` | {c.value:,} {c.unit} | {c.source} | {c.halved} | {c.doubled} | {c.measured} |"
            for c in table
        ]
        head = "| name | value | why | half | twice | measured |\n| --- | --- | --- | --- | --- | --- |"
        parts.append(f"## {title}\n\n{head}\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"
