"""Floor 0: words everyone shares (errors, ids, units, canonical JSON, records, limits). Imports nothing of ours."""
