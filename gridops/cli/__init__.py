"""Floor 7: the command line, one module per command. It reads, prints and asks; it decides nothing."""
