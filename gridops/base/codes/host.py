"""Codes of what a host cannot do or will not: artifacts, engines, its own state and memory.

Most answer a command; "consumed" says that the refusal uses up its number.
"""

from __future__ import annotations

from gridops.base.codes import Code

# --- artifacts ---------------------------------------------------------------------------------------------------

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

# --- engines and their memory ------------------------------------------------------------------------------------

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
ENGINE_HUNG = Code(
    "engine_hung",
    "an engine that hung was ended",
    "This host gave memory back, the engine did not say for some seconds whether it works, and no request was with it "
    "at the front, which is the only way to it. It was ended; nothing in flight was cut.",
    "Read the engine's log on the host. It is started again when the host takes work.",
)
ENGINE_SILENT = Code(
    "engine_silent",
    "requests to an engine that hangs were ended",
    "For as long as its profile grants work to end (`timing.drain`) the engine gave no byte of an answer and did not "
    "say how it is, asked again and again. What waited for it was ended (504); the engine was not touched.",
    "Read the engine's log on the host, then take it out: `gridops host drain`, or `gridops-agent stop --force` there.",
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
STRAY_PROCESS = Code(
    "stray_process",
    "an engine that no command explains",
    "A process carries this agent's mark and a command that its ledger does not know. It is not touched.",
    "Look at the process on the host and stop it by hand if it is not needed.",
)

# --- the host itself ---------------------------------------------------------------------------------------------

HOST_STATE = Code(
    "host_state",
    "the host does not accept this now",
    "The host is draining, paused, unhealthy or quarantined by its own decision, which outranks the controller. "
    "Consumed.",
    "See the reasons in `gridops status HOST`.",
)
EVIDENCE_DOUBTFUL = Code(
    "evidence_doubtful",
    "a qualification that cannot be believed",
    "A file in the host's folder of qualifications was not signed by this host's key, or is not what its name says. "
    "Nothing of it is used.",
    "Take the file away, and run `gridops-agent qualify` again.",
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
AGENT_FAULT = Code(
    "agent_fault",
    "a fault inside the agent",
    "The agent met a state that its own rules exclude; whether the command had an effect is unknown.",
    "See the agent's log on the host and report it.",
)
