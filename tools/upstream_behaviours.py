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
DefaultRecordTest#testNullHeaderKey
  a header's key may not be null; a header's value may be null
DefaultRecordTest#testInvalidHeaderKey DefaultRecordTest#testInvalidHeaderValue
DefaultRecordTest#testInvalidValueSize
  a record is refused if the size of a field goes past the record's end
MemoryRecordsBuilderTest#testWriteTransactionalWithInvalidPID
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidEpoch
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidBaseSequence
  a batch whose producer id, epoch and base sequence contradict each other is refused
MemoryRecordsBuilderTest#buildUsingCreateTime
  a batch's max timestamp is the largest timestamp of its records; a time before 1970 is refused
MemoryRecordsBuilderTest#testWriteEmptyRecordSet
  an empty input produces no bytes
MemoryRecordsBuilderTest#shouldThrowIllegalStateExceptionOnAppendWhenClosed
  a closed batch takes no more rows
MemoryRecordsBuilderTest#testSmallWriteLimit MemoryRecordsBuilderTest#writePastLimit
  the first record always fits; further records fit while there is room
CompressionRatioEstimatorTest#testUpdateEstimation MemoryRecordsBuilderTest#testEstimatedSizeInBytes
  the size of a compressed batch is estimated from a ratio, which rises and falls with the batches
# Configuration and send
KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig
KafkaProducerTest#testAcksAndIdempotenceForIdempotentProducers
KafkaProducerTest#testRetriesAndIdempotenceForIdempotentProducers
KafkaProducerTest#testInflightRequestsAndIdempotenceForIdempotentProducers
  options that contradict each other cause an error or a warning
KafkaProducerTest#testMetadataTimeoutWithMissingTopic
KafkaProducerTest#testMetadataTimeoutWithPartitionOutOfRange
  send waits up to max.block.ms for an unknown topic or partition; the error of send has the
  brokers' reason
KafkaProducerTest#testSendToInvalidTopic
  outside of a transaction, an invalid topic name fails only its own record
KafkaProducer#doSend
  the wait for metadata and the wait for memory together last at most max.block.ms
KafkaProducerTest#testCommitTransactionWithRecordTooLargeException
KafkaProducerTest#testCommitTransactionWithMetadataTimeoutForMissingTopic
  if a record can't be sent, its transaction can only be aborted
KafkaProducerTest#testPartitionAddedToTransaction
  a partition joins the transaction only after a record was appended to one of its batches
KafkaProducerTest#testHeaders
  the headers of a record can't be changed after send
# BufferPool
BufferPoolTest#testSimple
  released memory is used again
BufferPoolTest#testCantAllocateMoreMemoryThanWeHave
  a request for more than the whole pool is refused immediately; the whole pool can be allocated
BufferPoolTest#testDelayedAllocation
  a waiting thread collects the memory that other threads release, piece by piece
BufferPoolTest#testBlockTimeout BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnBlockTimeout
  a thread that times out leaves the queue and releases the memory that it has collected
BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnInterruption
  a thread that is interrupted leaves the queue and releases the memory that it has collected
BufferPool#allocate
  the thread that has waited longest gets memory first
BufferPoolTest#testCloseNotifyWaiters BufferPoolTest#testCloseAllocations
  close wakes all waiting threads; a closed pool refuses further requests
BufferPoolTest#testLargeAvailableMemory
  the pool may be larger than 2 GiB
BufferPoolTest#testStressfulSituation
  after many threads have requested and released memory, the whole pool is free again
# RecordAccumulator
RecordAccumulatorTest#testFull
  a full batch is sent before linger.ms is over
RecordAccumulatorTest#testLinger
  a batch is ready at linger.ms, and not before
RecordAccumulatorTest#testNextReadyCheckDelay
  the sender sleeps until the first batch may be sent: until its linger time or its backoff is over
RecordAccumulatorTest#testAppendLargeNonCompressed RecordAccumulatorTest#testAppendLargeCompressed
  a record larger than batch.size gets its own batch
RecordAccumulator#drainBatchesForOneNode
  each call of drain takes at most one batch of a partition
RecordAccumulatorTest#testPartialDrain
  a drain ends at the size limit of a request; a single larger batch is taken alone
RecordAccumulatorTest#testDrainBatches
  the next drain begins after the partition that was drained last
RecordAccumulatorTest#testMutedPartitions
  no batch of a muted partition is sent (Java mutes a partition to keep the order of its batches)
RecordAccumulatorTest#testFlush RecordAccumulatorTest#testRecordsDrainedWhenTransactionCompleting
  every batch is ready while a thread waits for memory, during flush, during close, and at the end
  of a transaction
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
  a poll of the network lasts at most until the next batch expires
RecordAccumulatorTest#testSplitAndReenqueue ProducerBatchTest#testSplitPreservesHeaders
ProducerBatchTest#testSplitPreservesMagicAndCompressionType
  the parts of a split batch keep its age, headers, codec and futures; the parts go to the head of
  the queue in order
RecordAccumulatorTest#testSplitBatchOffAccumulator
  a batch can be split down to single records
RecordAccumulatorTest#testSplitFrequency
  few batches are split if the compressibility of records is mixed
RecordAccumulatorTest#testAwaitFlushComplete
  flush waits for all batches that exist, and for the batches that they are split into
RecordAccumulatorTest#testAbortIncompleteBatches
  after a fatal error or a forced close, all batches fail and their memory is released
RecordAccumulatorTest#testAbortUnsentBatches
  an abort of the transaction fails only batches that were never sent, and releases their memory
RecordAccumulator#ready
  if a partition has data but no leader, metadata is requested
RecordAccumulatorTest#testStressfulSituation
  many writers with little memory lose no record
RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches
  when the sticky partitioner changes the partition, it leaves no small batch behind
# ProducerBatch
ProducerBatchTest#testBatchCannotCompleteTwice ProducerBatchTest#testBatchAbort
ProducerBatchTest#testBatchCannotAbortTwice
  a batch ends exactly once; callbacks run once, in order
ProducerBatchTest#testCompleteExceptionallyWithRecordErrors
  the error of a single record reaches its future
ProducerBatchTest#testBatchExpiration ProducerBatchTest#testBatchExpirationAfterReenqueue
  if the clock goes back, no batch expires
ProducerBatchTest#testWithLeaderChangesAcrossRetries
  after a change of the leader, only the next retry of a batch is sent without a backoff
# Partitioner
BuiltInPartitionerTest#testStickyPartitioning
  the sticky partition changes after enough bytes
BuiltInPartitionerTest#unavailablePartitionsTest
  partitions without a leader are chosen only if no partition has a leader
BuiltInPartitionerTest#adaptivePartitionsTest
  a partition with a longer queue is chosen less often
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
  DUPLICATE_SEQUENCE_NUMBER counts as a success
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
  after OUT_OF_ORDER_SEQUENCE_NUMBER, the producer gets a new epoch
TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump
  while a failed partition waits for a new epoch, the other partitions continue
SenderTest#testIdempotentSplitBatchAndSend SenderTest#testTransactionalSplitBatchAndSend
  a too large batch with several records is split in two; each record keeps its sequence number
SenderTest#testTooLargeBatchesAreSafelyRemoved
  a too large batch with one record fails
SenderTest#testExpiredBatchDoesNotSplitOnMessageTooLargeError
SenderTest#testExpiredBatchDoesNotRetry
  a batch that fails after delivery.timeout.ms is neither split nor sent again
SenderTest#testInflightBatchesExpireOnDeliveryTimeout SenderTest#testNoDoubleDeallocation
  a batch that expires in flight releases its memory when its response comes
SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
  a batch that expires in flight is resolved before the next batch is sent
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation
  a hint of the new leader is used immediately; without a hint, metadata is requested
SenderTest#testRecordErrorPropagatedToApplication SenderTest#testDefaultErrorMessage
SenderTest#testCustomErrorMessage
  each record of a failed batch gets the error and the error's message
SenderTest#testCanRetryWithoutIdempotence
  without idempotence, a failed batch does not fail other batches
SenderTest#testCancelInFlightRequestAfterFatalError
SenderTest#testUnsupportedVersionInProduceRequest
SenderTest#testClusterAuthorizationExceptionInProduceRequest
  after a fatal error, no further request is sent
SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction
SenderTest#testRecordsFlushedImmediatelyOnTransactionCompletion
  commit sends all records first and then ends the transaction
SenderTest#testIncompleteTransactionAbortOnShutdown
SenderTest#testForceShutdownWithIncompleteTransaction
SenderTest#testTransactionalRequestsSentOnShutdown
SenderTest#testSenderShouldCloseWhenTransactionManagerInErrorState
SenderTest#testSenderShutdownWithPendingTransactions
KafkaProducerTest#testCloseIsForcedOnPendingFindCoordinator
  close sends all records, then aborts the open transaction; a forced close can't hang
SenderTest#testDoNotPollWhenNoRequestSent
  while no request can be sent, the sender sleeps in a poll; it runs no busy loop
# TransactionManager
TransactionManagerTest#testBasicTransaction
  requests are sent in order, one at a time
TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction
TransactionManagerTest#testFailIfNotReadyForSendNoProducerId
TransactionManagerTest#testInitializeTransactionsTwiceRaisesError
  send before init or begin is refused, and so is a second init
TransactionManagerTest#testMaybeAddPartitionToTransaction
TransactionManagerTest#testNoDrainWhenPartitionsPending
  with TV1, a partition is drained only after AddPartitionsToTxn
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
  after CONCURRENT_TRANSACTIONS, the first AddPartitionsToTxn of a transaction is sent again sooner
  than a later one
TransactionManagerTest#testRetriableErrors TransactionManagerTest#testCoordinatorNotAvailable
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError
  after a retriable error other than CONCURRENT_TRANSACTIONS, a retry waits for retry.backoff.ms
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
  INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE in a Produce response are abortable errors
TransactionManagerTest#testInvalidTxnStateInAddPartitions
TransactionManagerTest#testTransactionalIdAuthorizationFailureInAddPartitions
  INVALID_TXN_STATE and TRANSACTIONAL_ID_AUTHORIZATION_FAILED are fatal in responses to
  AddPartitionsToTxn and EndTxn
TransactionManagerTest#testTransactionalIdAuthorizationFailureInInitProducerId
  after TRANSACTIONAL_ID_AUTHORIZATION_FAILED in an InitProducerId response, initTransactions can
  be called again, because the right may have been granted
TransactionManagerTest#testUnsupportedFindCoordinator
  if client and broker have no common version of a request, the error is fatal
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
  a call of init, commit or abort that timed out may be repeated; a commit that timed out can't be
  replaced by an abort, or an abort by a commit
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
  an illegal state transition is fatal on the network thread; on the caller's thread, only the
  call fails
# The transaction coordinator, and the producer's requests to it
TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit
TransactionCoordinatorTest#shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch
TransactionCoordinatorTest#shouldUseLastEpochToFenceWhenEpochsAreExhausted
  the fake broker of the tests responds like a real broker to EndTxn, to a repeated EndTxn, and to
  a producer that is fenced or whose transaction has timed out
TransactionManagerTest#testHasOngoingTransactionSuccessfulCommit
TransactionManagerTest#testHasOngoingTransactionAbortableError
  a transaction is ongoing from beginTransaction until the response to EndTxn; an abortable error
  does not end the transaction
SenderTest#testAbortTransactionAndReuseSequenceNumberOnError
  after an abort, the next transaction begins at sequence 0
KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic
  after send to an invalid topic, the transaction can only be aborted
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
  a request that times out closes its connection; all requests of this connection fail, in the
  order in which they were sent
NetworkClientTest#testConnectionThrottling ClusterConnectionStatesTest#testThrottled
  a throttled node gets no request until the throttle time is over
NetworkClientTest#testClose
  if the connection of one node is closed, the connections of other nodes stay open
NetworkClientTest#testLeastLoadedNode
NetworkClientTest#testLeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp
  the least loaded node is an idle node; if no node is idle, it is the node with the fewest requests
  in flight
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
  if client and broker have no common version of a request, the request fails and is not sent
NetworkClientTest#testCorrelationId
  correlation ids stay below the ids that are reserved for SASL
# Metadata
MetadataTest#testUpdateLastEpoch MetadataTest#testEpochUpdateOnChangedTopicIds
MetadataTest#testRejectOldMetadata MetadataTest#testEpochUpdateAfterTopicDeletion
MetadataTest#testMetadataMergeOnIdDowngrade MetadataTest#testNoEpoch
  a partition's leader epoch never goes back, unless the topic has a new id
ProducerMetadataTest#testMetadataPartialUpdate ProducerMetadataTest#testRequestUpdateForTopic
MetadataTest#testPartialMetadataUpdate
  after a partial or outdated response, a full response is still requested
MetadataTest#testTimeToNextUpdate
  metadata is requested again after metadata.max.age.ms
ProducerMetadataTest#testMetadataEquivalentResponsesBackoff
  while the responses bring no change, the backoff before the next request grows
MetadataTest#testFailedUpdate MetadataTest#testTimeToNextUpdateRetryBackoff
ProducerMetadataTest#testTimeToNextUpdateOverwriteBackoff
  a failed update causes a backoff; a new topic is requested without a backoff
ProducerMetadataTest#testTopicExpiry
  a topic that was not used for metadata.max.idle.ms is dropped
MetadataTest#testTopicMetadataOnUpdatePartitionLeadership
  an outdated hint of a leader is ignored
MetadataTest#testMetadataTopicErrors MetadataTest#testInvalidTopicError
MetadataTest#testTopicAuthorizationError
  a topic's error reaches only records for that topic
ProducerMetadataTest#testMetadataWaitAbortedOnFatalException
ProducerMetadataTest#testMetadataAwaitAfterClose
KafkaProducerTest#testCloseWhenWaitingForMetadataUpdate
  a permanent failure ends every wait for metadata; a close also ends every wait
MetadataTest#testClusterListenerGetsNotifiedOfUpdate
  listeners get the cluster's id
# Selector
SelectorTest#testCantSendWithInProgress
  a channel has only one send at a time; a poll returns at most one response of a channel
SelectorTest#testLargeMessageSequence SelectorTest#testSendLargeRequest
SelectorTest#testEmptyRequest
  large and empty messages arrive whole
SelectorTest#testCloseOldestConnection SelectorTest#testIdleExpiryWithoutReadyKeys
  idle connections are closed, the oldest first
SelectorTest#testServerDisconnect
  responses that arrived before a disconnect are returned
SelectorTest#testConnectionRefused
  a connection that is refused is reported as a disconnect
SelectorTest#testExistingConnectionId
  a second connection to a node is refused
"""


def _parsed(described: str) -> dict[str, list[tuple[str, ...]]]:
    """The behaviours of each group: the description, then the names."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    behaviours: list[tuple[str, ...]] = []
    names: list[str] = []
    for line in described.strip().splitlines():
        if line.startswith("# "):
            behaviours = groups.setdefault(line[2:], [])
        elif line.startswith("  "):
            if names:
                behaviours.append((line.strip(), *names))
            else:  # a second line of the description
                text, *rest = behaviours.pop()
                behaviours.append((f"{text} {line.strip()}", *rest))
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
    yield "  such test, this column has the method of the Java client."
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
