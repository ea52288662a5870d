"""The tree of commands under ``kprod``.

Owns: the application, its version, and names, arguments and help of the commands that are not of
``txn``. Never: a command's work, which is imported when it runs: help, version and completion
answer at once.
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
    TIMEOUT_S,
    AsJson,
    Config,
    Servers,
    Timeout,
    Watch,
    Where,
)
from spark_kafka_sink.cli.txn import txn_commands

#: Below the help of kprod itself, by what is seen. An empty line makes a new one.
_WHERE_TO_BEGIN = (
    "A consumer is blocked, its lag grows: kprod txn blockers TOPIC",
    "A job is slow: kprod report show PATH (what reportPath names)",
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
    help="Reports of writes: what was written, and where the time went.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(reports, name="report")
_Path = Annotated[
    Path,
    typer.Argument(metavar="PATH", help="The file of the option reportPath, or a folder of such."),
]


def _version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback(epilog="\n\n".join(_WHERE_TO_BEGIN))
def kprod(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Checks a cluster; explains errors; shows and repairs transactions of exactly-once."""


@app.command(epilog=EXAMPLE + "kprod check -t orders -c client.properties")
def check(
    bootstrap_servers: Servers = None,
    config: Config = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The option topic.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option",
            "-o",
            metavar="NAME=VALUE",
            help="Any option of the write, as in Spark. A secret by reference, ${env:NAME} or "
            "${file:/path}: the shell's history and ps show a command line.",
        ),
    ] = None,
    exactly_once: Annotated[
        bool,
        typer.Option(
            "--exactly-once",
            help="Also try what exactly-once rests on, in a topic and under a transactional id of "
            "its own, which are ended afterwards, also after Ctrl-C; what a check that is killed "
            "leaves is named by the next one. Needs CREATE, DELETE, READ and WRITE on topics "
            "that begin with {commitLogTopic}-check-. With --json, for an issue.",
        ),
    ] = False,
    from_executors: Annotated[
        str | None,
        typer.Option(
            "--from-executors",
            metavar="SPARK",
            help="Also from each executor of this Spark: a master, as of spark-submit, or a Spark "
            "Connect server (sc://host:15002), and then only from there.",
        ),
    ] = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Check every condition of a write from this machine: a table of steps.

    Changes nothing, but for what --exactly-once creates and deletes. With
    deliveryGuarantee=exactly-once (in the file, or by -o) also what that needs. Exit codes: 0 no
    step failed, 1 a step failed, 2 the options are wrong.
    """
    from spark_kafka_sink.cli import check as work

    given = dict(_pair(one) for one in options or ())
    if len(given) < len(options or ()):
        raise typer.BadParameter("a name comes twice", param_hint="--option")
    if topic is not None:
        given["topic"] = topic
    if exactly_once and (from_executors or "").startswith("sc://"):
        raise typer.BadParameter("it runs on this machine, and --from-executors sc:// does not")
    where = Where(bootstrap_servers, config, None, timeout)
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
            metavar="FILE", help="Properties of Java, librdkafka, or Spark's kafka.* options."
        ),
    ],
) -> None:
    """Another client's properties as a configFile, on standard output.

    Renamed and lost options are listed on standard error. Secrets are not copied:
    the lines that hold them are referred to, so keep FILE. Exit codes: 0 done, 1 the result is not
    complete or contradicts itself, 2 FILE can't be read.
    """
    from spark_kafka_sink.cli import convert as work

    work.convert(file)


@app.command(epilog=EXAMPLE + "kprod deadletters dlq.orders -b broker1:9092")
def deadletters(
    topic: Annotated[
        str, typer.Argument(metavar="TOPIC", help="That of errors.deadletterqueue.topic.name.")
    ],
    bootstrap_servers: Servers = None,
    config: Config = None,
    last: Annotated[
        int, typer.Option("--last", "-n", metavar="N", min=0, help="How many of the newest.")
    ] = 10,
    values: Annotated[
        bool, typer.Option("--values", help="Also their keys and values, which are data of rows.")
    ] = False,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """Dead letters by reason, and the newest of them. Reads the whole topic; needs READ on it."""
    from spark_kafka_sink.cli import deadletters as work

    where = Where(bootstrap_servers, config, None, timeout)
    work.deadletters(where, topic, last, values=values, as_json=as_json)


@app.command(epilog=EXAMPLE + "kprod explain KP0301")
def explain(
    code: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CODE",
            help="An error's code, as KP0301, or a broker's name of it, or words to look for;"
            " without it all are listed.",
        ),
    ] = None,
) -> None:
    """What an error means and what to do about it."""
    from spark_kafka_sink.cli.explanation import explanation, list_of_codes

    try:
        sys.stdout.write(explanation(" ".join(code)) if code else list_of_codes())
    except LookupError as error:
        raise typer.BadParameter(str(error), param_hint="CODE") from None


@app.command(epilog=EXAMPLE + "kprod options timeout")
def options(
    search: Annotated[
        str | None, typer.Argument(metavar="SEARCH", help="A part of a name or of its text.")
    ] = None,
    effective: Annotated[
        bool,
        typer.Option(
            "--effective", help="The values that count with --config FILE, and where each is from."
        ),
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Every option with its default, or those that match a word; needs no broker.

    With --effective, secrets are hidden, unless they are references.
    """
    from spark_kafka_sink.cli import options as work

    if effective != (config is not None):
        raise typer.BadParameter("--effective and --config FILE go together")
    work.options(search, config, as_json=as_json)


_ArrowRows = Annotated[
    int,
    typer.Option(
        "--arrow-rows",
        metavar="N",
        min=1,
        help="spark.sql.execution.arrow.maxRecordsPerBatch; usually 10000.",
    ),
]
_ArrowBytes = Annotated[
    str,
    typer.Option(
        "--arrow-bytes",
        metavar="SIZE",
        help="spark.sql.execution.arrow.maxBytesPerBatch; 0 on Spark 4.0, which has none.",
    ),
]


@app.command(epilog=EXAMPLE + "kprod size --tasks 200 --leaders 12")
def size(
    tasks: Annotated[
        int, typer.Option("--tasks", metavar="N", min=1, help="Tasks that run at once.")
    ],
    leaders: Annotated[
        int,
        typer.Option(
            "--leaders", metavar="N", min=1, help="Brokers that lead a partition of the topics."
        ),
    ],
    cores: Annotated[
        int,
        typer.Option(
            "--cores", metavar="N", min=1, help="Tasks at once in an executor; usually 4."
        ),
    ] = 4,
    executor_memory: Annotated[
        str, typer.Option("--executor-memory", metavar="SIZE", help="spark.executor.memory.")
    ] = "4g",
    buffer_memory: Annotated[
        str, typer.Option("--buffer-memory", metavar="SIZE", help="kafka.buffer.memory.")
    ] = "32m",
    row_bytes: Annotated[
        str, typer.Option("--row-bytes", metavar="SIZE", help="Of a row: key, value, headers.")
    ] = "1000",
    arrow_rows: _ArrowRows = 10_000,
    arrow_bytes: _ArrowBytes = "64m",
    as_json: AsJson = False,
) -> None:
    """Connections, and memory outside of the JVM, of a planned write. Connects to nothing.

    A Python worker's figure is what it has while brokers are slower than it; it was within 15 % of
    what was measured.
    """
    from spark_kafka_sink.cli import size as work

    load = work.Load(
        tasks=tasks,
        leaders=leaders,
        cores=cores,
        executor_memory=work.memory(executor_memory),
        buffer_memory=work.memory(buffer_memory),
        row_bytes=work.memory(row_bytes),
        arrow_rows=arrow_rows,
        arrow_bytes=work.memory(arrow_bytes),
    )
    work.size(load, as_json=as_json)


@app.command(epilog=EXAMPLE + "kprod template confluent-cloud > client.properties")
def template(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Which one; without it all are listed.")
    ] = None,
) -> None:
    """A properties file for a service, for --config and the option configFile; it has no secret."""
    from spark_kafka_sink.cli import template as work

    work.template(name)


@reports.command("show", epilog=EXAMPLE + "kprod report show reports.jsonl")
def show_report(
    path: _Path,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="The last one of this batch, or txnVersion."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The last report with the meaning of its fields, and the longest wait of the tasks."""
    from spark_kafka_sink.cli import report as work

    work.show(path, batch, as_json=as_json)


@reports.command(epilog=EXAMPLE + "kprod report tail reports.jsonl")
def tail(
    path: _Path,
    count: Annotated[int, typer.Option("--lines", "-n", metavar="N", min=1, help="How many.")] = 10,
    watch: Watch = False,
) -> None:
    """A line for each of the last reports: rows, rate, and the longest wait."""
    from spark_kafka_sink.cli import report as work

    work.tail(path, count, watch=watch)
