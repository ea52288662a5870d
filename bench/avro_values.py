"""Rows as Avro: the encoders alone, and Spark jobs, in turn.

python -m bench.avro_values encoder          one core, no broker: ours, and fastavro row by row
python -m bench.avro_values spark --rows N   a broker and a registry of its own: valueFormat=avro,
                                             our JSON, to_avro with Spark's own Kafka sink, and a
                                             Python sink that does nothing: what Spark itself costs
Prints a line for each: rows per second, CPU seconds, and ratios round by round.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from confluent_kafka.admin import AdminClient

from bench.spark_job import check, children, cpu_seconds, create, delete, session, touch
from bench.statistics import median, ratio
from spark_kafka_sink.records.formats.avro_format import AvroFormat
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.column_type import ColumnKind, ColumnType
from spark_kafka_sink.records.formats.composed_columns import parts_of

K = ColumnKind
#: Of schema 7.
PREFIX = b"\0\0\0\0\7"
KINDS = {
    "id": K.LONG, "customer": K.STRING, "store": K.INT, "amount": K.DOUBLE, "score": K.FLOAT,
    "tax": K.DECIMAL, "paid": K.BOOLEAN, "day": K.DATE, "at": K.TIMESTAMP, "note": K.STRING,
}  # fmt: skip
#: The same ten columns from Spark; all but the first may be null.
COLUMNS = (
    "id", "concat('customer-', id * 7919 % 1000003) AS customer", "CAST(id % 100 AS INT) AS store",
    "id / 7 AS amount", "CAST(id % 13 AS FLOAT) AS score",
    "CAST(id % 10000000 / 100 AS DECIMAL(10, 2)) AS tax", "id % 3 = 0 AS paid",
    "date_add(DATE'2024-10-04', CAST(id % 365 AS INT)) AS day",
    "timestamp_micros(1767225600000000 + id) AS at",
    "IF(id % 10 = 0, NULL, concat('note ', id, ' with some words')) AS note",
)  # fmt: skip


_NOTHING = "a Python sink that does nothing"


def batch(count: int) -> pa.RecordBatch:
    rng = np.random.default_rng(1)
    ids = np.arange(count, dtype=np.int64) + 10_000_000
    notes = [None if rng.random() < 0.1 else f"note {i} with some words" for i in ids]
    cents = pa.array(rng.integers(0, 10**7, count)).cast(pa.decimal128(19, 0))
    columns = {
        "id": pa.array(ids),
        "customer": pa.array([f"customer-{i * 7919 % 1000003}" for i in ids]),
        "store": pa.array((ids % 100).astype(np.int32)),
        "amount": pa.array(ids / 7.0),
        "score": pa.array((ids % 13).astype(np.float32)),
        "tax": pa.Array.from_buffers(pa.decimal128(10, 2), count, cents.buffers()),
        "paid": pa.array(ids % 3 == 0),
        "day": pa.array((20000 + ids % 365).astype(np.int32)).cast(pa.date32()),
        "at": pa.array(1767225600000000 + ids).cast(pa.timestamp("us", "UTC")),
        "note": pa.array(notes),
    }
    return pa.RecordBatch.from_pydict(columns)


def encoder(count: int, rounds: int) -> None:
    import fastavro

    kinds = tuple(
        ColumnType(kind, kind.name, name != "id", precision=10, scale=2)
        for name, kind in KINDS.items()
    )
    column = ColumnType(K.STRUCT, "struct", nullable=False, children=kinds, names=tuple(KINDS))
    schema = AvroFormat().derive(column, "bench.order")
    plan = AvroFormat().plan(schema, PREFIX, column)
    rows = batch(count)
    parsed = fastavro.parse_schema(json.loads(schema))

    def ours() -> int:
        parts = (payloads_of(plan, part.to_struct_array(), "") for part in parts_of(rows))
        return sum(len(one.array) for one in parts)

    def theirs() -> int:
        written = 0
        for row in rows.slice(0, count // 20).to_pylist():
            out = io.BytesIO()
            out.write(PREFIX)
            fastavro.schemaless_writer(out, parsed, row)
            written += 1
        return written

    seconds: dict[str, list[float]] = {"ours": [], "fastavro": []}
    for _ in range(rounds + 1):
        for name, run in (("ours", ours), ("fastavro", theirs)):
            start = time.process_time()
            done = run()
            seconds[name].append((time.process_time() - start) / done)
    for name, found in seconds.items():
        used = median(found[1:])
        print(f"{name}: {1 / used:,.0f} rows/s of CPU time, {used * 1e6:.3f} us CPU a row")


def spark(rows: int, rounds: int) -> None:
    from bench.peers import avro_jars, connector_jars
    from spark_kafka_sink.local_kafka import KafkaCluster, SchemaRegistry

    with KafkaCluster(full_jvm=True) as kafka, SchemaRegistry() as registry:
        servers = children()
        running = session(f"{connector_jars()},{avro_jars()}")
        frame = running.range(0, rows, 1, 2).selectExpr(*COLUMNS)
        from pyspark.sql import functions as F
        from pyspark.sql.avro.functions import to_avro

        header = F.lit(PREFIX)
        values = frame.select(F.concat(header, to_avro(F.struct("*"))).alias("value"))
        named = {"valueColumns": "*"}
        registered = {
            "valueFormat": "avro",
            "schema.registry.url": registry.url,
            "auto.register.schemas": "true",
        }
        writes: dict[str, Callable[[dict[str, str]], object]] = {
            "valueFormat=avro": lambda o: save(frame, "kprod", o | named | registered),
            "valueFormat=json": lambda o: save(frame, "kprod", o | named),
            "to_avro + kafka": lambda o: save(values, "kafka", o),
            _NOTHING: lambda _: save(frame, "nothing", {}),
        }
        rates: dict[str, list[float]] = {name: [] for name in writes}
        cpu: dict[str, list[float]] = {name: [] for name in writes}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        for round_number in range(rounds + 1):
            for name, write in writes.items():
                topic = f"bench-avro-{len(name)}-{round_number}-{os.getpid()}"
                create(admin, topic, 12)
                touch(kafka.bootstrap, topic, 12)
                used, start = cpu_seconds(servers), time.perf_counter()
                write({"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})
                took, used = time.perf_counter() - start, cpu_seconds(servers) - used
                if name != _NOTHING:
                    check(kafka.bootstrap, topic, rows + 12, 12)
                delete(admin, topic)
                if round_number:  # the first round warms up
                    rates[name].append(rows / took)
                    cpu[name].append(used)
        for name in writes:
            against = ratio(cpu[name], cpu["to_avro + kafka"])
            print(
                f"{name}: {median(rates[name]):,.0f} rows/s, CPU {median(cpu[name]):.2f} s, "
                f"{against} of to_avro + kafka",
                flush=True,
            )
        running.stop()


def save(frame: object, source: str, options: dict[str, str]) -> None:
    frame.write.format(source).options(**options).mode("append").save()  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("encoder", "spark"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    {"encoder": encoder, "spark": spark}[args.part](args.rows, args.rounds)


if __name__ == "__main__":
    main()
