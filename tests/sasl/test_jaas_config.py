"""``sasl.jaas.config`` as Java's client reads it, and what can't be read without showing it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.security.jaas_config import parse_jaas_config

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f'kafkashaded.{PLAIN} required username="u" password="p";',
         {"username": "u", "password": "p"}),
        (f"{PLAIN} required\n  username='u'\n  password='p';\n",
         {"username": "u", "password": "p"}),
        (f"{PLAIN} REQUIRED username=u password=p ;", {"username": "u", "password": "p"}),
        (f"{PLAIN} required;", {}),
        (f'{PLAIN} required password="a\\"b\\\\c\\n\\101";', {"password": 'a"b\\c\nA'}),
        (f'{PLAIN} required password="";', {"password": ""}),
        (f'{PLAIN} required password = "with = and ; and \'";', {"password": "with = and ; and '"}),
        (f'/* a */ {PLAIN} // b\n required password="//x/*y*/"; // end',
         {"password": "//x/*y*/"}),
        (f'{PLAIN} required "password"="p";', {"password": "p"}),
        (f'{PLAIN} required password="\u00e4\u20ac";', {"password": "\u00e4\u20ac"}),
        (f'{PLAIN} required password="${{env:SECRET}}";', {"password": "${env:SECRET}"}),
    ],
)  # fmt: skip
def test_a_login_module_is_read_with_its_options(text, options):
    entry = parse_jaas_config(text)
    assert entry.module == PLAIN
    assert entry.name == "PlainLoginModule"
    assert entry.options == options
    assert "options" not in repr(entry)


def test_the_usual_modules_of_others_keep_their_names():
    for module in (
        "org.apache.kafka.common.security.scram.ScramLoginModule",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
        "com.sun.security.auth.module.Krb5LoginModule",
        "software.amazon.msk.auth.iam.IAMLoginModule",
        "shadedmskiam.software.amazon.msk.auth.iam.IAMLoginModule",
    ):
        entry = parse_jaas_config(f"{module} required;")
        assert entry.name == module.rpartition(".")[2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "login module's class is missing"),
        (PLAIN, "control flag"),
        (f"{PLAIN} required", "or the ; at the end is missing"),
        (f"{PLAIN} demanded;", "must be required"),
        (f'{PLAIN} username="u" password="tr0mb0ne";', "must be required"),
        (f'{PLAIN} required password="tr0mb0ne', "quote is not closed"),
        (f'{PLAIN} required password="tr0mb0ne\n";', "quote is not closed"),
        (f'{PLAIN} required password="tr0mb0ne\\', "quote is not closed"),
        (f'{PLAIN} required password "tr0mb0ne";', "no =value"),
        (f"{PLAIN} required password=;", "option's value is missing"),
        (f'{PLAIN} required password="a" password="tr0mb0ne";', "comes twice"),
        (f'{PLAIN} required password="tr0mb0ne"; {PLAIN} required;', "more than one"),
        (f'{PLAIN} required password="tr0mb0ne"', "; at the end is missing"),
        ('KafkaClient { X required password="tr0mb0ne"; };', "must be required"),
    ],
)
def test_an_unreadable_text_is_located_and_never_shown(text, words):
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config can't be read") as raised:
        parse_jaas_config(text)
    assert words in str(raised.value)
    assert "at character" in str(raised.value)
    assert "tr0mb0ne" not in str(raised.value)


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9._-]{0,20}", fullmatch=True)


def quoted(value: str) -> str:
    """As a careful user writes it."""
    out = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{out}"'


@given(module=NAMES, options=st.dictionaries(NAMES, st.text(max_size=30), max_size=6))
def test_what_was_quoted_comes_back_whatever_it_holds(module, options):
    text = f"{module} required " + " ".join(f"{k}={quoted(v)}" for k, v in options.items()) + ";"
    assert parse_jaas_config(text).options == options
