"""The agent's command line: join, run, once, stop, status. Parses, calls one function, renders; decides nothing."""
