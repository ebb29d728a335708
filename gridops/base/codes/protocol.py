"""Codes of the talk between controller and host: commands, grants, receipts, sessions.

"Consumed" says whether a refusal uses up the command's number.
"""

from __future__ import annotations

from gridops.base.codes import Code

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
OLD_CATALOG = Code(
    "old_catalog",
    "an older catalog than this host has seen",
    "The catalog, or the command that names it, is of a version below the newest that this host has proved. Versions "
    "only rise, so that what people took out does not come back. A command is consumed.",
    "Nothing when it passes by itself: the controller makes the command anew under the newest catalog. If it lasts, "
    "the controller watches an older commit than hosts have seen: `gridops status`.",
)
NOT_IN_CATALOG = Code(
    "not_in_catalog",
    "not in the signed catalog",
    "People signed what may run in this fleet, and this is not in it: the engine, its build, the files, an argument, "
    "the context, the memory or a variable. Or no catalog is here that the newest root document believes. Consumed.",
    "If it shall run, sign an entry for it: `gridops trust catalog`. If nobody asked for it, look at the controller.",
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
    "Heartbeats of two runs of the agent arrive in turn, or both repeat what was told to each of them: a machine was "
    "cloned, or a second agent uses the same state folder. Nothing more is sent to this host.",
    "Stop one of them. A clone needs an enrolment of its own: `gridops host invite`.",
)
