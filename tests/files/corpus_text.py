"""Broken files, text: the text of a file: encoding, YAML, the form of one value."""

from __future__ import annotations

from gridops.base.codes import files as c
from tests.files.repo import (
    DRAIN,
    FLEET,
    GOOD,
    HOST_KEY,
    HOSTS,
    KEY,
    MODE,
    PROFILE,
    added,
    appended,
    changed,
)
from tests.files.row import HEAD, TOP_MODE, Row, raw

TEXT: dict[str, Row] = {
    "latin-1 instead of utf-8": Row(raw(MODE, TOP_MODE.encode() + b"# caf\xe9\n"), c.BAD_UTF8, f"{MODE}:3:6", "0xe9"),
    "utf-16": Row(raw(MODE, TOP_MODE.encode("utf-16")), c.BAD_UTF8, f"{MODE}:1:1", "UTF-16"),
    "byte order mark": Row(raw(MODE, b"\xef\xbb\xbf" + GOOD[MODE].encode()), c.BOM, f"{MODE}:1:1", fix="apiVersion"),
    "nul byte": Row(added(MODE, TOP_MODE + "# a\0b\n"), c.ODD_CHARACTER, f"{MODE}:3:4", "U+0000"),
    "direction mark": Row(
        added(MODE, TOP_MODE + "default: observe # \u202e\n"), c.ODD_CHARACTER, f"{MODE}:3:20", "U+202E"
    ),
    "escaped control character": Row(
        changed(MODE, "recommend", 'observe\n    reason: "a\\x1b[2J"'), c.ODD_CHARACTER, f"{MODE}:6:13"
    ),
    "escaped half of a character in a name": Row(
        changed(PROFILE, "engine: llama.cpp", 'engine: "\\ud800"'),
        c.ODD_CHARACTER,
        f"{PROFILE}:10:13",
        "write it without",
    ),
    "lone carriage returns": Row(
        raw(MODE, GOOD[MODE].replace("\n", "\r").encode()), c.ODD_CHARACTER, f"{MODE}:1:23", "lines end with LF"
    ),
    "no-break space as indentation": Row(
        changed(MODE, "  default:", "\u00a0 default:"), c.ODD_CHARACTER, f"{MODE}:4:1", "U+00A0 is used for indentation"
    ),
    "a merge conflict": Row(
        changed(
            MODE, "    mode: recommend\n", "<<<<<<< ours\n    mode: recommend\n=======\n    mode: observe\n>>>>>>> x\n"
        ),
        c.SYNTAX,
        f"{MODE}:5:1",
        "keep one side",
    ),
    "bracket not closed": Row(added(MODE, TOP_MODE + "scopes: [\n"), c.SYNTAX, f"{MODE}:4:1", "not closed"),
    "quote not closed": Row(added(MODE, TOP_MODE + 'default: "observe\n'), c.SYNTAX, f"{MODE}:4:1", "quote"),
    "colon inside a plain value": Row(
        changed(MODE, "recommend", "recommend\n    reason: soon: really"), c.SYNTAX, f"{MODE}:6:17", "needs quotes"
    ),
    "indentation off by one": Row(
        changed(MODE, "    mode: recommend", "    mode: recommend\n   reason: x"), c.SYNTAX, f"{MODE}:6:4"
    ),
    "indentation deeper than that of the neighbours": Row(
        changed(MODE, "    mode: recommend", "    mode: recommend\n     reason: x"),
        c.SYNTAX,
        f"{MODE}:6:12",
        "neighbours",
    ),
    "tab in front": Row(changed(MODE, "  default:", "\tdefault:"), c.TAB, f"{MODE}:4:1", "spaces"),
    "field twice": Row(
        changed(MODE, "    mode: recommend", "    mode: recommend\n    mode: observe"),
        c.DUPLICATE_KEY,
        f"{MODE}:6:5",
        "disagree",
    ),
    "same field and value twice": Row(
        changed(MODE, "    mode: recommend", "    mode: recommend\n    mode: recommend"),
        c.DUPLICATE_KEY,
        f"{MODE}:6:5",
        fix="    mode: recommend\n",
    ),
    "anchor": Row(changed(MODE, "recommend", "&m recommend"), c.ANCHOR, f"{MODE}:5:11", "&m"),
    "alias": Row(appended(MODE, "default: *m\n"), c.ANCHOR, f"{MODE}:6:10", "*m"),
    "merge key with an alias": Row(changed(MODE, "    mode", "    <<: *m\n    mode"), c.MERGE_KEY, f"{MODE}:5:5"),
    "merge key": Row(changed(MODE, "    mode", "    <<: {reason: x}\n    mode"), c.MERGE_KEY, f"{MODE}:5:5"),
    "tag": Row(changed(MODE, "recommend", "!!str recommend"), c.TAG, f"{MODE}:5:11", "!!str"),
    "two documents": Row(appended(MODE, "---\nkind: Mode\n"), c.SEVERAL_DOCUMENTS, f"{MODE}:6:1"),
    "too deep": Row(added(MODE, TOP_MODE + "scopes: " + "[" * 3_000 + "\n"), c.TOO_LARGE, f"{MODE}:3:32", "deeper"),
    "too large": Row(raw(MODE, b"# " + b"x" * (1 << 20)), c.TOO_LARGE, f"{MODE}:1:1", "MiB"),
    "yaml 1.1 directive": Row({**GOOD, MODE: "%YAML 1.1\n---\n" + GOOD[MODE]}, c.DIRECTIVE, f"{MODE}:1:1"),
    "list as key": Row(changed(MODE, "    mode", "    ? [a]\n    : b\n    mode"), c.ODD_KEY, f"{MODE}:5:7"),
    "comments only": Row(added(MODE, "# nothing here yet\n"), c.EMPTY_FILE, f"{MODE}:1:1", "or delete it"),
    "nothing at all": Row(raw(MODE, b""), c.EMPTY_FILE, f"{MODE}:1:1", "or delete it"),
    "size without a unit": Row(changed(HOSTS, "256GiB", "256"), c.UNIT, f"{HOSTS}:8:33", "GiB"),
    "size beyond every bound, in a known unit": Row(
        changed(HOSTS, "256GiB", "99999999999999TiB"), c.UNIT, f"{HOSTS}:8:33", "too large"
    ),
    "size beyond every bound, in the words of kubernetes": Row(
        changed(HOSTS, "256GiB", "99999999999999Ti"), c.UNIT, f"{HOSTS}:8:33", "is not a size"
    ),
    "size in decimal units": Row(changed(HOSTS, "256GiB", "256GB"), c.UNIT, f"{HOSTS}:8:33", "did you mean `256GiB`"),
    "size in the words of kubernetes": Row(
        changed(HOSTS, "256GiB", "256Gi"), c.UNIT, f"{HOSTS}:8:33", "`256GiB`", fix="256GiB"
    ),
    "duration in words": Row(
        appended(PROFILE, "timing: {load: 30sec}\n"), c.UNIT, f"{PROFILE}:17:16", "`30s`", fix="load: 30s"
    ),
    "duration as a bare number": Row(
        appended(PROFILE, "timing: {load: 30}\n"), c.UNIT, f"{PROFILE}:17:16", "needs a unit"
    ),
    "number in quotes": Row(
        changed(PROFILE, "context: 16384", 'context: "16384"'), c.NUMBER, f"{PROFILE}:15:14", fix="context: 16384\n"
    ),
    "number with separators": Row(
        changed(PROFILE, "context: 16384", "context: 16_384"), c.NUMBER, f"{PROFILE}:15:14", fix="context: 16384\n"
    ),
    "octal-looking number": Row(changed(PROFILE, "16384", "0123"), c.NUMBER, f"{PROFILE}:15:14", "whole number"),
    "enormous number": Row(changed(PROFILE, "16384", "9" * 5_000), c.RANGE, f"{PROFILE}:15:14"),
    "yes for true": Row(
        added(HOST_KEY, f"{HEAD}kind: HostKey\nhost: forge\nkey: {KEY}\nexpunged: no\n"),
        c.FLAG,
        f"{HOST_KEY}:5:11",
        "write false",
        fix="expunged: false",
    ),
    "time without a zone": Row(
        added(DRAIN, f"{HEAD}kind: Drain\nhost: forge\nreason: x\nuntil: 2026-11-30T08:00:00\n"),
        c.INSTANT,
        f"{DRAIN}:5:8",
        "time zone",
    ),
    "token of a model hub": Row(
        changed(PROFILE, "footprint", "args: {chat_template: hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345}\n    footprint"),
        c.SECRET,
        f"{PROFILE}:16:27",
        "Hugging Face",
    ),
    "password in a url": Row(
        added(FLEET, f"{HEAD}kind: Fleet\nremote: {{url: 'https://bot:hunter2secret@forge.example/fleet.git'}}\n"),
        c.SECRET,
        f"{FLEET}:3:15",
        "password",
    ),
    "random letters": Row(
        added(DRAIN, f"{HEAD}kind: Drain\nhost: forge\nreason: x7Kq9Zt2Lm4Pw8Rv1Ns6Bd3Yc5\n"), c.SECRET, f"{DRAIN}:4:9"
    ),
}
