"""The published schemas: draft-07, in step with the reader, and true of every file that we ship."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from gridops.files.export import file_name, render, schemas, write_schemas
from gridops.files.kinds import KINDS
from gridops.files.kinds_fleet import BACKEND_KINDS
from gridops.files.load import check
from gridops.files.tree import MemoryTree, WorkingTree
from gridops.planner.eligible import BACKEND_KINDS as PLANNER_KINDS
from tests.files.corpus_schema import SCHEMA
from tests.files.repo import GOOD

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "docs/schemas/v1"
FOLDERS = [
    ROOT,
    *sorted(p for p in (ROOT / "examples").iterdir() if (p / "fleet.d").is_dir()),
    ROOT / "tests/files/everything",
]
FILES = [
    pytest.param(path, id=str(path.relative_to(ROOT)))
    for folder in FOLDERS
    for part in ("fleet.d", "profiles.d", "policies")
    for path in sorted((folder / part).rglob("*.yaml"))
]


def as_an_editor_reads(text: str) -> Any:
    """YAML 1.2 core, as yaml-language-server does it: values get their types from their looks. Times stay text."""
    yaml = YAML(typ="safe", pure=True)
    yaml.version = (1, 2)  # type: ignore[assignment]
    yaml.constructor.yaml_constructors["tag:yaml.org,2002:timestamp"] = lambda loader, node: node.value
    return yaml.load(text)


def validator(kind: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(schemas()[kind], format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_published_schema_is_fresh(kind: str) -> None:
    text = (PUBLISHED / file_name(kind)).read_text(encoding="utf-8")
    assert text == render(kind), "run `gridops schema --write docs/schemas/v1`"
    jsonschema.Draft7Validator.check_schema(json.loads(text))
    assert json.loads(text)["$schema"] == "http://json-schema.org/draft-07/schema#"


def test_nothing_else_is_published() -> None:
    assert sorted(p.name for p in PUBLISHED.iterdir()) == sorted(file_name(kind) for kind in KINDS)


def test_schemas_can_be_written_anywhere(tmp_path: Path) -> None:
    written = write_schemas(tmp_path / "a/b")
    assert {p.name for p in written} == {file_name(kind) for kind in KINDS}
    assert (tmp_path / "a/b/mode.json").read_text(encoding="utf-8") == render("Mode")


@pytest.mark.parametrize("path", FILES)
def test_a_shipped_file_satisfies_its_schema(path: Path) -> None:
    document = as_an_editor_reads(path.read_text(encoding="utf-8"))
    errors = [f"{list(e.absolute_path)}: {e.message}" for e in validator(document["kind"]).iter_errors(document)]
    assert errors == []


@pytest.mark.parametrize("path", [p for p in FILES if "everything" not in str(p.values[0])])
def test_a_shipped_file_names_its_schema_in_the_first_line(path: Path) -> None:
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    match = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert match is not None, first
    # A folder that is copied brings its schemas along, or has them written there: `gridops schema --write`.
    folder = next(p for p in path.parents if (p / "fleet.d").is_dir() and (p / "policies").is_dir())
    inside = folder / ".gridops/schemas/v1"
    named = Path(os.path.normpath(path.parent / match.group(1)))
    target = PUBLISHED / named.name if folder != ROOT and named.parent == inside else named
    assert target.parent == PUBLISHED
    kind = re.search(r"^kind: (\w+)$", rest, re.MULTILINE)
    assert kind is not None
    assert target.name == file_name(kind.group(1))
    assert target.exists()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_shipped_repository_has_no_finding(folder: Path) -> None:
    found = check(WorkingTree(folder))
    assert found.problems == ()
    assert found.intent is not None
    assert found.intent.desired.hosts
    assert found.intent.desired.profiles


# What one file shows to be wrong, an editor shows too. These need more than a schema can say.
BEYOND = {
    "no apiVersion", "mode in the profiles' folder", "file named after another host", "gpu share on a gpu",
    "devices on an external host", "ending that is not read", "argument of our own", "argument misspelt",
    "share that the plan writes",
    "declared footprint without a number", "required field missing", "share above the whole", "idle time too short",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(SCHEMA) - BEYOND))
def test_an_editor_sees_what_the_reader_refuses(name: str) -> None:
    row = SCHEMA[name]
    file = row.at.split(":", 1)[0]
    raw = row.files[file]
    document = as_an_editor_reads(raw if isinstance(raw, str) else raw.decode())
    kind = {"fleet.d": "Hosts", "profiles.d": "Profile"}.get(file.split("/")[0], "Mode")
    assert list(validator(kind).iter_errors(document))


def test_every_field_says_what_it_means() -> None:
    def walk(schema: dict[str, Any], path: str) -> None:
        for name, entry in schema.get("properties", {}).items():
            assert entry["description"].endswith("."), f"{path}/{name}"
            walk(entry, f"{path}/{name}")
        for part in (schema.get("additionalProperties"), schema.get("items"), *schema.get("anyOf", ())):
            if isinstance(part, dict):
                walk(part, path)

    for kind, schema in schemas().items():
        walk(schema, kind)


def test_defaults_are_those_of_the_model() -> None:
    timing = schemas()["Profile"]["properties"]["timing"]["properties"]
    assert {name: entry["default"] for name, entry in timing.items()} == {
        "load": "30s", "warm": "5s", "min_residency": "5m", "scale_down_after": "15m", "drain": "2m",
    }  # fmt: skip
    heartbeat = schemas()["Planning"]["properties"]["heartbeat"]["properties"]
    assert heartbeat["mass_stale"]["properties"]["share"]["default"] == "30%"
    assert schemas()["Planning"]["properties"]["tiers"]["default"] == ["public", "internal", "confidential"]


def test_a_default_that_is_written_out_means_the_same_as_one_left_out() -> None:
    timing = schemas()["Profile"]["properties"]["timing"]["properties"]
    written = ", ".join(f"{name}: {entry['default']}" for name, entry in timing.items())
    plain, spelt = (
        check(MemoryTree({**GOOD, "profiles.d/coder.yaml": GOOD["profiles.d/coder.yaml"] + extra})).intent
        for extra in ("", f"timing: {{{written}}}\npriority: 100\nworkloads: {{}}\n")
    )
    assert plain is not None
    assert spelt is not None
    assert plain.desired == spelt.desired


def test_backends_are_those_that_the_planner_can_place() -> None:
    assert dict(PLANNER_KINDS) == BACKEND_KINDS
