"""Placement reasons: why a host does not hold a replica, why a seat is kept, why a change set is held.

The title of each entry is its stable reason name. GO50x to GO51x are structural (no waiting helps), GO52x are
capacity, GO54x pass by themselves or when somebody acts on the host, GO55x speak about whole replicas and plans,
GO56x say why a change set is not done by itself.
"""

from __future__ import annotations

from gridops.base.codes import Code

# Structural: the host can never hold the replica as both are declared.
NOT_IN_CATALOG = Code(
    "GO500",
    "not_in_catalog",
    "People signed what may run in this fleet (`policies/trust/catalog.json`), and no entry admits this config as it "
    "would be started there. Hosts refuse it, whoever asks.",
    "Sign an entry for it: `gridops trust catalog` says what is missing. Or change the config to what was signed.",
)
EXTERNAL_HOST = Code(
    "GO501",
    "external_host",
    "An external endpoint is used but never actuated, so nothing can be placed on it.",
    "Place the model on a dedicated or opportunistic host, or let clients use the endpoint itself.",
)
OTHER_SCOPE = Code(
    "GO502",
    "other_scope",
    "The host belongs to another scope; nothing is placed across scopes.",
    "Move the host or the profile to the same scope while nothing of either is resident.",
)
NO_RUNTIME = Code(
    "GO503",
    "no_runtime",
    "The host has no runtime of the engine that the config needs, declared and reported.",
    "Install the runtime, or add it to the host's `runtimes`, or add a config for an engine the host has.",
)
WRONG_BACKEND = Code(
    "GO504",
    "wrong_backend",
    "The host has the engine, but built for another backend than the config accepts.",
    "Add the backend to the config's `backends`, or add a config for it.",
)
MISSING_TAG = Code(
    "GO505",
    "missing_tag",
    "The profile requires a tag that the host does not carry.",
    "Add the tag to the host or drop it from `placement.require_tags`.",
)
FORBIDDEN_TAG = Code(
    "GO506",
    "forbidden_tag",
    "The host carries a tag that the profile forbids.",
    "Remove the tag from the host or from `placement.forbid_tags`.",
)
TIER_TOO_LOW = Code(
    "GO507",
    "tier_too_low",
    "The host's data tier is below the one the profile needs; a host without a tier has the lowest.",
    "Raise the host's `tier` if the machine deserves it, or lower `placement.tier`.",
)
NOT_ALLOWED = Code(
    "GO508",
    "not_allowed",
    "The profile names the hosts it may use, and this one is not among them.",
    "Add the host to `placement.allow_hosts`.",
)
DENIED = Code(
    "GO509",
    "denied",
    "The profile names this host as one it must not use.",
    "Remove the host from `placement.deny_hosts`.",
)
NO_DEVICES = Code(
    "GO510",
    "no_devices",
    "The host has too few devices of the kind that the config's backend uses.",
    "Declare the devices, check that the agent reports them, or lower `devices.count`.",
)
LINK_UNKNOWN = Code(
    "GO511",
    "link_unknown",
    "The config asks for linked devices, and the host does not say which of its devices are linked.",
    "Declare `peers` of the devices, or drop `devices.link`.",
)
SHARD_INDIVISIBLE = Code(
    "GO512",
    "shard_indivisible",
    "The model's heads or vocabulary cannot be divided evenly by the number of devices.",
    "Use a `devices.count` that divides them all.",
)
MULTI_HOST_UNSUPPORTED = Code(
    "GO513",
    "multi_host_unsupported",
    "The replica needs more devices than any one host has; one replica never spans hosts.",
    "Use a smaller variant, or a host with enough devices.",
)
FOOTPRINT_UNKNOWN = Code(
    "GO514",
    "footprint_unknown",
    "Nobody knows how much memory the config needs, and unknown is never taken as zero.",
    "Declare `footprint.device`, or for a derived one `heads` or `footprint.kv_per_1k`.",
)
HOST_MEMORY_UNKNOWN = Code(
    "GO515",
    "host_memory_unknown",
    "The config needs host memory, and the host declares no cpu or unified device to count it on.",
    "Declare the host's `cpu0` with its memory.",
)
PINNED_ELSEWHERE = Code(
    "GO516",
    "pinned_elsewhere",
    "This replica is the floor of a pin, so only the pinned host may hold it.",
    "Remove the pin, or make room on the pinned host.",
)
UNEQUAL_DEVICES = Code(
    "GO517",
    "unequal_devices",
    "The config splits evenly, and the host has too few devices that are equal.",
    "Set `devices.uneven: true` if the engine can split unevenly.",
)
NUMA_APART = Code(
    "GO518",
    "numa_apart",
    "The config asks for devices of one NUMA domain; too few are known to share one, and unknown counts as apart.",
    "Declare `numa` of the host's devices, lower `devices.count`, or drop `devices.numa`.",
)
PCIE_TOO_SLOW = Code(
    "GO519",
    "pcie_too_slow",
    "The config asks for a PCIe rate; too few devices are known to reach it, and unknown counts as too slow.",
    "Declare `pcie` of the host's devices, or lower `devices.pcie`.",
)

# Capacity: the host could hold the replica if there were more room.
INSUFFICIENT_DEVICE_MEMORY = Code(
    "GO521",
    "insufficient_device_memory",
    "Total less reserve, external use, headroom and what is planned leaves too little on the devices.",
    "Free memory on the host, lower the footprint (context, lanes), or add a config with a smaller one.",
)
INSUFFICIENT_HOST_MEMORY = Code(
    "GO522",
    "insufficient_host_memory",
    "The host's RAM, less reserve, external use, headroom and what is planned, is too small.",
    "Free RAM on the host or lower `footprint.host`.",
)
MAX_REPLICAS = Code(
    "GO523",
    "max_replicas",
    "The host already holds as many residencies as it may, external ones included.",
    "Raise the host's `max_replicas`.",
)
MAX_PER_HOST = Code(
    "GO524",
    "max_per_host",
    "The host already holds as many replicas of the profile as one host may.",
    "Raise the profile's `max_per_host`, or add hosts.",
)
COLOCATION = Code(
    "GO525",
    "colocation",
    "The profile, or one already on the host, does not accept the other's company.",
    "Relax `colocation` of the named profile, or add hosts.",
)
DISK_FULL = Code(
    "GO526",
    "disk_full",
    "The artifact is not on the host, and its free disk, less what must stay free, is too small for it.",
    "Free disk on the host or lower `disk.keep_free`.",
)
PRICE_CEILING = Code(
    "GO527",
    "price_ceiling",
    "Using one more host would take the scope above its hourly price ceiling.",
    "Raise `price.max_per_hour`.",
)
PRICE_UNKNOWN = Code(
    "GO528",
    "price_unknown",
    "The scope has a price ceiling, and nobody says what this host costs.",
    "Declare the host's `price_per_hour`, or set `price.unknown: allow`.",
)

# Waiting: the host is not open for new work now.
CATALOG_UNKNOWN = Code(
    "GO540",
    "catalog_unknown",
    "The fleet has a signed catalog, and the agent of this host is too old to hold commands against it.",
    "Update the agent of the host; until then it keeps what runs and takes nothing new.",
)
HOST_DRAINING = Code(
    "GO541",
    "host_draining",
    "The host is being emptied.",
    "End the drain by removing its file, or wait.",
)
HOST_STATE = Code(
    "GO542",
    "host_state",
    "The host says that it cannot take work now (paused, unhealthy or quarantined).",
    "Look at the host's reasons in `gridops status`; the state ends on the host.",
)
HOST_STALE = Code(
    "GO543",
    "host_stale",
    "The host's last heartbeat is too old to decide anything new on it.",
    "Check the agent and the network; `gridops host write-off` releases a host that will not return.",
)
HOST_FUTURE = Code(
    "GO544",
    "host_future",
    "The host's heartbeat lies implausibly far in the future.",
    "Check the controller's clock.",
)
NOT_ADMITTED = Code(
    "GO545",
    "not_admitted",
    "No key of the host is committed, or the host was expunged.",
    "Admit it with `gridops host admit` and commit the key.",
)
HOST_AWAY = Code(
    "GO546",
    "host_away",
    "The host said goodbye: it is disconnected, not lost.",
    "Wake the machine up.",
)
HOST_LEFT = Code(
    "GO570",
    "host_left",
    "The host has left its fleet, and said so: it does not come back by itself.",
    "Set `expunged: true` in fleet.d/keys/HOST.yaml and remove the host from fleet.d.",
)
AGENT_TOO_OLD = Code(
    "GO571",
    "agent_too_old",
    "The trusted root demands a newer agent than the one of this host, or its version cannot be read. What runs there "
    "counts and serves on; nothing new is placed there and nothing is sent to it.",
    "Upgrade the agent of the host; `gridops trust show` says from which version on agents are driven.",
)
HOST_UNREPORTED = Code(
    "GO547",
    "host_unreported",
    "The host has not reported yet.",
    "Start its agent; enrolment tells how in `gridops host`.",
)
FAILED_HERE = Code(
    "GO548",
    "failed_here",
    "This very replica failed on this host with the same command, so another host is tried first.",
    "Read the engine's log on the host, fix the cause, then `gridops apply --resume`.",
)
FAILS_EVERYWHERE = Code(
    "GO549",
    "fails_everywhere",
    "The model was given up on several hosts and came up on none, so it is tried on no more of them.",
    "Look at the model first: its source, its arguments, the engine's log. Or drain the host that it stands on.",
)

# Replicas and plans.
SPREAD_SHORT = Code(
    "GO551",
    "spread_short",
    "The replicas stand in fewer failure domains than wanted, since no open host of another one fits.",
    "Add capacity in another domain, or lower `spread.min`.",
)
DOWNTIME_NEVER = Code(
    "GO552",
    "downtime_never",
    "The change needs the memory of the running replica, and the profile refuses any downtime.",
    "Free room for one more replica, or set `downtime: allowed`.",
)
MASS_STALE = Code(
    "GO553",
    "mass_stale",
    "Many hosts fell silent at once, which is more often our fault than theirs: nothing is taken away.",
    "Check the controller's network first.",
)
NOWHERE_ELSE = Code(
    "GO554",
    "nowhere_else",
    "The replica should leave its host, and no other host can hold it, so it stays.",
    "See `gridops explain REPLICA` for what each host lacks.",
)
OVER_MEMORY = Code(
    "GO555",
    "over_memory",
    "What runs on the host no longer fits beside its reserve and its external use, and nothing of it can move.",
    "Lower the reserve, stop the external use, or add capacity.",
)
NOT_SERVING = Code(
    "GO556",
    "not_serving",
    "The replica counts as zero: its host is silent or does not serve, and no other host can hold it.",
    "Bring the host back or add capacity.",
)
KEEPS_FAILING = Code(
    "GO557",
    "keeps_failing",
    "The replica does not come up on its host, and no other host may take it, so it stays and is tried there again.",
    "Read the engine's log on the host and fix the cause; `gridops explain REPLICA` says what the others lack.",
)

# Why a change set is not done by itself.
HELD_ATTEMPT = Code(
    "GO560",
    "held_attempt",
    "A replica would leave its host because it did not come up there, and just now it is being tried there again.",
    "Wait for the outcome, or apply the plan.",
)
HELD_MODE = Code(
    "GO561",
    "held_mode",
    "The scope's mode does not let gridops act by itself.",
    "Apply the plan, or set `mode: automatic`.",
)
HELD_CLASS = Code(
    "GO562",
    "held_class",
    "The class of the change is not among `automatic.allow`.",
    "Apply the plan, or allow the class.",
)
HELD_WINDOW = Code(
    "GO563",
    "held_window",
    "A window in `budgets.windows` is closed for this class now.",
    "Wait until it opens, or apply the plan.",
)
HELD_MOVES = Code(
    "GO564",
    "held_moves",
    "The limit of moves is reached.",
    "Wait, apply the plan, or raise `moves` in the budgets.",
)
HELD_DISRUPTION = Code(
    "GO565",
    "held_disruption",
    "Too many replicas of the scope would be disrupted at once.",
    "Wait until the others are back, apply the plan, or raise the budget.",
)
HELD_LAST_REPLICA = Code(
    "GO566",
    "held_last_replica",
    "The change takes the last replica of a profile away.",
    "Apply the plan and type the profile's name, or name it in `automatic.last_replica`.",
)
HELD_DISPLACE = Code(
    "GO567",
    "held_displace",
    "The change displaces another model's residency without consent.",
    "Apply the plan, or name the loaded profile in `automatic.allow_displace`.",
)
HELD_EMPTY_SET = Code(
    "GO568",
    "held_empty_set",
    "No host or no profile is declared at all; what follows from that is always a proposal.",
    "Check that the commit is meant, then apply the plan.",
)
HELD_HYPOTHETICAL = Code(
    "GO569",
    "held_hypothetical",
    "The plan is made from declared hosts alone or from an uncommitted tree.",
    "Commit, let hosts report, and plan again.",
)
