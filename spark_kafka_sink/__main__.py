"""``python -m spark_kafka_sink``: the command line ``kprod``, where it is not on the PATH."""

from spark_kafka_sink.cli import main

if __name__ == "__main__":
    main()
