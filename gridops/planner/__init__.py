"""Floor 3: the only room that chooses. Pure: (intent, snapshot, parent plan, now) to plan and report.

Start at `planner.plan`, which reads like a table of contents. `check` re-derives every safety rule on a finished plan
and shares no code with the rest; `actions` turns a target and a snapshot into steps; `authority` says who may do what.
"""
