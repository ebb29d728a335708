"""Root documents of a tree that do not hold: found by whoever validates it, before a controller refuses the commit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.files.load import check
from gridops.files.roots import root_problems
from gridops.files.tree import MemoryTree
from gridops.trust.root import seal_root
from tests.files.test_catalogs import CHAIN
from tests.trust.catalogs import then
from tests.trust.people import person

ONE, TWO, THREE = (f"policies/trust/root/{n}.json" for n in (1, 2, 3))
NEXT = then(CHAIN, catalog=0).text
STRANGE = seal_root(replace(CHAIN.root, version=2, fleet=CHAIN.fleet), person("zoe"))

BROKEN = {
    "a letter is another one": ({ONE: CHAIN.text, TWO: NEXT[:-5] + "!" + NEXT[-4:]}, TWO, "bad_envelope"),
    "nobody who may signed it": ({ONE: CHAIN.text, TWO: STRANGE}, TWO, "root_threshold"),
    "one is missing": ({ONE: CHAIN.text, THREE: NEXT}, THREE, "root_version"),
    "the first is missing": ({TWO: NEXT}, TWO, "root_version"),
    "one is there twice": ({ONE: CHAIN.text, TWO: NEXT, THREE: NEXT}, THREE, "root_version"),
    "no text": ({ONE: b"\xff\xfe"}, "policies/trust/root", "root_version"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_a_root_document_that_does_not_hold_is_named(name: str) -> None:
    files, where, code = BROKEN[name]
    found = root_problems(MemoryTree(files))
    assert [(p.file, p.code) for p in found] == [(where, code)]


def test_documents_that_follow_each_other_and_none_at_all_are_no_problem() -> None:
    assert root_problems(MemoryTree({})) == ()
    tree = MemoryTree({ONE: CHAIN.text, TWO: NEXT, "policies/trust/draft.json": "{}"})
    assert root_problems(tree) == ()
    assert check(tree).errors == 0
