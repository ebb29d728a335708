"""The host agent: it protects its machine, runs engines, fetches artifacts and obeys signed commands that it pulls."""
