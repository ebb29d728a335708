"""What the product tells people to run exists: every `gridops VERB` in a message, a hint or a code's remedy."""

from __future__ import annotations

import re

from gridops.cli.table import COMMANDS
from tests.tidy.source import check_none, product

_CALL = re.compile(r"(?<![\w./-])gridops ((?:-C \S+ |--no-input )?)([a-z][a-z-]+)")
_PROSE = frozenset(
    {"is", "has", "was", "does", "can", "may", "will", "never", "only", "decides", "knows", "writes", "acts", "act"}
    | {
        "asks",
        "itself",
        "and",
        "or",
        "of",
        "to",
        "by",
        "in",
        "on",
        "that",
        "which",
        "cannot",
        "would",
        "here",
        "version",
    }
    | {"reads", "sets", "uses"}
)
"""Words that follow the name in a sentence rather than on a command line."""


def test_every_command_that_a_message_names_exists() -> None:
    bad = []
    for source in product():
        for number, line in enumerate(source.text.splitlines(), start=1):
            if line.lstrip().startswith(("from ", "import ")):
                continue
            for _, verb in _CALL.findall(line):
                if verb not in COMMANDS and verb not in _PROSE:
                    bad.append(f"{source.shown}:{number}: gridops {verb}")
    check_none(bad, "messages name commands that are not there")
