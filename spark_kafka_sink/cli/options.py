"""``kprod options``: lists the options, and the values that they have with a given properties file.

The options are in ``config/option_table.py``, and their texts are in ``options.toml``. The command
opens no connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, NoReturn

from spark_kafka_sink.base.security.password import HIDDEN
from spark_kafka_sink.base.security.secret_references import is_one_reference
from spark_kafka_sink.base.suggestions import nearest_name
from spark_kafka_sink.cli.connection import FAILED, fail, one_line_errors
from spark_kafka_sink.cli.option_texts import option_texts
from spark_kafka_sink.cli.show import print_json, show_rows
from spark_kafka_sink.config.names.given import CONFIG_FILE, GivenOptions
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.option import Option, OptionType, Status
from spark_kafka_sink.config.option_table import PRODUCER_OPTIONS, SINK_OPTIONS
from spark_kafka_sink.config.parsing import sink_config_of, sink_values_of
from spark_kafka_sink.config.sink_config import SinkConfig

_DEFAULT = "default"
_GUARANTEE = "deliveryGuarantee"


class _Effective(NamedTuple):
    """The effective value of an option. ``origin`` is the source of the value:

    - ``default``.
    - The name of the properties file.
    - ``option`` for the option configFile itself.
    - ``computed; SOURCE: VALUE`` if the sink has replaced a value. SOURCE and VALUE describe the
      value before the replacement, for example ``computed; default: 60000``.
    """

    name: str
    value: str
    origin: str


def options(search: str | None, config: Path | None, *, as_json: bool) -> None:
    """Shows the options that match ``search``. If ``search`` is None, shows all options.

    Without ``config``, shows the default value of each option. If the properties file ``config`` is
    given, shows the values that a write with this file uses.
    """
    if config is None:
        found = [o for o in _known() if search is None or _has(search.lower(), o)]
        if as_json:
            print_json({"command": "options", "options": [_json(o) for o in found]})
        elif found:
            rows = [(_named(o), _shown(o, o.default), _values(o), _what(o)) for o in found]
            show_rows(f"Options ({len(rows)})", ("option", "default", "values", "what"), rows)
        else:
            _none(search)
        return
    with one_line_errors():
        given = given_options({CONFIG_FILE: config}, PREFIX)
        counting = [
            one
            for one in _effective(given, sink_config_of(given))
            if search is None or search.lower() in one.name.lower()
        ]
    if as_json:
        print_json({"command": "options", "effective": [one._asdict() for one in counting]})
    elif not counting:
        _none(search)
    else:
        show_rows(f"Options as they count ({len(counting)})", _Effective._fields, counting)


def _none(search: str | None) -> NoReturn:
    """Ends the command with exit code 1, and with the error that no option matches ``search``."""
    named = {name: _named(o) for o in _known() for name in (o.name, _named(o))}
    near = nearest_name((search or "").lower(), named)
    meant = f"did you mean {named[near]}? " if near else ""
    fail(f"no option matches '{search or ''}'", f"{meant}'kprod options' lists all of them", FAILED)


def _known() -> Iterator[Option]:
    for table in (SINK_OPTIONS, PRODUCER_OPTIONS):
        for option in sorted(table.values(), key=lambda o: o.name):
            if option.status is Status.HONOURED and not option.internal:
                yield option


def _named(option: Option) -> str:
    return option.name if option.name in SINK_OPTIONS else PREFIX + option.name


def _has(word: str, option: Option) -> bool:
    return word in _named(option).lower() or word in _what(option).lower()


def _what(option: Option) -> str:
    return option_texts().what[option.name]


def _json(option: Option) -> dict[str, object]:
    return {
        "name": _named(option),
        "type": option.type.value,
        "default": None if option.default is None else _shown(option, option.default),
        "values": _values(option),
        "doc": _what(option),
    }


def _values(option: Option) -> str:
    return option.rule.words if option.rule is not None else option.type.value


def _effective(given: GivenOptions, config: SinkConfig) -> Iterator[_Effective]:
    """Yields the effective value of each option. The effective value may differ from the given
    value, because some values are computed from other options.
    """
    of_sink = {**sink_values_of(given), _GUARANTEE: config.delivery_guarantee}
    for option in _known():
        own = option.name in SINK_OPTIONS
        one = (given.own if own else given.producer).get(option.name)
        origin = _DEFAULT if one is None else one.where.strip(" ()").removeprefix("in ") or "option"
        given_value = option.default if one is None else one.value
        value = _shown(option, given_value)
        if own:
            counts = of_sink[option.name]
            read = option.default if one is None else option.read(one.value, one.name)
            is_computed = counts != read
        else:
            counts = getattr(config.producer, option.name.replace(".", "_"), None)
            is_computed = _is_computed(option, counts, given_value, is_default=one is None)
        if is_computed and option.type is not OptionType.PASSWORD:
            origin, value = f"computed; {origin}: {value}", _shown(option, counts)
        yield _Effective(_named(option), value, origin)


def _is_computed(option: Option, counts: object, given: object, *, is_default: bool) -> bool:
    """Whether the sink has replaced the value ``given`` of a producer option by the effective value
    ``counts``. ``given`` is the user's value or the default. The result can be True only for a
    number or a switch.
    """
    # Two texts of another type may differ although they mean the same.
    if not isinstance(counts, bool | int | float):
        return False
    is_same = _shown(option, counts).lower() == _shown(option, given).lower()
    return not is_same and (is_default or _number(given) != counts)


def _number(value: object) -> object:
    try:
        return float(str(value))
    except ValueError:
        return {"all": -1, "true": True, "false": False}.get(str(value).lower())


def _shown(option: Option, value: object) -> str:
    if value is None or value == ():
        return ""
    if option.type is OptionType.PASSWORD and not is_one_reference(str(value)):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
