"""Metrics of writes for OpenTelemetry and Prometheus (extra ``metrics``), in the user's process.

The files of this folder:

======================  =========================================================================
kprod_listener          a Spark listener that joins a query's events with its batches' reports
instruments             the metrics, and the field that each value is read from
measurements            the values in a report or a progress, and the limit on label values
prometheus_metrics      Prometheus' client library
open_telemetry_metrics  OpenTelemetry's API
open_lineage            OpenLineage's events (extra ``lineage``)
new_reports             the reports that were written since the last read
running_writes          the figures of running tasks, from the topic of the option progressTopic
topic_tail              the new records of that topic
progress_bar            a progress bar in a terminal or notebook (extra ``progress``)
library_needed          the error for a missing library
======================  =========================================================================

``open_lineage`` is a report listener, and does not run in the user's process. Spark commits
and aborts in separate Python processes, and these processes call the report listeners.

No task runs this code. A task sends its figures to the driver in its commit message, and the user's
process gets them from the batch's report. So metrics cost nothing per row. Only these files import
the libraries of OpenTelemetry, Prometheus and OpenLineage.
"""
