"""Metrics of writes for OpenTelemetry and Prometheus (extra ``metrics``), in the user's process.

Owns, by file:

======================  =========================================================================
kprod_listener          a Spark listener that joins a query's events with its batches' reports
instruments             the metrics, and the field that each value is read from
measurements            the values in a report or a progress, and the limit on label values
prometheus_metrics      Prometheus' client library
open_telemetry_metrics  OpenTelemetry's API
open_lineage            OpenLineage's events (extra ``lineage``), which are no metrics: a report
                        listener, in the process of Spark's commit
new_reports             the reports that were written since the last read
======================  =========================================================================

Never: code that runs in a task. A task sends its figures to the driver in its commit message. The
user's process gets them from the batch's report. So metrics cost nothing per row. Only these files
import the libraries of OpenTelemetry, Prometheus and OpenLineage.
"""
