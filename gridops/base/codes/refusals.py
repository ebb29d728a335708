"""Codes of refusals: signed objects, approvals, commands and receipts. The rules said no; nothing was lost."""

from __future__ import annotations

from gridops.base.codes import Code

# --- trust ---------------------------------------------------------------------------------------------------------

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
    "Talk to the person named; the rejection ends with its own expiry. Other decisions make a new plan.",
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

# --- protocol ------------------------------------------------------------------------------------------------------
# Commands, receipts, heartbeats and directives. "Consumed" says whether the refusal uses up the command's number.

WRONG_HOST = Code(
    "wrong_host",
    "for another host",
    "The signed message names another host than the one that reads it. Not consumed.",
    "Nothing to do on this host. If it happens again, somebody replays messages between hosts.",
)
WRONG_HOST_KEY = Code(
    "wrong_host_key",
    "for another key of this host",
    "The command was made for a host key that this host does not hold (it was enrolled anew). Not consumed.",
    "Commit the host's present key (`fleet.d/keys/HOST.yaml`); commands for the old key are void for ever.",
)
STALE_TERM = Code(
    "stale_term",
    "from a controller that was replaced",
    "The host has already obeyed a controller with a higher term; the sender's authority is over. Not consumed.",
    "Stop the old controller. After `gridops controller rebuild` the new one takes a term above every host's.",
)
TERM_JUMP = Code(
    "term_jump",
    "term jumps too far",
    "The controller's term counter rose by more than a thousand at once, or its epoch has no root document here. A "
    "stolen controller key could otherwise lock out its successor. Not consumed.",
    "Bring the host the newest root documents; if the controller key may be stolen, rotate it (epoch rises).",
)
DUPLICATE = Code(
    "duplicate",
    "decided long ago",
    "The command's number was decided so long ago that this host no longer remembers how. Not executed.",
    "Nothing: the controller learns what is from the heartbeat.",
)
FORK = Code(
    "fork",
    "two different commands with one number",
    "Host and controller know different commands under the same number: two controllers issued at once, or one was "
    "restored from an old backup. Nothing more is sent to this host until a person resolves it.",
    "See `gridops status HOST`; when only one controller is left, accept the host's account: `gridops "
    "controller rebuild`.",
)
GAP = Code(
    "gap",
    "a command before this one is missing",
    "Commands are accepted in the order of their numbers and each names the one before it. Not consumed.",
    "Nothing: the controller sends the missing one again. If it lasts, compare both heads in `gridops status HOST`.",
)
NOT_YET = Code(
    "not_yet",
    "grant from the future",
    "The grant was issued later than this host's idea of the controller's time, by more than 30 seconds. Not consumed.",
    "Compare the clocks of controller and host; the grant is issued again by itself.",
)
EXPIRED = Code(
    "expired",
    "grant expired",
    "A grant is valid for at most ten minutes, so that a delayed one cannot surprise anybody. Not consumed.",
    "Nothing: the controller issues it again or voids it.",
)
STALE_SESSION = Code(
    "stale_session",
    "no fresh word from the controller",
    "The host has had no fresh directive for five minutes. It keeps serving what runs and accepts nothing new.",
    "Look at the connection between host and controller (`gridops doctor`).",
)
CLOCK_DISAGREES = Code(
    "clock_disagrees",
    "clocks disagree",
    "The controller's time is more than a day from this host's wall clock, or behind what the controller said before. "
    "The directive is refused; serving goes on.",
    "Set the clocks right (NTP) on both machines, then restart the one that was wrong.",
)
TOO_MANY_OPEN = Code(
    "too_many_open",
    "too many commands in flight",
    "This host has as many unfinished commands, or receipts nobody acknowledged, as it may have. Not consumed.",
    "Nothing: it goes on as soon as some are finished. If it lasts, see what they wait for in `gridops status HOST`.",
)
UNAPPROVED = Code(
    "unapproved",
    "authority missing",
    "The command states neither a sufficient approval nor a standing permission that the root document allows. "
    "Consumed.",
    "Apply the plan with an approval, or allow standing authority in the next root document.",
)
OVER_CEILING = Code(
    "over_ceiling",
    "more than this host allows",
    "Device or host memory, or the number of processes, would exceed the host's own ceiling. Consumed.",
    "Compare the host's declaration in `fleet.d/` with its share in agent.toml.",
)
BRAKE = Code(
    "brake",
    "the host's brake holds",
    "A host takes only so many models out of service per window without an approval, whoever asks. Consumed.",
    "Wait for the window to pass, or apply the plan with an approval.",
)
PRECONDITION = Code(
    "precondition",
    "the host has changed since",
    "Devices, capacity, state or a residency of the host changed after the command was planned. Consumed.",
    "Nothing: the reconciler plans again from what the host reports now.",
)
NO_ARTIFACT = Code(
    "no_artifact",
    "artifact not found",
    "The model file is in none of the host's artifact folders and could not be fetched. Consumed.",
    "Put the file (its SHA-256 is in the evidence) into a folder that agent.toml lists.",
)
WRONG_DIGEST = Code(
    "wrong_digest",
    "artifact has another digest",
    "The file's SHA-256 is not the one the profile names. It was set aside and never started. Consumed.",
    "Fetch the file again, or correct `sha256` in the profile if the file was changed on purpose.",
)
NO_SPACE = Code(
    "no_space",
    "no disk space for the artifact",
    "The artifact does not fit on the host's disk with the reserve kept free. Consumed.",
    "Free space in the artifact folder, or let the planner choose another host.",
)
FETCH_FAILED = Code(
    "fetch_failed",
    "artifact could not be fetched",
    "The source did not answer, broke off or stalled more often than is tried, or answers what makes no sense. What "
    "has arrived is kept and the next load goes on from there. Consumed.",
    "See the evidence; try the address from the host itself. `stall` and `retries` under [artifacts] in agent.toml say "
    "how patient the agent is.",
)
BAD_SOURCE = Code(
    "bad_source",
    "source names nothing immutable",
    "The artifact's source is not one that this agent fetches from, or it names a branch or a tag, which may be "
    "something else tomorrow. Nothing was asked of it. Consumed.",
    "Write hf://owner/repo@<40 digits of a commit>, oci://registry/repository@sha256:..., https:// or file://.",
)
NO_CREDENTIAL = Code(
    "no_credential",
    "no usable credential for the source",
    "The source wants a credential, or the one that the profile names is not in the host's secrets folder, or is a "
    "file that others can read. Consumed.",
    "Put the value into the secrets folder that agent.toml names, as a file of that name: install -m 600.",
)
BAD_MODEL_FILE = Code(
    "bad_model_file",
    "not a sound model file",
    "The file has the right digest, and what it says about itself cannot be: it is cut off, of another format, or made "
    "to harm whoever reads it. No engine was given it. Consumed.",
    "Look at the file the profile names; fetch it anew from its publisher and correct sha256 and size in the profile.",
)
NOT_A_GUESS = Code(
    "not_a_guess",
    "not a download that may be deleted",
    "Only files that this host fetched on a guess, just as they were fetched, and that nothing uses or is about to "
    "use, are deleted by command. Consumed.",
    "Nothing: the reconciler looks again at what the host reports now.",
)
NO_RUNTIME = Code(
    "no_runtime",
    "no runtime for this engine",
    "The host has no runtime with the engine and backend that the config needs. Consumed.",
    "Install it and restart the agent; `gridops-agent status` shows what it found.",
)
PORT_TAKEN = Code(
    "port_taken",
    "no free port",
    "Every port of the agent's range is in use by somebody else. Consumed.",
    "Widen `ports` in agent.toml, or stop the foreign process named in the evidence.",
)
GIVEN_BACK = Code(
    "given_back",
    "a person took the engine back",
    "Somebody at the host released this residency while it runs (`gridops-agent release --keep-running`). It serves on "
    "as an external engine, and is not counted as managed any more. Consumed.",
    "Take it over again (`gridops-agent takeover`), or place the replica elsewhere.",
)
DEVICE_TAKEN = Code(
    "device_taken",
    "another unit runs on the device",
    "Units that share a device exclude each other, and one of them runs: starting this one would make systemd end it. "
    "Consumed; nothing was started.",
    "Drain and unload the other one first, or give the units devices of their own in agent.toml.",
)
START_FAILED = Code(
    "start_failed",
    "the engine did not become ready",
    "The process ended, or the model was not listed in the time allowed; its restarts are used up. Consumed.",
    "Read the engine's log on the host; the evidence holds its last lines.",
)
EVIDENCE_DOUBTFUL = Code(
    "evidence_doubtful",
    "a qualification that cannot be believed",
    "A file in the host's folder of qualifications was not signed by this host's key, or is not what its name says. "
    "Nothing of it is used.",
    "Take the file away, and run `gridops-agent qualify` again.",
)
ROUTE_WITHDRAWN = Code(
    "route_withdrawn",
    "a model that fails its callers gets no more of them",
    "The engine lists its model, and two requests in a row failed by its own doing (no whole answer, 5xx, 401, 403, "
    "404). The front sends it one request at a time, after a pause that doubles, until one succeeds.",
    "Read the engine's log on the host; unload the replica, or let it be started again, if it does not recover.",
)
DRAIN_TIMEOUT = Code(
    "drain_timeout",
    "still work in flight after the grace",
    "The drain's grace ended with requests still running. The process is left alive; nothing was cut. Consumed.",
    "Wait, or apply an approved plan that forces the unload.",
)
NOT_OURS = Code(
    "not_ours",
    "cannot be proved to be ours",
    "The process to act on does not carry this agent's proof of identity (cookie, executable, birth time). Consumed.",
    "Look at the process on the host and stop it by hand if it is stray.",
)
INTERRUPTED = Code(
    "interrupted",
    "the agent stopped in the middle",
    "The agent ended between recording the command and its outcome, and no living process proves success. It is not "
    "run again by itself. Consumed.",
    "Nothing: the reconciler plans again from what the host reports now.",
)
RELEASE_STUCK = Code(
    "release_stuck",
    "memory was not released",
    "The process is gone, or was signalled, but its group or its device memory cannot be proved to be free. Consumed.",
    "Look at the device on the host; the memory stays reserved until it is proved free or the host is written off.",
)
HOST_STATE = Code(
    "host_state",
    "the host does not accept this now",
    "The host is draining, paused, unhealthy or quarantined by its own decision, which outranks the controller. "
    "Consumed.",
    "See the reasons in `gridops status HOST`.",
)
RECEIPT_GAP = Code(
    "receipt_gap",
    "a receipt is missing or rewritten",
    "The host's receipts are numbered without gaps and each names the one before it; this one does not follow. Its "
    "capacity stays reserved.",
    "If the host was restored from a backup, write it off (`gridops host write-off HOST`) and enrol it again.",
)
RECEIPT_CONFLICT = Code(
    "receipt_conflict",
    "two different receipts for one command",
    "The host already gave a final receipt for this command. The first one stands.",
    "Look at the host: an agent that changes its account is damaged or not what it seems.",
)
HOST_REWOUND = Code(
    "host_rewound",
    "the host forgot what it had acknowledged",
    "The host's ledger is behind what it has already signed: it was restored from an old copy. Nothing more is "
    "sent to it.",
    "Write it off (`gridops host write-off HOST`) and enrol it again with a new key.",
)
CLONED_HOST = Code(
    "cloned_host",
    "two agents use one host key",
    "Heartbeats of two runs of the agent arrive in turn: a machine was cloned, or a second agent uses the same state "
    "folder. Nothing more is sent to this host.",
    "Stop one of them. A clone needs an enrolment of its own: `gridops host invite`.",
)

# --- plan documents ------------------------------------------------------------------------------------------------

PLAN_EDITED = Code(
    "GO415",
    "plan was edited by hand",
    "The text of a stored plan is printed from its signed payload and compared with it byte for byte. This text says "
    "something else than what was signed, so nobody can know what a reviewer read.",
    "Undo the edit, or change the inputs (`fleet.d/`, `profiles.d/`, `policies/`) and let a new plan be made.",
)

# --- agent ---------------------------------------------------------------------------------------------------------

BAD_ARGUMENT = Code(
    "bad_argument",
    "argument the engine cannot honour",
    "The config gives an argument, a value or an artifact format that the host's adapter for this engine does not "
    "know. It is refused instead of passed on or left out. Consumed.",
    "Correct `args` of the config; the evidence names what is known.",
)
NO_RESIDENCY = Code(
    "no_residency",
    "no such residency here",
    "The command is about an incarnation that this host does not hold (any more). Consumed.",
    "Nothing: the reconciler plans again from what the host reports now.",
)
NOT_DRAINED = Code(
    "not_drained",
    "not drained yet",
    "An unload stops only what has been drained, unless people approved a forced one. Consumed.",
    "Nothing: the reconciler drains first.",
)
WORK_IN_FLIGHT = Code(
    "work_in_flight",
    "work is still in flight",
    "The residency is drained as far as new requests go, but some are still running, at the front or by the engine's "
    "own count. The process is left alive. Consumed.",
    "Wait, or apply an approved plan that forces the unload.",
)
LEDGER_DAMAGED = Code(
    "ledger_damaged",
    "the host's ledger was damaged",
    "The file in which the host remembers its commands did not verify. It was set aside; the host accepts nothing, "
    "because it cannot know what it has promised. Engines that still run are left alone.",
    "Look at the file that was set aside, write the host off (`gridops host write-off HOST`) and join it again.",
)
LEDGER_UNWRITABLE = Code(
    "ledger_unwritable",
    "the host's ledger cannot be written",
    "The disk is full or fails. Nothing is done that could not be recorded first; what runs goes on serving.",
    "Free space on the file system of the agent's state folder; the agent goes on by itself.",
)
LAST_HERE = Code(
    "last_here",
    "the last healthy replica is on this host",
    "The host would leave its fleet and take with it the only replica of a profile that is known to serve.",
    "Drain it first, so that the replica finds another place (`gridops host drain`), or insist: `--force`.",
)
STRAY_PROCESS = Code(
    "stray_process",
    "an engine that no command explains",
    "A process carries this agent's mark and a command that its ledger does not know. It is not touched.",
    "Look at the process on the host and stop it by hand if it is not needed.",
)
AGENT_FAULT = Code(
    "agent_fault",
    "a fault inside the agent",
    "The agent met a state that its own rules exclude; whether the command had an effect is unknown.",
    "See the agent's log on the host and report it.",
)
