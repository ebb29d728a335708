"""The planner: intent, snapshot and parent plan in, plan and report out. Pure, and the same bytes for the same inputs.

Read this file as a table of contents: `plan` below names the steps, and this list names the modules of each step by the
question whose rule they hold. Called by the controller and by `gridops plan`. It never acts, never asks the time, and
never takes away what it could not replace. (`docs/where.md` goes on from here to single functions.)

1  What is there
   `standing`       which hosts are open, throttled, silent, draining, lost, not ours; mass staleness
   `views`          each host as it is seen: its rooms, engines, disk, what is ours; `world` has the nouns
   `declared`       a snapshot of declarations alone, before any host has reported
   `recall`         what the last plan leaves for this one: cheaper, never other
   `footprint.ledger` (below us) says what may be planned on a device: reserve, external use, headroom, RAM, MIG

2  Who stands, and may stay
   `gather`         whose process is whose: the parent's, renamed, adopted; `incumbents` has the nouns
   `verdicts`       who stays, changes in place, has to leave, or is gone (stickiness); pins; an owner's older copy
   `failing`        who never comes up where it stands leaves for a healthy peer, and where it is not tried

3  How many
   `targets`        minimum, pins; who goes when fewer are wanted; which numbers are missing; what is retired
   `sizing`         replicas for a forecast, maximum, one for weak evidence; who is kept by cooldown, peak or age
   `enough`         whether those with a seat suffice, by the lanes of the configs they really got
   `pressure`       lanes: headroom, queue, latency, errors; which demand counts; where a rising trend leads
   `look_ahead`     how far ahead demand is planned for: the fastest start

4  Who keeps its place, and who is seated first
   `draft`          who keeps it where counts, company or memory do not suffice any more; the plan in the making
   `order`          in place, pins, priority, urgency, one of each profile per round, constrained and large, harm, names
   `harm`           urgency (baseline, asked, inferred) and what requests of a profile suffer

5  Where it may stand
   `eligible`       engine, backend, tags, tier, allow and deny, heads that have to divide, devices, what failed there
   `signed`         what people signed may run at all
   `together`       several devices for one replica: equal, linked, NUMA, PCIe, no parts of cards; unknown fails
   `company`        which models share no host
   `capacity`       slots, price ceiling, disk, devices; fits now, after others, or only in its own place; both memory
                    ledgers are kept by `host_board`

6  Where it stands best
   `rank`           the terms in order, and what decides between equals
   `rank_harm`      harm: files there or not, link, warm time, failures, slowness, interruption
   `learned`        which learned times are believed, and how far
   `speed`          measured slowness that fades, and a bounded guess from hardware (`speed_devices`)
   `scarce`         what a seat takes from others: the large host is kept for who needs it
   `fill`           the emptiest instead of the tightest, for profiles that ask for it
   `place`          seat by seat; changes in place, beside the old process or after it
   `seats`          all hosts at once: failure domains, price, what people review (`table` compares); its arrays are
                    `openings` (room, time), `prospects` and `fittings` (what lasts), `grid` and `terrain` (hosts)

7  Making room
   `room`           for whom, how many may be displaced, in what order; the board has the last word, all or nothing
   `movers`         who may be disturbed at all (rested, settled, not pinned) and which victims first; `ground`: hosts
   `permit`         preemption: who may take whose place; the last one that serves never goes
   `chains`         the first answer: chains of pushes over several hosts
   `aim`            the next one: a placement to aim for (`dive`: `columns` are whole contents, `mix` mixes them)
   `search`         those after it, by counted steps (`steps` small, `ruin` large, `draws` chance, `prices` of room)
   `best_case`      when it cannot get better; `circles`: what cannot be carried out; `vicinity`: which hosts take part
   `repack`         who is moved although everybody has a seat: a new one would start much sooner
   `instead`        who leaves a host with too little memory if the one that should has nowhere to go
   `homing`         who was moved, or gave way, and need not have goes back
   `puzzle`         the board of the search, and its objective; `pieces` has the nouns

8  What is said
   `why`            why a replica stands nowhere: one headline, a line per host, the nearest; `survey`: counts
   `choices`        winner, runner-up and both by term
   `report`         what waits, which promises are not kept, notes on the whole

9  What is decided
   `assemble`       the plan as one document; `bindings`: what it was made from; `doubled`: who is down meanwhile
   `diff`           what is a decision, and the digest that names them
   `authority`      class and risk of a decision (and, later, what each mode allows)
   `change_sets`    which decisions stand or fall together; `gains`: whom causes name

10 What disks fetch ahead
   `advise`         prefetch before a drain and on a guess, and what expires; `advise_options`: where, on which disk
   `cache`          what files are worth, and which group of weaker guesses may go

With a finished plan
   `check`          every safety rule once more, with its own arithmetic (`check_seats`, `check_leaves`, `check_view`);
                    `check_bound`: what the plan says of itself, `check_decisions`: how grave each decision is
                    `check_causes`: whether its reason is so (`check_gains`: for whom; `check_places`: whole hosts)
                    `check_sets`: what is carried out together, and what people read of a changed command;
                    `check_catalog`: nothing starts that nobody signed
   `budgets`        windows, moves, disruptions: what is held back, and until when
   `restrict`       a plan with only some of its change sets
   `actions`        the next steps: make before break, break before make, an engine's fraction of a card
                    (`scene` sees what runs, `turns` orders)
   `errands`        advice as steps: what is fetched on a guess, and what may be deleted again
   `explain`        everything about one replica; `fixes`: what would place it, proven (`fixes_ideas`, `fixes_memory`,
                    `fixes_rules`); `price_preview`: what a price ceiling costs; `evidence`: whose memory was measured
   `render_text`    and `render_markdown`, `render_json`, `render_github`, `render_explain`, `render_fixes`,
                    `render_compare` show it (`render_words`, `render_advice`, `render_layout`)

`constants` and `constants_room` have every number that steers a choice.
"""

from __future__ import annotations

from gridops.model.plan import Plan
from gridops.planner.advise import advised
from gridops.planner.assemble import assemble
from gridops.planner.draft import begin
from gridops.planner.enough import settle
from gridops.planner.gather import gather, renames
from gridops.planner.instead import instead
from gridops.planner.place import place
from gridops.planner.recall import Recall
from gridops.planner.room import make_room
from gridops.planner.seats import Seats
from gridops.planner.targets import choose, retirements
from gridops.planner.views import look
from gridops.planner.why import unplaced
from gridops.planner.world import Inputs

__all__ = ["Inputs", "Recall", "plan"]


def plan(inputs: Inputs, recall: Recall | None = None) -> Plan:
    """The complete intended placement of the scope, with its decisions against the parent and its report.

    `recall` is what the last plan of the scope left: it makes this one cheaper, and never other.
    """
    # 1  What is declared and reported; who is silent, who is lost.
    world = look(inputs, recall)
    # 2  Who stands where, and whether it may stay.
    incumbents = gather(world)
    # 3  How many are wanted, who is surplus, what is missing.
    targets = choose(world, incumbents)
    # 4  Seat those who stay; the others keep their place until they have a new one.
    draft = begin(world, targets)
    # 4, 5, 6  Find seats for everybody else: in order, where they may stand, and best there.
    seats = Seats(draft)
    left = place(seats)
    # 7  Where a host has too little memory and who should leave cannot, another does.
    left = instead(seats, left)
    # 7  Make room for who is left: others move, or the less important give way.
    left = make_room(seats, left)
    # 3  How many are needed with the lanes of those who have a seat.
    settled = settle(draft, targets.sizes, left)
    # 8  Why the others stand nowhere.
    missing = unplaced(seats, settled.left)
    # 8, 9  Decisions against the parent, change sets, what was read, and the report.
    made = assemble(draft, targets, settled, missing, retirements(world, set(renames(world)), targets.removed))
    # 10  What disks may fetch ahead of demand, and let go again.
    return advised(made, seats)
