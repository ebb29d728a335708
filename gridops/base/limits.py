"""Every bound of the house on one page. A queue, loop, payload, list or history without a line here is a fault."""

from __future__ import annotations

# Files that people write
YAML_FILE_BYTES = 1 << 20
YAML_DEPTH = 24
YAML_NODES = 400_000
YAML_SECOND_OPINION_CHARS = 8 << 10
FILES = 20_000
PROBLEMS_SHOWN = 200
PROBLEMS_PER_FILE = 1_000
SNIPPET_CHARS = 400

# Commits
COMMIT_BYTES = 256 << 10
"""One commit object: a kilobyte as a rule; merged tags lie inside. A larger one is refused unread."""
COMMITS_PER_INTAKE = 20_000
"""Signed commits that are verified at once, half a millisecond each: what a new journal of an old fleet reads. Double:
twice the seconds at the first start; half: a fleet of ten years with two commits a day is still read."""
FETCHED_BYTES = 1 << 30
"""The largest file that one fetch may write: all that a remote sends at once. Double: a hostile remote fills more of
the disk before it is stopped; half: a first clone with a few large files in its history fails."""
TREE_DEPTH = 8
"""Folders within folders below fleet.d, profiles.d and policies."""
TREE_BYTES = 4 << 20
"""One folder's object: 20,000 names of 200 bytes."""
ROOTS_IN_CHAIN = 1_024
FORMER_KEYS = 512
"""Keys of earlier root documents that are remembered for people who look back. Double: a chain holds 100 KiB more;
half: of a large fleet that changed its people for years, the first are not known by name any more."""
MIRRORS = 8
"""Addresses of root documents that a root names. Double: a hostile root document makes hosts ask more; half: enough."""
TRUST_FILES = ROOTS_IN_CHAIN + 64
"""Documents below policies/trust of one commit: all its roots and a few beside them."""

# Messages
ENVELOPE_BYTES = 256 << 10
RESIDENCIES_PER_HOST = 128
RESIDENCY_BYTES = 1_024
"""One residency in a heartbeat: 430 bytes as a rule, 940 with the longest names, eight devices and a whole detail."""
DEVICES_PER_HOST = 64
LINK_SETS = 256
"""Sets of linked devices that are told apart on one host; a mesh has one, a cube of eight cards a dozen."""
DEVICE_BYTES = 256
CACHED_PER_HEARTBEAT = 128
"""Digests of a heartbeat, 74 bytes each; a host may hold more."""
HEARTBEAT_BYTES = (
    RESIDENCIES_PER_HOST * RESIDENCY_BYTES + DEVICES_PER_HOST * DEVICE_BYTES + CACHED_PER_HEARTBEAT * 80 + (36 << 10)
)
"""190 KiB for a host that is full; one with a few models says 3 KiB. The last part is for alarms, reasons, open bodies
and names. A host sheds what is longer and says so, a controller refuses it."""
JOIN_BYTES = DEVICES_PER_HOST * DEVICE_BYTES + (8 << 10)
"""A join request: the devices of a machine, its runtimes and names. Anybody who reaches the port may send one, so it is
a sixth of a heartbeat; double it: strangers cost twice as much to refuse; half: a machine of 32 devices cannot join."""
BINDING_BYTES = 8 << 10
"""A signed `tls-binding`: a certificate of 800 bytes, two kilobytes with its envelope; with forty names and addresses
six. Double: a host says more in one heartbeat a day; half: a machine of many addresses is not reached."""
BINDING_MS = 86_400_000
"""So long a host's word on its front counts. Double: who took a front's TLS key along is believed for two days; half:
hosts are reached twelve hours longer than their controller is."""
DIRECTIVE_BYTES = 1 << 20
REQUEST_BYTES = 1 << 20
SIGNATURES = 8
KEYS_KEPT = 4_096
"""Public keys of which the library's form is remembered: each heartbeat and each answer is verified. Double: a few MB
more for a fleet that one controller does not carry; half: 2,000 hosts and their people still have room."""
HEADS_KEPT = 1_024
"""Heads of heartbeats, at most 2 KiB each, of which it is remembered what the HTTP library read in them. Double: 2 MB
more where somebody sends as many different ones; half: those of agents of many addresses and lengths still fit."""
VERDICTS_KEPT = 4_096
"""Signatures of which the verdict is remembered, where a program asks for it: the lab. Double: 10 MB more; half: a
message that is played again late in a run is verified once more."""
ROOTS_PER_DIRECTIVE = 32
CATALOG_ENTRIES = 1_024
"""Entries of a catalog, some 600 bytes each, so that the size of its envelope bounds most of them first."""
CATALOG_LIST = 256
"""Names in one list of an entry: files, arguments, values, builds."""
APPROVALS_PER_REQUEST = 32
APPROVALS_KEPT = 256
"""Approvals whose signature is not verified again in each pass while their targets are in force. Double: a few MB more;
half: 128 scopes of one approver each."""
GRANTS_PER_DIRECTIVE = 16
RECEIPTS_PER_REQUEST = 64
ALARMS = 32
CACHED_ARTIFACTS_PER_HOST = 1_024

# Commands
GRANT_VALID_MS = 600_000
ISSUED_AHEAD_MS = 30_000
TERM_JUMP = 1_000
TERM_BY_ONE = TERM_JUMP // 2
"""So far a rebuilt controller rises on one host's word: every host, however little it has heard, still follows. Double:
a host that never obeyed a term follows no more; half: a fleet of more than 250 starts waits for half of its hosts."""
TERM_ABOVE_MOST = TERM_JUMP // 10
"""So much further than more than half of the hosts said. Ten restarts of a rebuilt controller beside a host that lies
each time carry it out of reach of hosts that were away all that time. Double: five; half: twenty."""
TERM_MOST = 1 << 50
"""No controller starts so often, and there is room above it: what has no next number would end every controller."""
STALE_SESSION_MS = 300_000
DECIDED_KEPT = 1_000
OPEN_BODIES_PER_HOST = 64
RECEIPTS_OWED = 500
"""A host with more unacknowledged receipts accepts nothing new: below DECIDED_KEPT, so that none is ever dropped."""
SETTLED_KEPT = 64
BOOTS_KEPT = 8
BEATS_KEPT = 32
"""Heartbeats of one run that are told from others with the same number: five minutes at the usual pace."""
STRAYS_PROVE = 6
"""So many heartbeats out of turn that go on from each other are a second living agent: no network keeps so many of
one that waits ten seconds for each answer."""
CLOCK_DISAGREE_MS = 86_400_000
PROTECTION_GAP_MS = 15_000
"""A host that has not looked at itself for so long has seen nothing last. Half: a busy machine forgets what it began to
see; twice: the last second before a sleep and the first after it count as one stretch."""
REASONS_PER_HOST = 16
OVERRIDE_REASON_CHARS = 300
OVERRIDE_MS = 366 * 86_400_000
STANDING_STOPS = 16
STANDING_STOPS_WINDOW_MS = 600_000
"""The host's brake: so many models are taken out of service per window without a person's approval, whoever asks. A
large host that is drained by standing permission takes two or three windows; a stolen controller cannot empty a fleet
faster than people notice."""

# Heartbeats
HEARTBEATS_PER_S = 100
"""Of all hosts together, and once more of those that have something to do; beyond it each speaks less often. A fifth
of a core at 1,000 hosts. Double: a busy controller's plans wait for its heartbeats; half: 500 hosts are heard every
ten seconds and 1,000 every twenty."""
ANSWER_MS = 120_000
"""A whole answer of the controller, to its last byte: who lets it drip keeps no host from asking again, or for roots
elsewhere. Double: one try before the host is stale; half: a directive of a mebibyte needs 17 KiB/s, not 9."""
POLL_MOST_MS = 60_000
"""The longest wish for the next heartbeat that agents follow."""

# People
APPROVAL_VALID_MS = 7 * 86_400_000
APPROVAL_CARRIED_MS = 86_400_000
"""So long after its end an approval still carries commands at hosts: it was judged when the target was set, and the
target carries it for `execute_within`. Hosts know no policy file, so a longer one ends here."""
APPROVED_PATH = 15
"""Steps from an approved decision to the root: enough for DECISIONS."""
OPERATOR_VALID_MS = 600_000

# Plans
REPLICAS = 20_000
DECISIONS = 20_000
HOSTS = 20_000
PLAN_BYTES = 32 << 20
HOST_LINES = 4_096
"""Lines in a plan that say why a replica does not fit on a host, unplaced replicas times declared hosts. A plan that
would have more counts them by reason, and `gridops explain` makes them. Double: half a megabyte more of plan document;
half: a fleet of 64 hosts says less from 32 unplaced replicas on."""
MARKDOWN_CHARS = 60_000
ANNOTATIONS = 10
PLANS_IN_MEMORY = 200
LAUNCHES_KEPT = 4_096
"""Launches of which the digest is remembered: each pass and each heartbeat asks for those of all replicas. Double: a
few MB more for models that one controller does not carry; half: a launch of a large fleet is written again."""
WISHES_KEPT = 4_096
"""Actions of which the key is remembered: each pass asks for those of all that is to be done or is under way. Double: a
few MB more for a change of more hosts than one controller carries; half: a change of a whole fleet is digested again in
each pass."""
DIGESTS_KEPT = 20_000
DIGESTS_KEPT_BYTES = 64 << 20
"""Of canonical JSON whose records are held so that their digests need not be made again; in memory a record takes a
few times that. Double: two of the largest plans more are held; half: the largest plan pushes out all else."""
REPLICA_NAMES_KEPT = 1 << 16
"""Ids of replicas of which name and number are remembered, since every plan sorts by them; some 10 MB when full."""

# Controller
EVENTS_IN_MEMORY = 1_000
INVITES = 1_000
ENDED_KEYS = 20_000
"""Host keys that were expunged or signed over from, which never count again. Double: two megabytes more; half: a key of
twenty years ago is forgotten in a fleet that replaces a thousand machines a year."""
PENDING_HOSTS = 1_000
LESSONS_PER_HOST = 256
"""What a host's receipts taught, each of one artifact revision. Double: weights of a year ago are still known where
models change weekly; half: a host of 128 residencies forgets some of those that run."""

JOURNAL_ROWS_KEPT = 1_000_000
JOURNAL_ROWS_CHECKED = 100_000
"""A longer journal is checked from its newest snapshot on when it is opened; older rows when they are read."""
JOURNAL_VALUE_BYTES = 32 << 20
SNAPSHOTS_KEPT = 2

# Agent
ENGINE_LOG_BYTES = 8 << 20
STATUS_BYTES = 32 << 20
"""What an agent reads of its controller's status: 1,000 hosts with a hundred residencies each."""
AGENT_LOG_BYTES = 4 << 20
"""The agent's own log where no journal bounds it; a full one is put aside."""
AGENT_LOG_FILES = 3
"""How many of those are kept."""
ENGINE_ANSWER_BYTES = 4 << 20
"""What an engine may say to one question of its adapter; more is no answer."""
EXTERNAL_ENGINES = 16
"""Engines of somebody else's that a host shows. Double: a longer heartbeat; half: a busy workstation hides some."""
GIVEN_BACK_KEPT = 64
"""Engines given back whose marks are remembered as no strays."""
ENDED_CONTAINERS_KEPT = 5
"""Containers that failed, kept for their logs. Double: more disk for writable layers; half: an older cause is lost."""
SERVICE_LEFTOVER_BYTES = 64 << 20
"""What a service that has given its models' memory back may still hold for itself on a device."""
QUALIFY_SETTLE_MS = 15_000
"""After readiness, before memory is measured: buffers that are made late are counted (AS-46)."""
MEASURED_LEAST_BYTES = 8 << 20
"""Less than any engine with a model uses: a reading below it is no reading."""
MEASURED_PER_HOST = 64
"""Measured footprints that a host reports, newest first."""
FAULTS_IN_A_ROW = 2
"""So many failed requests take a route out of routing. Double: two more callers fail; half: one hiccup does."""
WITHDRAWN_MS = 5_000
WITHDRAWN_MOST_MS = 120_000
"""Pause before a withdrawn route is tried with one request, and how long it may become by doubling."""
FRONT_IN_FLIGHT = 1_024
"""Requests at the front at one time: those whose bodies still arrive and those that engines work on."""
FRONT_ARRIVING = 256
"""Bodies that arrive at one time: slow senders leave three quarters of the front to those who have sent theirs."""
FRONT_BODY_BYTES = 32 << 20
FRONT_BODY_MS = 60_000
"""For a whole body. Double: a slow sender holds its place longer; half: 32 MiB needs more than 9 Mbit/s."""
FRONT_CONNECTIONS = 2_048
"""At the front at one time, with or without a key: twice the requests in flight. One more and an idle one has to go."""
FRONT_BACKLOG = 512
FRONT_HANDSHAKE_MS = 10_000
FRONT_IDLE_MS = 30_000
"""For the head of a request, from the connection or the last answer on. Double: an idle stranger stays longer; half: a
gateway that asks twice a minute shakes hands anew each time."""
FRONT_PROMPTS = 64
"""Prompts of one residency that wait in or run from a service's queue. Double: a caller waits twice as long for the
last one; half: a gateway that sends a batch of pictures is turned away."""
FRONT_PROMPTS_KEPT = 256
"""Runs of callers that stay in a service's history for them to ask for."""
FRONT_FILES_KNOWN = 4_096
"""Files that callers' prompts made and may fetch."""
FRONT_SOCKETS = 64
"""Callers that listen to a service's messages at one time."""
FRONT_STALL_MS = 180_000
"""So long a caller may take nothing of its answer. Double: a laptop that was closed keeps an engine, and its owner's
memory, for longer; half: who is megabytes behind on a line of less than fifteen kibibytes a second is cut (a system
makes room for more by the megabyte)."""
FRONT_LINGER_MS = 2_000
"""So long the rest of a body is read after its request was refused, so that the client sees the answer."""

# Artifacts
FETCH_REDIRECTS = 5
FETCH_LATER_MS = 60_000
"""The longest pause between two tries of a fetch, also where a server asks for a longer one."""
FETCH_PROGRESS_BYTES = 1 << 20
"""A try that brought so much is progress, and the count of failed tries begins anew. Double: a line that cuts every
2 MiB gives up; half: a server that cuts on purpose holds the transfer lane twice as long."""
ARTIFACT_THREADS = 4
"""For one transfer, and model files that are hashed before a start. Double: a disk serves them no faster."""
MANIFEST_BYTES = 4 << 20
"""Of a registry's manifest or token: the distribution specification's own bound."""
STAGED_MS = 7 * 86_400_000
"""So long a part of a file is kept that nobody came back for."""
MIRROR_STREAMS = 4
"""Files that a mirror sends at one time. Double: each peer gets half the line; half: a room of hosts waits in turns."""
MIRROR_WRITE_MS = 30_000
PREFETCHED_PER_HOST = 32
"""Artifacts fetched on a guess that a host remembers as such. What is beyond that becomes a file like any other."""
PREFETCHED_FILES = 128
"""Their files in a heartbeat, all together, 74 bytes each: as many as digests of proved files."""
TRANSFERS = 4
"""Shown in a heartbeat: one is under way as a rule, and those that starts had to wait for."""
ABILITIES = 16
ERRANDS_APPROVED = 64
"""Advised steps on disks for which people's word is kept, in one scope."""
GGUF_TENSORS = 1 << 16
GGUF_KEYS = 1 << 16
GGUF_KEYS_BYTES = 4 << 20
"""Names of all keys of a header together, which are remembered to find one that stands twice. Each alone may have
64 KiB, and real ones have fifty bytes. Double: a hostile header takes as much more RAM; half: nothing real."""
GGUF_TEXT_BYTES = 16 << 20
GGUF_TEXTS = 1 << 22
"""Texts in the arrays of a header, all together: the largest vocabularies have a quarter of a million, and merges as
many again. Double: a hostile header costs two seconds more; half: a multilingual one comes near."""
GGUF_ARRAY_DEPTH = 4
GGUF_ALIGNMENT = 1 << 20
SAFETENSORS_HEADER_BYTES = 32 << 20
SAFETENSORS_PAIRS = 1 << 18
"""Tensors of one file, or of one index, and what else a header says. A model of a trillion parameters in 384 experts
has 140 thousand tensors in all its files. Double: a hostile header takes twice the RAM and two seconds more; half:
that model is refused."""
SAFETENSORS_ROW_BYTES = 4_096
SAFETENSORS_NAME_BYTES = 4_096
SAFETENSORS_DEPTH = 8

# Sensors and memory truth
EXTERNAL_SAMPLES = 16
EXTERNAL_WINDOW_MS = 60_000
"""What others use is reported as the most of so many looks within so long. Double: a compiler that ran two minutes ago
still keeps a model away; half: a browser that breathes is believed at its low point."""
RELEASE_MS = 30_000
"""So long a start waits for memory that a stop must have given back. Double: an unload of a leaking engine is known to
have failed a minute later; half: a large card that is slow to tear down is called stuck and opens again by itself."""
HOLDERS_NAMED = 8
REPORTS_KEPT = 20
"""Of unexpected faults, of one program and person. A service that fails at each start writes one each time."""
SENSOR_REASONS = 32
