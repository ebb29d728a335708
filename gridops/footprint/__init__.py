"""Floor 2: what a config costs in memory (`need`), and whether it fits (`ledger`): fits, short by n, or unknown.

Called by the planner and by whoever shows capacity. Never reads a device: residency is decided by a sum.
"""
