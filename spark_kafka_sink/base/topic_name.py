"""The topic names that brokers accept (Java's ``Topic``).

This module has the rules for names, the topics to which only brokers write, and the default name of
the commit log. It does not check whether a topic exists.
"""

from __future__ import annotations

import re

#: Java's ``Topic.INTERNAL_TOPICS``. Brokers reject records of producers for these topics.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

#: The default of the option commitLogTopic.
COMMIT_LOG_TOPIC = "__kprod_commits"

#: The description of a valid name, for hints.
VALID_NAME = "at most 249 characters: letters, digits, '.', '_' and '-'"


def checked_topic_name(name: str) -> str:
    """Returns ``name`` if it is a valid topic name (Java's ``Topic.validate``), and if clients may
    write to this topic.

    Otherwise raises ValueError. The message is similar to Java's message, but shows the name only
    if the name is ``.``, ``..`` or an internal topic.
    """
    if not name:
        wrong = "the empty string is not allowed"
    elif name in (".", ".."):
        wrong = f"'{name}' is not allowed"
    elif len(name) > 249:
        wrong = "it is longer than the max allowed length 249"
    elif re.fullmatch(r"[a-zA-Z0-9._-]+", name) is None:
        wrong = (
            "it contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
        )
    elif name in INTERNAL_TOPICS:
        wrong = f"'{name}' is internal: only brokers write to it"
    else:
        return name
    raise ValueError(f"Topic name is invalid: {wrong}")
