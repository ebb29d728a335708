"""Problems as machines get them."""

from __future__ import annotations

import json

from gridops.base.limits import ANNOTATIONS
from gridops.files.report import annotate, document
from tests.files.repo import GOOD, MODE, PROFILE, problems


def test_the_document_says_all_that_the_drawing_says() -> None:
    found = problems({**GOOD, MODE: GOOD[MODE].replace("recommend", "recomend")})
    made = json.loads(json.dumps(document(found, 3)))
    assert (made["schema"], made["valid"], made["files"]) == ("gridops.validate/1", False, 3)
    assert (made["error_count"], made["warning_count"]) == (1, 0)
    entry = made["diagnostics"][0]
    assert entry["code"] == "GO206"
    assert entry["file"] == MODE
    assert entry["range"] == {"start": {"line": 5, "column": 11}, "end": {"line": 5, "column": 19}}
    assert entry["snippet"] == [{"line": 5, "text": "    mode: recomend"}]
    assert entry["hint"] == "did you mean `recommend`?"
    assert entry["fix"] == {
        "title": "change to `recommend`",
        "safe": True,
        "edits": [{"start": {"line": 5, "column": 11}, "end": {"line": 5, "column": 19}, "text": "recommend"}],
    }
    assert entry["help"] == "gridops rule GO206"


def test_related_places_are_named() -> None:
    text = GOOD[MODE].replace("    mode: recommend", "    mode: recommend\n    mode: observe")
    entry = document(problems({**GOOD, MODE: text}), 3)["diagnostics"][0]
    assert entry["related"][0]["message"] == "first here"
    assert entry["related"][0]["range"]["start"] == {"line": 5, "column": 5}


def test_a_valid_tree_is_a_document_too() -> None:
    made = document((), 3)
    assert (made["valid"], made["files"], made["error_count"], made["diagnostics"]) == (True, 3, 0, [])


def test_an_annotation_is_one_line_whatever_the_file_says() -> None:
    text = GOOD[PROFILE].replace("name: coder", 'name: "a%b\\r\\n::error::owned"')
    lines = annotate(problems({**GOOD, PROFILE: text}))
    assert len(lines) == 1
    assert lines[0].startswith("::error file=profiles.d/coder.yaml,line=3,col=7,title=GO208::")
    assert "\n" not in lines[0]
    assert "%25" in lines[0]
    assert "%0D%0A" in lines[0]


def test_a_file_name_cannot_end_the_annotation_s_head() -> None:
    lines = annotate(problems({**GOOD, "profiles.d/a,b:c.yaml": "kind: 1\n"}))
    assert lines[0].startswith("::error file=profiles.d/a%2Cb%3Ac.yaml,line=1,")


def test_ten_annotations_errors_first_and_a_count() -> None:
    serves = "".join(f"  - A B{n}\n" for n in range(30))
    text = GOOD[PROFILE] + "spread: {by: rack, min: 9}\nserves:\n" + serves
    lines = annotate(problems({**GOOD, PROFILE: text, "profiles.d/x.yml": ""}))
    assert len(lines) == ANNOTATIONS + 1
    assert all(line.startswith("::error") for line in lines[:-1])
    assert lines[-1] == "::notice title=gridops::21 more findings in the log"
