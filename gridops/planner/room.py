"""Make room for replicas that found no seat: others move over several hosts, or the less important give way.

Turns the draft into a puzzle of small integers (`movers`), lets `search` improve it within the counts of the policy,
and seats on the real board what that found. Where everybody has a seat nothing happens, unless somebody new would
start so late that it pays to move another for it (`repack`): a placement that is complete is never taken apart for a
better one. Called by `planner.plan` after `place`.

Nobody loses a place to somebody who is not more important, nor to a demand that is only inferred; one of a profile
always stays. What one plan may not do at once is left to later ones: whoever waits for that is reported as unplaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gridops.base.ids import HostId, ReplicaId, replica_key
from gridops.base.units import PPM
from gridops.model.plan import Cause, CauseKind
from gridops.planner.capacity import Ask, Offer
from gridops.planner.constants_room import DROPS, DROPS_MOST, DROPS_PPM, PINS, WANTING
from gridops.planner.draft import Draft, Item, Seated, is_same_place, may_dip
from gridops.planner.eligible import Way
from gridops.planner.enough import needed, resize
from gridops.planner.gains import GIVES_WAY, MAKES_ROOM, names
from gridops.planner.harm import Needs
from gridops.planner.homing import comes_back, gave_way, send_home, stay_after_all
from gridops.planner.host_board import Claim
from gridops.planner.incumbents import Verdict
from gridops.planner.movers import Movers, gather_movers, is_home, is_meek
from gridops.planner.permit import Limits
from gridops.planner.place import seat
from gridops.planner.repack import Repack, late, rows_for
from gridops.planner.search import Search
from gridops.planner.seats import Seats


def make_room(seats: Seats, left: Sequence[Item]) -> tuple[Item, ...]:
    """Seat more of those who are left, if rearranging others allows it. Returns who still has no seat."""
    # Nobody is disturbed for a replica that may yet come up where it stands.
    patient = tuple(i for i in left if i.cause.kind is CauseKind.FAILED_START)
    waiting = tuple(i for i in left if i not in patient) if patient else tuple(left)
    may, lost = _May(seats.draft.world.budgets.moves.per_plan, _drops(seats.draft)), list[Item]()
    before = len(seats.draft.board.log)
    while True:
        # Nobody moves for a replica that those ahead of it may make needless: it waits for its turn.
        resize(seats.draft, waiting)
        now = needed(seats.draft, waiting, widest=True)
        chosen = {i.replica for i in now}
        later = [i for i in waiting if i.replica not in chosen]
        still = _make_room(seats, now, may)
        lost += [i for i in still if i.replica not in chosen]
        failed = [i for i in still if i.replica in chosen]
        waiting = (*failed, *later)
        if not later or len(failed) == len(now):
            left = (*waiting, *lost, *patient)
            # Who was moved may have narrower lanes now: some are needed after all that were not asked before.
            changed = len(seats.draft.board.log) > before
            left = seat(seats, left) if later and changed else left
            if changed:
                send_home(seats.draft)
                left = stay_after_all(seats.draft, left)
            return left


@dataclass(slots=True)
class _May:
    """What this plan may still do to others."""

    moves: int
    drops: int


def _make_room(seats: Seats, left: Sequence[Item], may: _May) -> tuple[Item, ...]:
    draft = seats.draft
    if draft.world.mass_stale:
        return tuple(left)
    wanting = [i for i in left if _wants(i)][:WANTING]
    pinned = [i for i in left if i.pin is not None and i.origin is None][:PINS]
    if not wanting and not pinned:
        if left:
            return tuple(left)
        close = _too_close(seats)
        if close:
            return _search(seats, (), may.moves, 0, close).still
        _repack(seats)
        return ()
    needs, chosen, before = Needs(draft), {i.replica for i in wanting}, len(draft.board.log)
    others = [i for i in left if i.replica not in chosen and i not in pinned]
    meek = [i for i in wanting if is_meek(draft, i, needs)]
    shy = {i.replica for i in meek}
    bold = [i for i in wanting if i.replica not in shy]
    still = tuple[Item, ...]()
    for item in pinned:
        # A pin names the host: freeing another would disturb somebody for nothing.
        made = _search(seats, [item], may.moves, may.drops)
        may.moves, may.drops, still = may.moves - made.moved, may.drops - made.dropped, (*still, *made.still)
    if bold:
        made = _search(seats, bold, may.moves, may.drops)
        may.moves, may.drops, still = may.moves - made.moved, may.drops - made.dropped, (*still, *made.still)
    if meek:
        # An inference may use what is free and what can be moved; nobody loses a place for it.
        made = _search(seats, meek, may.moves, 0)
        may.moves, still = may.moves - made.moved, (*still, *made.still)
    left = (*others, *still)
    # Whoever moved later than one of these was refused may have left a seat, or the price of a host.
    return seat(seats, left) if len(draft.board.log) > before and not _is_full(seats) else left


def _drops(draft: Draft) -> int:
    """How many may lose their place in one plan."""
    return min(DROPS_MOST, max(DROPS, len(draft.seats) * DROPS_PPM // PPM))


def _wants(item: Item) -> bool:
    """It may go anywhere: it stands nowhere, or on a host that it should leave."""
    return item.pin is None and (item.origin is None or item.origin.verdict in (Verdict.RELEASE, Verdict.LEAVE))


@dataclass(frozen=True, slots=True)
class _Made:
    """How many were moved and lost their place, and who has no seat."""

    moved: int
    dropped: int
    still: tuple[Item, ...]


def _too_close(seats: Seats) -> list[Item]:
    """Newcomers with a seat whose profile stands in fewer failure domains than it should: others may move for them."""
    draft = seats.draft
    found = list[Item]()
    for item in draft.items:
        spread, seated = item.profile.spread, draft.seats.get(item.replica)
        if spread is None or seated is None or item.origin is not None or item.pin is not None:
            continue
        numbers, names = seats.grid.domains(spread.by)
        rows = [seats.grid.row.get(s.assignment.seat.host, -1) for s in draft.of(item.profile.name)]
        used = {int(numbers[row]) for row in rows if row >= 0} - {-1}
        if len(used) < min(spread.min, draft.sizes[item.profile.name].replicas, len(names)):
            found.append(item)
    return found


def _search(seats: Seats, wanting: Sequence[Item], moves: int, drops: int, seated_for: Sequence[Item] = ()) -> _Made:
    """Rearrange for these. `seated_for`: those who have a seat already, in the wrong failure domain."""
    movers = gather_movers(seats, wanting, seated=seated_for)
    planning = seats.draft.world.planning
    puzzle = movers.puzzle
    _spread_out(movers)
    if not any(puzzle.kinds[k].options for k in puzzle.loose):
        return _Made(0, 0, tuple(wanting))
    search = Search(puzzle, Limits(rounds=planning.search.moves, moves=moves, drops=drops))
    seats.draft.evaluated += search.run()
    moved, dropped, lost = puzzle.moved, puzzle.dropped, carry_out(movers)
    if lost is None:
        return _Made(0, 0, tuple(wanting))
    seated = {m.item.replica for m, spot in zip(movers.movers, puzzle.at, strict=True) if m.item and spot is not None}
    # The search keeps failure domains apart; where that is not feasible, a seat in the same one is better than none.
    still = [*(i for i in wanting if i.replica not in seated), *lost]
    return _Made(moved, dropped, tuple(still) if _is_full(seats) else seat(seats, still))


def _is_full(seats: Seats) -> bool:
    """No host has a slot left."""
    seats.grid.refresh()
    return not bool((seats.grid.present < seats.grid.limit).any())


def _spread_out(movers: Movers) -> None:
    """Let newcomers stand up whose failure domains are too few: the search seats them where they count."""
    puzzle = movers.puzzle
    for n, piece in enumerate(puzzle.pieces):
        if piece.home is None and puzzle.at[n] is not None and puzzle.missing(piece.kind):
            puzzle.take(n)
    puzzle.journal.clear()


def _repack(seats: Seats) -> None:
    """Everybody has a seat; see whether somebody new would start much sooner where another could leave."""
    found = late(seats)
    if not found:
        return
    movers = gather_movers(seats, (), rows=rows_for(seats, found))
    limits = Limits(rounds=0, moves=seats.draft.world.budgets.moves.per_plan, drops=0)
    seats.draft.evaluated += Repack(movers, limits).run(found)
    carry_out(movers)


def carry_out(movers: Movers) -> tuple[Item, ...] | None:
    """Seat on the board what was found. Returns those who lost their seat, as items that look for one.

    The board has the last word: where it refuses a seat that the puzzle allowed, everything stays as it was (None).
    """
    puzzle, draft = movers.puzzle, movers.seats.draft
    changed = [n for n, spot in enumerate(puzzle.at) if spot is not movers.before[n]]
    if any(puzzle.pieces[n].home is not None for n in changed) and not _newcomers(movers):
        return None  # nobody leaves its place for nobody
    earlier = _Earlier(draft, [movers.movers[n].replica for n in changed])
    lifted: list[tuple[int, Seated]] = []
    for n in changed:
        seated = movers.movers[n].seated
        if seated is not None:
            lifted.append((n, draft.lift(seated.assignment.replica)))
    lost: list[Item] = []
    for n, seated in lifted:
        if puzzle.at[n] is None:
            lost.append(_lost(movers, n, seated))
            if seated.origin is not None and not is_home(seated):
                if not draft.may_return(seated.origin):
                    earlier.restore()
                    return None
                draft.stay(seated.origin)
    coming = [n for n in changed if puzzle.at[n] is not None]
    while coming:
        # Whoever is to leave counts where it stands until it has its new seat: others may have to come after it.
        refused = [n for n in coming if not _sit(movers, n)]
        if len(refused) == len(coming):
            earlier.restore()
            return None
        coming = refused
    return tuple(lost)


class _Earlier:
    """The seats of some replicas as they were, to be given back."""

    def __init__(self, draft: Draft, replicas: Sequence[ReplicaId]) -> None:
        self._draft, self._seats = draft, dict[ReplicaId, tuple[Seated, Claim | None] | None]()
        for replica in replicas:
            seated = draft.seats.get(replica)
            board = draft.board.hosts.get(seated.assignment.seat.host) if seated is not None else None
            claim = board.desired.get(replica) if board is not None else None
            self._seats[replica] = (seated, claim) if seated is not None else None

    def restore(self) -> None:
        draft = self._draft
        for replica in self._seats:
            if replica in draft.seats:
                draft.lift(replica)
        for before in self._seats.values():
            if before is None:
                continue
            seated, claim = before
            if claim is not None:
                draft.board.back(seated.assignment.seat.host, claim)
            draft.give(seated)


def _sit(movers: Movers, n: int) -> bool:
    """Give the piece the seat that was found for it. False: the board does not admit it, at least not yet."""
    seats, mover, spot = movers.seats, movers.movers[n], movers.puzzle.at[n]
    assert spot is not None, "only who has a spot is seated"
    row, draft = movers.rows[spot.host], seats.draft
    item = mover.item or _item(movers, n)
    if gave_way(item.origin, item.cause) and item.home == seats.grid.ids[row]:
        return comes_back(draft, item.origin)
    opening = next(o for o in seats.lasting(item.profile) if o.position == spot.option.config)
    way = opening.way(row)
    rooms = seats.grid.views[row].rooms
    exact = Way(way.launch, way.need, tuple(rooms[c] for c in spot.pools), way.gpu)
    offer = _offer(draft, seats.grid.ids[row], Ask(item.replica, item.profile, exact, item.home), item)
    if offer is None:
        return False
    draft.sit(item, seats.grid.ids[row], offer, way.launch)
    return True


def _offer(draft: Draft, host: HostId, ask: Ask, item: Item) -> Offer | None:
    """The board's offer. On its own host a piece stands beside its former self, or goes down first if it may."""
    origin, board = item.origin, draft.board
    if origin is None or origin.host != host or origin.verdict is Verdict.RELEASE:
        offer = board.offer(host, ask)
        return offer if isinstance(offer, Offer) else None
    if origin.stuck:
        return None  # what nobody can vouch for is not replaced where it is
    if gone := item.replica not in board.hosts[host].desired:
        board.back(host, origin.claim)
    offer = board.offer(host, ask, instead=item.replica)
    good = isinstance(offer, Offer) and (not offer.breaks or may_dip(item))
    if good and isinstance(offer, Offer) and not is_same_place(origin, offer.claim, ask.way.launch):
        return offer
    if gone:
        board.take(host, item.replica, runs=origin.runs)
    return None


def _item(movers: Movers, n: int) -> Item:
    mover = movers.movers[n]
    seated = mover.seated
    assert seated is not None, "who is not wanting is seated"
    profile = movers.seats.draft.world.profiles[mover.profile]
    if seated.cause is not None:
        return Item(mover.replica, profile, seated.cause, seated.origin)
    assert seated.origin is not None, "who is new has a cause"
    cause = Cause(kind=CauseKind.REBALANCE, detail=f"{MAKES_ROOM} {names(_gainers(movers, n))}")
    return Item(mover.replica, profile, cause, seated.origin._replace(verdict=Verdict.LEAVE, cause=cause))


def _lost(movers: Movers, n: int, seated: Seated) -> Item:
    replica = seated.assignment.replica
    profile = movers.seats.draft.world.profiles[seated.assignment.profile]
    if seated.cause is not None:
        return Item(replica, profile, seated.cause, seated.origin)
    assert seated.origin is not None, "who is new has a cause"
    cause = Cause(kind=CauseKind.DISPLACED, detail=f"{GIVES_WAY} {names(_gainers(movers, n))}")
    return Item(replica, profile, cause, seated.origin._replace(verdict=Verdict.RELEASE, cause=cause))


def _gainers(movers: Movers, n: int) -> list[ReplicaId]:
    """Newcomers for whom the piece left its home: those who came there, and those for whom the others who came there
    left theirs. Where there are none (it made a count smaller, or a price), everybody who is new."""
    puzzle, found = movers.puzzle, list[int]()
    home = puzzle.pieces[n].home
    hosts = [home.host] if home is not None else []
    for host in hosts:
        for m in puzzle.on[host]:
            before = puzzle.pieces[m].home
            if before is None and puzzle.at[m] is not movers.before[m]:
                found.append(m)
            elif before is not None and before.host not in hosts:
                hosts.append(before.host)
    return sorted({movers.movers[m].replica for m in found or _newcomers(movers)}, key=replica_key)


def _newcomers(movers: Movers) -> list[int]:
    """Pieces with a seat that stood nowhere."""
    puzzle = movers.puzzle
    return [m for m, p in enumerate(puzzle.pieces) if p.home is None and puzzle.at[m] is not None]
