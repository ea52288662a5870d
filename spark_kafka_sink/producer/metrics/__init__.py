"""What a producer measured: ``producer_metrics`` (Kafka's names) over ``sensors``.

Owns: also the account of one write: ``produce_recorder`` counts, ``produce_report`` is the result.
"""
