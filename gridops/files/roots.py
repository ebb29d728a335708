"""Whether the root documents of a tree follow each other: for people who are about to commit them.

`gridops validate` calls this. A controller judges them itself, by those it goes by, so nothing here decides what holds
in a fleet. A document that is broken would let it refuse the whole commit, the one that mends something else too.
"""

from __future__ import annotations

import re

from gridops.base.codes import registry
from gridops.base.codes.trust import ROOT_VERSION
from gridops.base.errors import Failed, Refusal
from gridops.files.diagnose import Problem, error
from gridops.files.nodes import Source
from gridops.files.tree import Tree
from gridops.files.trusted import ROOTS, root_texts

_NUMBER = re.compile(re.escape(ROOTS) + r"([1-9][0-9]{0,4})\.json")


def root_problems(tree: Tree) -> tuple[Problem, ...]:
    """What is wrong with the first root document that does not hold, or stands above a gap; nothing where none is."""
    numbers = sorted(int(m[1]) for path in tree.paths() if (m := _NUMBER.fullmatch(path)) is not None)
    if not numbers:
        return ()
    from gridops.trust.root import genesis, walk  # only who has one pays for cryptography

    try:
        texts = root_texts(tree)
    except Failed as fault:
        return (_at(ROOTS.rstrip("/"), ROOT_VERSION.code, fault.message),)
    chain = None
    for n, text in enumerate(texts, 1):
        try:
            chain = walk(chain, (text,), added=True) if chain is not None else genesis(text)
        except Refusal as no:
            return (_at(f"{ROOTS}{n}.json", no.code, no.message),)
    above = next((n for n in numbers if n > len(texts)), None)
    if above is None:
        return ()
    what = f"root {len(texts) + 1} is missing, so root {above} counts for nothing"
    return (_at(f"{ROOTS}{above}.json", ROOT_VERSION.code, what),)


def _at(file: str, code: str, message: str) -> Problem:
    hint = "git checkout the one that was committed, or make the next one anew: gridops trust --help"
    return error(registry()[code], Source(file, ()).spot(1, 1), message, hint)
