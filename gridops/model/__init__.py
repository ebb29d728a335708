"""Floor 1: the nouns. Frozen records without behaviour beyond validation; verbs live in the rooms above.

Reading order: `fleet` and `profile` and `policy` (what people want), `intent` (all of it at one commit),
`snapshot` (what was observed), `plan` (what should be), `action` (one step on one host).
"""
