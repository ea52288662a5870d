"""The tree of commands under ``kprod``.

This module has the names, arguments and help of the commands outside ``txn``. Each command has a
module with its work. That module is imported when the command runs, so that help, version and
completion are fast.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from spark_kafka_sink.base.documentation import RUNBOOK_PAGE, page_address
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.cli.arguments import (
    EXAMPLE,
    AsJson,
    Asked,
    Config,
    Watch,
    Where,
    changing,
    flag,
    to_cluster,
)
from spark_kafka_sink.cli.txn import txn_commands

#: The end of kprod's own help: a command for each symptom. An empty line starts a new line.
_WHERE_TO_BEGIN = (
    "A consumer is blocked, and its lag grows: kprod txn blockers TOPIC",
    "A job is slow: kprod report show PATH (the value of reportPath)",
    "A job hangs, or can't write: kprod check -t TOPIC",
    "An error has a code: kprod explain KP0301",
    f"More: {page_address(RUNBOOK_PAGE)}",
)
app = typer.Typer(
    help="Checks a cluster; explains errors; shows and repairs transactions of exactly-once.",
    no_args_is_help=True,
    # A traceback that shows locals would show secrets.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(txn_commands.app, name="txn")
reports = typer.Typer(
    help="Reports of writes: rows, outcomes and times.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(reports, name="report")
_Path = Annotated[
    Path | None,
    typer.Argument(metavar="PATH", help="The file or folder of the option reportPath."),
]
_ReportTopic = Annotated[
    str | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="TOPIC",
        help="The topic of the option reportTopic, in place of PATH. The whole topic is read.",
    ),
]

_Batch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="Take the last report with this number. For a micro-batch, N is the batch id. For "
        "a batch job, N is the txnVersion.",
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback(epilog="\n\n".join(_WHERE_TO_BEGIN))
def kprod(
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_version, is_eager=True, help="Show the version."
        ),
    ] = False,
) -> None:
    """Checks a cluster; explains errors; shows and repairs transactions of exactly-once."""


@app.command(epilog=EXAMPLE + "kprod audit --report reports.jsonl -b broker1:9092")
@to_cluster
def audit(
    where: Where,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", "-r", metavar="PATH", help="The file or folder of the option reportPath."
        ),
    ] = None,
    report_topic: Annotated[
        str | None,
        typer.Option(
            "--report-topic",
            metavar="TOPIC",
            help="The topic of the option reportTopic, in place of --report.",
        ),
    ] = None,
    batch: _Batch = None,
    sample: Annotated[
        bool,
        flag(
            "--sample",
            help="Read only four places of each partition: the start, the end, and two in between.",
        ),
    ] = False,
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            metavar="N",
            min=0,
            help="With --sample: a number that determines the two places in between.",
        ),
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the report of the last batch with the topics: rows and checksums of each partition.

    - Exit code 0: every row is there. With --sample: no row of the sample is missing.
    - Exit code 1: the audit failed.
    - Exit code 2: the options are wrong.
    - Exit code 3: rows are missing or changed, or there are more rows than in the report.
    - Exit code 4: rows were removed by retention, compaction or DeleteRecords, or the topic was
      deleted.
    - Exit code 5: the audit can't decide.

    Changes nothing. Needs READ on the topics. With DESCRIBE_CONFIGS on the topics, the audit can
    also find out whether a setting of the topic, such as compaction, explains a difference.
    """
    from spark_kafka_sink.cli import audit as work
    from spark_kafka_sink.cli.report import Source

    if (report is None) == (report_topic is None):
        raise typer.BadParameter("give --report PATH, or --report-topic TOPIC")
    chosen = seed if sample else None
    work.audit(where, Source(where, report, report_topic), batch, chosen, as_json=as_json)


@app.command(epilog=EXAMPLE + "kprod backfill orders-2026 --forget --dry-run -b broker1:9092")
@changing
def backfill(
    where: Where,
    asked: Asked,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name that the job gives to backfill().")
    ],
    prefix: Annotated[
        str,
        typer.Option("--prefix", metavar="PREFIX", help="The option transactionalIdPrefix."),
    ] = "kprod",
    forget: Annotated[
        bool,
        flag(
            "--forget",
            help="Remove the plan and the progress. The next backfill() with this name writes all "
            "rows again. Rows that are already written stay in the topic, so they are duplicated.",
        ),
    ] = False,
) -> None:
    """Show the progress of a backfill, the process that runs it, and its plan.

    A backfill writes a large table in several steps. With --forget, the command removes the
    progress and the plan from the commit log. --dry-run and --yes have an effect only with
    --forget.
    """
    from spark_kafka_sink.cli import backfill as work

    if forget:
        work.forget(where, asked, prefix, name)
    else:
        work.show(where, prefix, name, as_json=asked.as_json)


@app.command(epilog=EXAMPLE + "kprod check -t orders -c client.properties")
@to_cluster
def check(
    where: Where,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The option topic.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="An option of the write, with the same name as in Spark. Repeat -o for further "
            "options. Do not type a secret, because other users can see command lines. Refer to "
            "the secret instead: ${env:NAME} or ${file:/path}.",
        ),
    ] = None,
    exactly_once: Annotated[
        bool,
        flag(
            "--exactly-once",
            help="Also try transactions and the commit log, in a test topic and with a test "
            "transactional id. The topic is deleted afterwards, even after Ctrl-C. Brokers remove "
            "the id after transactional.id.expiration.ms. If the check is killed, the topic "
            "remains, and the next check names it. Needs CREATE, DELETE, READ and WRITE on topics "
            "that begin with {commitLogTopic}-check-. If you report an issue, add --json and "
            "attach the output.",
        ),
    ] = False,
    from_executors: Annotated[
        str | None,
        typer.Option(
            "--from-executors",
            metavar="SPARK",
            help="Also check from each executor of this Spark cluster. SPARK is the address of a "
            "Spark master (the value of spark-submit --master) or of a Spark Connect server "
            "(sc://host:15002). With a Connect server, the command does not check from this "
            "machine.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check from this machine everything that a write needs, and show a table of steps.

    - Exit code 0: no step failed.
    - Exit code 1: a step failed, or --exactly-once was given and could not be tried.
    - Exit code 2: the options are wrong.

    Changes nothing. Exception: --exactly-once creates a test topic, and deletes it.

    With deliveryGuarantee=exactly-once, the command also checks the commit log's topic, and the
    rights that transactions need.
    """
    from spark_kafka_sink.cli import check as work

    given = dict(_pair(one) for one in options or ())
    if len(given) < len(options or ()):
        raise typer.BadParameter("a name comes twice", param_hint="--option")
    if topic is not None:
        given["topic"] = topic
    if exactly_once and (from_executors or "").startswith("sc://"):
        raise typer.BadParameter("it runs on this machine, and --from-executors sc:// does not")
    work.check(where, given, from_executors, exactly_once=exactly_once, as_json=as_json)


def _pair(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter("give NAME=VALUE", param_hint="--option")
    return name.strip(), value


@app.command(epilog=EXAMPLE + "kprod convert librdkafka.properties > client.properties")
def convert(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A file with properties of Java's client or of librdkafka, or with the kafka.* "
            "options of Spark's sink.",
        ),
    ],
) -> None:
    """Convert another client's properties file to a configFile, on standard output.

    Standard error has two lists: the options that have another name in the result, and the options
    that can't be converted. Options that can't be converted are not in the result, and do not
    change the exit code.

    - Exit code 0: the result is a valid configFile.
    - Exit code 1: the result is not valid, for example because two options contradict each other.
    - Exit code 2: FILE can't be read.

    Secrets are not copied: the result refers to the lines with the secrets in FILE, so keep FILE.
    """
    from spark_kafka_sink.cli import convert as work

    work.convert(file)


@app.command(epilog=EXAMPLE + "kprod deadletters dlq.orders -b broker1:9092")
@to_cluster
def deadletters(
    where: Where,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic to read.")],
    last: Annotated[
        int,
        typer.Option(
            "--last", "-n", metavar="N", min=0, help="The number of dead letters to show."
        ),
    ] = 10,
    values: Annotated[
        bool, flag("--values", help="Also show keys and values, which may be confidential.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Count the dead letters of a topic by reason, and show the newest.

    Needs READ on the topic, and reads the whole topic.
    """
    from spark_kafka_sink.cli import deadletters as work

    work.deadletters(where, topic, last, values=values, as_json=as_json)


@app.command(epilog=EXAMPLE + "kprod explain KP0301")
def explain(
    code: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CODE",
            help="A code (KP0301), Kafka's name of an error, or words to search. Without"
            " an argument, all codes are listed.",
        ),
    ] = None,
) -> None:
    """Explain an error, and how to resolve it."""
    from spark_kafka_sink.cli.explanation import explanation, list_of_codes

    try:
        sys.stdout.write(explanation(" ".join(code)) if code else list_of_codes())
    except LookupError as error:
        raise typer.BadParameter(str(error), param_hint="CODE") from None


@app.command(epilog=EXAMPLE + "kprod options timeout")
def options(
    search: Annotated[
        str | None,
        typer.Argument(metavar="SEARCH", help="A part of an option's name or description."),
    ] = None,
    effective: Annotated[
        bool,
        flag(
            "--effective",
            help="With --config FILE: show the value that a write with this file would use, and "
            "where the value comes from: the file, a default, or a computation.",
        ),
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List all options with their defaults, or the options that match SEARCH.

    Needs no broker. With --effective and --config FILE, the command shows the values that a write
    with this file would use. Secrets are hidden, but references such as ${env:NAME} are shown.
    """
    from spark_kafka_sink.cli import options as work

    if effective != (config is not None):
        raise typer.BadParameter("--effective and --config FILE go together")
    work.options(search, config, as_json=as_json)


@reports.command("show", epilog=EXAMPLE + "kprod report show reports.jsonl")
@to_cluster
def show_report(
    where: Where,
    path: _Path = None,
    topic: _ReportTopic = None,
    batch: _Batch = None,
    as_json: AsJson = False,
) -> None:
    """Show the last report: a summary of five lines, and each field with its meaning."""
    from spark_kafka_sink.cli import report as work

    work.show(work.Source(where, *_path_or_topic(path, topic)), batch, as_json=as_json)


def _path_or_topic(path: Path | None, topic: str | None) -> tuple[Path | None, str | None]:
    if (path is None) == (topic is None):
        raise typer.BadParameter("give PATH, or --topic TOPIC with the address of the cluster")
    return path, topic


@reports.command(epilog=EXAMPLE + "kprod report tail reports.jsonl")
@to_cluster
def tail(
    where: Where,
    path: _Path = None,
    topic: _ReportTopic = None,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=1, help="The number of reports.")
    ] = 10,
    watch: Watch = False,
) -> None:
    """Show the last reports, one per line: rows, rate, and the longest wait.

    A report has five waits. Each wait is a sum over all tasks, in milliseconds. The column 'longest
    wait' shows the largest of these sums, and for what the tasks waited:

    - 'input': rows from Spark
    - 'buffer': memory of the producer
    - 'rate': the limit maxRecordsPerSecond or maxBytesPerSecond
    - 'metadata': the metadata of a topic
    - 'broker': acknowledgements after the last row
    """
    from spark_kafka_sink.cli import report as work

    work.tail(work.Source(where, *_path_or_topic(path, topic)), last, watch=watch)
