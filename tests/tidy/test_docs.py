"""Documents are true: generated pages are fresh, links lead somewhere, commands and places named in them exist."""

from __future__ import annotations

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from ruamel.yaml import YAML

from docs import commands
from gridops.base.codes import registry
from tests.tidy.source import ROOT, check_none, product, rooms_there, tracked

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
PLACE = re.compile(r"`([\w./-]+\.(?:py|yaml|toml|sh|md|service))(?:::(\w+))?`")
PINNED = re.compile(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}")


def load(path: Path) -> ModuleType:
    """A script under docs/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


@cache
def generator() -> ModuleType:
    return load(ROOT / "docs" / "generate.py")


def pages() -> list[Path]:
    """Every Markdown page of ours; examples and fixtures of tests are not prose."""
    return [path for path in tracked() if path.suffix == ".md" and path.relative_to(ROOT).parts[0] != "tests"]


@pytest.mark.parametrize("name", sorted(load(ROOT / "docs" / "generate.py").PAGES))
def test_a_generated_page_is_fresh(name: str) -> None:
    path = ROOT / name
    assert path.exists(), f"{name} is missing: run `make docs`"
    fresh = path.read_text(encoding="utf-8") == generator().rendered(generator().PAGES[name])
    assert fresh, f"{name} is out of date: run `make docs`"


def test_reference_pages_are_all_generated() -> None:
    made = set(generator().PAGES)
    there = {path.relative_to(ROOT).as_posix() for path in pages() if "reference" in path.parts}
    assert there - made == {"docs/reference/README.md"}


def test_the_readme_shows_a_real_plan() -> None:
    assert "\n+ place" in generator().readme_page()


def test_the_map_names_every_module() -> None:
    text = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    check_none([source.shown for source in product() if f"(../{source.shown})" not in text], "missing from docs/map.md")


def test_the_planners_table_of_contents_names_every_module_of_its_room() -> None:
    room = ROOT / "gridops" / "planner"
    contents = (ast.get_docstring(ast.parse((room / "planner.py").read_text(encoding="utf-8"))) or "").splitlines()[1:]
    there = {path.stem for path in room.glob("*.py")} - {"__init__", "planner"}
    named = set(re.findall(r"`([a-z_]+)`", "\n".join(contents))) - {"plan"}
    check_none(sorted(there - named), "not named in the table of contents at the top of gridops/planner/planner.py")
    check_none(sorted(named - there), "named in the table of contents and not there")


def test_every_room_has_its_row_and_its_tests() -> None:
    rooms = generator().ROOMS
    named = {room.package for room in rooms}
    there = rooms_there()
    check_none(sorted(there - named), "a room without a row in docs/generate.py")
    absent = [f"{room.package}: tests/{name}" for room in rooms for name in room.tests if not _has_tests(name)]
    check_none(absent, "a row of the map names tests that are not there")


def test_links_lead_somewhere() -> None:
    bad = []
    for page in pages():
        for target in LINK.findall(_prose(page)):
            if target.startswith(("https://", "http://", "mailto:")):
                continue
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            if not found.exists():
                bad.append(f"{_shown(page)}: {target}")
            elif anchor and found.suffix == ".md" and anchor not in anchors(found):
                bad.append(f"{_shown(page)}: {target} (no such heading)")
    check_none(bad, "dead links")


def test_places_in_the_code_that_pages_name_exist() -> None:
    """`gridops/planner/check.py` must be a file, `...check.py::check` a name in it."""
    bad = []
    for page in pages():
        for path, symbol in PLACE.findall(_prose(page)):
            if path.split("/")[0] not in ("gridops", "agent", "tests", "docs", "bench", "requirements"):
                continue
            found = ROOT / path
            if not found.exists():
                bad.append(f"{_shown(page)}: {path}")
            elif (
                symbol
                and re.search(rf"^\s*(?:async def|def|class)? ?{symbol}\b", found.read_text(), re.MULTILINE) is None
            ):
                bad.append(f"{_shown(page)}: {path}::{symbol}")
    check_none(bad, "pages name places that are not there")


def test_every_row_of_the_threat_model_is_shown_by_tests() -> None:
    """That each place exists is tested above; here, that no row stands without one, and that each is a test."""
    bad = []
    rows = (ROOT / "docs/explanation/threat-model.md").read_text(encoding="utf-8").splitlines()
    found = [row.split("|")[1:-1] for row in rows if row.startswith("| ") and not row.startswith("| who holds")]
    for holder, _, _, shown in (row for row in found if not row[0].strip().startswith("---")):
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", shown)
        if not named or len(named) != shown.count("`") // 2:
            bad.append(f"{holder.strip()}: {shown.strip()}")
    assert len(found) > 10
    check_none(bad, "who can do what is not shown by tests")


def test_commands_that_pages_show_exist_with_their_flags() -> None:
    trees = commands.programs()
    bad = []
    for page in pages():
        if "reference" in page.parts or "changelog.d" in page.parts:
            continue
        for line, whole in _shown_commands(page.read_text(encoding="utf-8")):
            words = commands.split(line)
            if words and words[0] in trees:
                wrong = commands.fault(words, trees, whole=whole)
                if wrong is not None:
                    bad.append(f"{_shown(page)}: `{line}`: {wrong}")
    check_none(bad, "pages show commands that are not there")


def test_codes_that_pages_name_are_registered() -> None:
    known = registry()
    bad = []
    for page in pages():
        for code in re.findall(r"\bGO\d{3}\b", page.read_text(encoding="utf-8")):
            if code not in known:
                bad.append(f"{_shown(page)}: {code}")
    check_none(bad, "pages name codes that are not registered")


def test_make_targets_that_pages_show_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    bad = []
    for page in pages():
        for target in re.findall(r"(?:`|^|\$ )make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            if target not in targets:
                bad.append(f"{_shown(page)}: make {target}")
    check_none(bad, "pages show targets that are not there")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("gridops completion bash", None),
        ("$ gridops help exit-codes -o json | jq .", None),
        ("gridops -C fleet help", None),
        ("gridops frobnicate", "gridops has no command frobnicate"),
        ("gridops help --frob", "gridops help has no --frob"),
        ("gridops drain forge", "gridops drain wants --reason"),
        ("gridops drain --reason smoke", "gridops drain wants HOST"),
        ("gridops drain --help", None),
    ],
)
def test_the_judge_of_commands_judges(line: str, wrong: str | None) -> None:
    assert commands.fault(commands.split(line), commands.programs(), whole=True) == wrong


def test_changelog_fragments_are_well_formed() -> None:
    changelog = load(ROOT / "docs" / "changelog.py")
    paths = changelog.fragments(ROOT / "changelog.d")
    found = changelog.entries(paths)
    assert set(found) == set(changelog.KINDS)


def test_a_release_moves_fragments_into_the_changelog(tmp_path: Path) -> None:
    changelog = load(ROOT / "docs" / "changelog.py")
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d" / "README.md").write_text("how\n")
    (tmp_path / "changelog.d" / "7-x.md").write_text("Fixed: one thing,\n  on two lines\nAdded: another\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\nHead.\n\n## 0.1.0 (2026-01-01)\n\n### Added\n\n* old\n")
    changelog.release(tmp_path, "0.2.0 (2026-02-02)")
    text = (tmp_path / "CHANGELOG.md").read_text()
    expected = "# Changelog\n\nHead.\n\n## 0.2.0 (2026-02-02)\n\n### Added\n\n* another\n\n"
    expected += "### Fixed\n\n* one thing, on two lines\n\n## 0.1.0 (2026-01-01)\n\n### Added\n\n* old\n"
    assert text == expected
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["README.md"]


@pytest.mark.parametrize("text", ["Added something", "Improved: speed", ""])
def test_a_malformed_fragment_is_refused_by_name(tmp_path: Path, text: str) -> None:
    changelog = load(ROOT / "docs" / "changelog.py")
    path = tmp_path / "3-x.md"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"3-x\.md"):
        changelog.entries([path])


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yaml")), ids=lambda path: path.name)
def test_workflows_parse_and_pin_what_they_use(path: Path) -> None:
    document = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
    assert document["permissions"], "a workflow states its permissions"
    for name, job in document["jobs"].items():
        assert "timeout-minutes" in job, name
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            if "uses" in step:
                assert PINNED.fullmatch(step["uses"]), f"{name}: pin {step['uses']} by commit"


def test_decision_records_are_numbered_and_listed() -> None:
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text(encoding="utf-8")
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [name[:4] for name in records] == [f"{number:04d}" for number in range(1, len(records) + 1)]
    bad = []
    for name in records:
        text = (folder / name).read_text(encoding="utf-8")
        if f"({name})" not in index:
            bad.append(f"{name}: not in the list")
        bad += [
            f"{name}: no {part}"
            for part in ("**Question.**", "**Options.**", "**Decision.**", "**Bad.**")
            if part not in text
        ]
    check_none(bad, "a record has a question, options, a decision and what is bad about it")


def _shown_commands(text: str) -> list[tuple[str, bool]]:
    """Lines of code blocks and inline code that begin with one of our programs, and whether people copy the line."""
    fenced = re.findall(r"^ *```(?:console|sh|bash|text)?\n(.*?)^ *```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.strip() for block in fenced for line in block.splitlines()]
    shown = [
        line for line in lines if line.removeprefix("$ ").removeprefix("# ").startswith(("gridops ", "gridops-agent "))
    ]
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`(gridops(?:-agent)? [^`]+)`", prose)
    return [(line, True) for line in shown] + [(line, False) for line in named]


@cache
def anchors(page: Path) -> frozenset[str]:
    """Headings of a page as GitHub turns them into anchors."""
    found = set()
    for line in _prose(page).splitlines():
        if line.startswith("#"):
            words = line.lstrip("#").strip().lower().replace("`", "")
            found.add(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return frozenset(found)


def _prose(page: Path) -> str:
    """A page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def _shown(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def _has_tests(name: str) -> bool:
    return any((ROOT / "tests" / name).glob("test_*.py"))
