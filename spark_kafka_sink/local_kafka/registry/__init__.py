"""A schema registry beside the local Kafka (``schema_registry``)."""
