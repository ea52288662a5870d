"""Reports: the result of a batch or micro-batch, or the reason why it was not written.

Owns, by file:

==================  ==================================================================
write_report        the value: :class:`WriteReport`, version 1, and its JSON
report_of_batch     makes it from commit messages, or from an error
failed_attempts     the data that failed attempts leave for it
report_file         reports as files
kept_reports        the last report of each query, kept on the driver
last_report         ``last_report``: reads it from the user's process
claims              what a report claims to be in Kafka
audit               ``audit``: reads it back from Kafka; audit_verdict judges the counts
log_line            its line in the driver's log
destinations        the registry of destinations
==================  ==================================================================

Never: a decision whether a batch is committed. A report that can't be delivered is a warning.

A report is made on the driver, in the Python process in which Spark runs ``commit`` or ``abort``,
and passed to every destination once. **To receive reports, add a row to**
``destinations.DESTINATIONS``; a user's code is named by the option ``reportListeners``.
"""
