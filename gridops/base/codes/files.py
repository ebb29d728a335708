"""Codes of what can be wrong in the files that people write.

GO1xx: the text itself (encoding, YAML, the form of one value). GO2xx: what may stand where (the schema of one file).
GO3xx stands in `sense`. Numbers are stable: one that is retired is never given again.
"""

from __future__ import annotations

from gridops.base.codes import Code

# The text of a file
BAD_UTF8 = Code(
    "GO101",
    "file is not UTF-8",
    "YAML is text in UTF-8. Another encoding shows different letters to different readers.",
    "Save the file as UTF-8 in your editor.",
)
BOM = Code(
    "GO102",
    "file begins with a byte order mark",
    "The mark is invisible, breaks tools that read the first line, and means nothing in UTF-8.",
    "Save as UTF-8 without a byte order mark, or run `gridops validate --fix`.",
)
SYNTAX = Code(
    "GO103",
    "not YAML",
    "The reader cannot tell what the text means from this place on, so nothing after it was checked.",
    "Look at the line and the one before it: a missing colon, quote or bracket, or an indentation that is off.",
)
TAB = Code(
    "GO104",
    "tab used for indentation",
    "YAML allows only spaces before the first character of a line; a tab has no agreed width.",
    "Replace the tab by spaces. Editors can do that on typing for *.yaml.",
)
DUPLICATE_KEY = Code(
    "GO105",
    "field given twice",
    "Tools disagree about which of the two counts, so a reviewer cannot know.",
    "Keep one of them. Two equal ones are cleaned up by `gridops validate --fix`.",
)
ANCHOR = Code(
    "GO106",
    "anchor or alias",
    "Anchors (&x) and aliases (*x) hide what a file says from its diff, and nest into files that never end.",
    "Write the value out. Common values of hosts go into `defaults:` of their file.",
)
MERGE_KEY = Code(
    "GO107",
    "merge key",
    "`<<` left YAML with version 1.2; half of the tools copy the fields, the others see a field named `<<`.",
    "Write the fields out, or put them into `defaults:`.",
)
TAG = Code(
    "GO108",
    "tag",
    "Tags (!!str, !thing) change the type of a value. Here the schema decides the type.",
    "Remove the tag.",
)
SEVERAL_DOCUMENTS = Code(
    "GO109",
    "several documents in one file",
    "One file holds one document, so that a file name says what it is about.",
    "Move what follows `---` into a file of its own.",
)
TOO_LARGE = Code(
    "GO110",
    "too large or too deep",
    "Every reader has bounds, so that no file can exhaust the machine that validates it.",
    "Split the file. The bounds are in the reference under limits.",
)
ODD_CHARACTER = Code(
    "GO111",
    "invisible or control character",
    "The text looks different from what it says: control characters and direction marks hide content from reviewers.",
    "Delete the character and type the text again.",
)
UNIT = Code(
    "GO112",
    "unit missing or unknown",
    "A bare number is ambiguous: 48 what? Sizes are 48GiB, durations 30s, rates 1000Mbit/s, shares 75%.",
    "Write the number with one of the units that the message lists.",
)
DIRECTIVE = Code(
    "GO113",
    "YAML directive",
    "Files are YAML 1.2 without directives; `%YAML 1.1` would ask for other rules than the ones that hold.",
    "Remove the line that begins with `%`.",
)
ODD_KEY = Code(
    "GO114",
    "key is not plain text",
    "Keys are names. Lists, maps and empty keys have no meaning here and most tools cannot read them.",
    "Use a simple word as the key.",
)
EMPTY_FILE = Code(
    "GO115",
    "file says nothing",
    "A file without a document is usually a slip: something was meant to stand here.",
    "Write `apiVersion` and `kind` and the content, or delete the file.",
)
UNREADABLE = Code(
    "GO116",
    "file cannot be read",
    "Links, devices and unreadable files are refused: what git records and what the disk shows would differ.",
    "Put a regular, readable file in its place.",
)
NUMBER = Code(
    "GO117",
    "not a number of the expected form",
    "Whole numbers are written in decimal digits without quotes, leading zeros or separators.",
    "Write a plain number, such as 3.",
)
FLAG = Code(
    "GO118",
    "not true or false",
    "YAML 1.2 knows `true` and `false`; `yes`, `no`, `on` and `off` are words like any other.",
    "Write true or false.",
)
INSTANT = Code(
    "GO119",
    "not a time",
    "A moment needs a date, a time of day and a zone, or two readers mean different moments.",
    "Write RFC 3339, such as 2026-11-30T08:00:00Z.",
)
SECRET = Code(
    "GO130",
    "looks like a secret",
    "Files in git are read by many and kept for ever. A secret in them has leaked, also after it was deleted.",
    "Revoke it, store the new one with 0600 on the host that uses it, and write its name: `credential: secret:NAME`.",
)

# The schema of one file
HEADER = Code(
    "GO201",
    "apiVersion or kind missing",
    "Every file says what it is in its first two lines.",
    "Begin the file with `apiVersion: gridops/v1` and `kind: ...`.",
)
UNKNOWN_KIND = Code(
    "GO202",
    "unknown apiVersion or kind",
    "The file may come from another program or a newer gridops; guessing what it means would be dangerous.",
    "Use one of the kinds that the message lists; `gridops schema` shows each.",
)
UNKNOWN_FIELD = Code(
    "GO203",
    "unknown field",
    "A field that is not known has no effect, which is the last thing its author expects.",
    "Correct the name, or remove the field. `gridops schema KIND` lists all.",
)
MISSING_FIELD = Code(
    "GO204",
    "required field missing",
    "The thing cannot be used without it and there is no safe default.",
    "Add the field.",
)
WRONG_SHAPE = Code(
    "GO205",
    "wrong shape",
    "A list, a map and a single value are not interchangeable.",
    "Write the form that the message shows.",
)
CHOICE = Code(
    "GO206",
    "not one of the choices",
    "The field takes one of a few words.",
    "Use one of the words that the message lists.",
)
RANGE = Code(
    "GO207",
    "value out of range",
    "The value cannot be meant or cannot be honoured.",
    "Use a value inside the range that the message names.",
)
BAD_NAME = Code(
    "GO208",
    "not a valid name",
    "Names reach file names, URLs, git refs and process arguments, so their alphabet is small.",
    "Use lower-case letters, digits, `-`, `.` and `_`, beginning with a letter or digit, at most 63 characters.",
)
WRONG_FOLDER = Code(
    "GO209",
    "file stands in the wrong place",
    "Each kind has its folder, so that a reviewer and CODEOWNERS know what a path may change.",
    "Move the file to the place that the message names.",
)
NO_VALUE = Code(
    "GO210",
    "field without a value",
    "An empty value looks like a default but may have been a slip.",
    "Give it a value, or remove the line to get the default.",
)
TWICE = Code(
    "GO211",
    "listed twice",
    "The second one has no effect.",
    "Remove one of them.",
)
BAD_FORM = Code(
    "GO212",
    "value has the wrong form",
    "The value follows a fixed form (a digest, a key, a URL, a path) and this one does not.",
    "Follow the form that the message shows.",
)
FILE_NAME = Code(
    "GO213",
    "file name and content disagree",
    "One file holds one thing and is named after it, so that removing the file removes the thing.",
    "Rename the file, or correct the name inside.",
)
NOT_HERE = Code(
    "GO214",
    "field has no meaning here",
    "The field belongs to another class of host, kind of device or source of footprint, and would be ignored.",
    "Remove the field, or change the class or kind that it stands beside.",
)
NO_IDENTITY = Code(
    "GO215",
    "artifact without digest and size",
    "The digest is the identity of a model file: without it nobody knows what runs. The size decides whether it fits.",
    "Write `files: [{path: ..., sha256: ..., size: ...}]`.",
)
OWN_ARGUMENT = Code(
    "GO216",
    "engine argument that gridops sets itself",
    "Address, key, model file, context and lanes come from the config; a second value would win or lose by accident.",
    "Remove the argument; use `context`, `lanes` or `serves` of the profile instead.",
)
UNKNOWN_ARGUMENT = Code(
    "GO218",
    "unknown engine argument",
    "Engines are given only arguments that their adapter knows; the host would refuse to start it.",
    "Correct the name, or remove the argument.",
)
ARGUMENT_VALUE = Code(
    "GO219",
    "value that an engine argument cannot carry",
    "Values are matched as a whole against what the adapter passes on; the host would refuse to start the engine.",
    "Write one of the values that the message names.",
)
EXTENSION = Code(
    "GO217",
    "file will not be read",
    "Only *.yaml is read. A file with another ending looks like intent and has no effect.",
    "Rename it to *.yaml, or move it out of this folder.",
)
