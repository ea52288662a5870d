"""What is done to an application: brokers down, requests late, strangers, neighbours, operators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.transactional_ids import log_id, parse
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.processes import Process
from tests.simulation.scheduler import Task
from tests.simulation.seeded_cluster import NODES
from tests.simulation.spark_observer import KNOWN_MS
from tests.simulation.spark_sink import config_of
from tests.simulation.spark_tasks import new_client
from tests.simulation.spark_world import LOG_TOPIC
from tests.simulation.spark_writes import READERS, STRANGER, Start

if TYPE_CHECKING:
    from tests.simulation.spark_application import Application

#: A broker is down, or cut off, for no longer, whatever happens.
_AWAY_MS = 30_000
#: So long a version that is written again waits for the commit of the next one.
_NEXT_MS = 3_000
#: So many others die in the log's partition, one after the other; more only take time.
_NEIGHBOURS = 60


class Disturbances:
    """``lay`` lays what is in the way from the beginning; all else happens when it is called."""

    def __init__(self, app: Application) -> None:
        self._app = app
        #: The broker that was cut off as the log's leader.
        self.deposed: int | None = None
        #: Processes of operators and neighbours.
        self.helpers: list[Process] = []
        #: Threads that write a version again.
        self._repeating: set[Task | None] = set()
        self._commits = 0
        self._lost = self._met = self._ends_lost = self._ends_late = False

    def lay(self) -> None:
        app, life, control = self._app, self._app.life, self._app.cluster.control
        app.cluster.marker_ms = life.marker_ms
        if life.group_in_use:
            app.cluster.groups.members[READERS] = "Stable"
        if life.absent_node and not life.deposed:
            # It is down when the first driver learns who there is.
            app.cluster.stop_broker(life.absent_node)
            app.timeline.after(_AWAY_MS, self.absent_is_back)
        if life.late_sweeps:
            for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
                control.hold(api, life.late_sweeps, FOREVER, where=self._sweeps)
        if life.late_init:
            control.hold(ApiKey.INIT_PRODUCER_ID, life.late_init, nth=1, where=_is_a_tasks)
        if life.late_add:
            control.hold(ApiKey.ADD_PARTITIONS_TO_TXN, life.late_add, nth=1)
        if life.late_own:
            for api in (ApiKey.TXN_OFFSET_COMMIT, ApiKey.PRODUCE):
                control.hold(api, life.late_own, where=self._meets_a_start)
        if life.mute_log:
            own = log_id(app.key)
            control.drop(
                ApiKey.END_TXN, life.mute_log, where=lambda r: r.body.transactional_id == own
            )
        if life.crowded:
            app.cluster.create_topic(LOG_TOPIC, 1, configs={"cleanup.policy": "compact"})
        if life.unreachable:
            app.cluster.brokers[NODES + 1] = 9092 + NODES + 1
            app.machine.ports[9092 + NODES + 1] = NODES + 1
            app.cluster.unreachable.add(NODES + 1)

    # -- brokers --

    def absent_is_back(self) -> None:
        if self._app.life.absent_node in self._app.cluster.down:
            self._app.cluster.start_broker(self._app.life.absent_node)

    def until_the_next_trigger(self, run: Start) -> None:
        """After the first batch: a broker is back; or another driver takes over while this one is
        idle, which plans again then.
        """
        app = self._app
        if app.life.absent_node:
            self.absent_is_back()
            app.scheduler.sleep(KNOWN_MS + 2_000)
        if app.life.idles and run is app.runs[0]:
            app.fired["= a driver was overtaken while it was idle"] += 1
            app.start_another()
            others = [one for one in app.runs if one is not run]
            app.scheduler.block(
                lambda: len(app.commits) > 1 or all(one.over for one in others), NEVER
            )

    def at_a_commit(self, run: Start) -> None:
        """In the first run's the log's leader is cut off; in the next driver's it is soon back. A
        version that is written again is dropped beside the commit of the next one.
        """
        scheduler = self._app.scheduler
        if scheduler.current in self._repeating:
            before = self._commits
            scheduler.block(lambda: self._commits > before, scheduler.now + _NEXT_MS)
            scheduler.sleep(self._app.fate.choice((0, 5, 20, 50)))
        else:
            self._commits += 1
        if not self._app.life.deposed:
            return
        if self.deposed is None:
            self._depose()
        elif run is not self._app.runs[0]:
            # When it has read the log there, and can't write to it.
            self._rejoins(self.deposed, self._app.fate.randint(500, 4_000))

    def _depose(self) -> None:
        """The log's leader is cut off, and the next driver knows no other broker."""
        app = self._app
        hashed = (murmur2_of(app.key.encode()) & 0x7FFFFFFF) % 16
        log = app.cluster.logs.get(TopicPartition(LOG_TOPIC, 0 if app.life.crowded else hashed))
        if log is None or log.leader < 0:
            return
        self.deposed = log.leader
        app.fired["= the log's leader was deposed"] += 1
        app.cluster.cut_off(log.leader)
        self._rejoins(self.deposed, _AWAY_MS)

    def _rejoins(self, node: int, after_ms: int) -> None:
        self._app.timeline.after(after_ms, lambda: self._app.cluster.rejoin(node))

    def at_a_decision(self, decided: tuple[str, ...]) -> None:
        """Its first transaction has no coordinator for a while, once; or all coordinators load."""
        app = self._app
        if app.life.meanwhile and decided and not self._met:
            self._met = True
            self._meet()
        if app.life.late_end and decided and not self._ends_late:
            self._ends_late = True
            self._hold_ends(decided[0])
        if app.life.lost_coordinator and decided and not self._lost:
            self._lost = True
            app.fired["= a coordinator was lost behind the decision"] += 1
            node, ms = app.fate.randint(1, NODES), app.life.lost_coordinator
            app.cluster.move_coordinator(decided[0], node, resigned_ms=ms)

    def _meet(self) -> None:
        """Somebody else comes behind the first decision; and coordinators of data load for a while,
        so that who has decided still works on it then.
        """
        app, own = self._app, log_id(self._app.key)
        if app.life.loads_ms:
            app.fired["= coordinators load behind the decision"] += 1
            fault = app.cluster.control.answer(
                ApiKey.END_TXN,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                FOREVER,
                where=lambda r: r.body.transactional_id != own,
            )
            app.timeline.after(app.life.loads_ms, fault.stop)
        comes = app.life.comes_ms
        if app.life.meanwhile == "operator":
            app.timeline.after(comes, lambda: app.operators.operate("commit"))
        else:
            app.timeline.after(comes, app.start_another)

    def _hold_ends(self, first: str) -> None:
        """The request to commit ``first`` arrives when another start undoes the decision: it has
        looked, and the coordinators load.
        """
        app, own = self._app, log_id(self._app.key)
        app.fired["= ends held behind the decision"] += 1
        arrives_ms = app.scheduler.now + app.life.late_end

        def commits_first(request: Request) -> bool:
            return bool(request.body.transactional_id == first and request.body.committed)

        def is_refused(request: Request) -> bool:
            arrived = commits_first(request) and app.scheduler.now >= arrives_ms
            return request.body.transactional_id != own and not arrived

        control = app.cluster.control
        control.hold(ApiKey.END_TXN, app.life.late_end, where=commits_first)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        fault = control.answer(ApiKey.END_TXN, loading, FOREVER, where=is_refused)
        until = app.life.late_end + 400
        app.timeline.after(until, fault.stop)

    def _meets_a_start(self, request: Request) -> bool:
        if self._met or not _is_the_drivers(request):
            return False
        self._met = True
        self._app.fired["= a start while the driver's own transaction is open"] += 1
        self._app.timeline.after(0, self._app.start_another)
        return True

    def at_a_start(self, run: Start) -> None:
        """Requests of the second one to commit what the first one has decided get lost."""
        app = self._app
        decided = app.observer.decided_ids()
        if app.life.lost_ends and run is not app.runs[0] and decided and not self._ends_lost:
            self._ends_lost = True
            app.fired["= requests of a roll forward lost"] += 1
            app.cluster.control.drop(
                ApiKey.END_TXN,
                app.life.lost_ends,
                processed=False,
                where=lambda r: r.body.transactional_id == decided[0] and r.body.committed,
            )

    def take_rights(self) -> None:
        """An administrator's mistake, for seconds: data transactions may not be ended."""
        self._app.fired["= rights taken"] += 1
        own = log_id(self._app.key)
        fault = self._app.cluster.control.answer(
            ApiKey.END_TXN,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            FOREVER,
            nth=self._app.fate.choice((1, 1, 2)),
            where=lambda r: r.body.transactional_id != own,
        )
        self._app.timeline.after(3_000, fault.stop)

    def _sweeps(self, request: Request) -> bool:
        """It ends, or fences, a transaction that no task has reported. (The driver begins its own,
        of a report or of offsets, with InitProducerId, too.)
        """
        body = request.body
        if not _is_a_tasks(request) or getattr(body, "committed", False):
            return False
        if _is_the_drivers(request) and request.api == ApiKey.INIT_PRODUCER_ID:
            return False
        told = {t.transactional_id for w in self._app.writes[-2:] for t in w.transactions}
        from_driver = request.client_id != "spark-kafka-sink"
        return from_driver and str(body.transactional_id) not in told

    # -- people --

    def stop_now(self, process: Process) -> None:
        """The user stops the query whose call ``process`` makes."""
        for run in self._app.runs:
            if run.process is process.parent:
                run.stopped = True

    def stop_soon(self, run: Start) -> None:
        def stop() -> None:
            if not run.over:
                self._app.fired["= stopped by the user"] += 1
                self._app.note(f"{run.id}: the user stops it")
                run.stopped = True

        ms = self._app.fate.choice((5, 20, 40, 60, 100, 200, 600, 2_000))
        self._app.timeline.after(ms, stop)

    def start_stranger(self) -> None:
        """Another query under the same name: with a new checkpoint, or a copied one."""
        app, number = self._app, self._app.life.stranger_at
        assert number is not None
        run = app.new_start("run-s", "stranger")
        run.query = app.life.stranger_query
        run.checkpoint = "copied"
        app.fired["= strangers under the same name"] += 1

        def body() -> None:
            try:
                app.one(run, number, STRANGER + number)
            except KafkaError as error:
                app.note(f"stranger: {type(error).__name__}: {error.message}")
            finally:
                run.ended = True

        run.process.start(body, "a batch")

    def repeat(self, run: Start, number: int) -> None:
        """In a thread: a version that is done."""
        app = self._app
        app.fired["= versions written again in a thread"] += 1

        def body() -> None:
            self._repeating.add(app.scheduler.current)
            try:
                app.one(run, number)
            except KafkaError as error:
                app.note(f"{run.id}, again: {type(error).__name__}: {error.message}")

        run.process.start(body, f"version {number} again")

    def start_sibling(self, beside: Start) -> None:
        """Another query of the same application, with a checkpoint of its own and the same name: it
        goes on until it is stopped. (Spark Connect has a Python process for each.)
        """
        app = self._app
        run = app.new_start("run-q", "driver", None if app.life.connect else beside.process)
        run.query, run.checkpoint, run.is_main = "query-9", "other", False
        app.fired["= siblings of the same name"] += 1

        def body() -> None:
            try:
                for number in range(app.life.batches):
                    app.scheduler.sleep(app.fate.choice((0, 50, 400)))
                    app.one(run, number, STRANGER + number)
            except KafkaError as error:
                app.note(f"sibling: {type(error).__name__}: {error.message}")
            finally:
                run.ended = True

        run.process.start(body, "a sibling's batches")

    def start_neighbours(self) -> None:
        """Each writes its key into the log's partition, and dies before the end of its write."""
        self._app.cluster.control.drop(
            ApiKey.END_TXN, FOREVER, processed=False, where=_is_neighbours
        )
        self._neighbour(0)

    def _neighbour(self, number: int) -> None:
        app = self._app
        if app.is_done or number == _NEIGHBOURS:
            return
        process = self._helper("neighbour")

        def body() -> None:
            config = config_of(tuple(app.given.items())).producer
            client = TransactionClient(config, clock=app.scheduler, new_client=new_client(process))
            log = CommitLog(client, LOG_TOPIC)
            app.timeline.after(5_000, process.kill)
            deadline = app.scheduler.now + 20_000
            try:
                log.open(f"eu{number}", deadline).write(
                    CommitState(generation=1, run_id="theirs"), deadline
                )
            except KafkaError:
                return

        process.start(body, "writes")
        app.timeline.after(700, lambda: self._neighbour(number + 1))

    def _helper(self, role: str) -> Process:
        process = self._app.machine.process(role)
        self.helpers.append(process)
        return process


def _is_a_tasks(request: Request) -> bool:
    return "~~" not in str(request.body.transactional_id)


def _is_the_drivers(request: Request) -> bool:
    one = parse(str(request.body.transactional_id))
    return one is not None and one.worker in ("report", "offsets")


def _is_neighbours(request: Request) -> bool:
    return str(request.body.transactional_id).startswith("eu")
