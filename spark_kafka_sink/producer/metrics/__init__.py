"""A producer's metrics: ``producer_metrics`` (Kafka's names) over ``sensors``.

Owns: also the counts of one attempt: ``produce_recorder`` counts, ``produce_report`` is the result.
"""
