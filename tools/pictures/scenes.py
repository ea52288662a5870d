"""What the package is made of and does, a picture each."""

from __future__ import annotations

from tools.pictures.drawing import Drawing


def processes() -> str:
    """Processes, threads, and who talks to whom."""
    on = Drawing(
        "processes", 920, 470,
        "The driver plans and commits. Each Python worker has one producer with two threads.",
    )  # fmt: skip
    on.frame((10, 10, 270, 450), "Driver", "spark")
    on.box(
        (30, 50, 230, 84),
        "Planning",
        ["options and columns are checked,", "preflight: brokers, topic, rights"],
    )
    on.box((30, 188, 230, 62), "Spark's scheduler", ["runs the tasks, and repeats them"])
    on.box(
        (30, 304, 230, 84),
        "Commit",
        ["rows in = rows acknowledged?", "decide, end the transactions, report"],
        "own",
    )
    on.text(145, 424, "report: log line, JSON, metrics", "soft", "middle")
    on.arrow((145, 388), (145, 410))
    on.arrow((145, 134), (145, 188))
    on.arrow((145, 250), (145, 304))
    on.frame((340, 10, 310, 330), "Executor", "spark")
    on.frame((360, 44, 270, 232), "Python worker, one task", "plain")
    on.box(
        (376, 80, 238, 76),
        "Writer thread (Spark's)",
        ["Arrow columns to partitions", "to record bytes"],
        "own",
    )
    on.box(
        (376, 184, 238, 76),
        "Network thread",
        ["sends batches, retries;", "only it talks to brokers"],
        "own",
    )
    on.arrow((495, 156), (495, 184))
    on.text(503, 175, "batches", "soft")
    on.box((360, 288, 270, 40), "Next worker: its own producer")
    on.arrow((260, 219), (310, 219), (310, 118), (376, 118))
    on.text(283, 236, "plan", "soft")
    on.arrow((376, 240), (325, 240), (325, 346), (262, 346))
    on.text(337, 362, "commit message: rows, offsets,", "soft")
    on.text(337, 378, "prepared transaction", "soft")
    on.frame((720, 10, 190, 450), "Kafka", "kafka")
    for number, top in enumerate((56, 146, 236), start=1):
        on.box((740, top, 150, 64), f"Broker {number}", ["leads partitions"])
    on.box((740, 360, 150, 76), "Commit log", ["__kprod_commits", "with exactly-once"])
    for top in (88, 178, 268):
        on.arrow((614, 222), (740, top))
    on.text(684, 300, "Produce", "soft", "middle")
    on.arrow((260, 376), (300, 420), (740, 420))
    on.text(540, 412, "decision, EndTxn", "soft", "middle")
    return on.svg()


def way_of_a_record() -> str:
    """From a row to its acknowledgement."""
    on = Drawing(
        "way", 920, 420,
        "The writer thread encodes rows into batches. The network thread sends them to the brokers.",
    )  # fmt: skip
    on.rect(10, 14, 900, 116, "spark")
    on.text(24, 36, "Writer thread: thousands of rows at a time", "title")
    steps = (
        ("Arrow batch", ["from Spark"]),
        ("Columns", ["casts, nulls, headers"]),
        ("Partitions", ["murmur2 as in Java"]),
        ("Encode", ["record bytes, v2"]),
        ("Append", ["waits for memory"]),
    )
    for number, (title, lines) in enumerate(steps):
        left = 24 + 178 * number
        on.box((left, 52, 150, 62), title, lines)
        if number:
            on.arrow((left - 28, 83), (left, 83))
    on.box((711, 148, 199, 52), "Batches", ["by partition, compressed"], "own")
    on.arrow((811, 114), (811, 148))
    on.rect(10, 214, 900, 106, "spark")
    on.text(292, 308, "Network thread: up to five requests in flight", "title")
    back = (
        (736, "Drain", "ids, sequences, CRC"),
        (558, "Produce", "no copy of the batches"),
        (202, "Response", "done, split, or again"),
        (24, "Count", "rows in = rows acked"),
    )
    for left, title, line in back:
        on.box((left, 226, 150, 62), title, [line])
    on.box((380, 348, 150, 58), "Broker", ["appends, replicates"], "kafka")
    on.arrow((736, 257), (708, 257))
    on.arrow((633, 288), (633, 377), (530, 377))
    on.arrow((380, 377), (277, 377), (277, 288))
    on.arrow((202, 257), (174, 257))
    on.arrow((811, 200), (811, 226))
    on.arrow((99, 226), (99, 166), (210, 166))
    on.text(220, 171, "commit message to the driver")
    return on.svg()


_COMMIT = (
    ("task", "driver", "rows are written and acknowledged; transactions stay open", None),
    ("driver", "kafka", "1  open the commit log: fences every earlier driver", "nothing is visible; the batch runs again"),
    ("driver", "driver", "2  check: batch N is not done, the key is ours", None),
    ("driver", "kafka", "3  write DECIDED N, in a transaction of its own", "nothing is visible; the batch runs again"),
    ("driver", "kafka", "4  check the transactions; commit DECIDED N", "nothing is visible; the batch runs again"),
    (None, None, "the commit point", None),
    ("driver", "kafka", "5  EndTxn(commit) for each task's transaction", "the next start commits the rest, or PARTIAL"),
    ("driver", "kafka", "6  write DONE N", "the next start finds it committed"),
    ("driver", "kafka", "7  abort the transactions of dead attempts", "the next commit or the brokers abort them"),
    ("driver", "driver", "8  commit returns; Spark records N in its checkpoint", "Spark runs N again, and the sink drops it"),
)  # fmt: skip


def commit() -> str:
    """The commit protocol, with the moments at which a driver may die."""
    on = Drawing(
        "commit", 1030, 540,
        "The steps of an exactly-once commit, and what happens if the driver dies at a step",
    )  # fmt: skip
    lanes = {"task": 70, "driver": 200, "kafka": 580}
    for name, title, kind in (
        ("task", "Tasks", "spark"), ("driver", "Driver", "own"), ("kafka", "Kafka", "kafka"),
    ):  # fmt: skip
        on.box((lanes[name] - 50, 10, 100, 34), title, (), kind)
        on.line(lanes[name], 44, lanes[name], 530, "dashed")
    on.cross(656, 27)
    on.text(672, 32, "the driver dies here:", "title bad")
    for number, (start, end, words, dies) in enumerate(_COMMIT):
        y = 84 + 47 * number
        if start is None:
            on.rect(20, y - 22, 600, 30, "own")
            on.text(315, y - 2, words + ": from here on batch N is committed", "title", "middle")
            continue
        middle = (lanes["driver"] + 14, y - 7)
        if start == end:
            on.text(*middle, words)
        else:
            on.text(*((lanes["task"] + 12, y - 7) if start == "task" else middle), words)
            on.arrow((lanes[start], y), (lanes[end or start], y))
        if dies:
            on.cross(656, y - 3)
            on.text(672, y + 2, dies, "soft")
    return on.svg()


def states() -> str:
    """What becomes of a micro-batch in the commit log."""
    on = Drawing(
        "states", 960, 350,
        "A batch is prepared, decided and done. It is PARTIAL if brokers aborted some transactions.",
    )  # fmt: skip
    on.box((20, 40, 150, 70), "Prepared", ["all tasks' transactions", "open, acknowledged"])
    on.box((290, 40, 150, 70), "DECIDED", ["durable in the log"], "own")
    on.box((560, 40, 150, 70), "DONE", ["every row visible once"], "own")
    on.box((20, 220, 150, 70), "Aborted", ["nothing visible;", "Spark writes again"])
    on.box((290, 220, 150, 70), "Undone", ["none was committed;", "all are aborted"])
    on.box(
        (560, 220, 150, 70),
        "PARTIAL",
        ["some rows are missing:", "an error at each start"],
        "bad-box",
    )
    on.box((790, 130, 160, 70), "Resolved", ["by an operator:", "kprod txn resolve"])
    on.arrow((170, 75), (290, 75))
    on.text(230, 66, "commit point", "soft", "middle")
    on.arrow((440, 75), (560, 75))
    on.text(500, 66, "EndTxn for all", "soft", "middle")
    on.arrow((95, 110), (95, 220))
    on.text(104, 150, "failed, or the", "soft")
    on.text(104, 166, "driver died", "soft")
    on.arrow((350, 110), (350, 220))
    on.text(340, 190, "restarted too late,", "soft", "end")
    on.text(340, 206, "before any EndTxn", "soft", "end")
    on.arrow((410, 110), (560, 230))
    on.text(500, 150, "restarted too late,", "soft")
    on.text(512, 166, "after some EndTxn, not all", "soft")
    on.arrow((290, 255), (170, 255))
    on.arrow((710, 244), (790, 184))
    on.arrow((800, 130), (710, 92))
    on.text(766, 104, "--as done", "soft")
    on.arrow((870, 200), (870, 332), (365, 332), (365, 290))
    on.text(620, 324, "--as replay: the batch is written again", "soft", "middle")
    return on.svg()


def connections() -> str:
    """Connections are tasks times leaders."""
    on = Drawing(
        "connections", 920, 300,
        "Each running task connects to each broker that leads a partition it writes to",
    )  # fmt: skip
    on.frame((10, 10, 220, 280), "Running tasks: 4", "spark")
    on.frame((380, 10, 200, 280), "Leaders: 3", "kafka")
    tasks = [64 + 54 * number for number in range(4)]
    brokers = [70 + 72 * number for number in range(3)]
    for number, y in enumerate(tasks, start=1):
        on.box((30, y - 18, 180, 40), f"Task {number}: one producer")
        for broker in brokers:
            on.arrow((210, y + 2), (400, broker + 2))
    for number, y in enumerate(brokers, start=1):
        on.box((400, y - 18, 160, 44), f"Broker {number}")
    on.text(620, 64, "4 tasks x 3 leaders = 12 connections", "title")
    on.text(620, 100, "200 tasks x 12 leaders = 2400", "title")
    for number, line in enumerate(
        (
            "Tasks: the tasks that run at once (at most",
            "the cores of all executors).",
            "Leaders: brokers with a partition",
            "of the topic. To have fewer: coalesce,",
            "or a topic on fewer brokers.",
            "A worker keeps connections for its next",
            "task. Idle ones are closed after 9 minutes.",
        )
    ):
        on.text(620, 138 + 20 * number, line, "soft")
    return on.svg()


def secrets() -> str:
    """Where a secret travels, and where it never is."""
    on = Drawing(
        "secrets", 920, 380,
        "A reference travels through Spark. Each process reads the secret itself.",
    )  # fmt: skip
    on.box(
        (20, 20, 250, 76),
        "Your code",
        ["option: ${file:/etc/secrets/kafka}", "a reference, not the secret"],
    )
    on.frame((330, 10, 270, 180), "Spark sees the reference only", "spark")
    for number, line in enumerate(
        (
            "plan, explain, SQL page of the UI",
            "event log, checkpoint",
            "task description, shuffle, logs",
        )
    ):
        on.text(350, 62 + 28 * number, line)
    on.text(350, 158, "tests search these places for secrets", "soft")
    on.arrow((270, 58), (330, 58))
    on.box(
        (20, 250, 250, 100),
        "Secret",
        [
            "a mounted file or an environment",
            "variable, the same path on the",
            "driver and on each executor",
        ],
        "bad-box",
    )
    on.box((660, 20, 240, 76), "Driver's planner", ["reads the secret to check, commit"], "own")
    on.box((660, 150, 240, 76), "Python worker of a task", ["reads the secret to connect"], "own")
    on.arrow((600, 58), (660, 58))
    on.arrow((600, 150), (660, 180))
    on.arrow((270, 300), (630, 300), (630, 80), (660, 80))
    on.arrow((630, 210), (660, 210))
    on.text(290, 292, "read on each machine; logs show [hidden]", "soft")
    on.box((660, 290, 240, 70), "Broker", ["TLS first; SCRAM: a proof only"], "kafka")
    on.arrow((780, 226), (780, 290))
    return on.svg()
