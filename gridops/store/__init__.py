"""Floor 4: the durable room of the controller. A chained SQLite journal, and the proof of being its only writer."""
