"""Codes of what is signed: envelopes, keys, roots, approvals, requests, plan documents. Nothing in it was believed."""

from __future__ import annotations

from gridops.base.codes import Code

GO413 = Code(
    "GO413",
    "approval missing",
    "The change needs more approvals than it has: they are missing, expired, by people who may not give them, or for "
    "something else (another fleet, scope, set of decisions, or other profiles and hosts than the plan read).",
    "Look at the plan again and sign it: `gridops apply PLAN`. The evidence says why a given approval does not count.",
)
GO414 = Code(
    "GO414",
    "signature by an unknown key",
    "No key that the current root document trusts for this purpose made the signature, or the key belongs to somebody "
    "else than the document says.",
    "Sign with a key that the root lists (`gridops trust show`), or add the key by a new root document.",
)
GO421 = Code(
    "GO421",
    "rejected",
    "A person who may approve this change has rejected it. One valid rejection blocks, whatever others say.",
    "Talk to the person named, who takes `plans reject` back by applying the plan; it ends too when a commit asks for "
    "something else, or when that person leaves the approvers. A signed rejection among approvals ends with its time.",
)
BAD_ENVELOPE = Code(
    "bad_envelope",
    "not a signed envelope",
    "Too large, not JSON, too many signatures, or not the standard base64 with padding. Nothing in it was looked at.",
    "Use the file exactly as it was made; an envelope survives no editing.",
)
BAD_SIGNATURE = Code(
    "bad_signature",
    "no trusted signature",
    "None of the keys trusted for this purpose signed these bytes. The key id inside an envelope is a hint and decides "
    "nothing.",
    "Compare the key with the root document; a changed byte in the payload has the same effect as a wrong key.",
)
WRONG_KIND = Code(
    "wrong_kind",
    "a signed envelope of another kind",
    "The envelope is of another kind than what is expected here; a signature never counts for another kind.",
    "Check which file or message was given.",
)
NOT_CANONICAL = Code(
    "not_canonical",
    "payload is not canonical JSON",
    "The signature is right, but the payload is not in the one byte form that its meaning has, so equal meanings "
    "would have different digests.",
    "Make it with gridops of a supported version.",
)
BAD_SCHEMA = Code(
    "bad_schema",
    "signed, but not of the expected form",
    "A field is missing, unknown, of the wrong type or contradicts another.",
    "The message names the field. A newer version may have written it: compare the versions.",
)
WRONG_FLEET = Code(
    "wrong_fleet",
    "for another fleet",
    "Each signed payload names its fleet (the digest of the first root document). This one names another.",
    "Check which repository, host or token was used; what is signed for staging is void in production.",
)
ROOT_VERSION = Code(
    "root_version",
    "root document out of order",
    "Root documents form a chain: each is exactly one version above the one before it, and none is ever replaced.",
    "Give the missing versions in order (`policies/trust/root/<n>.json`).",
)
ROOT_THRESHOLD = Code(
    "root_threshold",
    "root document without enough signatures",
    "Root N+1 needs the thresholds of both N and N+1, counted in distinct people with distinct keys.",
    "Collect the missing signatures; the evidence names who signed.",
)
CATALOG_THRESHOLD = Code(
    "catalog_threshold",
    "too few signatures on a catalog",
    "A catalog says what may run at all, so it counts only when as many different people of the role `release` signed "
    "it as the root document demands. Keys that the newest root does not list there do not count.",
    "`gridops trust verify policies/trust/catalog.json` says who is missing; each signs with `gridops trust sign`.",
)
BAD_CATALOG = Code(
    "bad_catalog",
    "the catalog does not hold",
    "`policies/trust/catalog.json` is missing although there was one, is not signed by enough people of the role "
    "`release`, is older than the one before it, or contradicts itself. The whole commit is refused.",
    "Say what changed by `gridops trust catalog`, sign it by `gridops trust sign`. Only a root document ends the need "
    "for one: `gridops trust catalog --off`.",
)
ROOT_AMENDMENT = Code(
    "root_amendment",
    "the next root cannot say that",
    "What was asked for would leave a role with fewer people than it needs, or changes something that is not there. "
    "Nothing was written.",
    "The message says which role; `gridops trust show` says who holds what.",
)
ROOT_EPOCH = Code(
    "root_epoch",
    "root document with an older controller epoch",
    "The controller epoch only ever rises: a smaller one would bring back commands of a replaced controller key.",
    "Issue the root document with the same or the next epoch.",
)
ROOT_EXPIRED = Code(
    "root_expired",
    "root document expired",
    "Change is frozen until people renew the root document. Serving and keep-alive go on.",
    "Renew it: `gridops trust renew`, signed by the root threshold.",
)
AGENT_TOO_OLD = Code(
    "agent_too_old",
    "agent older than the root demands",
    "The trusted root says from which version on agents may be driven (`agent_min_version`), and this host's agent is "
    "older, or of a version that cannot be read. It keeps serving and keeping alive, accepts nothing new and is sent "
    "nothing new; commands that it had not accepted are taken back.",
    "Upgrade the agent of the host: install the new version beside it and restart it, engines run on. If the demand "
    "was a mistake, people lower it: `gridops trust agents VERSION`.",
)
BAD_TOKEN = Code(
    "bad_token",
    "not a join token",
    "A join token begins with gj1. and ends with a check that finds typing and copying faults.",
    "Copy it again, whole and on one line, or make a new one: `gridops host invite HOST`.",
)
BAD_MAC = Code(
    "bad_mac",
    "the join token does not match",
    "The other side does not know the secret of this join token, or the message was changed on its way.",
    "Make a new token: `gridops host invite HOST`. If it happens again, somebody stands between.",
)
REQUEST_EXPIRED = Code(
    "request_expired",
    "request expired",
    "A signed request to the controller is valid for at most ten minutes.",
    "Run the command again. If it happens at once, compare the clocks of both machines.",
)
REQUEST_NOT_YET = Code(
    "request_not_yet",
    "request from the future",
    "The signed request was made later than the controller's clock says now.",
    "Compare the clocks of both machines.",
)
PLAN_EDITED = Code(
    "GO415",
    "plan was edited by hand",
    "The text of a stored plan is printed from its signed payload and compared with it byte for byte. This text says "
    "something else than what was signed, so nobody can know what a reviewer read.",
    "Undo the edit, or change the inputs (`fleet.d/`, `profiles.d/`, `policies/`) and let a new plan be made.",
)
KEY_EXPUNGED = Code(
    "key_expunged",
    "expunged key",
    "A commit expunged this host key, or its host signed over from it. Such a key never speaks for anybody again, "
    "whatever a later commit says: whoever had it may have it still.",
    "Let the machine make a key of its own: `gridops host invite HOST`, and `gridops-agent join` with another folder.",
)
