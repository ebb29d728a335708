"""Broken files, schema: what may stand where in one file."""

from __future__ import annotations

from gridops.base.codes import files as c
from tests.files.repo import (
    DIGEST,
    DRAIN,
    GOOD,
    HOSTS,
    MODE,
    PROFILE,
    added,
    appended,
    changed,
)
from tests.files.row import EXTERNAL, HEAD, Row

SCHEMA: dict[str, Row] = {
    "no apiVersion": Row({**GOOD, MODE: "kind: Mode\n"}, c.HEADER, f"{MODE}:1:1", "apiVersion", fix="gridops/v1"),
    "no kind": Row({**GOOD, MODE: HEAD}, c.HEADER, f"{MODE}:1:1", "kind: Mode", fix="kind: Mode"),
    "kind misspelt": Row(
        changed(MODE, "kind: Mode", "kind: Modes"), c.UNKNOWN_KIND, f"{MODE}:2:7", "`Mode`", fix="kind: Mode\n"
    ),
    "version of another age": Row(
        changed(MODE, "gridops/v1", "gridops/v9"), c.UNKNOWN_KIND, f"{MODE}:1:13", "gridops/v1", fix="gridops/v1\n"
    ),
    "manifest of another product": Row(
        changed(MODE, "gridops/v1", "apps/v1"), c.UNKNOWN_KIND, f"{MODE}:1:13", "expected `gridops/v1`"
    ),
    "kind that is a list": Row(
        changed(MODE, "kind: Mode", "kind: [Mode]"), c.WRONG_SHAPE, f"{MODE}:2:7", "expected kind: Mode"
    ),
    "list instead of a number or a map": Row(
        changed(PROFILE, "{min: 1, max: 2}", "[1, 2]"), c.WRONG_SHAPE, f"{PROFILE}:4:11", "or a map of fields"
    ),
    "name in look-alike letters": Row(
        changed(PROFILE, "name: coder", "name: \u0441oder"), c.BAD_NAME, f"{PROFILE}:3:7", "U+0441 is none of"
    ),
    "name in typographic quotes": Row(
        changed(PROFILE, "name: coder", "name: \u201ccoder\u201d"), c.BAD_NAME, f"{PROFILE}:3:7", "did you mean `coder`"
    ),
    "name that is empty": Row(
        changed(PROFILE, "name: coder", "name: ''"), c.BAD_NAME, f"{PROFILE}:3:7", "an empty text"
    ),
    "ending in capitals": Row(
        {**GOOD, "profiles.d/CHAT.YAML": "x"}, c.EXTENSION, "profiles.d/CHAT.YAML:1:1", "rename it", severity="warning"
    ),
    "field misspelt": Row(
        changed(HOSTS, "memory: 256GiB", "memmory: 256GiB"),
        c.UNKNOWN_FIELD,
        f"{HOSTS}:8:25",
        "did you mean `memory`?",
        fix="memory: 256GiB",
    ),
    "name misspelt, with a drain that refers to it": Row(
        {
            **changed(HOSTS, "hosts:\n  forge", "hsots:\n  forge"),
            DRAIN: f"{HEAD}kind: Drain\nhost: forge\nreason: new fan\n",
        },
        c.UNKNOWN_FIELD,
        f"{HOSTS}:3:1",
        "did you mean `hosts`?",
        fix="\nhosts:\n",
    ),
    "kind under a misspelt name": Row(
        changed(MODE, "kind: Mode", "kidn: Mode"), c.UNKNOWN_FIELD, f"{MODE}:2:1", "`kind`", fix="\nkind: Mode\n"
    ),
    "apiVersion under a misspelt name": Row(
        changed(MODE, "apiVersion:", "apiversion:"), c.UNKNOWN_FIELD, f"{MODE}:1:1", "`apiVersion`", fix="apiVersion: "
    ),
    "field in another case": Row(
        appended(PROFILE, "idleUnload: never\n"),
        c.UNKNOWN_FIELD,
        f"{PROFILE}:17:1",
        "`idle_unload`",
        fix="idle_unload: never",
    ),
    "field of another product": Row(
        appended(PROFILE, "spec: {}\n"), c.UNKNOWN_FIELD, f"{PROFILE}:17:1", "fields here: apiVersion"
    ),
    "required field missing": Row(
        changed(HOSTS, "gpu1: {kind: gpu, memory", "gpu1: {memory"), c.MISSING_FIELD, f"{HOSTS}:7:7", "kind"
    ),
    "declared footprint without a number": Row(
        changed(PROFILE, "{source: declared, device: 20GiB}", "{source: declared}"), c.MISSING_FIELD, f"{PROFILE}:16:5"
    ),
    "one value instead of a list": Row(
        changed(HOSTS, "[always-on]", "always-on"),
        c.WRONG_SHAPE,
        f"{HOSTS}:10:11",
        "[always-on]",
        fix="tags: [always-on]",
    ),
    "list instead of a map": Row(
        changed(MODE, "scopes:\n  default:\n    mode: recommend", "scopes: [default]"),
        c.WRONG_SHAPE,
        f"{MODE}:3:9",
        "keyed by scope",
    ),
    "list as the whole file": Row(added(MODE, "- mode\n"), c.WRONG_SHAPE, f"{MODE}:1:1", "apiVersion"),
    "choice misspelt": Row(
        changed(MODE, "recommend", "recomend"),
        c.CHOICE,
        f"{MODE}:5:11",
        "did you mean `recommend`?",
        fix="mode: recommend",
    ),
    "choice unknown": Row(changed(MODE, "recommend", "yolo"), c.CHOICE, f"{MODE}:5:11", "one of observe"),
    "word almost right": Row(
        appended(PROFILE, "idle_unload: nevr\n"), c.CHOICE, f"{PROFILE}:17:14", "`never`", fix="idle_unload: never"
    ),
    "share above the whole": Row(changed(HOSTS, "75%", "175%"), c.RANGE, f"{HOSTS}:16:83", "100%"),
    "idle time too short": Row(appended(PROFILE, "idle_unload: 5s\n"), c.RANGE, f"{PROFILE}:17:14", "at least 1m"),
    "name with capitals": Row(changed(PROFILE, "name: coder", "name: Coder"), c.BAD_NAME, f"{PROFILE}:3:7", "`coder`"),
    "name with a slash": Row(changed(PROFILE, "  q4:", "  q4/a:"), c.BAD_NAME, f"{PROFILE}:9:3"),
    "mode in the profiles' folder": Row(
        {**{k: v for k, v in GOOD.items() if k != MODE}, "profiles.d/mode.yaml": GOOD[MODE]},
        c.WRONG_FOLDER,
        "profiles.d/mode.yaml:2:7",
        "policies/mode.yaml",
    ),
    "empty value": Row(appended(PROFILE, "priority:\n"), c.NO_VALUE, f"{PROFILE}:17:10", "leave the field out"),
    "null value": Row(appended(PROFILE, "priority: null\n"), c.NO_VALUE, f"{PROFILE}:17:11"),
    "listed twice": Row(
        changed(HOSTS, "[always-on]", "[always-on, gpu, always-on]"), c.TWICE, f"{HOSTS}:10:28", "twice"
    ),
    "digest too short": Row(changed(PROFILE, DIGEST, "b179c9"), c.BAD_FORM, f"{PROFILE}:14:42", "6 characters"),
    "path that climbs": Row(
        changed(PROFILE, "coder.gguf", "../coder.gguf"), c.BAD_FORM, f"{PROFILE}:14:22", "relative path"
    ),
    "mutable source": Row(
        changed(PROFILE, "format: gguf", "format: gguf\n      source: hf://owner/repo"),
        c.BAD_FORM,
        f"{PROFILE}:14:15",
        "immutable",
    ),
    "file named after another host": Row(
        added("fleet.d/drains/forg.yaml", f"{HEAD}kind: Drain\nhost: forge\nreason: x\n"),
        c.FILE_NAME,
        "fleet.d/drains/forg.yaml:3:7",
        "forge.yaml",
    ),
    "gpu share on a gpu": Row(
        changed(HOSTS, "256GiB, reserve: 16GiB", "256GiB, gpu_share: 50%"), c.NOT_HERE, f"{HOSTS}:8:41", "unified"
    ),
    "devices on an external host": Row(
        appended(HOSTS, EXTERNAL + "    devices: {cpu0: {kind: cpu, memory: 1GiB}}\n"),
        c.NOT_HERE,
        f"{HOSTS}:22:5",
        "external",
    ),
    "artifact without digest": Row(
        changed(PROFILE, f"sha256: {DIGEST}, ", ""), c.NO_IDENTITY, f"{PROFILE}:14:15", "sha256"
    ),
    "source without files": Row(
        changed(
            PROFILE, f"files: [{{path: coder.gguf, sha256: {DIGEST}, size: 18GiB}}]", f"source: hf://a/b@{'c' * 40}"
        ),
        c.NO_IDENTITY,
        f"{PROFILE}:12:5",
        "files",
    ),
    "share that the plan writes": Row(
        changed(PROFILE, "footprint", "args: {gpu_memory_utilization: 0.9}\n    footprint"),
        c.OWN_ARGUMENT,
        f"{PROFILE}:16:12",
        "written from the plan",
    ),
    "argument of our own": Row(
        changed(PROFILE, "footprint", "args: {port: 8080}\n    footprint"), c.OWN_ARGUMENT, f"{PROFILE}:16:12", "port"
    ),
    "argument misspelt": Row(
        changed(PROFILE, "footprint", "args: {flash-attn: true}\n    footprint"),
        c.UNKNOWN_ARGUMENT,
        f"{PROFILE}:16:12",
        "`flash_attn`",
        fix="flash_attn: true",
    ),
    "ending that is not read": Row(
        added("profiles.d/chat.yml", "x"), c.EXTENSION, "profiles.d/chat.yml:1:1", "*.yaml", severity="warning"
    ),
}
