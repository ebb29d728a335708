"""Sensors: one module per source. A reading that fails is None with a reason, never zero and never a guess."""
