"""Columns to bytes: partitions, record encoding, batches, compression. No I/O, no locks."""
