"""The lowest package. Every other package may import this package, which imports no other package.

This package has the code that all other packages need. ``errors`` has all exceptions, and the form
of warnings. ``error_kinds`` has the codes of errors, and ``documentation`` has the addresses of
pages. ``suggestions`` corrects misspelled names. ``clock`` has time and waiting, ``backoff``
computes the waits between attempts, and ``background`` runs a function on a daemon thread.
``json_object`` parses JSON, and ``described_fields`` and ``counts`` have the code of reports.
``topic_name`` and ``time_zones`` check names. ``process_local`` has a value for each process.
``version`` and ``format_name`` have one constant each. The package ``security`` has the limits of
options, and secrets.

This package opens no connections, and does not import Spark or Arrow.
"""
