"""What a tree says about trust: its root documents, as far as they follow each other, and its catalog.

The catalog of a tree is read by the roots of the same tree, so that `gridops validate` can say what is wrong with it;
whether those are the fleet's roots is the controller's question. Called by `load` and by the controller's intake.
"""

from __future__ import annotations

import re

from gridops.base import limits
from gridops.base.codes.trust import BAD_CATALOG
from gridops.base.errors import Failed, Refusal
from gridops.files.tree import Tree
from gridops.model.catalog import Catalog

ROOTS = "policies/trust/root/"
CATALOG = "policies/trust/catalog.json"
_ROOT = re.compile(r"policies/trust/root/([1-9][0-9]{0,4})\.json")


def root_texts(tree: Tree) -> tuple[str, ...]:
    """Root documents from 1 on, as far as they follow each other."""
    numbered = {int(m.group(1)): path for path in tree.paths() if (m := _ROOT.fullmatch(path)) is not None}
    texts: list[str] = []
    for number in range(1, limits.ROOTS_IN_CHAIN + 1):
        path = numbered.get(number)
        if path is None:
            break
        texts.append(_read(tree, path))
    return tuple(texts)


def catalog_text(tree: Tree) -> str | None:
    """The catalog as it stands there, signed by whomever; None where there is none."""
    return _read(tree, CATALOG) if CATALOG in tree.paths() else None


def catalog_of(tree: Tree) -> Catalog | None:
    """The catalog of a tree, held against the tree's own roots. None: there is none, or none is asked for.

    Raises Refusal for one that does not hold, and Failed for a file that cannot be read.
    """
    text = catalog_text(tree)
    if text is None:
        return None
    from gridops.trust.release import NONE_KNOWN, take  # only a fleet that has a catalog pays for cryptography
    from gridops.trust.root import genesis, walk

    roots = root_texts(tree)
    if not roots:
        raise Refusal(BAD_CATALOG.code, "there is no root document that says who may sign one")
    return take(NONE_KNOWN, walk(genesis(roots[0]), roots[1:]), text).catalog


def _read(tree: Tree, path: str) -> str:
    try:
        return tree.read(path).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Failed(f"{path}: cannot be read: {error}") from error
