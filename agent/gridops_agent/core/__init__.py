"""The heart of a host, without clock, disk, network, process or chance: what it remembers and what it decides.

`heart.step(host, event, now_ms)` gives the new memory and the effects. The shell makes the memory durable first and
carries the effects out after; so nothing happens that a restarted agent would not know about.
"""
