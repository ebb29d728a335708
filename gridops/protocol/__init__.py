"""Floor 3: how controller and host talk, without I/O. Both sides import this room and nothing of each other.

`messages` are the records on the wire and `open` verifies them. `fence` (may I do this, what must I remember) and
`receipts` (what came of it) are the host's side, `outbox` the controller's (which body, which grant, what is settled).
`fresh` is freshness, time and one agent per key; `alarm` is what both report and neither can repair.
"""
