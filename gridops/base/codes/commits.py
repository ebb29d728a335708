"""Codes of the intake of commits where every commit has to be signed. What was accepted before stays in force."""

from __future__ import annotations

from gridops.base.codes import Code

COMMIT_UNSIGNED = Code(
    "commit_unsigned",
    "commit without a signature",
    "The root demands that every commit is signed by a change key, and this one carries no signature of its own. One "
    "inside its message or inside a merged tag is not its own.",
    "Sign it: `git config gpg.format ssh`, `git config user.signingkey FILE.pub`, `git commit --amend -S`. A merge "
    "that a forge made is not signed by you: merge locally with `git merge -S`.",
)
COMMIT_SIGNATURES = Code(
    "commit_signatures",
    "commit with more than one signature",
    "A commit has exactly one signature header. With two of them, programs disagree about which one counts and about "
    "which bytes it speaks.",
    "Make the commit anew and sign it once.",
)
COMMIT_NAMESPACE = Code(
    "commit_namespace",
    "signature that was not made for a commit",
    "The signature is in the namespace of another use (an approval, a file). One made for something else never counts "
    "for a commit.",
    "Let git sign: `git commit --amend -S`.",
)
COMMIT_FORM = Code(
    "commit_form",
    "signature of another form",
    "The signature header holds no SSH signature with SHA-512 by an ssh-ed25519 key, or it is damaged. OpenPGP, X.509 "
    "and other kinds of SSH keys are not read.",
    "`git config gpg.format ssh`, a key of `ssh-keygen -t ed25519`, and sign again: `git commit --amend -S`.",
)
COMMIT_KEY = Code(
    "commit_key",
    "signed by a key that may not change intent",
    "The key is no change key of the root documents that stood in the commit's parent.",
    "Sign with a change key (`gridops trust show`), or let the root name this one first, in a commit before it: "
    "`gridops trust add NAME --key FILE.pub --role change`.",
)
COMMIT_OWN_KEY = Code(
    "commit_own_key",
    "commit that vouches for itself",
    "The key is named only by root documents that this very commit brings. A commit is judged by what stood before it.",
    "Let somebody whose key counts already commit the root document; sign with the new key from the next commit on.",
)
COMMIT_ALTERED = Code(
    "commit_altered",
    "signature over other bytes",
    "A change key made the signature, but not over this commit: something in it differs from what was signed.",
    "Sign it again. If nobody changed it on purpose, find out who did.",
)
COMMIT_MALFORMED = Code(
    "commit_malformed",
    "commit that git would not write",
    "Headers are missing, repeated, out of order or not text, or the object is not what its name says. Programs read "
    "such a commit in different ways.",
    "Make it anew with git: `git commit --amend -S`.",
)
COMMIT_ENCODING = Code(
    "commit_encoding",
    "commit in an encoding that hides what it says",
    "The message claims another encoding than UTF-8, so that what one program shows is not what another one shows.",
    "`git config i18n.commitEncoding UTF-8`, then `git commit --amend -S`.",
)
COMMIT_PATHS = Code(
    "commit_paths",
    "commit beyond the paths of its key",
    "The key may change only the paths that the root names with it.",
    "Let a person whose key has no such limit make this change.",
)
COMMIT_REWOUND = Code(
    "commit_rewound",
    "branch was wound back",
    "The newest commit of the branch lies before the one that was accepted last.",
    "Push what was accepted again and revert on top of it: `git revert`. A branch is never wound back.",
)
COMMIT_OFF_LINE = Code(
    "commit_off_line",
    "branch left the accepted line",
    "Following first parents back from the newest commit does not lead to the commit that was accepted last: the "
    "branch was rewritten, or what was accepted was merged into something else.",
    "Continue from the accepted commit: `git switch`, `git merge -S`, with the accepted line as the first parent.",
)
COMMIT_TOO_MANY = Code(
    "commit_too_many",
    "more commits at once than are read",
    "Each commit since the last accepted one is verified, and so many at once are not.",
    "Push them in parts, and let each part be accepted before the next.",
)
COMMIT_UNREADABLE = Code(
    "commit_unreadable",
    "commit whose history is not all there",
    "An object that has to be verified is missing: the clone is shallow or damaged, or something larger than the bound "
    "stands in its place.",
    "`git fetch --unshallow`, or `git fsck`; bounds stand in the reference of constants.",
)
TRUST_DOCUMENTS = Code(
    "trust_documents",
    "commit that breaks the documents of trust",
    "A commit that touches policies/trust/ is valid only if what is inside holds: root documents are only ever added, "
    "each is signed as the one before it and it itself demand, and nothing else stands beside them.",
    "Make root documents with `gridops trust`; never edit, replace or remove one.",
)
TREE_LINK = Code(
    "tree_link",
    "tree with a symbolic link",
    "A link in fleet.d, profiles.d or policies points elsewhere than the file that people read.",
    "Put the file itself there.",
)
TREE_MODULE = Code(
    "tree_module",
    "tree with a submodule",
    "A submodule in fleet.d, profiles.d or policies brings files that this commit's signature does not cover.",
    "Put the files themselves there.",
)
TREE_NAME = Code(
    "tree_name",
    "tree with a hostile name",
    "A name leads out of its folder, into git's own, is no text, or looks like another name: `..`, `.git`, a slash or "
    "backslash, control characters, names that end with a dot or space.",
    "Rename it.",
)
TREE_CASE = Code(
    "tree_case",
    "tree with names that are one name elsewhere",
    "Two names in one folder differ only in case or in how a letter is composed. On some machines one of them hides "
    "the other, so that people read another file than the controller.",
    "Rename one of them.",
)
TREE_SIZE = Code(
    "tree_size",
    "tree beyond its bounds",
    "More files, deeper folders or a larger file in fleet.d, profiles.d or policies than are read.",
    "The message says which bound; keep what is no intent in other folders.",
)
INTAKE_REFUSED = Code(
    "intake_refused",
    "newest commit is not believed",
    "The newest commit of the watched branch cannot be verified. The accepted commit stays in force; a stricter mode "
    "in the refused one counts nevertheless, because stopping needs no key.",
    "`gridops status` names the commit and why. Put it right on the branch; nobody needs to tell the controller.",
)
