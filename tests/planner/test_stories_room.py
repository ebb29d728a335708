"""Stories of full fleets, where one replica comes because others move or give way. Told as in `test_stories`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gridops.model.fleet import Host
from gridops.model.profile import DeviceNeed
from tests.planner.fleet import Fleet, config, host, profile
from tests.planner.stage import MINUTE, Stage, verify

HOUR = 60 * MINUTE


def rack(count: int, gib: float = 24) -> tuple[Host, ...]:
    return tuple(host(f"h{n}", (gib,), rack=f"r{n % 2}") for n in range(count))


def preemption_wave() -> Stage:
    """An important model comes to a full fleet: the least important give way, one of each goes on serving, nobody
    equal is touched, and when it is over they come back."""
    batch = profile("batch", 3, gib=18, priority=50)
    notes, chat = profile("notes", 1, gib=18), profile("chat", 2, gib=18, priority=200)
    stage = Stage(Fleet(hosts=rack(4), profiles=(batch, notes)))
    stage.say("every host is taken")
    stage.apply()
    stage.later(HOUR)
    stage.say("two replicas of an important model are wanted")
    stage.commit(chat)
    stage.apply()
    stage.say("a third: whoever is left is the last of its kind, or as important")
    stage.later(HOUR)
    stage.commit(replace(chat, replicas_min=3, replicas_max=3))
    stage.apply()
    stage.say("the rush is over")
    stage.later(HOUR)
    stage.fleet = stage.fleet.but(profiles=tuple(p for p in stage.fleet.profiles if p.name != "chat"))
    stage.apply()
    stage.say("and nothing more")
    stage.plan()
    return stage


def repack_chain() -> Stage:
    """The only large host is needed: who stands there goes to the middle one, and who stands there to the small one,
    each up in its new place before it leaves the old."""
    stage = Stage(Fleet(hosts=(host("large", (48,)),), profiles=(profile("code", gib=28),)))
    stage.say("one host, one model")
    stage.apply()
    stage.say("a second host, a second model")
    stage.join(host("middle", (32,)))
    stage.commit(profile("chat", gib=20))
    stage.apply()
    stage.later(HOUR)
    stage.say("a third host, and a model that only the large one can hold")
    stage.join(host("small", (24,)))
    stage.commit(profile("draw", gib=40))
    stage.apply()
    stage.say("and nothing more")
    stage.plan()
    return stage


def defragmentation() -> Stage:
    """Four hosts, a little on each: enough room in all and on none. Two move, and two large ones fit."""
    small = tuple(profile(n, gib=6) for n in ("asr", "embed", "rank", "tts"))
    stage = Stage(Fleet(hosts=rack(4), profiles=(*small, profile("crawl", 4, gib=12))))
    stage.say("each host holds a large and a small one")
    stage.apply()
    stage.say("`crawl` is removed")
    stage.fleet = stage.fleet.but(profiles=small)
    stage.apply()
    stage.later(HOUR)
    stage.say("two that need most of a host each")
    stage.commit(profile("coder", 2, gib=18))
    stage.apply()
    stage.say("and nothing more")
    stage.plan()
    return stage


def creative_burst() -> Stage:
    """64 hosts, and everybody makes pictures: what matters less gives way as far as the rules allow, and comes back
    when the demand has been gone for long enough."""
    pair = DeviceNeed(count=2, shard="tensor")
    image = profile("image", replicas_max=30, configs=(config("image", 16, lanes=1),), priority=150, max_per_host=2)
    video = profile("video", replicas_max=6, configs=(config("video", 20, lanes=1, devices=pair),), priority=150)
    chat, batch = profile("chat", 16, gib=18, priority=200), profile("batch", 24, gib=18, priority=50)
    embed = profile("embed", 8, gib=18)
    ones = tuple(host(f"one{n:02}", rack=f"r{n % 8}") for n in range(48))
    twos = tuple(host(f"two{n:02}", (24, 24), rack=f"r{n % 8}") for n in range(16))
    stage = Stage(Fleet(hosts=(*ones, *twos), profiles=(batch, chat, embed, image, video)), briefly=True)
    stage.say("an ordinary morning")
    stage.expect(image=0.5, video=0.2)
    stage.apply()
    stage.later(HOUR)
    stage.say("the campaign begins")
    stage.expect(image=17, video=3)
    stage.apply()
    stage.say("five minutes later it still goes on")
    stage.later(5 * MINUTE)
    stage.expect(image=17, video=3)
    stage.apply()
    stage.say("it ebbs away: at first nothing changes")
    stage.expect(image=0.5, video=0.2)
    stage.plan()
    stage.say("an hour later")
    stage.later(HOUR)
    stage.expect(image=0.5, video=0.2)
    stage.apply()
    stage.say("and nothing more")
    stage.plan()
    return stage


STORIES: tuple[Callable[[], Stage], ...] = (preemption_wave, repack_chain, defragmentation, creative_burst)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story: Callable[[], Stage]) -> None:
    verify(story)
