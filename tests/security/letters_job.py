"""A Spark application whose rows can't be sent, with everything at DEBUG.

Run by ``test_dead_letter_canary.py``: ``python -m tests.security.letters_job SPEC``.
"""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path

from spark_kafka_sink import last_report
from tests.security.debug_job import session_at_debug


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text())
    out = Path(spec["out"])
    spark = session_at_debug(spec, out)
    rows = spark.read.parquet(spec["rows"])
    outcomes = []
    for number, options in enumerate(spec["writes"]):
        try:
            rows.write.format("kprod").options(**options).save()
            outcomes.append("")
        except Exception as error:
            outcomes.append(str(error))
            (out / f"traceback-{number}").write_text(traceback.format_exc())
        report = last_report(spark)
        (out / f"report-{number}").write_text(f"{report!r}\n{report and report.json()}")
    (out / "outcomes.json").write_text(json.dumps(outcomes))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
