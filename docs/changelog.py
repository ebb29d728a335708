"""Assembles the changelog from the fragments in changelog.d; run by whoever releases, checked by a test.

python docs/changelog.py                    print what the next release would say
python docs/changelog.py 0.2.0 2027-01-15   write that section into CHANGELOG.md and remove the fragments
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
NAME = re.compile(r"[0-9]+-[a-z0-9-]+\.md")
ENTRY = re.compile(rf"(?:[-*] )?({'|'.join(KINDS)}): (\S.*)")


def fragments(folder: Path) -> list[Path]:
    """All fragments in a stable order."""
    return sorted(path for path in folder.iterdir() if path.name != "README.md")


def entries(paths: list[Path]) -> dict[str, list[str]]:
    """Entries by kind; an indented line continues the one before. Raises ValueError with file and line."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for path in paths:
        if NAME.fullmatch(path.name) is None:
            raise ValueError(f"{path.name}: expected <issue>-<word>.md, such as 12-drains.md")
        last: list[str] | None = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip():
                continue
            match = ENTRY.fullmatch(line.rstrip())
            if match is not None:
                last = found[match.group(1)]
                last.append(match.group(2))
            elif line[0] == " " and last is not None:
                last[-1] += " " + line.strip()
            else:
                raise ValueError(f"{path.name}:{number}: expected `{KINDS[0]}: ...` or another of {', '.join(KINDS)}")
        if last is None:
            raise ValueError(f"{path.name}: no entry")
    return found


def section(title: str, found: dict[str, list[str]]) -> str:
    """One release as Markdown."""
    parts = [f"## {title}"]
    for kind, lines in found.items():
        if lines:
            parts.append(f"### {kind}\n\n" + "\n".join(f"* {line}" for line in lines))
    return "\n\n".join(parts) + "\n"


def release(root: Path, title: str) -> None:
    """Puts the section above the older ones and removes the fragments."""
    paths = fragments(root / "changelog.d")
    text = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    head, mark, rest = text.partition("\n## ")
    made = section(title, entries(paths))
    (root / "CHANGELOG.md").write_text(
        f"{head.rstrip()}\n\n{made}" + (f"\n{mark.lstrip()}{rest}" if mark else ""), encoding="utf-8"
    )
    for path in paths:
        path.unlink()


def main(arguments: list[str]) -> int:
    """Exit 0, or 64 for a wrong call."""
    if not arguments:
        print(section("Unreleased", entries(fragments(ROOT / "changelog.d"))), end="")
        return 0
    if len(arguments) != 2 or re.fullmatch(r"\d{4}-\d{2}-\d{2}", arguments[1]) is None:
        print("usage: python docs/changelog.py [VERSION DATE]", file=sys.stderr)
        return 64
    release(ROOT, f"{arguments[0]} ({arguments[1]})")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
