"""Does a text look like a secret? Called for every free text, so that no credential is committed unnoticed.

Known prefixes of credentials are certain. Otherwise a long run of mixed characters without a word in it is judged by
its entropy; digests, URLs, paths and sentences are not secrets and must never be reported.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from itertools import pairwise

_KNOWN = (
    (re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{24,}"), "a Hugging Face token"),
    (re.compile(r"\b(?:ghp|gho|ghu|ghs|ghr|github_pat)_[A-Za-z0-9_]{20,}"), "a GitHub token"),
    (re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}"), "a GitLab token"),
    (re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"), "an API key"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "an AWS access key"),
    (re.compile(r"\bxox[abpors]-[A-Za-z0-9-]{10,}"), "a Slack token"),
    (re.compile(r"\bgj1\.[A-Za-z0-9_.-]{16,}"), "a join token of gridops"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."), "a JSON web token"),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), "a private key"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@|https?://[^/\s@]+@"), "a URL with a password"),
)
_RUN = re.compile(r"[A-Za-z0-9]{20,}")
LOOKED_AT = 4_096
"""Characters of a text that are judged: patterns may take time that grows faster than the text."""
_SHOWN = 4
"""Letters of a secret that a message may repeat, so that people find it."""
_ENTROPY_MIN = 3.9
"""Bits per character. English words joined by dashes stay below; 24 random letters and digits are at about 4.1."""


def looks_secret(text: str) -> str | None:
    """What kind of secret a text resembles, or None."""
    head = text[:LOOKED_AT]
    for pattern, name in _KNOWN:
        if pattern.search(head):
            return name
    return next(("a secret" for run in _RUN.findall(head) if _random(run)), None)


def masked(text: str) -> str:
    """The text with secrets blotted out, as long as before: drawings and logs must not spread what was found."""
    for pattern, _ in _KNOWN:
        text = pattern.sub(_blot, text)
    return _RUN.sub(lambda run: _blot(run) if _random(run[0]) else run[0], text)


def _blot(found: re.Match[str]) -> str:
    return found[0][:_SHOWN] + "*" * (len(found[0]) - _SHOWN)


def _random(run: str) -> bool:
    if re.fullmatch(r"[0-9a-f]{32,128}|[0-9A-F]{32,128}", run):
        return False  # a digest or a commit id: public by nature
    classes = sum(bool(re.search(kind, run)) for kind in ("[a-z]", "[A-Z]", "[0-9]"))
    changes = sum(1 for a, b in pairwise(run) if _kind(a) != _kind(b))
    return classes == 3 and changes * 3 >= len(run) and _entropy(run) >= _ENTROPY_MIN


def _kind(letter: str) -> int:
    return 0 if letter.isdigit() else 1 if letter.isupper() else 2 if letter.islower() else 3


def _entropy(text: str) -> float:
    counts = Counter(text)
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts.values())
