"""The driver's side of exactly-once (not offered yet)."""
