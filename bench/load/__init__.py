"""The controller under load: a real process, its real listener and disk, and a crowd of agents that sign for real."""
