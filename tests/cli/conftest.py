"""Fixtures of the command line's tests: a stage of the operators."""

from __future__ import annotations

from tests.transactions.conftest import client, operator_topics, operators_kafka, stage

__all__ = ["client", "operator_topics", "operators_kafka", "stage"]
