"""Constants of making room: how long is searched, in which steps, and how much one plan may disturb.

Beside `constants`, of which the rows are the same kind; read by `room` and what it calls. What people may set stands
in `policies/planning.yaml`: `search.moves` is the count of all work.

What half and twice do was measured on three yardstick instances of 16 x 8 (0.7#2, 1#0, 1.3#4) and three of 64 x 32
(1#1, 1.3#1, 1.3#2) together: weight unmet of 505 and seconds of start-up of 1,361, which go against each other, as who
stands has to start. Rows of work (`WORK_PER_MOVE` to `LONGEST_CYCLE`, `COOL_OFF`, `UNTIES`, `FILL_CELLS`) were measured
since work is counted where it is done, against 494 and 1,249; `RENT_PPM` and `WORSE_PPM` before that, against 489 and
1,363; `STAYS` and `DIVE_TWICE` since a placement is aimed for, against 488 and 1,325. What is called not measured was
not yet. Up to some ten units either way are chance; bounds that these instances do not reach do nothing there.
"""

from __future__ import annotations

from gridops.planner.constants import Constant

WORK_PER_MOVE = 150
HOSTS_LOOKED_AT = 100
PIECES_LOOKED_AT = 2
FIRST_CYCLE = 30
SHORTEST_CYCLE = 10_000
LONGEST_CYCLE = 300_000
HANDFUL = 40
RUIN_EVERY = 4
UNMET_PPM = 500_000
WORSE_PPM = 187_500
SLOWER_PPM = 100_000
COOL_OFF = 10
UNTIES = 4
REFUGES = 4
RARELY = 8
LUCK = 1_024
OUTSIDE = 16
RENT_PPM = 250_000
PRICE_STEPS = 200
PRICE_SHRINKS_PPM = 960_000
CONTENT_MOST = 16
CONTENT_NODES = 1_000
DIVES = 3
DIVE_WORK = 90_000
DIVE_ROWS = 128
DIVE_ROUNDS = 40
DIVE_STEPS = 2_000
DIVE_TWICE = 2
STAYS = 8
STAYS_LESS = 2
HOMES_PER_MOVE = 4
EASES = 8
EASE_TRIES = 12
CHAIN_DEPTH = 3
CHAIN_HOSTS = 64
CHAIN_TRIES = 3
DROPS = 64
DROPS_PPM = 250_000
DROPS_MOST = 256
WANTING = 512
PINS = 16
PUZZLE_HOSTS = 256
FILL_CELLS = 16_384
GAIN_MS = 60_000
NEWCOMERS = 8
BETTER_HOSTS = 8

TABLE: tuple[Constant, ...] = (
    Constant(
        "WORK_PER_MOVE",
        WORK_PER_MOVE,
        "seats given or taken",
        "one move of `planning.search.moves` pays for so much work, some twenty small steps: the default is 300,000",
        "each move of the policy takes twice as long and finds more",
        "half as long",
        "half: +0 unmet, +490 s; twice: -3 unmet, +26 s",
    ),
    Constant(
        "HOSTS_LOOKED_AT",
        HOSTS_LOOKED_AT,
        "hosts",
        "to see which of so many have room takes as long as to give a seat",
        "plans of large fleets take longer",
        "large fleets are searched less",
        "half: +3 unmet, -26 s; twice: nothing",
    ),
    Constant(
        "PIECES_LOOKED_AT",
        PIECES_LOOKED_AT,
        "pieces",
        "whether a state can be carried out takes as long as to give so many of them their seat, each",
        "more states are remembered, and plans take longer",
        "fewer states are remembered",
        "half: -1 unmet, +43 s; twice: +4 unmet, -23 s",
    ),
    Constant(
        "FIRST_CYCLE",
        FIRST_CYCLE,
        "seats per piece and host",
        "as many as let every piece be tried on every host a few times",
        "small fleets pay twice",
        "small fleets are searched by halves; the next cycle is as long as this one",
        "half: -2 unmet, +293 s; twice: nothing",
    ),
    Constant(
        "SHORTEST_CYCLE",
        SHORTEST_CYCLE,
        "seats given or taken",
        "some 30 ms: with fewer not every fleet of a few hosts is packed that can be",
        "plans of a handful of hosts take twice as long",
        "of 60 fleets of 4 to 8 hosts filled to the brim one in thirty lacks one replica more",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "HANDFUL",
        HANDFUL,
        "pieces times hosts",
        "where a cycle brings nothing, prices of so few places are rough and may bar the best answer: one more without",
        "fleets of ten hosts pay half as much again",
        "a best answer on three hosts may be missed",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "LONGEST_CYCLE",
        LONGEST_CYCLE,
        "seats given or taken",
        "all that the default `planning.search.moves` pays for, so that a large fleet gets one slow cycle",
        "a large fleet is cut off in the middle of its cycle",
        "two quick cycles, of which the second begins where the first ended",
        "half: +1 unmet, -58 s; twice: -5 unmet, +155 s",
    ),
    Constant(
        "RUIN_EVERY",
        RUIN_EVERY,
        "steps",
        "a large step costs as much as some five small ones: both get about half of the time",
        "more small steps, fewer hosts emptied at once",
        "mostly large steps",
        "half: +0 unmet, -236 s; twice: +1 unmet, -262 s",
    ),
    Constant(
        "UNMET_PPM",
        UNMET_PPM,
        "ppm of a cycle",
        "half for weight, half for the sooner start",
        "nothing is left for the sooner start",
        "starts are better, weight is worse",
        "half: +6 unmet, -304 s; twice: +4 unmet, +459 s",
    ),
    Constant(
        "WORSE_PPM",
        WORSE_PPM,
        "ppm of the mean weight",
        "a fifth: with the weights 1 to 16 one unit or two may be given up at first",
        "the search wanders and comes back late",
        "it stays near where it began",
        "half: +0 unmet, -48 s; twice: +2 unmet, -22 s",
    ),
    Constant(
        "SLOWER_PPM",
        SLOWER_PPM,
        "ppm of the mean start-up time",
        "a tenth of a start",
        "it wanders and comes back late",
        "it takes the first that is near",
        "half: +2 unmet, +29 s; twice: +3 unmet, -168 s",
    ),
    Constant(
        "COOL_OFF",
        COOL_OFF,
        "looks",
        "after a look at whether a state can be carried out, so much other work comes before the next",
        "half as many states are remembered",
        "twice the time goes into looking for circles",
        "half: -3 unmet, -20 s; twice: -1 unmet, -34 s",
    ),
    Constant(
        "UNTIES",
        UNTIES,
        "times",
        "who is sent home may close another circle: so many are untied before a state is given up",
        "more states become results",
        "a plan of a full fleet keeps a worse state than it found",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "REFUGES",
        REFUGES,
        "seats",
        "whoever was pushed out compares a few seats, not all",
        "better seats, slower steps",
        "worse seats, quicker steps",
        "half: -3 unmet, -12 s; twice: +0 unmet, -177 s",
    ),
    Constant(
        "RARELY",
        RARELY,
        "draws",
        "one in eight goes to whoever is not meant, so that nobody is left out",
        "the start-up phase hardly exchanges who stands",
        "it exchanges more and moves less",
        "half: +3 unmet, -4 s; twice: +13 unmet, -269 s",
    ),
    Constant(
        "LUCK",
        LUCK,
        "parts of 1,024",
        "an order of repair lifts somebody by up to three times, as in GRASP",
        "order is mostly chance",
        "order is mostly weight",
        "half: +2 unmet, -156 s; twice: -3 unmet, -232 s",
    ),
    Constant(
        "OUTSIDE",
        OUTSIDE,
        "hosts",
        "bound of work: hosts besides the emptied ones that a large step looks at",
        "twice the work where there are many hosts with room",
        "seats there are found half as often",
        "half: +4 unmet, -41 s; twice: -2 unmet, -124 s",
    ),
    Constant(
        "RENT_PPM",
        RENT_PPM,
        "ppm of a price",
        "prices of whole fleets are rough for a single seat: they say where to look, and weight decides",
        "nobody sits where the relaxation says that others should, though they do not come",
        "prices hardly matter, and light models take what heavy ones need",
        "half: +0 unmet, -50 s; twice: +6 unmet, -109 s",
    ),
    Constant(
        "PRICE_STEPS",
        PRICE_STEPS,
        "steps",
        "bound of work: prices are near their limit then, in some 20 ms on 256 hosts",
        "twice the time, and steps so small that nothing changes any more",
        "prices are still on their way",
        "half: +11 unmet, -320 s; twice: +1 unmet, -234 s",
    ),
    Constant(
        "PRICE_SHRINKS_PPM",
        PRICE_SHRINKS_PPM,
        "ppm of the step before",
        "over 200 steps down to a thousandth of the first",
        "the steps would grow: it must stay below 1,000,000",
        "prices freeze after a few steps",
        "half: +55 unmet, -550 s; twice: +48 unmet, -527 s",
    ),
    Constant(
        "CONTENT_MOST",
        CONTENT_MOST,
        "pieces",
        "bound of work: more of one host are not looked for at once; its present ones stay where they are more",
        "hosts of small pieces take longer",
        "hosts of many small pieces are not improved at once",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "CONTENT_NODES",
        CONTENT_NODES,
        "choices",
        "bound of work: the best content of a host is mostly found by then, and what is left is to prove it",
        "twice as long for hosts that hold much",
        "contents are found by chance where hosts hold much",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "DIVES",
        DIVES,
        "placements",
        "the first says what promises it missed, the second keeps them, the third what that made it miss",
        "the last of them are hardly better",
        "promises are missed, and what was found is worth little",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "DIVE_WORK",
        DIVE_WORK,
        "seats given or taken",
        "with the dive that follows, half of what the default pays for: the rest is a cycle of half the length",
        "that cycle is cut off",
        "promises are missed, as with fewer dives",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "DIVE_ROWS",
        DIVE_ROWS,
        "hosts and kinds",
        "bound of work: a step takes the square of it",
        "two seconds where the fleet has 200 hosts",
        "fleets of 64 hosts are left to the steps",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "DIVE_ROUNDS",
        DIVE_ROUNDS,
        "rounds",
        "bound of work: prices are settled after some fifteen",
        "nothing",
        "some hosts keep a worse content",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "DIVE_STEPS",
        DIVE_STEPS,
        "steps",
        "bound of work: a few hundred are what it takes",
        "nothing",
        "large fleets stop before prices are right",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "DIVE_TWICE",
        DIVE_TWICE,
        "rounds",
        "hosts that are not held yet name contents anew after each that is",
        "slower, hardly better",
        "what was held leaves others with contents that do not go with it",
        "half: -4 unmet, +47 s; twice: -2 unmet, +164 s",
    ),
    Constant(
        "STAYS",
        STAYS,
        "parts",
        "who moves may close a circle: of 170 who stand, each that stays is worth a 27th of the least weight",
        "weight is left unmet so that fewer move",
        "more move, and of those more wait for each other in circles",
        "half: +3 unmet, +174 s; twice: -1 unmet, -96 s",
    ),
    Constant(
        "STAYS_LESS",
        STAYS_LESS,
        "parts",
        "another placement is aimed for where staying is worth less, and the better one kept: 2,080 units, not 2,093",
        "the two are alike",
        "more of the second wait for each other in circles",
        "half: +0 unmet; twice: -3 unmet, of 487",
    ),
    Constant(
        "HOMES_PER_MOVE",
        HOMES_PER_MOVE,
        "replicas",
        "placements to aim for move one in four of those who stand, or less: where fewer may move it would be in vain",
        "in vain where few may move",
        "fleets that may move a few are left to the steps",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "EASES",
        EASES,
        "times",
        "who does without a place may leave another circle: so many are broken",
        "more placements can be reached",
        "placements with several circles are given up",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "EASE_TRIES",
        EASE_TRIES,
        "pieces",
        "bound of work: of those in a circle, so many are asked for, those who matter least first",
        "twice the work",
        "a heavier one does without its place",
        "half: not measured; twice: not measured",
    ),
    Constant(
        "CHAIN_DEPTH",
        CHAIN_DEPTH,
        "pieces",
        "whoever is pushed out pushes out another, and that one a third",
        "chains over six hosts",
        "one only takes the place of another",
        "half: -2 unmet, -238 s; twice: nothing",
    ),
    Constant(
        "CHAIN_HOSTS",
        CHAIN_HOSTS,
        "hosts",
        "bound of work: hosts that are compared for one kind",
        "twice as many compared",
        "half as many",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "CHAIN_TRIES",
        CHAIN_TRIES,
        "hosts",
        "bound of work: hosts that are tried before a piece is left to the steps",
        "twice as many tried",
        "one tried",
        "half: -4 unmet, -201 s; twice: -2 unmet, +10 s",
    ),
    Constant(
        "DROPS",
        DROPS,
        "replicas per plan",
        "allocator-facts.md, planner policy: staged preemptions",
        "longer waves",
        "more plans until all is where it should be",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "DROPS_PPM",
        DROPS_PPM,
        "ppm of those who stand",
        "a quarter, where that is more than the row above: what one plan mends grows with the fleet",
        "half of the fleet could give way at once",
        "larger fleets need more plans",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "DROPS_MOST",
        DROPS_MOST,
        "replicas per plan",
        "whatever the fleet: as many decisions as a person can still look through before saying yes",
        "a plan may take away more than anybody reads",
        "fleets of more than 500 replicas need more plans",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "WANTING",
        WANTING,
        "replicas per plan",
        "bound of work: replicas that one plan makes room for, the most important first",
        "twice the pieces in one search",
        "more plans",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "PINS",
        PINS,
        "replicas per plan",
        "bound of work: pinned replicas, each of which is a search of its own for its own host",
        "twice as many searches where many pins are missing at once",
        "more pins are left to later plans",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "PUZZLE_HOSTS",
        PUZZLE_HOSTS,
        "hosts",
        "bound of work: hosts of one search; a smaller fleet is taken in whole",
        "better plans of large full fleets, twice as slow",
        "quicker and worse",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "FILL_CELLS",
        FILL_CELLS,
        "parts of a host's room",
        "how exactly the bound adds sizes up: a few cells are less than any size, and a host takes some 10 us",
        "twice the work, and hardly a sum that is told apart from the next one",
        "a host that cannot be filled is taken for full",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "GAIN_MS",
        GAIN_MS,
        "ms",
        "the planning loop looks again within that time",
        "users wait for slow hosts",
        "what serves is moved for less than a minute's gain",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "NEWCOMERS",
        NEWCOMERS,
        "replicas per plan",
        "bound of work: late ones that one plan looks at, those who could gain most first",
        "16 are looked at",
        "4 are",
        "half: nothing; twice: nothing",
    ),
    Constant(
        "BETTER_HOSTS",
        BETTER_HOSTS,
        "hosts",
        "bound of work: better hosts that are tried for each late one",
        "16 are tried",
        "4 are",
        "half: nothing; twice: nothing",
    ),
)
