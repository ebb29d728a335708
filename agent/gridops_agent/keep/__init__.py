"""How an engine is kept on this host: one protocol (`base.Keeper`), and one module for each way to keep one."""
