"""Adds a hint to Spark's error if Spark Connect can't start a foreachBatch function.

Over Connect, the function runs in a Python process on the server, and this process creates its own
Connect session. If pandas or grpc is missing on the server, the process ends at its first import.
Ten seconds later, the client only gets "Python worker failed to connect back".
"""

from __future__ import annotations

_FAILED = "failed to connect back"


def note_what_the_server_needs(error: BaseException) -> None:
    """If Spark's error means that the Python process of a foreachBatch function did not start, adds
    a hint to the error.
    """
    if _FAILED in str(error):
        error.add_note(
            "  hint: over Spark Connect a function of foreachBatch (foreach_batch and transaction"
            " in it, too) runs in a Python of the server: it needs pandas and grpcio there"
            " (pip install 'pyspark[connect]'), and must start within 10 s"
        )
