"""The metrics and counts of a producer.

``producer_metrics`` has the metrics, with Kafka's names, and ``sensors`` computes their statistics.
``produce_recorder`` counts the rows and requests of one task attempt, and ``produce_report`` is the
result of the attempt. ``retry_lines`` writes the log lines about retries.
"""
