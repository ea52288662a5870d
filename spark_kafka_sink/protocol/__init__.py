"""Kafka's wire messages: values, versions, frames. Decoding is bounded; nothing here does I/O."""
