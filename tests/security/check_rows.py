"""Runs ``kprod check``'s steps and looks at their rows; each red or yellow one has a page."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.cli.explanation import explanation
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import Step, StepState
from spark_kafka_sink.datasource.checks.cluster_checks import STEPS, check_cluster
from tests.secure_kafka import SecureKafka


def steps_of(
    bootstrap: str, options: dict[str, Any], timeout_ms: int = 30_000, clock: Clock | None = None
) -> list[Step]:
    """Every row; the producer's options, whose names have a dot, without the prefix ``kafka.``."""
    config = parse_sink_config(
        {"kafka.bootstrap.servers": bootstrap}
        | {
            n if "." not in n or n.startswith("errors.") else f"kafka.{n}": v
            for n, v in options.items()
        }
    )
    steps = list(check_cluster(config, timeout_ms=timeout_ms, clock=clock))
    assert tuple(step.name for step in steps) == STEPS
    for step in steps:
        if step.state in (StepState.FAILED, StepState.WARNING):
            assert step.change, f"what is to be done about {step}?"
            assert step.code, f"{step} has no page"
            assert explanation(step.code)
    return steps


def steps_of_bob(secure: SecureKafka, options: dict[str, Any]) -> list[Step]:
    """As bob, who may do nothing without ACLs."""
    user = secure.cluster.client_options("SSL", user="bob")
    return steps_of(user.pop("bootstrap.servers"), user | options)


#: What a write with :func:`exactly_once` needs of its transactional ids.
IDS = [("TRANSACTIONAL_ID", "check~*", right) for right in ("WRITE", "DESCRIBE")]


def exactly_once(topic: str, log: str) -> dict[str, str]:
    return {
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": "check",
        "commitLogTopic": log,
    }


def row(steps: list[Step], name: str) -> Step:
    return next(step for step in steps if step.name == name)


def first_red(steps: list[Step]) -> Step:
    red = [step for step in steps if step.state is StepState.FAILED]
    assert red, "\n".join(map(str, steps))
    return red[0]


def assert_named(steps: list[Step], step: str, text: str) -> None:
    found = first_red(steps)
    assert found.name == step, found
    assert text in f"{found.said} {found.change}", found


def assert_no_red(steps: list[Step]) -> None:
    assert not [step for step in steps if step.state is StepState.FAILED]
