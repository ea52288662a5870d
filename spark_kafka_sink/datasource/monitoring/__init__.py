"""Metrics of writes for OpenTelemetry and Prometheus (extra ``metrics``), in the user's process.

Owns, by file:

======================  =========================================================================
kprod_listener          Spark's events and the batches' reports, joined
instruments             the metrics, and the field that each is read from
measurements            the values in a report or a progress, and the bound on labels
prometheus_metrics      Prometheus' client library
open_telemetry_metrics  OpenTelemetry's API
open_lineage            OpenLineage's events (extra ``lineage``), which are no metrics: a report
                        listener, in the process of Spark's commit
new_reports             the reports since the last look
======================  =========================================================================

Never: anything in a task or in Spark's ``commit``. A task's figures come with its commit message
and the batch's report, so metrics cost nothing per row; the libraries are imported in those
files only.
"""
