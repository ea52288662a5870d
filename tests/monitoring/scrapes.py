"""What Prometheus' own tool makes of what listeners export, minute by minute."""

import math
import re
import subprocess
from collections import defaultdict
from pathlib import Path

import yaml
from prometheus_client import CollectorRegistry

from spark_kafka_sink import KprodListener
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics

ROOT = Path(__file__).parents[2]
RULES = ROOT / "conf/monitoring/kprod-alerts.yml"


class Driver:
    """A driver's process with one listener, scraped as ``instance``."""

    def __init__(self, scrapes, instance="a"):
        self.registry = CollectorRegistry()
        self.reports = []
        self.instance = instance
        self.listener = KprodListener(
            PrometheusMetrics(self.registry), reports=self._new, wall_s=lambda: scrapes.now
        )

    def _new(self):
        new, self.reports = self.reports, []
        return new


class Scrapes:
    """A scrape each minute, from time 0 on, of the drivers that live then."""

    def __init__(self, folder):
        self._folder = folder
        self._minutes = 0
        self._series = defaultdict(dict)

    @property
    def now(self):
        return self._minutes * 60.0

    def scrape(self, *drivers, minutes=1, before=lambda: None):
        """``before`` runs before each of them."""
        for _ in range(minutes):
            before()
            for driver in drivers:
                for metric in driver.registry.collect():
                    for one in metric.samples:
                        if one.name.startswith("kprod_") and not one.name.endswith("_created"):
                            self._series[_selector(one, driver)][self._minutes] = one.value
            self._minutes += 1

    def firing(self):
        """The names of the alerts that fire at the last scrape."""
        test = {
            "interval": "1m",
            "input_series": [
                {"series": name, "values": self._values(found)}
                for name, found in self._series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                    "eval_time": f"{self._minutes - 1}m",
                    # Never so: what there is is in the error.
                    "exp_samples": [{"labels": "{}", "value": -1}],
                }
            ],
        }
        file = self._folder / "scrapes.test.yml"
        rules = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
        file.write_text(yaml.safe_dump(rules))
        ran = subprocess.run(
            ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
        )
        (_, got) = (ran.stdout + ran.stderr).split("got:")
        return set(re.findall(r'alertname="(\w+)"', got))

    def _values(self, found):
        """Prometheus marks a series as stale when a scrape does not have it any more."""
        texts = []
        for minute in range(self._minutes):
            if minute in found:
                texts.append(_number(found[minute]))
            else:
                texts.append("stale" if minute - 1 in found else "_")
        return " ".join(texts)


def _number(value):
    return "NaN" if math.isnan(value) else f"{value:g}" if value < 1e6 else str(int(value))


def _selector(sample, driver):
    labels = sample.labels | {"instance": driver.instance, "job": "spark"}
    return sample.name + "{" + ",".join(f'{k}="{v}"' for k, v in sorted(labels.items())) + "}"
