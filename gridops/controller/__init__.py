"""Floor 5: observe, plan, propose, apply: the durable loop of a fleet and its HTTPS listener.

`core` decides and touches nothing; `writer` makes its rows durable; `intake` reads git, `project` writes it; `http` and
`views` show and listen; `shell` is the only place with a loop. Start with `core/state.py`, then `core/passes.py`.
"""
