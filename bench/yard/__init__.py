"""What plans are measured against: generated instances, the exact optimum, and a judge that knows no gridops."""
