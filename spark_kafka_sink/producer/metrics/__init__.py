"""The metrics and counts of a producer.

Owns: ``producer_metrics`` (the metrics, with Kafka's names) and ``sensors`` (their statistics),
``produce_recorder`` (the counts of one task attempt), ``produce_report`` (the result of the
attempt) and ``retry_lines`` (the log lines about retries).
"""
