"""The lab: whole fleets in one thread under a virtual clock, every fault drawn from one seed.

The deciding cores are the product's own (controller, planner, protocol, trust, the host's heart); only time, network,
disks and processes are models, and `tests/lab/test_twins.py` holds each model against what it stands for. Start
reading at `world`; `run` is the way in. Nothing in the product imports this room.
"""
