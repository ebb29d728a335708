"""Did you mean: the nearest known word, or nothing when every one is too far to be a slip of the fingers.

Called wherever a name or a field is not known. Never guesses: a tie of two candidates is no suggestion.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

DISTANCE_MAX = 2
WORD_MAX = 64
MANY = 500
"""From so many candidates on, only slips of one letter are looked for, by looking them up: a large fleet stays fast."""
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789._-"


def nearest(word: str, known: Collection[str]) -> str | None:
    """The one closest word within two edits and a third of the length. None when there is none or several tie."""
    if len(word) > WORD_MAX:
        return None
    if len(known) > MANY:
        slips = {slip for slip in _one_off(word) if slip in known and slip != word} if len(word) > 2 else set()
        return slips.pop() if len(slips) == 1 else None
    reach = min(DISTANCE_MAX, len(word) // 3)
    best: set[str] = set()
    for candidate in known:
        if abs(len(candidate) - len(word)) > DISTANCE_MAX:
            continue
        # A different case or separator is always a slip, however short the word.
        distance = 0 if _fold(candidate) == _fold(word) else damerau(word, candidate)
        if distance < reach:
            reach, best = distance, {candidate}
        elif distance == reach:
            best.add(candidate)
    best.discard(word)
    return best.pop() if len(best) == 1 else None


def _one_off(word: str) -> Iterator[str]:
    """Every word that one slip of the fingers makes of this one."""
    yield word.lower()
    for at in range(len(word) + 1):
        head, tail = word[:at], word[at:]
        yield head + tail[1:]
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        for letter in LETTERS:
            yield head + letter + tail
            yield head + letter + tail[1:]


def _fold(word: str) -> str:
    return word.lower().replace("_", "").replace("-", "")


def damerau(left: str, right: str) -> int:
    """Edits between two words; insert, delete, replace and swap of neighbours count one each."""
    earlier: list[int] = []
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, start=1):
        earlier, before, row = before, row, [i]
        for j, b in enumerate(right, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                cost = min(cost, earlier[j - 2] + 1)
            row.append(cost)
    return row[-1]
