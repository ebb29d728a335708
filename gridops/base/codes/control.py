"""Codes of the controller: what it refuses or holds when people ask it to act. Nothing was changed by any of these."""

from __future__ import annotations

from gridops.base.codes import Code

GO411 = Code(
    "GO411",
    "planned again, same decisions",
    "Since the plan was written something moved that it read. Planned again, the decisions are the same, so the apply "
    "goes on with the new plan. This is a note, not a refusal.",
    "Nothing to do.",
)
GO412 = Code(
    "GO412",
    "plan is out of date",
    "Since the plan was written something moved, and the same question now has another answer. What was reviewed is "
    "not what would be done.",
    "Look at the new decisions (`gridops plan`) and apply the new plan.",
)
GO416 = Code(
    "GO416",
    "the mode forbids it",
    "The scope is in mode `observe`, by `policies/mode.yaml` or by a freeze: nothing is applied, by nobody.",
    "Wait until the freeze ends, end it (`gridops thaw`), or commit another mode.",
)
GO419 = Code(
    "GO419",
    "another apply is under way",
    "One apply per scope at a time: the lock names who holds it and for which plan. It ends with the apply, or by "
    "itself when nothing has moved for a while.",
    "Wait and try again (exit code 75); `gridops status` shows how far it is. After 15 minutes without movement "
    "it ends "
    "by itself.",
)
GO422 = Code(
    "GO422",
    "the last replica goes only with its name typed",
    "The plan removes the last replica of a profile. Somebody has to type that profile's name, or "
    "`automatic.last_replica` in `policies/mode.yaml` has to list it.",
    "Apply again and type the name, or pass `--confirm NAME`.",
)
GO423 = Code(
    "GO423",
    "plan is hypothetical",
    "The plan was made from declared hosts alone or from files that are not committed. No host was asked, so it can "
    "never be applied.",
    "Commit, let the reconciler plan, and apply the plan it writes: `gridops plans list`.",
)
GO424 = Code(
    "GO424",
    "no such plan",
    "The controller knows no plan with this id, neither in its journal nor on the plans branch.",
    "List them with `gridops plans list`; a short id must be at least four digits and belong to one plan only.",
)
GO425 = Code(
    "GO425",
    "request was used already",
    "Each signed request carries a number that counts once. This one has been seen before, so it was sent twice or "
    "replayed.",
    "Run the command again: it makes a new request.",
)
GO426 = Code(
    "GO426",
    "host is not admitted",
    "The host's key stands in no committed `fleet.d/keys/<host>.yaml`, or that file says `expunged`. It gets no "
    "commands.",
    "Compare fingerprints and admit it: `gridops host admit HOST`, then commit.",
)
GO427 = Code(
    "GO427",
    "no such invitation",
    "There is no open invitation for this host: none was made, it has expired, or another key has used it.",
    "Make a new one: `gridops host invite HOST`.",
)
GO428 = Code(
    "GO428",
    "nothing to resume",
    "The plan is not the one in force in its scope, its apply has ended well, or its authority is over.",
    "See `gridops status`; make and apply a new plan where the authority is over.",
)
GO429 = Code(
    "GO429",
    "the controller does not trust its own memory",
    "The journal was damaged or is missing although this fleet has a past. Until its memory is restored the controller "
    "plans and recommends, but sends no command: it might repeat what was already done.",
    "Stop the controller and run `gridops controller rebuild`, then start it again.",
)
GO430 = Code(
    "GO430",
    "request cannot be carried out",
    "The signed request is in order, but it names something that does not exist here or leaves out what its "
    "verb needs.",
    "The message says what is missing.",
)
TOO_LARGE = Code(
    "too_large",
    "request body too large",
    "Each endpoint reads a bounded number of bytes and stops there.",
    "Send less; the message names the bound.",
)
BAD_REQUEST = Code(
    "bad_request",
    "not a request of this endpoint",
    "The body is not JSON of the form that the endpoint's schema states.",
    "See `/openapi.json` for the form; the message names the first wrong field.",
)
NOT_READY = Code(
    "not_ready",
    "the controller has no valid intent yet",
    "No commit has been accepted so far, so there are no hosts, no keys and no policy to go by.",
    "See `gridops status` for the commit that is refused and why.",
)
REPLAYED = Code(
    "replayed",
    "an older heartbeat came again",
    "A host's heartbeats carry a number that only rises within one run of its agent. This one is not above the last.",
    "Nothing to do for a single one; repeated ones mean that somebody replays messages.",
)
