"""The kinds of errors and warnings. Each kind has a code such as ``KP0301``.

A code is never changed or used again for another error, because users search for codes and link to
them. The first two digits are the area:

* 01 options
* 02 columns and rows
* 03 connections
* 04 authentication
* 05 delivery
* 06 commit and exactly-once
* 07 users' own code and reports
* 09 bugs

An error that a broker returned has no kind here. Its code is ``KP1`` and three digits for the
number of the broker's error code. ``cli/errors.toml`` has the explanations of all codes.
"""

from __future__ import annotations

from enum import StrEnum, unique


@unique
class Kind(StrEnum):
    """The kind of an error or warning. Its value is its code."""

    UNSPECIFIED = "KP0001"

    CONFIG = "KP0100"
    UNKNOWN_OPTION = "KP0101"
    FOREIGN_OPTION = "KP0102"
    INVALID_VALUE = "KP0103"
    MISSING_BOOTSTRAP = "KP0104"
    BOOTSTRAP_ADDRESS = "KP0105"
    UNSUPPORTED_OPTION = "KP0106"
    NO_EFFECT = "KP0107"
    NO_OPTIONS = "KP0108"
    UNSUPPORTED_WRITE = "KP0109"
    UNRESOLVED_REFERENCE = "KP0110"
    NO_REFERENCE = "KP0111"
    TLS_SETTING = "KP0120"
    KEY_STORE = "KP0121"
    INLINE_SECRET = "KP0122"  # noqa: S105 - a code
    SASL_SETTING = "KP0130"
    LOGIN_MODULE = "KP0131"
    TOKEN_SOURCE = "KP0132"  # noqa: S105 - a code
    IMPORT_PATH = "KP0140"
    MISSING_PACKAGE = "KP0141"
    NOT_ALLOWED = "KP0142"
    WITHOUT_EFFECT = "KP0150"
    OTHER_VALUE = "KP0151"
    WEAKER_GUARANTEE = "KP0152"
    WEAK_SECURITY = "KP0153"
    SHORT_TRANSACTION = "KP0154"

    SCHEMA = "KP0200"
    MISSING_VALUE_COLUMN = "KP0201"
    NO_TOPIC = "KP0202"
    COLUMN_TYPE = "KP0203"
    IGNORED_COLUMN = "KP0204"
    ROWS_ONE_BY_ONE = "KP0205"
    NO_SUCH_COLUMN = "KP0206"
    TWO_SOURCES = "KP0207"
    NOT_COMPACTED = "KP0208"
    OTHER_KEYS = "KP0209"
    DATA = "KP0210"
    NULL_TOPIC = "KP0211"
    PARTITION_NOT_THERE = "KP0212"
    RECORD_TOO_LARGE = "KP0213"
    NULL_VALUE = "KP0214"
    NULL_KEY = "KP0215"
    REFUSED_BY_SCHEMA = "KP0216"
    CHANGE_TYPE = "KP0217"
    CHANGE_PAIR = "KP0218"
    CHANGE_ORDER = "KP0219"
    INVALID_TOPIC_NAME = "KP0230"
    INVALID_TIMESTAMP = "KP0231"
    INVALID_HEADERS = "KP0232"
    TOO_MANY_BAD_ROWS = "KP0233"
    LETTER_NOT_SENT = "KP0234"
    ROWS_TO_DEAD_LETTERS = "KP0235"
    TOPIC_OF_COMMIT_LOG = "KP0236"
    DIVIDED_VERSION = "KP0237"
    SERIALIZATION = "KP0220"
    SCHEMA_REGISTRY = "KP0221"
    SCHEMA_NOT_REGISTERED = "KP0222"
    UNUSABLE_SCHEMA = "KP0223"
    COLUMNS_AND_SCHEMA = "KP0224"

    NO_BROKER = "KP0301"
    TOPIC_NOT_PRESENT = "KP0302"
    MALFORMED_ANSWER = "KP0303"
    WRONG_LISTENER = "KP0304"
    TIMEOUT = "KP0305"
    NO_LEADER = "KP0306"
    TOPIC_LIMIT = "KP0307"
    UNRESOLVED_ADDRESS = "KP0308"
    OTHER_CLUSTER = "KP0309"
    NO_SUCH_LISTENER = "KP0310"
    NOT_CONNECTED = "KP0311"

    AUTHENTICATION = "KP0401"
    NO_NEW_CREDENTIAL = "KP0402"

    DELIVERY = "KP0500"
    EXPIRED = "KP0501"
    BUFFER_EXHAUSTED = "KP0502"
    WRITE_FAILED = "KP0503"
    RATE_TOO_LOW = "KP0504"
    TASK_STOPPED = "KP0505"
    NOT_CLOSED = "KP0506"
    WORKER_MEMORY = "KP0507"

    COMMIT = "KP0600"
    NO_COMMIT_MESSAGE = "KP0601"
    VERSIONS_DIFFER = "KP0602"
    NOT_INSTALLED_FOR_WORKERS = "KP0603"
    NO_SPARK_JOB = "KP0604"
    OUTCOME_UNKNOWN = "KP0610"
    PARTIAL_COMMIT = "KP0611"
    SUPERSEDED = "KP0612"
    REFUSED = "KP0613"
    TRANSACTION_ABORTED = "KP0614"
    WRITE_ABORTED = "KP0620"
    NOT_ABORTED = "KP0621"
    DECIDED_NOT_ABORTED = "KP0622"
    ORPHANS_UNSEEN = "KP0623"
    BATCH_UNDONE = "KP0624"
    DONE_NOT_NOTED = "KP0625"
    COMMIT_LOG_EMPTY = "KP0626"
    COMMIT_LOG_AT_RISK = "KP0627"
    NOTHING_WRITTEN = "KP0628"
    NO_EXACTLY_ONCE = "KP0629"
    LEFT_BEHIND = "KP0630"
    COMMIT_LOG_DAMAGED = "KP0631"
    VERSION_NOT_KNOWN = "KP0632"
    BACKFILL_RUNS = "KP0640"
    BACKFILL_PLAN = "KP0641"
    STEP_TOO_LONG = "KP0642"
    STEP_CUT = "KP0643"

    USER_CODE = "KP0701"
    CLOSE_IN_CALLBACK = "KP0702"
    REPORT_NOT_WRITTEN = "KP0703"
    NO_REPORTS_KEPT = "KP0704"

    ILLEGAL_STATE = "KP0900"

    @property
    def kp_code(self) -> str:
        """The code of the kind in messages, such as ``KP0301``. In lower case, the code is the
        anchor of the kind in docs/errors.md.
        """
        return self.value
