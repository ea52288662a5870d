"""Reports: the result of a batch or micro-batch, or the reason why it was not written.

The files of this folder:

==================  ==================================================================
write_report        the report: :class:`WriteReport`, version 1, and its JSON
report_of_batch     creates a report from commit messages, or from an error
failed_attempts     the data of failed attempts, for the report
report_file         reports as files
kept_reports        the last report of each query, stored on the driver
last_report         ``last_report``: reads a stored report from the user's process
claims              the rows that must be in Kafka, according to a report
audit               ``audit``: compares a report with the rows in Kafka
audit_verdict       the result of that comparison for each partition
log_line            a report as a line of the driver's log
destinations        the registry of destinations
waits               a short text about a write: its failure, or its longest wait
==================  ==================================================================

These files never decide whether a batch is committed. If a report can't be delivered, a warning is
logged, and the batch does not fail.

A report is created on the driver, in the Python process that runs ``commit`` or ``abort``, and
passed to every destination once. **To receive reports, add a row to**
``destinations.DESTINATIONS``. The option ``reportListeners`` names a user's function.
"""
