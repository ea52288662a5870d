"""Generates docs/upstream-behaviours.md: behaviours that Kafka's own tests check, and our tests.

This module has the list of the behaviours by the names of Kafka's tests (apache/kafka,
clients/src/test), and the reasons why some of them do not apply here. It finds our tests by their
docstrings: the docstring begins with the name of Kafka's test. ``generate_docs.py`` runs this
module. It fails if a behaviour has neither a test nor a reason, or if one of our tests has a name
that is not in the list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: By group: Kafka's tests, and the behaviour that they show. If Kafka has no such test, the name is
#: the method of Java's client that has the behaviour. Our tests name Kafka's test.
_LIST = """
# Test vectors
UtilsTest#testMurmur2
  murmur2 returns the same hashes as Java's method
DefaultPartitionerTest#testKeyPartitionIsStable
  the partition of a key is (hash & 0x7fffffff) % count of all partitions
Crc32CTest#testValue
  CRC-32C returns the checksums of the vectors
ByteUtilsTest#testVarintSerde ByteUtilsTest#testVarlongSerde ByteUtilsTest#testInvalidVarint
ByteUtilsTest#testInvalidVarlong
  signed varints of 32 and 64 bits are encoded as in Java; a varint with too many bytes is refused
ByteUtilsTest#testUnsignedVarintSerde
  unsigned varints are encoded as in Java
TransactionManagerTest#testSequenceNumberOverflow DefaultRecordBatchTest#testIncrementSequence
  sequence numbers wrap at 2^31
# Records and batches
DefaultRecordBatchTest#testInvalidCrc DefaultRecordBatchTest#testInvalidRecordSize
DefaultRecordBatchTest#testInvalidRecordCountTooManyNonCompressedV2
  a batch is refused if its checksum or count is wrong, or if it is shorter than its header
DefaultRecordTest#testNullHeaderKey DefaultRecordTest#testInvalidHeaderKey
DefaultRecordTest#testInvalidHeaderValue DefaultRecordTest#testInvalidValueSize
  a header's key may not be null, a header's value may be null; a size past the end is refused
MemoryRecordsBuilderTest#testWriteTransactionalWithInvalidPID
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidEpoch
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidBaseSequence
  producer fields that contradict each other are refused
MemoryRecordsBuilderTest#buildUsingCreateTime
  the maximal timestamp is the largest, not the last; a timestamp before 1970 is refused
MemoryRecordsBuilderTest#shouldThrowIllegalStateExceptionOnAppendWhenClosed
MemoryRecordsBuilderTest#testWriteEmptyRecordSet
  no rows encode to no bytes; a closed batch takes no more rows
MemoryRecordsBuilderTest#testSmallWriteLimit MemoryRecordsBuilderTest#writePastLimit
  the first record always fits; further records fit while there is room
CompressionRatioEstimatorTest#testUpdateEstimation MemoryRecordsBuilderTest#testEstimatedSizeInBytes
  the size of a compressed batch is estimated from a ratio, which rises and falls with the batches
# Configuration and send
KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig
KafkaProducerTest#testAcksAndIdempotenceForIdempotentProducers
KafkaProducerTest#testRetriesAndIdempotenceForIdempotentProducers
KafkaProducerTest#testInflightRequestsAndIdempotenceForIdempotentProducers
  options that contradict each other have Java's error or warning
KafkaProducerTest#testMetadataTimeoutWithMissingTopic
KafkaProducerTest#testMetadataTimeoutWithPartitionOutOfRange
  an unknown topic or partition blocks for max.block.ms; the error has the brokers' reason
KafkaProducerTest#testSendToInvalidTopic
  outside of a transaction, an invalid topic name fails only its own record
KafkaProducer#doSend
  the wait for metadata and the wait for memory together last at most max.block.ms
KafkaProducerTest#testCommitTransactionWithRecordTooLargeException
KafkaProducerTest#testCommitTransactionWithMetadataTimeoutForMissingTopic
  after a record that can't be sent, its transaction can only be aborted
KafkaProducerTest#testPartitionAddedToTransaction KafkaProducerTest#testHeaders
  a partition joins the transaction after the append; headers can't be changed later
# BufferPool
BufferPoolTest#testSimple
  released memory is used again
BufferPoolTest#testCantAllocateMoreMemoryThanWeHave
  a request for more than the whole pool is refused immediately; the whole pool can be allocated
BufferPoolTest#testDelayedAllocation
  a waiting thread collects the memory that other threads release, piece by piece
BufferPoolTest#testBlockTimeout BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnBlockTimeout
  a wait ends in time, leaves the queue, and releases the memory that it has collected
BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnInterruption
  an interrupted wait releases everything
BufferPool#allocate
  the thread that has waited longest gets memory first
BufferPoolTest#testCloseNotifyWaiters BufferPoolTest#testCloseAllocations
BufferPoolTest#testLargeAvailableMemory BufferPoolTest#testStressfulSituation
  close wakes all waiting threads; totals may be large; many threads leave the total unchanged
# RecordAccumulator
RecordAccumulatorTest#testFull
  a full batch is sent before linger.ms is over
RecordAccumulatorTest#testLinger
  a batch is ready at linger.ms, and not before
RecordAccumulatorTest#testNextReadyCheckDelay
  the next check is due when the first batch has waited for its linger time or its backoff
RecordAccumulatorTest#testAppendLargeNonCompressed RecordAccumulatorTest#testAppendLargeCompressed
  a record larger than batch.size gets its own batch
RecordAccumulator#drainBatchesForOneNode
  a drain takes at most one batch of a partition
RecordAccumulatorTest#testPartialDrain
  a drain ends at the size limit of a request; a single larger batch is taken alone
RecordAccumulatorTest#testDrainBatches
  the next drain begins at the partition after the last one
RecordAccumulatorTest#testMutedPartitions
  a muted partition is neither ready nor drained
RecordAccumulatorTest#testFlush RecordAccumulatorTest#testRecordsDrainedWhenTransactionCompleting
  waiting threads, flush, close and the end of a transaction make every batch ready
RecordAccumulatorTest#testRetryBackoff RecordAccumulatorTest#testExponentialRetryBackoff
  the backoff of a retry counts from its last attempt and delays no other partition
RecordAccumulatorTest#testExponentialRetryBackoffLeaderChange
RecordAccumulatorTest#testReadyAndDrainWhenABatchIsBeingRetried
  a newer leader epoch ends the current backoff of a batch; the next retry has a backoff again
RecordAccumulator#insertInSequenceOrder
  a retry goes to the head of the queue; an idempotent producer keeps the order of sequences there
RecordAccumulatorTest#testExpiredBatches RecordAccumulatorTest#testExpiredBatchSingle
SenderTest#testExpiredBatchesInMultiplePartitions
  batches expire at delivery.timeout.ms, the oldest first
RecordAccumulatorTest#testSoonToExpireBatchesArePickedUpForExpiry
  the poll lasts at most until the next expiry
RecordAccumulatorTest#testSplitAndReenqueue ProducerBatchTest#testSplitPreservesHeaders
ProducerBatchTest#testSplitPreservesMagicAndCompressionType
  a split keeps age, headers, codec and futures; its batches go to the head of the queue in order
RecordAccumulatorTest#testSplitBatchOffAccumulator
  a batch can be split down to single records
RecordAccumulatorTest#testSplitFrequency
  few batches are split if the compressibility of records is mixed
RecordAccumulatorTest#testAwaitFlushComplete
  flush waits for all batches that exist, and for the batches that they are split into
RecordAccumulatorTest#testAbortIncompleteBatches RecordAccumulatorTest#testAbortUnsentBatches
  abort fails all batches, or all undrained batches, and releases their memory
RecordAccumulator#ready
  a partition with data and without a leader requests metadata
RecordAccumulatorTest#testStressfulSituation
  many writers with little memory lose no record
RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches
  the sticky partitioner leaves no fractions of batches
# ProducerBatch
ProducerBatchTest#testBatchCannotCompleteTwice ProducerBatchTest#testBatchAbort
ProducerBatchTest#testBatchCannotAbortTwice
  a batch ends exactly once; callbacks run once, in order
ProducerBatchTest#testCompleteExceptionallyWithRecordErrors
  the error of a single record reaches its future
ProducerBatchTest#testBatchExpiration ProducerBatchTest#testBatchExpirationAfterReenqueue
  a clock that goes back expires no batch
ProducerBatchTest#testWithLeaderChangesAcrossRetries
  a change of the leader counts only for the next retry of a batch
# Partitioner
BuiltInPartitionerTest#testStickyPartitioning
  the sticky partition changes after enough bytes
BuiltInPartitionerTest#unavailablePartitionsTest
  partitions without a leader are chosen only if no partition has a leader
BuiltInPartitionerTest#adaptivePartitionsTest
  the lengths of the queues determine the frequencies of partitions
RecordAccumulatorTest#testAdaptiveBuiltInPartitioner
  a node that accepts no data for too long is left out
BuiltInPartitioner#nextPartition
  a rack-aware partitioner prefers leaders in its own rack, if there are any
# Sender
SenderTest#testSimple
  a batch is sent and acknowledged
SenderTest#testRetries
  a disconnect causes a retry, up to the limit
SenderTest#testSendInOrder
  with one request in flight, the second batch waits, even during a retry
Sender#handleProduceResponse
  with acks=0, a batch completes without an offset when it is written to the socket
SenderTest#testInitProducerIdRequest SenderTest#testSenderShouldRetryWithBackoffOnRetriableError
  no batch is sent before there is a producer id
SenderTest#testIdempotenceWithMultipleInflights
  five batches are in flight, and the sixth waits
SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder
  after the first batch has failed, the others are sent again in order
SenderTest#testCorrectHandlingOfOutOfOrderResponses
SenderTest#testCorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds
  the acknowledgement of a later batch completes an earlier batch that waits for its retry
SenderTest#testCorrectHandlingOfDuplicateSequenceError
  a duplicate counts as a success
SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached
SenderTest#testTransactionalUnknownProducerHandlingWhenRetentionLimitReached
  after UNKNOWN_PRODUCER_ID, the batch fails and its transaction can only be aborted
SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences
SenderTest#testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences
  the outcome of a batch that expired unsent is known; a batch that expired in flight is unresolved
SenderTest#testUnresolvedSequencesAreNotFatal
SenderTest#testExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed
SenderTest#testReceiveFailedBatchTwiceWithTransactions
  an unresolved batch is resolved by its own late response, or by a later acknowledgement
SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted
  after a batch has failed permanently, the sequences of the batches after it are rewritten
SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived
SenderTest#testEpochBumpOnOutOfOrderSequenceForNextBatch
  after a sequence out of order, the producer gets a new epoch
TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump
  while a failed partition waits for a new epoch, the other partitions continue
SenderTest#testIdempotentSplitBatchAndSend SenderTest#testTransactionalSplitBatchAndSend
  a too large batch with several records becomes two batches with the same sequences
SenderTest#testTooLargeBatchesAreSafelyRemoved
SenderTest#testExpiredBatchDoesNotSplitOnMessageTooLargeError
SenderTest#testExpiredBatchDoesNotRetry
  a too large batch with one record fails, and so does a too old batch
SenderTest#testInflightBatchesExpireOnDeliveryTimeout SenderTest#testNoDoubleDeallocation
  a batch that expires in flight releases its memory when its response comes
SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
  a batch that expires in flight is resolved before the next batch is sent
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation
  a hint of the new leader is used immediately; without a hint, metadata is requested
SenderTest#testRecordErrorPropagatedToApplication SenderTest#testDefaultErrorMessage
SenderTest#testCustomErrorMessage
  an error reaches each record with its message
SenderTest#testCanRetryWithoutIdempotence
  without idempotence a failed batch fails alone
SenderTest#testCancelInFlightRequestAfterFatalError
SenderTest#testUnsupportedVersionInProduceRequest
SenderTest#testClusterAuthorizationExceptionInProduceRequest
  after a fatal error no further request is sent
SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction
SenderTest#testRecordsFlushedImmediatelyOnTransactionCompletion
  commit sends all records first and then ends the transaction
SenderTest#testIncompleteTransactionAbortOnShutdown
SenderTest#testForceShutdownWithIncompleteTransaction
SenderTest#testTransactionalRequestsSentOnShutdown
SenderTest#testSenderShouldCloseWhenTransactionManagerInErrorState
SenderTest#testSenderShutdownWithPendingTransactions
KafkaProducerTest#testCloseIsForcedOnPendingFindCoordinator
  close sends all records and aborts a transaction; a forced close can't hang
SenderTest#testDoNotPollWhenNoRequestSent
  while a batch waits, the sender's loop sleeps in one poll in each round
# TransactionManager
TransactionManagerTest#testBasicTransaction
  requests are sent in order, one at a time
TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction
TransactionManagerTest#testFailIfNotReadyForSendNoProducerId
TransactionManagerTest#testInitializeTransactionsTwiceRaisesError
  send before init or begin is refused, and so is a second init
TransactionManagerTest#testMaybeAddPartitionToTransaction
TransactionManagerTest#testNoDrainWhenPartitionsPending
  with TV1, a partition is drained after AddPartitionsToTxn
TransactionManagerTest#testTransactionManagerEnablesV2
  with TV2, the producer sends Produce 12 and EndTxn 5, and no AddPartitionsToTxn
TransactionManager#nextRequest
  a transaction without partitions ends without a request
TransactionManagerTest#testEndTxnNotSentIfIncompleteBatches
TransactionManagerTest#testFlushPendingPartitionsOnCommit
TransactionManagerTest#testCommitTransactionWithUnsentProduceRequest
  EndTxn waits for all batches and for all AddPartitionsToTxn requests
TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffWhenPartitionsAlreadyAdded
  after CONCURRENT_TRANSACTIONS, the first partitions are retried sooner than later partitions
TransactionManagerTest#testRetriableErrors TransactionManagerTest#testCoordinatorNotAvailable
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError
  after any other retriable error, a request is repeated after retry.backoff.ms
TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend
TransactionManagerTest#testLookupCoordinatorOnDisconnectBeforeSend
TransactionManagerTest#testLookupCoordinatorOnNotCoordinatorError
TransactionManagerTest#testDisconnectAndRetry
TransactionManagerTest#testFindCoordinatorAllowedInAbortableErrorState
  if the coordinator moves or is lost, it is found again
TransactionManagerTest#testProducerFencedExceptionInInitProducerId
TransactionManagerTest#testProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInInitProducerId
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInEndTxn
  fencing is fatal for a producer
TransactionManagerTest#testInvalidProducerEpochFromProduce
SenderTest#testInvalidTxnStateIsAnAbortableError
  an old epoch or a wrong state in a Produce response is abortable
TransactionManagerTest#testInvalidTxnStateInAddPartitions
TransactionManagerTest#testTransactionalIdAuthorizationFailureInAddPartitions
  a wrong state, or no right to the id, in AddPartitionsToTxn or EndTxn is fatal
TransactionManagerTest#testTransactionalIdAuthorizationFailureInInitProducerId
  no right to the id in InitProducerId is not fatal, because the right may be granted
TransactionManagerTest#testUnsupportedFindCoordinator
  a request without a common version is fatal
TransactionManagerTest#testTopicAuthorizationFailureInAddPartitions
TransactionManagerTest#shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed
  without the right to write to a topic, the transaction can only be aborted
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionNotStarted
  after an abortable error and the abort, the producer works again
TransactionManagerTest#testAbortResendsProduceRequestIfRetried
TransactionManagerTest#testAbortResendsAddPartitionErrorIfRetried
  an abort sends pending retries first
TransactionManagerTest#testCancelUnsentAddPartitionsAndProduceOnAbort
SenderTest#testTransactionAbortedExceptionOnAbortWithoutError
  an abort drops records that were not sent
TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId
TransactionManagerTest#testTransactionAbortableExceptionInAddPartitions
TransactionManagerTest#testTransactionAbortableExceptionInEndTxn
TransactionManagerTest#testTransactionAbortableExceptionInFindCoordinator
SenderTest#testTransactionAbortableExceptionIsAnAbortableError
  after TRANSACTION_ABORTABLE, the transaction can only be aborted
TransactionManagerTest#testDisallowCommitOnProduceFailure
TransactionManagerTest#testAllowAbortOnProduceFailure
  a failed batch forbids the commit
TransactionManagerTest#testRetryCommitTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterCommitTimeout
TransactionManagerTest#testRetryCommitTransactionAfterAbortTimeout
TransactionManagerTest#testRetryInitTransactionsAfterTimeout
  a commit or abort that timed out may be repeated, but not replaced by its opposite
TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry
TransactionManagerTest#testDropCommitOnBatchExpiry
TransactionManagerTest#testTransitionToFatalErrorWhenRetriedBatchIsExpired
  an expired batch forbids the commit
TransactionManager.EndTxnHandler#handleResponse
  with TV2, EndTxn returns the next epoch; after the last epoch it returns a new producer id
TransactionManager#maybeUpdateTransactionV2Enabled
  if a cluster changes to TV2, an open transaction ends in TV1, and the next begins in TV2
TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal
TransactionManagerTest#testForegroundInvalidStateTransitionIsRecoverable
  an illegal state transition is fatal on the network thread, and an error on the caller's thread
# The transaction coordinator, and the producer's requests to it
TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit
TransactionCoordinatorTest#shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch
TransactionCoordinatorTest#shouldUseLastEpochToFenceWhenEpochsAreExhausted
  in the tests' fake broker, EndTxn, its retries, timeouts and fencing end as in a real broker
TransactionManagerTest#testHasOngoingTransactionSuccessfulCommit
TransactionManagerTest#testHasOngoingTransactionAbortableError
  a transaction is ongoing from its begin to the response to its end, even after an abortable error
SenderTest#testAbortTransactionAndReuseSequenceNumberOnError
  after an abort, the next transaction begins at sequence 0
KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic
  after a record for an invalid topic, its transaction can only be aborted
# Network
NetworkClientTest#testSendToUnreadyNode
  no request is sent to a node that is not ready
NetworkClientTest#testApiVersionsRequest
NetworkClientTest#testUnsupportedApiVersionsRequestWithVersionProvidedByTheBroker
NetworkClientTest#testUnsupportedApiVersionsRequestWithoutVersionProvidedByTheBroker
  ApiVersions is sent in its newest version first, then in a lower version that the broker names
NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady
NetworkClientTest#testConnectionSetupTimeout
  a connection that never becomes ready is closed
NetworkClientTest#testRequestTimeout NetworkClientTest#testDisconnectWithMultipleInFlights
  a request's timeout closes its connection and fails all its requests in order
NetworkClientTest#testConnectionThrottling ClusterConnectionStatesTest#testThrottled
  a throttled node gets no request until the throttle time is over
NetworkClientTest#testClose
  if the connection of one node is closed, the connections of other nodes stay open
NetworkClientTest#testLeastLoadedNode
NetworkClientTest#testLeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp
  the least loaded node is an idle node, or otherwise the node with the fewest requests in flight
ClusterConnectionStatesTest#testExponentialReconnectBackoff
ClusterConnectionStatesTest#testMaxReconnectBackoff
ClusterConnectionStatesTest#testExponentialConnectionSetupTimeout
  the backoff before a new connection grows up to its maximum, and a connection resets it
ClusterConnectionStatesTest#testMultipleIPs ClusterConnectionStatesTest#testHostResolveChange
ClusterConnectionStatesTest#testSkipLastAttemptedIp
  the addresses of a host are used in turn
NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest
ClusterConnectionStatesTest#testAuthorizationFailed
  a failed authentication is remembered
NetworkClientTest#testRebootstrap
  each cause of a rebootstrap makes the client use the bootstrap servers again
NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest
NetworkClientTest#testCorrelationId
  without a common version no request is sent; correlation ids avoid the ids of SASL
# Metadata
MetadataTest#testUpdateLastEpoch MetadataTest#testEpochUpdateOnChangedTopicIds
MetadataTest#testRejectOldMetadata MetadataTest#testEpochUpdateAfterTopicDeletion
MetadataTest#testMetadataMergeOnIdDowngrade MetadataTest#testNoEpoch
  leader epochs never go back, except for a new topic id
ProducerMetadataTest#testMetadataPartialUpdate ProducerMetadataTest#testRequestUpdateForTopic
MetadataTest#testPartialMetadataUpdate
  after a partial or outdated response, a full response is still requested
MetadataTest#testTimeToNextUpdate ProducerMetadataTest#testMetadataEquivalentResponsesBackoff
ProducerMetadataTest#testTopicExpiry MetadataTest#testFailedUpdate
MetadataTest#testTimeToNextUpdateRetryBackoff
ProducerMetadataTest#testTimeToNextUpdateOverwriteBackoff
  failed and equivalent responses cause a backoff; old metadata are refreshed, idle topics dropped
MetadataTest#testTopicMetadataOnUpdatePartitionLeadership MetadataTest#testMetadataTopicErrors
MetadataTest#testInvalidTopicError MetadataTest#testTopicAuthorizationError
  an outdated hint of a leader is ignored; a topic's error reaches only records for that topic
ProducerMetadataTest#testMetadataWaitAbortedOnFatalException
ProducerMetadataTest#testMetadataAwaitAfterClose
KafkaProducerTest#testCloseWhenWaitingForMetadataUpdate
  a permanent failure ends every wait, and so does a close
MetadataTest#testClusterListenerGetsNotifiedOfUpdate
  listeners get the cluster's id
# Selector
SelectorTest#testCantSendWithInProgress SelectorTest#testLargeMessageSequence
SelectorTest#testSendLargeRequest SelectorTest#testEmptyRequest
  a channel has one send at a time, and one response in a poll; messages of any size arrive whole
SelectorTest#testCloseOldestConnection SelectorTest#testIdleExpiryWithoutReadyKeys
  idle connections are closed, the oldest first
SelectorTest#testServerDisconnect SelectorTest#testConnectionRefused
SelectorTest#testExistingConnectionId
  responses that arrived before a disconnect are returned; a second connection to a node is refused
"""


def _parsed(text: str) -> dict[str, list[tuple[str, ...]]]:
    """The behaviours of each group: the description, then the names."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    behaviours: list[tuple[str, ...]] = []
    names: list[str] = []
    for line in text.strip().splitlines():
        if line.startswith("# "):
            behaviours = groups.setdefault(line[2:], [])
        elif line.startswith("  "):
            behaviours.append((line.strip(), *names))
            names = []
        else:
            names += line.split()
    return groups


BEHAVIOURS = _parsed(_LIST)

#: Reasons why a behaviour, or a part of it, does not exist here. A test may show the difference.
NOT_HERE = {
    "SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOf"
    "FutureBatchesIsAdjusted": (
        "in a transaction, the batches after the failed batch fail too, and no sequence is"
        " rewritten (rule R2 of [the design](../DESIGN.md))"
    ),
}

_NAME = re.compile(r"\b[A-Z]\w*(?:\.\w+)?#\w+")


def page_lines() -> Iterator[str]:
    """The lines of the page after its head."""
    shown_by = _tests_by_name()
    yield "This page lists behaviours of Apache Kafka's Java producer. It also names the tests"
    yield "that check these behaviours of this package's Python producer. The tables' columns:"
    yield ""
    yield "* *Kafka*: the test of Kafka that checks the behaviour (`class#method`). If Kafka has no"
    yield "  such test, the column names the method of the Java client."
    yield "* *behaviour*: the behaviour of the Java producer."
    yield "* *shown by*: the tests of this package. The docstring of such a test contains the name"
    yield "  in the column *Kafka*. If the Python producer behaves differently, the column says"
    yield "  how."
    yield ""
    yield "A *batch* on this page is a record batch: the records that a producer sends together to"
    yield "one partition. TV1 and TV2 are Kafka's two versions of transactions."
    yield ""
    yield "The Spark sink uses the Python producer, but waits differently for buffer memory, and"
    yield "counts `linger.ms` differently ([differences](migration.md#what-is-different))."
    for group, behaviours in BEHAVIOURS.items():
        yield from ("", f"## {group}", "", "| Kafka | behaviour | shown by |", "|---|---|---|")
        for text, *names in behaviours:
            ours = {test for name in names for test in shown_by.get(name, ())}
            shown = ", ".join(f"`{test}`" for test in sorted(ours))
            reason = NOT_HERE.get(names[0])
            if reason is not None:
                shown = f"different here: {reason}" + (f" ({shown})" if shown else "")
            yield f"| {', '.join(f'`{name}`' for name in names)} | {text} | {shown} |"


def problems() -> list[str]:
    """Behaviours without a test and without a reason, and names that are not in the list."""
    rows = [names for behaviours in BEHAVIOURS.values() for _, *names in behaviours]
    shown_by = _tests_by_name()
    shown = shown_by.keys() | NOT_HERE.keys()
    unknown = sorted(shown_by.keys() - {name for names in rows for name in names})
    return [
        *(f"{names[0]} has neither a test nor a reason" for names in rows if not shown & {*names}),
        *(f"{', '.join(shown_by[name])}: {name} is not in the list" for name in unknown),
    ]


@cache
def _tests_by_name() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in _tests(ast.parse(path.read_text()).body):
            for name in _NAME.findall(ast.get_docstring(test) or ""):
                found.setdefault(name, set()).add(test.name)
    return found


def _tests(body: Iterable[ast.stmt]) -> Iterator[ast.FunctionDef]:
    """The test functions of a module and of its classes."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node
