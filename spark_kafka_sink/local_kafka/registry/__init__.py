"""A schema registry for the local Kafka (``schema_registry``)."""
