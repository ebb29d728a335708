"""Floor 4: the files that people write, turned into typed intent with positions, and written back with comments kept.

Start with `load.check` (everything wrong in one run) or `load.load` (intent or ConfigError). `yamlish` reads strict
YAML, `shape` and `kinds` say what may stand where, `sense` judges across files, `diagnose` words and draws problems.
"""
