"""The deciding half of the controller: values in, journal rows out. No clock, disk, network, process or chance.

`rows` is what can ever be remembered, `state` the fold of it, `soft` what may be forgotten. Each other module answers
one question: `modes` what is permitted now, `observe` what is seen, `propose` which plan, `apply` whose word,
`reconcile` which command, `issue` which grant, `ingest` what a host said, `progress` how far an apply is.
"""
