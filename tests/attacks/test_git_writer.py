"""Somebody may push whatever they like and holds no key: nothing that runs changes, and the alarm names what they did.

One row per attack: a name, what is pushed, the code of the refusal, and whether the refusal is final. None is: the
branch is put right by people, and the next good commit counts without anybody telling the controller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.base import limits
from gridops.base.ids import CommitId
from gridops.trust import amend
from gridops.trust.keys import PersonSigner
from gridops.trust.root import RoleName, seal_root
from tests.attacks.desk import JON, THIEF, SignedDesk
from tests.builders.commits import header, signed, unsigned, with_header
from tests.controller.fleet import NOW, profile

MORE = {"profiles.d/coder.yaml": profile(replicas=2)}
Attack = Callable[[SignedDesk], object]


def unsigned_tip(desk: SignedDesk) -> None:
    desk.writer.push(MORE, None)


def signed_by_a_stranger(desk: SignedDesk) -> None:
    desk.writer.push(MORE, THIEF)


def laundered(desk: SignedDesk) -> None:
    """An unsigned commit beneath a tip that somebody signed in good faith (a rebase, a pulled branch)."""
    desk.writer.push(MORE, None)
    desk.writer.push({"README.md": "ours\n"}, desk.mira)


def rewound(desk: SignedDesk) -> None:
    desk.writer.push({"README.md": "one\n"}, desk.mira)
    desk.look()
    desk.writer.git("update-ref", "refs/heads/main", f"{desk.force}~1")


def rewritten(desk: SignedDesk) -> None:
    """Signed commits that never followed what is in force: an old branch of somebody's, pushed by force."""
    desk.writer.push({"README.md": "one\n"}, desk.mira)
    desk.look()
    desk.writer.push({"README.md": "two\n"}, desk.mira, on=f"{desk.force}~1")


def merged_the_wrong_way_round(desk: SignedDesk) -> None:
    """What is in force as the second parent: the commits along the first were never looked at."""
    side = desk.writer.push(MORE, None, on=f"{desk.force}~1")
    ours = desk.force
    raw = unsigned([side, ours], tree=desk.writer.git("rev-parse", f"{side}^{{tree}}"))
    desk.writer.commit(signed(raw, desk.mira))


def begun_anew(desk: SignedDesk) -> None:
    raw = unsigned([], tree=desk.writer.tree_with(MORE))
    desk.writer.commit(signed(raw, desk.mira))


def self_authorising(desk: SignedDesk) -> None:
    """A root document that people did sign, stolen from a branch, brought by the very key that it names."""
    files = desk.next_root(desk.added("jon", JON))
    desk.writer.push({**MORE, **files}, JON)


def own_root(desk: SignedDesk) -> None:
    """A root document signed by nobody who may."""
    root = desk.added("thief", THIEF)
    desk.writer.push({"policies/trust/root/3.json": seal_root(root, THIEF)}, THIEF)


def unsigned_root(desk: SignedDesk) -> None:
    """A root document that holds, in a commit that nobody signed."""
    desk.writer.push(desk.next_root(desk.added("jon", JON)), None)


def removed_root(desk: SignedDesk) -> None:
    """The level is switched off by taking away the document that demands it."""
    desk.writer.push({"policies/trust/root/2.json": None}, None)


def merged_by_the_forge(desk: SignedDesk) -> None:
    """The merge button: a merge of signed commits, signed by the forge's own key in OpenPGP."""
    ours = desk.force
    side = desk.writer.push({"README.md": "ours\n"}, desk.mira)
    raw = unsigned([ours, side], tree=desk.writer.tree_with({"README.md": "ours\n"}))
    pgp = "-----BEGIN PGP SIGNATURE-----\n\nwsBcBAABCAAQBQJ=\n=aaaa\n-----END PGP SIGNATURE-----\n"
    desk.writer.commit(with_header(raw, header(pgp)))


def two_signatures(desk: SignedDesk) -> None:
    raw = unsigned([desk.force], tree=desk.writer.tree_with(MORE))
    desk.writer.commit(signed(signed(raw, desk.mira), THIEF))


def replayed_signature(desk: SignedDesk) -> None:
    """mira's signature of one commit on another one."""
    good = desk.writer.push({"README.md": "ours\n"}, desk.mira)
    raw = desk.writer.git("cat-file", "commit", good).encode() + b"\n"
    head, message = raw.split(b"\n\n", 1)
    signature = head[head.index(b"gpgsig ") :] + b"\n"
    other = unsigned([desk.force], tree=desk.writer.tree_with(MORE, on=desk.force), message=message)
    desk.writer.commit(with_header(other, signature))


def for_another_purpose(desk: SignedDesk) -> None:
    raw = unsigned([desk.force], tree=desk.writer.tree_with(MORE))
    desk.writer.commit(signed(raw, desk.mira, "gridops.approval.v1"))


def signed_tag(desk: SignedDesk) -> None:
    """The tip unsigned, a good signature in the tag that it claims to merge."""
    good = desk.writer.push({"README.md": "ours\n"}, desk.mira)
    raw = desk.writer.git("cat-file", "commit", good).encode() + b"\n"
    tag = f"object {good}\ntype commit\ntag v1\ntagger M <m@x> 1 +0000\n\nv1\n".encode() + raw[raw.index(b"-----") :]
    merge = unsigned([desk.force, good], tree=desk.writer.tree_with(MORE))
    desk.writer.commit(with_header(merge, header(tag, b"mergetag")))


def other_encoding(desk: SignedDesk) -> None:
    raw = unsigned([desk.force], tree=desk.writer.tree_with(MORE), more=[b"encoding UTF-7"])
    desk.writer.commit(signed(raw, desk.mira))


def no_commit_of_gits(desk: SignedDesk) -> None:
    raw = unsigned([desk.force], tree=desk.writer.tree_with(MORE), more=[b"author Mira <m@x> 1 +0000"])
    desk.writer.commit(signed(raw, desk.mira))


def _tree(desk: SignedDesk, folder: str, *entries: tuple[str, bytes, str]) -> None:
    """A commit of mira's whose tree is hostile: her machine was made to sign what somebody else had staged."""
    tree = desk.writer.replaced(folder, desk.writer.tree_of(entries))
    desk.writer.commit(signed(unsigned([desk.force], tree=tree), desk.mira))


def _blob(desk: SignedDesk, text: bytes = b"kind: Profile\n") -> str:
    return desk.writer.object("blob", text)


def symlink(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("120000", b"coder.yaml", _blob(desk, b"/etc/shadow")))


def folder_that_is_a_link(desk: SignedDesk) -> None:
    tree = desk.writer.git("ls-tree", "-z", "main^{tree}").split("\x00")
    entries = []
    for line in filter(None, tree):
        facts, _, name = line.partition("\t")
        mode, _, oid = facts.split()
        link = name == "profiles.d"
        entries.append(("120000" if link else mode.lstrip("0"), name.encode(), _blob(desk, b"/tmp") if link else oid))
    desk.writer.commit(signed(unsigned([desk.force], tree=desk.writer.tree_of(entries)), desk.mira))


def submodule(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("160000", b"coder", desk.force))


def dot_dot(desk: SignedDesk) -> None:
    inner = desk.writer.tree_of([("100644", b"evil.yaml", _blob(desk))])
    _tree(desk, "profiles.d", ("40000", b"..", inner))


def gits_own(desk: SignedDesk) -> None:
    inner = desk.writer.tree_of([("100644", b"config", _blob(desk))])
    _tree(desk, "profiles.d", ("40000", b".GIT", inner))


def slash_in_a_name(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("100644", b"../policies/mode.yaml", _blob(desk)))


def unseen_character(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("100644", "co\u200cder.yaml".encode(), _blob(desk)))


def no_text_as_name(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("100644", b"\xff\xfe.yaml", _blob(desk)))


def upper_and_lower(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("100644", b"Coder.yaml", _blob(desk)), ("100644", b"coder.yaml", _blob(desk)))


def composed_and_not(desk: SignedDesk) -> None:
    _tree(
        desk,
        "profiles.d",
        ("100644", "e\u0301.yaml".encode(), _blob(desk)),
        ("100644", "\u00e9.yaml".encode(), _blob(desk)),
    )


def huge_blob(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("100644", b"coder.yaml", _blob(desk, b"#" * (limits.YAML_FILE_BYTES + 1))))


def bomb(desk: SignedDesk) -> None:
    """Ten folders, each holding the next level ten times: a billion files in a few hundred bytes."""
    inner = desk.writer.tree_of([("100644", b"%d.yaml" % n, _blob(desk)) for n in range(10)])
    for _ in range(6):
        inner = desk.writer.tree_of([("40000", b"%d" % n, inner) for n in range(10)])
    _tree(desk, "profiles.d", *(("40000", b"%d" % n, inner) for n in range(10)))


def pit(desk: SignedDesk) -> None:
    inner = desk.writer.tree_of([("100644", b"x.yaml", _blob(desk))])
    for _ in range(40):
        inner = desk.writer.tree_of([("40000", b"d", inner)])
    _tree(desk, "profiles.d", ("40000", b"d", inner))


def odd_mode(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("104755", b"coder.yaml", _blob(desk)))


def missing_objects(desk: SignedDesk) -> None:
    _tree(desk, "profiles.d", ("40000", b"gone", "d" * 40))


def beside_the_roots(desk: SignedDesk) -> None:
    desk.writer.push({"policies/trust/notes.txt": "trust me\n"}, desk.mira)


def changed_root(desk: SignedDesk) -> None:
    desk.writer.push({"policies/trust/root/1.json": desk.roots[0] + " "}, desk.mira)
    desk.writer.push({"policies/trust/root/1.json": desk.roots[1]}, desk.mira)


def skipped_root(desk: SignedDesk) -> None:
    root = replace(amend.demanding(desk.chain, RoleName.CHANGE, 1, NOW), version=4)
    desk.writer.push({"policies/trust/root/4.json": seal_root(root, desk.fleet.root_signer)}, desk.mira)


ATTACKS: list[tuple[str, Attack, str, bool]] = [
    ("unsigned", unsigned_tip, "commit_unsigned", False),
    ("wrong key", signed_by_a_stranger, "commit_key", False),
    ("laundered ancestor", laundered, "commit_unsigned", False),
    ("rewind", rewound, "commit_rewound", False),
    ("rewritten", rewritten, "commit_off_line", False),
    ("merged the wrong way round", merged_the_wrong_way_round, "commit_off_line", False),
    ("begun anew", begun_anew, "commit_off_line", False),
    ("self-authorising key", self_authorising, "commit_own_key", False),
    ("root of one's own", own_root, "trust_documents", False),
    ("good root, unsigned commit", unsigned_root, "commit_unsigned", False),
    ("root taken away", removed_root, "trust_documents", False),
    ("merge by forge", merged_by_the_forge, "commit_form", False),
    ("two signatures", two_signatures, "commit_signatures", False),
    ("signature of another commit", replayed_signature, "commit_altered", False),
    ("signature for another purpose", for_another_purpose, "commit_namespace", False),
    ("tag tricks", signed_tag, "commit_unsigned", False),
    ("encoding tricks", other_encoding, "commit_encoding", False),
    ("two authors", no_commit_of_gits, "commit_malformed", False),
    ("tree with a symlink", symlink, "tree_link", False),
    ("folder that is a symlink", folder_that_is_a_link, "tree_link", False),
    ("tree with a submodule", submodule, "tree_module", False),
    ("tree with ..", dot_dot, "tree_name", False),
    ("tree with .git", gits_own, "tree_name", False),
    ("tree with a slash", slash_in_a_name, "tree_name", False),
    ("tree with an unseen character", unseen_character, "tree_name", False),
    ("tree with a name that is no text", no_text_as_name, "tree_name", False),
    ("tree with a mode of nobody's", odd_mode, "tree_name", False),
    ("names in upper and lower case", upper_and_lower, "tree_case", False),
    ("names composed and not", composed_and_not, "tree_case", False),
    ("huge blob", huge_blob, "tree_size", False),
    ("tree bomb", bomb, "tree_size", False),
    ("tree without a bottom", pit, "tree_size", False),
    ("tree with objects missing", missing_objects, "commit_unreadable", False),
    ("file beside the roots", beside_the_roots, "trust_documents", False),
    ("root replaced", changed_root, "trust_documents", False),
    ("root skipped", skipped_root, "trust_documents", False),
]


@pytest.mark.parametrize(
    ("attack", "code", "final"), [row[1:] for row in ATTACKS], ids=[row[0].replace(" ", "_") for row in ATTACKS]
)
def test_who_only_may_push_changes_nothing(desk: SignedDesk, attack: Attack, code: str, final: bool) -> None:
    attack(desk)
    before, tip, force = desk.said(), desk.writer.tip, desk.force
    desk.look()
    assert code in desk.alarm(), desk.alarm()
    assert tip[:12] in desk.alarm()
    assert force[:8] in desk.alarm()
    assert desk.said() == before, "nothing of it counts"
    assert desk.events("intake_refused")
    assert not final
    _put_right(desk, force)


def _put_right(desk: SignedDesk, force: CommitId, by: PersonSigner | None = None) -> None:
    """The branch is what was in force, and a good commit on top of it counts at once."""
    desk.writer.git("update-ref", "refs/heads/main", force)
    made = desk.writer.push({"profiles.d/spare.yaml": profile("spare", 1)}, by or desk.mira)
    desk.look()
    assert desk.force == made
    assert not desk.alarm()
    assert desk.state.off_line is None
