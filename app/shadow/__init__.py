"""Shadow: what callers asked is recorded, redacted; a candidate is asked it again, beside the live engine."""
