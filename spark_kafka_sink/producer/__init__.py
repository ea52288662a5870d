"""The producer of Kafka's Java client, fed with columns."""
