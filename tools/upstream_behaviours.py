"""docs/upstream-behaviours.md: what Kafka's own test suites check of the producer, and our tests.

Owns: the list of behaviours by the names of Kafka's tests (apache/kafka, clients/src/test), those
that do not apply here with the reason, and finding our tests, whose docstrings begin with a name.
Run by generate_docs.py, which fails on a behaviour that has neither test nor reason, and on a name
that is not in the list.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: By group: the tests of Kafka's that show it (or what does it in Java, where no test does), and
#: what is so. Our tests name the one that they are like.
_LIST = """
# Vectors
UtilsTest#testMurmur2
  murmur2: the Java client's vectors, and the sum over its random arrays
DefaultPartitionerTest#testKeyPartitionIsStable
  a key's partition is (hash & 0x7fffffff) % count, over all partitions
Crc32CTest#testValue
  CRC-32C vectors
ByteUtilsTest#testVarintSerde ByteUtilsTest#testVarlongSerde ByteUtilsTest#testInvalidVarint
ByteUtilsTest#testInvalidVarlong
  signed varints of 32 and 64 bits; one byte too many is refused
ByteUtilsTest#testUnsignedVarintSerde
  unsigned varints
TransactionManagerTest#testSequenceNumberOverflow DefaultRecordBatchTest#testIncrementSequence
  sequences wrap at 2^31
# Records and batches
DefaultRecordBatchTest#testInvalidCrc DefaultRecordBatchTest#testInvalidRecordSize
DefaultRecordBatchTest#testInvalidRecordCountTooManyNonCompressedV2
  a wrong checksum, a batch below its header's size, a wrong count are refused
DefaultRecordTest#testNullHeaderKey DefaultRecordTest#testInvalidHeaderKey
DefaultRecordTest#testInvalidHeaderValue DefaultRecordTest#testInvalidValueSize
  header keys are not null, header values may be; sizes past the end are refused
MemoryRecordsBuilderTest#testWriteTransactionalWithInvalidPID
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidEpoch
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidBaseSequence
  producer fields that contradict each other are refused
MemoryRecordsBuilderTest#buildUsingCreateTime
  the maximal timestamp is the largest, not the last; none lies before 1970
MemoryRecordsBuilderTest#shouldThrowIllegalStateExceptionOnAppendWhenClosed
MemoryRecordsBuilderTest#testWriteEmptyRecordSet
  nothing encodes to nothing; a closed batch takes no more
MemoryRecordsBuilderTest#testSmallWriteLimit MemoryRecordsBuilderTest#writePastLimit
  the first record always fits, the others while there is room
CompressionRatioEstimatorTest#testUpdateEstimation MemoryRecordsBuilderTest#testEstimatedSizeInBytes
  the estimate of a compressed size, and how its ratio moves
# Configuration and send
KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig
KafkaProducerTest#testAcksAndIdempotenceForIdempotentProducers
KafkaProducerTest#testRetriesAndIdempotenceForIdempotentProducers
KafkaProducerTest#testInflightRequestsAndIdempotenceForIdempotentProducers
  every rule between options, with its message
KafkaProducerTest#testMetadataTimeoutWithMissingTopic
KafkaProducerTest#testMetadataTimeoutWithPartitionOutOfRange
  an unknown topic or partition blocks for max.block.ms and says what brokers said
KafkaProducerTest#testSendToInvalidTopic
  a topic whose name is invalid is its record's error
KafkaProducer#doSend
  the waits for metadata and for memory share one max.block.ms
KafkaProducerTest#testCommitTransactionWithRecordTooLargeException
KafkaProducerTest#testCommitTransactionWithMetadataTimeoutForMissingTopic
  a record that can't be sent makes its transaction abortable
KafkaProducerTest#testPartitionAddedToTransaction KafkaProducerTest#testHeaders
  a partition joins the transaction after the append; headers can't be changed later
# BufferPool
BufferPoolTest#testSimple
  memory comes back and is used again
BufferPoolTest#testCantAllocateMoreMemoryThanWeHave
  more than there is at all is refused at once, all of it is not
BufferPoolTest#testDelayedAllocation
  a waiter is served by what others give back, piece by piece
BufferPoolTest#testBlockTimeout BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnBlockTimeout
  a wait ends in time, leaves the line and gives back what it gathered
BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnInterruption
  an interrupted wait leaves nothing behind
BufferPool#allocate
  first in, first out
BufferPoolTest#testCloseNotifyWaiters BufferPoolTest#testCloseAllocations
BufferPoolTest#testLargeAvailableMemory BufferPoolTest#testStressfulSituation
  close wakes all; large totals; many threads leave the total as it was
# RecordAccumulator
RecordAccumulatorTest#testFull
  a full batch makes its leader ready before linger.ms is over
RecordAccumulatorTest#testLinger
  not ready before linger.ms, ready at linger.ms
RecordAccumulatorTest#testNextReadyCheckDelay
  the next check is when the first lingering or backing off batch is due
RecordAccumulatorTest#testAppendLargeNonCompressed RecordAccumulatorTest#testAppendLargeCompressed
  a record above batch.size gets a batch of its own
RecordAccumulator#drainBatchesForOneNode
  at most one batch of a partition in a drain
RecordAccumulatorTest#testPartialDrain
  a drain ends at the request's size, but for one batch alone
RecordAccumulatorTest#testDrainBatches
  the next drain begins behind the last one
RecordAccumulatorTest#testMutedPartitions
  a muted partition is neither ready nor drained
RecordAccumulatorTest#testFlush RecordAccumulatorTest#testRecordsDrainedWhenTransactionCompleting
  waiters, flush, close and a completing transaction make everything sendable
RecordAccumulatorTest#testRetryBackoff RecordAccumulatorTest#testExponentialRetryBackoff
  the backoff of a retry, from its last attempt, delays no other partition
RecordAccumulatorTest#testExponentialRetryBackoffLeaderChange
RecordAccumulatorTest#testReadyAndDrainWhenABatchIsBeingRetried
  a newer leader ends the backoff of that attempt
RecordAccumulator#insertInSequenceOrder
  a retry goes to the head, in the order of sequences; without one it is a bug
RecordAccumulatorTest#testExpiredBatches RecordAccumulatorTest#testExpiredBatchSingle
SenderTest#testExpiredBatchesInMultiplePartitions
  expiry: at delivery.timeout.ms, oldest first
RecordAccumulatorTest#testSoonToExpireBatchesArePickedUpForExpiry
  the next expiry bounds the poll
RecordAccumulatorTest#testSplitAndReenqueue ProducerBatchTest#testSplitPreservesHeaders
ProducerBatchTest#testSplitPreservesMagicAndCompressionType
  a split keeps age, headers, codec and futures, and goes to the head in order
RecordAccumulatorTest#testSplitBatchOffAccumulator
  splitting ends at single records
RecordAccumulatorTest#testSplitFrequency
  few batches are split when compressibility is mixed
RecordAccumulatorTest#testAwaitFlushComplete
  flush waits for what exists, and for all that is split from it
RecordAccumulatorTest#testAbortIncompleteBatches RecordAccumulatorTest#testAbortUnsentBatches
  abort fails all (or all undrained) and gives memory back
RecordAccumulator#ready
  a partition without a leader asks for metadata, if it has data
RecordAccumulatorTest#testStressfulSituation
  many writers on little memory lose nothing
RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches
  sticky pieces leave no fractions of batches
# ProducerBatch
ProducerBatchTest#testBatchCannotCompleteTwice ProducerBatchTest#testBatchAbort
ProducerBatchTest#testBatchCannotAbortTwice
  a batch ends once; callbacks run once, in order
ProducerBatchTest#testCompleteExceptionallyWithRecordErrors
  errors of single records reach their futures
ProducerBatchTest#testBatchExpiration ProducerBatchTest#testBatchExpirationAfterReenqueue
  a clock that goes back expires nothing
ProducerBatchTest#testWithLeaderChangesAcrossRetries
  a leader change counts for the attempt that saw it
# Partitioner
BuiltInPartitionerTest#testStickyPartitioning
  a sticky partition changes when enough went there
BuiltInPartitionerTest#unavailablePartitionsTest
  partitions without a leader are chosen only when all lack one
BuiltInPartitionerTest#adaptivePartitionsTest
  queue sizes make frequencies
RecordAccumulatorTest#testAdaptiveBuiltInPartitioner
  a node that takes nothing for too long is left out
BuiltInPartitioner#nextPartition
  rack aware: the local leaders, if there are any
# Sender
SenderTest#testSimple
  a batch is sent and acknowledged
SenderTest#testRetries
  a disconnect is a retry, up to the limit
SenderTest#testSendInOrder
  with one in flight the second waits, also over a retry
Sender#handleProduceResponse
  acks=0 completes when written, without an offset
SenderTest#testInitProducerIdRequest SenderTest#testSenderShouldRetryWithBackoffOnRetriableError
  nothing leaves before there is a producer id
SenderTest#testIdempotenceWithMultipleInflights
  five in flight, the sixth waits
SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder
  after a failed first, the others are resent in order
SenderTest#testCorrectHandlingOfOutOfOrderResponses
SenderTest#testCorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds
  answers out of order end well
SenderTest#testCorrectHandlingOfDuplicateSequenceError
  a duplicate is a success
SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached
SenderTest#testTransactionalUnknownProducerHandlingWhenRetentionLimitReached
  UNKNOWN_PRODUCER_ID
SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences
SenderTest#testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences
  what expired unsent leaves no doubt, what expired in flight does
SenderTest#testUnresolvedSequencesAreNotFatal
SenderTest#testExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed
SenderTest#testReceiveFailedBatchTwiceWithTransactions
  how a doubt ends
SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted
  a batch that failed for good, and the sequences behind it
SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived
SenderTest#testEpochBumpOnOutOfOrderSequenceForNextBatch
  an epoch bump
TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump
  other partitions while an identity ends
SenderTest#testIdempotentSplitBatchAndSend SenderTest#testTransactionalSplitBatchAndSend
  too large with several records: two batches at the sequences of the one
SenderTest#testTooLargeBatchesAreSafelyRemoved
SenderTest#testExpiredBatchDoesNotSplitOnMessageTooLargeError
SenderTest#testExpiredBatchDoesNotRetry
  too large with one record, or too old: it fails
SenderTest#testInflightBatchesExpireOnDeliveryTimeout SenderTest#testNoDoubleDeallocation
  what expires in flight gives its memory back when its answer comes
SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
  what expires in flight is settled before the next goes
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation
  a hint of the new leader is followed at once; without one metadata is asked
SenderTest#testRecordErrorPropagatedToApplication SenderTest#testDefaultErrorMessage
SenderTest#testCustomErrorMessage
  errors reach each record with their message
SenderTest#testCanRetryWithoutIdempotence
  without idempotence a failed batch fails alone
SenderTest#testCancelInFlightRequestAfterFatalError
SenderTest#testUnsupportedVersionInProduceRequest
SenderTest#testClusterAuthorizationExceptionInProduceRequest
  after a fatal error nothing more is sent
SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction
SenderTest#testRecordsFlushedImmediatelyOnTransactionCompletion
  commit sends all and ends last
SenderTest#testIncompleteTransactionAbortOnShutdown
SenderTest#testForceShutdownWithIncompleteTransaction
SenderTest#testTransactionalRequestsSentOnShutdown
SenderTest#testSenderShouldCloseWhenTransactionManagerInErrorState
SenderTest#testSenderShutdownWithPendingTransactions
KafkaProducerTest#testCloseIsForcedOnPendingFindCoordinator
  close sends the rest and aborts a transaction; a forced one can't hang
SenderTest#testDoNotPollWhenNoRequestSent
  no spin while something waits; one poll in a round
# TransactionManager
TransactionManagerTest#testBasicTransaction
  the order of requests, one at a time
TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction
TransactionManagerTest#testFailIfNotReadyForSendNoProducerId
TransactionManagerTest#testInitializeTransactionsTwiceRaisesError
  send before init or begin, and a second init, are refused
TransactionManagerTest#testMaybeAddPartitionToTransaction
TransactionManagerTest#testNoDrainWhenPartitionsPending
  TV1: a partition is drained after AddPartitionsToTxn
TransactionManagerTest#testTransactionManagerEnablesV2
  TV2: no AddPartitionsToTxn, Produce 12 and EndTxn 5
TransactionManager#nextRequest
  a transaction without partitions ends here
TransactionManagerTest#testEndTxnNotSentIfIncompleteBatches
TransactionManagerTest#testFlushPendingPartitionsOnCommit
TransactionManagerTest#testCommitTransactionWithUnsentProduceRequest
  EndTxn waits for batches and partitions
TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffWhenPartitionsAlreadyAdded
  the backoff of CONCURRENT_TRANSACTIONS
TransactionManagerTest#testRetriableErrors TransactionManagerTest#testCoordinatorNotAvailable
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError
  what is asked again after retry.backoff.ms
TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend
TransactionManagerTest#testLookupCoordinatorOnDisconnectBeforeSend
TransactionManagerTest#testLookupCoordinatorOnNotCoordinatorError
TransactionManagerTest#testDisconnectAndRetry
TransactionManagerTest#testFindCoordinatorAllowedInAbortableErrorState
  a coordinator that moves or is lost is found again
TransactionManagerTest#testProducerFencedExceptionInInitProducerId
TransactionManagerTest#testProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInInitProducerId
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInEndTxn
  a fenced producer is lost
TransactionManagerTest#testInvalidProducerEpochFromProduce
SenderTest#testInvalidTxnStateIsAnAbortableError
  an old epoch or a wrong state in a Produce answer is abortable
TransactionManagerTest#testInvalidTxnStateInAddPartitions
TransactionManagerTest#testTransactionalIdAuthorizationFailureInAddPartitions
  a wrong state, or no right to the id, in AddPartitionsToTxn or EndTxn is fatal
TransactionManagerTest#testTransactionalIdAuthorizationFailureInInitProducerId
  no right to the id in InitProducerId is not: it may be given
TransactionManagerTest#testUnsupportedFindCoordinator
  a request that no version fits is fatal
TransactionManagerTest#testTopicAuthorizationFailureInAddPartitions
TransactionManagerTest#shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed
  a topic that may not be written
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionNotStarted
  an abortable error, the abort, and on
TransactionManagerTest#testAbortResendsProduceRequestIfRetried
TransactionManagerTest#testAbortResendsAddPartitionErrorIfRetried
  an abort sends pending retries first
TransactionManagerTest#testCancelUnsentAddPartitionsAndProduceOnAbort
SenderTest#testTransactionAbortedExceptionOnAbortWithoutError
  an abort drops what was not sent
TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId
TransactionManagerTest#testTransactionAbortableExceptionInAddPartitions
TransactionManagerTest#testTransactionAbortableExceptionInEndTxn
TransactionManagerTest#testTransactionAbortableExceptionInFindCoordinator
SenderTest#testTransactionAbortableExceptionIsAnAbortableError
  TRANSACTION_ABORTABLE
TransactionManagerTest#testDisallowCommitOnProduceFailure
TransactionManagerTest#testAllowAbortOnProduceFailure
  a failed batch forbids the commit
TransactionManagerTest#testRetryCommitTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterCommitTimeout
TransactionManagerTest#testRetryCommitTransactionAfterAbortTimeout
TransactionManagerTest#testRetryInitTransactionsAfterTimeout
  a call that timed out may be repeated, its opposite not
TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry
TransactionManagerTest#testDropCommitOnBatchExpiry
TransactionManagerTest#testTransitionToFatalErrorWhenRetriedBatchIsExpired
  an expired batch forbids the commit
TransactionManager.EndTxnHandler#handleResponse
  TV2: the next epoch comes with EndTxn; the last one brings a new id
TransactionManager#maybeUpdateTransactionV2Enabled
  a change from TV1 to TV2 in the middle
TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal
TransactionManagerTest#testForegroundInvalidStateTransitionIsRecoverable
  an illegal move is fatal on the network thread, not on the caller's
# Coordinator, for the fake broker
TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit
TransactionCoordinatorTest#shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch
TransactionCoordinatorTest#shouldUseLastEpochToFenceWhenEpochsAreExhausted
  both tables of EndTxn, retries, time-outs and fences
TransactionManagerTest#testHasOngoingTransactionSuccessfulCommit
TransactionManagerTest#testHasOngoingTransactionAbortableError
  how long a transaction is ongoing
SenderTest#testAbortTransactionAndReuseSequenceNumberOnError
  sequences of a transaction after an abort
KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic
  an invalid topic forbids the commit
# Network
NetworkClientTest#testSendToUnreadyNode
  when a node is not ready, and that nothing is sent to it then
NetworkClientTest#testApiVersionsRequest
NetworkClientTest#testUnsupportedApiVersionsRequestWithVersionProvidedByTheBroker
NetworkClientTest#testUnsupportedApiVersionsRequestWithoutVersionProvidedByTheBroker
  ApiVersions: the newest first, and how it goes lower
NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady
NetworkClientTest#testConnectionSetupTimeout
  a connection that never gets ready ends
NetworkClientTest#testRequestTimeout NetworkClientTest#testDisconnectWithMultipleInFlights
  a request's time-out ends its connection and all its requests in order
NetworkClientTest#testConnectionThrottling ClusterConnectionStatesTest#testThrottled
  throttling
NetworkClientTest#testClose
  one node's connection is closed, and no other
NetworkClientTest#testLeastLoadedNode
NetworkClientTest#testLeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp
  the least loaded node
ClusterConnectionStatesTest#testExponentialReconnectBackoff
ClusterConnectionStatesTest#testMaxReconnectBackoff
ClusterConnectionStatesTest#testExponentialConnectionSetupTimeout
  the backoffs of connecting
ClusterConnectionStatesTest#testMultipleIPs ClusterConnectionStatesTest#testHostResolveChange
ClusterConnectionStatesTest#testSkipLastAttemptedIp
  addresses in turn
NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest
ClusterConnectionStatesTest#testAuthorizationFailed
  a failed authentication is remembered
NetworkClientTest#testRebootstrap
  rebootstrap, by each of its causes
NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest
NetworkClientTest#testCorrelationId
  no common version: nothing on the wire; correlation ids keep off SASL's
# Metadata
MetadataTest#testUpdateLastEpoch MetadataTest#testEpochUpdateOnChangedTopicIds
MetadataTest#testRejectOldMetadata MetadataTest#testEpochUpdateAfterTopicDeletion
MetadataTest#testMetadataMergeOnIdDowngrade MetadataTest#testNoEpoch
  leader epochs never go back, but for a new topic id
ProducerMetadataTest#testMetadataPartialUpdate ProducerMetadataTest#testRequestUpdateForTopic
MetadataTest#testPartialMetadataUpdate
  a partial or outdated answer leaves the wish for a full one
MetadataTest#testTimeToNextUpdate ProducerMetadataTest#testMetadataEquivalentResponsesBackoff
ProducerMetadataTest#testTopicExpiry MetadataTest#testFailedUpdate
MetadataTest#testTimeToNextUpdateRetryBackoff
ProducerMetadataTest#testTimeToNextUpdateOverwriteBackoff
  backoff of failed and equivalent answers; maximal age and idle time
MetadataTest#testTopicMetadataOnUpdatePartitionLeadership MetadataTest#testMetadataTopicErrors
MetadataTest#testInvalidTopicError MetadataTest#testTopicAuthorizationError
  when a hint is not taken; a topic's error is its users' alone
ProducerMetadataTest#testMetadataWaitAbortedOnFatalException
ProducerMetadataTest#testMetadataAwaitAfterClose
KafkaProducerTest#testCloseWhenWaitingForMetadataUpdate
  a failure for good and a close end every wait
MetadataTest#testClusterListenerGetsNotifiedOfUpdate
  listeners hear of the cluster's id
# Selector
SelectorTest#testCantSendWithInProgress SelectorTest#testLargeMessageSequence
SelectorTest#testSendLargeRequest SelectorTest#testEmptyRequest
  one send at a time, one answer in a poll; large, partial and empty ones
SelectorTest#testCloseOldestConnection SelectorTest#testIdleExpiryWithoutReadyKeys
  idle connections
SelectorTest#testServerDisconnect SelectorTest#testConnectionRefused
SelectorTest#testExistingConnectionId
  what arrived before the end is handed out; refused and doubled connections
"""


def _parsed(text: str) -> dict[str, list[tuple[str, ...]]]:
    """Group to behaviours: what is so, and the names."""
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

#: Why a behaviour, or a part of one, is not here. A test may show what happens instead.
NOT_HERE = {
    "SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOf"
    "FutureBatchesIsAdjusted": (
        "no sequence is ever rewritten: what is behind the batch fails with it (rule R2)"
    ),
    "SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived": (
        "no epoch bump: a new producer id, when nothing of the old one is in flight any more"
    ),
}

_NAME = re.compile(r"\b[A-Z]\w*(?:\.\w+)?#\w+")


def page_lines() -> Iterator[str]:
    """The page, but for its head."""
    shown_by = _tests_by_name()
    yield "What the test suites of Apache Kafka's Java producer check, and the tests here that show"
    yield "it. Their docstrings begin with the name of Kafka's test (`class#method`), or of Java's"
    yield "method that does it, where no test of Kafka's shows it."
    for group, behaviours in BEHAVIOURS.items():
        yield from ("", f"## {group}", "", "| Kafka | behaviour | shown by |", "|---|---|---|")
        for text, *names in behaviours:
            ours = {test for name in names for test in shown_by.get(name, ())}
            shown = ", ".join(f"`{test}`" for test in sorted(ours))
            reason = NOT_HERE.get(names[0])
            if reason is not None:
                shown = f"not here: {reason}" + (f" ({shown})" if shown else "")
            yield f"| {', '.join(f'`{name}`' for name in names)} | {text} | {shown} |"


def problems() -> list[str]:
    """Behaviours without test and reason, and names that are in no list."""
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
    """Those of a module and of its classes."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body)
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield node
