"""A producer's metrics: ``producer_metrics`` (Kafka's names), based on ``sensors``.

Owns: also the counts of one attempt (``produce_recorder``), their result (``produce_report``), and
the log lines about retries (``retry_lines``).
"""
