"""Floor 3: how controller and host talk, without I/O. Both sides import this room and nothing of each other.

`messages` are the records on the wire, `fence` is the host's side (may I do this, what must I remember),
`outbox` the controller's side (which body, which grant, what is settled), `fresh` is freshness and time.
"""
