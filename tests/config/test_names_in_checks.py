"""The rows of ``Check``: each name and each value in them is an option's.

A row with a misspelt name would never apply, and no other test would notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest

from spark_kafka_sink.config import cross_checks, schema_options, sink_checks
from spark_kafka_sink.config.logins import security_checks, security_rules
from spark_kafka_sink.config.option import Check, Condition, Option
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS

OPTIONS: Mapping[str, Option] = {**PRODUCER_OPTIONS, **SINK_OPTIONS}
#: Values that the readers of options add for the rows.
ADDED = {"exactly.once", "reason"}


def _rows(*modules: ModuleType) -> Iterator[Check]:
    for module in modules:
        for name, value in vars(module).items():
            if isinstance(value, tuple) and name != "ENDPOINT_STORE_RULES":
                yield from (one for one in value if isinstance(one, Check))


CHECKS = tuple(_rows(cross_checks, sink_checks, schema_options, security_checks, security_rules))


def test_every_name_in_a_check_is_an_option() -> None:
    assert len(CHECKS) > 60
    assert {name for check in CHECKS for name in check.names()} - OPTIONS.keys() <= ADDED


def test_every_value_in_a_check_is_legal() -> None:
    """An empty value is a condition, too, where the option itself refuses it."""
    conditions = {
        one
        for check in CHECKS
        for text in (check.given, check.unless)
        for one in Condition.in_text(text)
        if one.value and one.name not in ADDED
    }
    assert conditions
    for one in conditions:
        OPTIONS[one.name].read(one.value, one.name)


@pytest.mark.parametrize("module", security_rules.login_modules())
def test_every_name_in_a_modules_check_is_its_option(module: str) -> None:
    found = security_rules.login_modules()[module]
    for check in found.rules:
        assert all(found.find(name) for name in check.names()), check.given


def test_a_misspelt_name_would_be_found() -> None:
    check = Check("acks=all lingers.ms", "{batch.sizes} <retriess>", unless="linger=0")
    assert set(check.names()) - OPTIONS.keys() == {
        "lingers.ms",
        "batch.sizes",
        "retriess",
        "linger",
    }
