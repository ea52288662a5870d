"""A Spark application whose rows can't be sent, with everything at DEBUG.

Run by ``test_dead_letter_canary.py``: ``python -m tests.security.letters_job SPEC``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from pathlib import Path


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text())
    out = Path(spec["out"])
    logging.basicConfig(level=logging.DEBUG, filename=out / f"driver-{os.getpid()}.log", force=True)
    logging.getLogger("py4j").setLevel(logging.INFO)
    from pyspark.sql import SparkSession

    import spark_kafka_sink

    builder = SparkSession.builder.master("local[2]").appName("letters")
    for name, value in spec["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark_kafka_sink.register(spark)
    rows = spark.read.parquet(spec["rows"])
    outcomes = []
    for number, options in enumerate(spec["writes"]):
        try:
            rows.write.format("kprod").options(**options).save()
            outcomes.append("")
        except Exception as error:
            outcomes.append(str(error))
            (out / f"traceback-{number}").write_text(traceback.format_exc())
        report = spark_kafka_sink.last_report(spark)
        (out / f"report-{number}").write_text(f"{report!r}\n{report and report.json()}")
    (out / "outcomes.json").write_text(json.dumps(outcomes))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
