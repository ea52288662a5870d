"""The driver's side of exactly-once: deciding durably, then ending every task's transaction."""
