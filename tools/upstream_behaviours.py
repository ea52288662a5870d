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
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

#: By group: Kafka's tests, and the behaviour that they show. If Kafka has no such test, the name is
#: the method of Java's client that has the behaviour. Our tests name Kafka's test.
_LIST = """
# Numbers and checksums
UtilsTest#testMurmur2
  The hash function murmur2 has the results that are fixed in Kafka's test.
DefaultPartitionerTest#testKeyPartitionIsStable
  The partition of a key is (murmur2 & 0x7fffffff) % N. N is the number of all partitions of the
  topic, including partitions without a leader.
Crc32CTest#testValue
  The checksum of a batch is CRC-32C, with the results that are fixed in Kafka's test.
ByteUtilsTest#testVarintSerde ByteUtilsTest#testVarlongSerde ByteUtilsTest#testInvalidVarint
ByteUtilsTest#testInvalidVarlong
  A signed varint (an integer whose length in bytes depends on its value) of 32 or 64 bits has the
  bytes that are fixed in Kafka's test. A reader refuses a varint with too many bytes.
ByteUtilsTest#testUnsignedVarintSerde
  An unsigned varint has the bytes that are fixed in Kafka's test.
TransactionManagerTest#testSequenceNumberOverflow DefaultRecordBatchTest#testIncrementSequence
  The sequence number after 2147483647 (2^31 - 1) is 0.
# Records and batches
DefaultRecordBatchTest#testInvalidCrc DefaultRecordBatchTest#testInvalidRecordSize
DefaultRecordBatchTest#testInvalidRecordCountTooManyNonCompressedV2
  A reader refuses a batch whose checksum or number of records is wrong, and a batch that is
  shorter than its header.
DefaultRecordTest#testNullHeaderKey
  A header's key may not be null. A header's value may be null.
DefaultRecordTest#testInvalidHeaderKey DefaultRecordTest#testInvalidHeaderValue
DefaultRecordTest#testInvalidValueSize
  A reader refuses a record in which a field is longer than the rest of the record.
MemoryRecordsBuilderTest#testWriteTransactionalWithInvalidPID
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidEpoch
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidBaseSequence
  The writer of a batch refuses fields that contradict each other, for example a producer id
  without a sequence number.
MemoryRecordsBuilderTest#buildUsingCreateTime
  The largest timestamp of the records is stored in the header of their batch. The writer refuses
  a timestamp before 1970.
MemoryRecordsBuilderTest#testWriteEmptyRecordSet
  If there are no records, the writer produces no bytes.
MemoryRecordsBuilderTest#shouldThrowIllegalStateExceptionOnAppendWhenClosed
  After the producer has closed a batch to send it, the batch takes no more records.
MemoryRecordsBuilderTest#testSmallWriteLimit MemoryRecordsBuilderTest#writePastLimit
  An empty batch takes any record, even a record that is larger than batch.size. Each further
  record must fit into batch.size.
CompressionRatioEstimatorTest#testUpdateEstimation MemoryRecordsBuilderTest#testEstimatedSizeInBytes
  While a batch is being filled, its compressed size is an estimate: its uncompressed size times
  the compression ratio of earlier batches. If a batch compresses worse than estimated, the ratio
  rises immediately. If a batch compresses better, the ratio falls slowly.
# Configuration and send
KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig
KafkaProducerTest#testAcksAndIdempotenceForIdempotentProducers
KafkaProducerTest#testRetriesAndIdempotenceForIdempotentProducers
KafkaProducerTest#testInflightRequestsAndIdempotenceForIdempotentProducers
  If the user has set two options that contradict each other, the producer raises an error. If
  only one of them was set, the producer can change the default of the other option, with a
  warning. Example: idempotence, which is the default, is switched off by acks=1.
KafkaProducerTest#testMetadataTimeoutWithMissingTopic
KafkaProducerTest#testMetadataTimeoutWithPartitionOutOfRange
  If a topic or partition is unknown, send waits for it. If it is still unknown after
  max.block.ms, send fails. The error has the reason that brokers have returned.
KafkaProducerTest#testSendToInvalidTopic
  If a topic name is invalid, only the records for this topic fail. For the effect on a
  transaction, see the next rows.
KafkaProducer#doSend
  A call of send waits for metadata and for memory. The two waits together last at most
  max.block.ms.
KafkaProducerTest#testCommitTransactionWithRecordTooLargeException
KafkaProducerTest#testCommitTransactionWithMetadataTimeoutForMissingTopic
  If send fails for a record in a transaction, the producer refuses to commit the transaction.
  Examples are a record that is too large and a missing topic.
KafkaProducerTest#testPartitionAddedToTransaction
  The producer adds a partition to the transaction only after it has put a record for this
  partition into a batch.
KafkaProducerTest#testHeaders
  After send, the headers of a record can't be changed.
# Memory for records (BufferPool)
BufferPoolTest#testSimple
  Memory that a batch has released is used for later batches.
BufferPoolTest#testCantAllocateMoreMemoryThanWeHave
  If a batch needs more memory than the whole pool has, it is refused immediately. If it needs
  exactly the whole pool, it gets the memory.
BufferPoolTest#testDelayedAllocation
  A thread can wait for more memory than any other thread releases. It then collects several
  released pieces until it has enough.
BufferPoolTest#testBlockTimeout BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnBlockTimeout
  If a thread has waited for too long, it stops waiting. It releases the pieces that it has
  collected.
BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnInterruption
  If a waiting thread is interrupted, it stops waiting. It releases the pieces that it has
  collected.
BufferPool#allocate
  The thread that has waited longest gets memory first.
BufferPoolTest#testCloseNotifyWaiters BufferPoolTest#testCloseAllocations
  When the producer is closed, all waiting threads stop waiting. After that, nobody gets memory.
BufferPoolTest#testLargeAvailableMemory
  buffer.memory may be larger than 2 GiB.
BufferPoolTest#testStressfulSituation
  If many threads use the pool at the same time, no memory gets lost: afterwards the whole pool is
  free.
# Batches that wait (RecordAccumulator)
RecordAccumulatorTest#testFull
  If a batch is full, it is sent immediately, even if linger.ms is not over.
RecordAccumulatorTest#testLinger
  If a batch is not full, it is sent when linger.ms is over. Java counts this time from the
  creation of the batch.
RecordAccumulatorTest#testNextReadyCheckDelay
  If no batch may be sent yet, the network thread sleeps. It wakes up when the linger time or the
  backoff of the first batch is over.
RecordAccumulatorTest#testAppendLargeNonCompressed RecordAccumulatorTest#testAppendLargeCompressed
  A record that is larger than batch.size gets a batch of its own.
RecordAccumulator#drainBatchesForOneNode
  When the network thread fills a request, it takes at most one batch of each partition.
RecordAccumulatorTest#testPartialDrain
  A request takes further batches until it reaches max.request.size. Exception: if a single batch
  is larger than this limit, it is sent in a request of its own.
RecordAccumulatorTest#testDrainBatches
  The next request begins with the partition that follows the last partition of this request. So
  each partition gets its turn.
RecordAccumulatorTest#testMutedPartitions
  With max.in.flight.requests.per.connection=1, a partition is muted while one of its batches is
  in flight: no other batch of it is sent. This keeps the order of the batches.
RecordAccumulatorTest#testFlush RecordAccumulatorTest#testRecordsDrainedWhenTransactionCompleting
  In four cases, batches are sent before linger.ms is over: a thread waits for memory, the program
  has called flush, the producer closes, or a transaction ends. In these cases too, a batch that
  is sent again waits for its backoff.
RecordAccumulatorTest#testRetryBackoff RecordAccumulatorTest#testExponentialRetryBackoff
  The backoff before a retry begins at the last attempt to send the batch. It does not delay
  batches of other partitions.
RecordAccumulatorTest#testExponentialRetryBackoffLeaderChange
RecordAccumulatorTest#testReadyAndDrainWhenABatchIsBeingRetried
  A batch that waits for its backoff is sent immediately if its partition has a new leader. If
  this attempt fails too, the batch waits for a backoff again.
RecordAccumulator#insertInSequenceOrder
  A batch that must be sent again goes to the head of its partition's queue. If several such
  batches are there, an idempotent producer sorts them by their sequence numbers.
RecordAccumulatorTest#testExpiredBatches RecordAccumulatorTest#testExpiredBatchSingle
SenderTest#testExpiredBatchesInMultiplePartitions
  If a batch was not acknowledged within delivery.timeout.ms after its creation, it expires: its
  records fail. The oldest batch expires first.
RecordAccumulatorTest#testSoonToExpireBatchesArePickedUpForExpiry
  The network thread waits for responses at most until the next batch expires.
RecordAccumulatorTest#testSplitAndReenqueue ProducerBatchTest#testSplitPreservesHeaders
ProducerBatchTest#testSplitPreservesMagicAndCompressionType
  If a broker refuses a batch because it is too large, the producer splits the batch. Each part
  keeps the age, the headers and the compression of the batch. The result of each record reaches
  the caller as without a split. The parts go to the head of the queue, in their order.
RecordAccumulatorTest#testSplitBatchOffAccumulator
  If a part is still too large, it is split again, down to single records.
RecordAccumulatorTest#testSplitFrequency
  If records with good and bad compression are mixed, the estimate of a batch's size still is good
  enough: fewer than one batch in ten becomes larger than batch.size.
RecordAccumulatorTest#testAwaitFlushComplete
  A call of flush waits for all batches that exist at the time of the call. If one of them is
  split, flush waits for its parts.
RecordAccumulatorTest#testAbortIncompleteBatches
  After a fatal error, all batches fail and release their memory. The same happens if the program
  closes the producer without a wait.
RecordAccumulatorTest#testAbortUnsentBatches
  If a transaction is aborted, batches that were never sent fail immediately, and release their
  memory. The abort waits for the responses of all other batches.
RecordAccumulator#ready
  If there are records for a partition without a leader, the producer requests new metadata from a
  broker.
RecordAccumulatorTest#testStressfulSituation
  If many threads send records with little memory, no record gets lost.
RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches
  Before records without a key go to another partition, the batch of the earlier partition is
  filled. So there are few small batches.
# The result of a batch (ProducerBatch)
ProducerBatchTest#testBatchCannotCompleteTwice ProducerBatchTest#testBatchAbort
ProducerBatchTest#testBatchCannotAbortTwice
  Each batch has exactly one result: success or failure. The callbacks of its records run once, in
  the order of the records.
ProducerBatchTest#testCompleteExceptionallyWithRecordErrors
  If a broker names a faulty record of a batch, the future of this record has the broker's error.
ProducerBatchTest#testBatchExpiration ProducerBatchTest#testBatchExpirationAfterReenqueue
  If the clock of the machine goes back, no batch expires too early.
ProducerBatchTest#testWithLeaderChangesAcrossRetries
  A batch skips its backoff only once for each new leader.
# The choice of a partition (Partitioner)
BuiltInPartitionerTest#testStickyPartitioning
  Records without a key go to one partition at a time, the sticky partition. After batch.size
  bytes, the producer chooses another partition.
BuiltInPartitionerTest#unavailablePartitionsTest
  A partition without a leader is chosen only if no partition has a leader.
BuiltInPartitionerTest#adaptivePartitionsTest
  The more batches of a partition wait, the less often the producer chooses the partition.
RecordAccumulatorTest#testAdaptiveBuiltInPartitioner
  If a broker has accepted no data for partitioner.availability.timeout.ms, the producer does not
  choose its partitions.
BuiltInPartitioner#nextPartition
  With partitioner.rack.aware=true, the producer chooses only partitions whose leader is in the
  rack of client.rack. If there is no such leader, it chooses among all partitions.
# Sending, retries and expiry (Sender)
SenderTest#testSimple
  A batch is sent, and a broker acknowledges it.
SenderTest#testRetries
  If the connection breaks before the response, the batch is sent again. After the number of
  attempts in the option retries, the batch fails.
SenderTest#testSendInOrder
  With max.in.flight.requests.per.connection=1, a batch of a partition is sent only after the
  previous batch has its result, retries included.
Sender#handleProduceResponse
  With acks=0, a batch counts as a success when its bytes are written to the socket. The offset is
  unknown.
SenderTest#testInitProducerIdRequest SenderTest#testSenderShouldRetryWithBackoffOnRetriableError
  An idempotent producer sends no batch before it has got its producer id from a broker.
SenderTest#testIdempotenceWithMultipleInflights
  With max.in.flight.requests.per.connection=5, the default, at most five requests are in flight
  on each connection. So at most five batches of a partition are in flight, and the sixth waits.
SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder
  Several batches of a partition are in flight, and a broker refuses the first one with a
  temporary error. The broker then refuses the later batches too, because a sequence number is
  missing. The producer sends all of them again, in their order.
SenderTest#testCorrectHandlingOfOutOfOrderResponses
SenderTest#testCorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds
  If a later batch of a partition is acknowledged, all earlier batches are in the log, because a
  broker accepts sequence numbers only in order. So an earlier batch that waits for its retry
  counts as a success.
SenderTest#testCorrectHandlingOfDuplicateSequenceError
  The error DUPLICATE_SEQUENCE_NUMBER counts as a success: the batch is already in the log, and
  only the first response was lost.
SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached
SenderTest#testTransactionalUnknownProducerHandlingWhenRetentionLimitReached
  The error UNKNOWN_PRODUCER_ID means that a broker no longer has the producer's last sequence
  number, for example because retention has deleted its records.
SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences
SenderTest#testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences
  If a batch expires before it was sent, it certainly is not in the log. If it expires after it
  was sent, and the response is missing, it may be in the log: the batch is unresolved. The
  producer then must find out the result before it can continue.
SenderTest#testUnresolvedSequencesAreNotFatal
SenderTest#testExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed
SenderTest#testReceiveFailedBatchTwiceWithTransactions
  A batch is no longer unresolved if its own response comes late, or if a later batch of the
  partition is acknowledged.
SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted
  If a batch fails permanently, Java gives new sequence numbers to the later batches of the
  partition, so that no number is missing.
SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived
SenderTest#testEpochBumpOnOutOfOrderSequenceForNextBatch
  The error OUT_OF_ORDER_SEQUENCE_NUMBER means that a sequence number is missing in the log. An
  idempotent producer then gets a new producer epoch, and numbers begin at 0 again.
TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump
  If one partition needs a new producer epoch, the producer still sends the batches of other
  partitions.
SenderTest#testIdempotentSplitBatchAndSend SenderTest#testTransactionalSplitBatchAndSend
  If a broker refuses a batch with several records because it is too large, the producer sends it
  as two batches. Each record keeps its sequence number.
SenderTest#testTooLargeBatchesAreSafelyRemoved
  If a broker refuses a batch with a single record because it is too large, the record fails.
SenderTest#testExpiredBatchDoesNotSplitOnMessageTooLargeError
SenderTest#testExpiredBatchDoesNotRetry
  If a batch gets an error after delivery.timeout.ms is over, it is neither split nor sent again.
  Its records fail.
SenderTest#testInflightBatchesExpireOnDeliveryTimeout SenderTest#testNoDoubleDeallocation
  If a batch expires while it is in flight, its memory is released only when its response comes or
  its connection is closed.
SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
  With max.in.flight.requests.per.connection=1, a batch can expire while it is in flight. The next
  batch of the partition then waits until the first one has a response, or its connection is
  closed.
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation
  If a broker is no longer the leader of a partition, its response can name the new leader. The
  batch is then sent to the new leader immediately. If the response does not name the new leader,
  the producer requests new metadata.
SenderTest#testRecordErrorPropagatedToApplication SenderTest#testDefaultErrorMessage
SenderTest#testCustomErrorMessage
  If a batch fails, the caller gets the error and its text for each record of the batch.
SenderTest#testCanRetryWithoutIdempotence
  With enable.idempotence=false, a failed batch has no effect on other batches.
SenderTest#testCancelInFlightRequestAfterFatalError
SenderTest#testUnsupportedVersionInProduceRequest
SenderTest#testClusterAuthorizationExceptionInProduceRequest
  After a fatal error, the producer sends no further request.
SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction
SenderTest#testRecordsFlushedImmediatelyOnTransactionCompletion
  A commit first sends all records that still wait in the producer. After their acknowledgements,
  it ends the transaction.
SenderTest#testIncompleteTransactionAbortOnShutdown
SenderTest#testForceShutdownWithIncompleteTransaction
SenderTest#testTransactionalRequestsSentOnShutdown
SenderTest#testSenderShouldCloseWhenTransactionManagerInErrorState
SenderTest#testSenderShutdownWithPendingTransactions
KafkaProducerTest#testCloseIsForcedOnPendingFindCoordinator
  A call of close sends the records that still wait, so that all callers get a result. If the
  program has begun a commit, close carries it out. Otherwise close aborts the open transaction. A
  close with the timeout 0 waits for nothing.
SenderTest#testDoNotPollWhenNoRequestSent
  While the producer can't send a request, its network thread sleeps, and uses no CPU time.
# Transactions (TransactionManager)
TransactionManagerTest#testBasicTransaction
  The producer sends one request at a time to the coordinator of its transaction: first the new
  partitions (AddPartitionsToTxn), and at last the end (EndTxn).
TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction
TransactionManagerTest#testFailIfNotReadyForSendNoProducerId
TransactionManagerTest#testInitializeTransactionsTwiceRaisesError
  The methods initTransactions, beginTransaction and send must be called in this order. Otherwise
  the call fails. A second call of initTransactions fails too.
TransactionManagerTest#testMaybeAddPartitionToTransaction
TransactionManagerTest#testNoDrainWhenPartitionsPending
  With TV1, a batch of a partition is sent only after a broker has acknowledged AddPartitionsToTxn
  for this partition.
TransactionManagerTest#testTransactionManagerEnablesV2
  With TV2, the producer does not send AddPartitionsToTxn, because brokers add a partition
  themselves. The producer sends version 12 of the request Produce, and version 5 of EndTxn.
TransactionManager#nextRequest
  If a transaction has no partition, its end needs no request.
TransactionManagerTest#testEndTxnNotSentIfIncompleteBatches
TransactionManagerTest#testFlushPendingPartitionsOnCommit
TransactionManagerTest#testCommitTransactionWithUnsentProduceRequest
  The producer sends EndTxn only after it has the results of all batches and of all
  AddPartitionsToTxn requests.
TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffWhenPartitionsAlreadyAdded
  CONCURRENT_TRANSACTIONS means that brokers still end the producer's previous transaction, which
  takes a short time. So the first AddPartitionsToTxn of a transaction is sent again after a
  backoff that is shorter than retry.backoff.ms. A later AddPartitionsToTxn has the normal
  backoff.
TransactionManagerTest#testRetriableErrors TransactionManagerTest#testCoordinatorNotAvailable
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError
  After any other temporary error, the request is sent again after retry.backoff.ms.
TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend
TransactionManagerTest#testLookupCoordinatorOnDisconnectBeforeSend
TransactionManagerTest#testLookupCoordinatorOnNotCoordinatorError
TransactionManagerTest#testDisconnectAndRetry
TransactionManagerTest#testFindCoordinatorAllowedInAbortableErrorState
  If another broker has become the coordinator of the transaction, or if the connection breaks,
  the producer searches the coordinator again (FindCoordinator).
TransactionManagerTest#testProducerFencedExceptionInInitProducerId
TransactionManagerTest#testProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInInitProducerId
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInEndTxn
  If a newer producer uses the same transactional id, brokers refuse all requests of the older
  producer: it is fenced. This error is fatal.
TransactionManagerTest#testInvalidProducerEpochFromProduce
SenderTest#testInvalidTxnStateIsAnAbortableError
  In the response to Produce, INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE are abortable errors.
TransactionManagerTest#testInvalidTxnStateInAddPartitions
TransactionManagerTest#testTransactionalIdAuthorizationFailureInAddPartitions
  In the responses to AddPartitionsToTxn and EndTxn, INVALID_TXN_STATE and
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED are fatal errors.
TransactionManagerTest#testTransactionalIdAuthorizationFailureInInitProducerId
  If initTransactions fails with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the program can call it
  again. It succeeds if an administrator has granted the right in the meantime.
TransactionManagerTest#testUnsupportedFindCoordinator
  If client and broker have no common version of a transactional request, the error is fatal.
TransactionManagerTest#testTopicAuthorizationFailureInAddPartitions
TransactionManagerTest#shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed
  If the principal has no right to write to a topic, the error is abortable.
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionNotStarted
  After an abortable error, batches that were already sent still get their results. After the
  abort, the producer can begin a new transaction.
TransactionManagerTest#testAbortResendsProduceRequestIfRetried
TransactionManagerTest#testAbortResendsAddPartitionErrorIfRetried
  If a batch or an AddPartitionsToTxn request waits for its retry when the program calls abort,
  the producer sends it again before EndTxn.
TransactionManagerTest#testCancelUnsentAddPartitionsAndProduceOnAbort
SenderTest#testTransactionAbortedExceptionOnAbortWithoutError
  If the program calls abort, the producer drops batches and AddPartitionsToTxn requests that were
  never sent.
TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId
TransactionManagerTest#testTransactionAbortableExceptionInAddPartitions
TransactionManagerTest#testTransactionAbortableExceptionInEndTxn
TransactionManagerTest#testTransactionAbortableExceptionInFindCoordinator
SenderTest#testTransactionAbortableExceptionIsAnAbortableError
  The error TRANSACTION_ABORTABLE is abortable, in the response to every request.
TransactionManagerTest#testDisallowCommitOnProduceFailure
TransactionManagerTest#testAllowAbortOnProduceFailure
  If a batch fails, the producer refuses to commit its transaction, but can abort it.
TransactionManagerTest#testRetryCommitTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterCommitTimeout
TransactionManagerTest#testRetryCommitTransactionAfterAbortTimeout
TransactionManagerTest#testRetryInitTransactionsAfterTimeout
  If initTransactions, commitTransaction or abortTransaction times out, the program may only call
  the same method again. After a commit that timed out, an abort is refused, because the commit
  may have succeeded. After an abort that timed out, a commit is refused.
TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry
TransactionManagerTest#testDropCommitOnBatchExpiry
TransactionManagerTest#testTransitionToFatalErrorWhenRetriedBatchIsExpired
  If a batch expires, the producer refuses to commit its transaction. If the batch was sent
  before, and the broker's versions do not allow a new producer epoch, the error is fatal.
TransactionManager.EndTxnHandler#handleResponse
  With TV2, the response to EndTxn has the producer epoch for the next transaction. If the epoch
  has reached its largest value, the response has a new producer id.
TransactionManager#maybeUpdateTransactionV2Enabled
  If an administrator changes the cluster to TV2, an open transaction still ends with TV1. The
  next transaction begins with TV2.
TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal
TransactionManagerTest#testForegroundInvalidStateTransitionIsRecoverable
  The producer checks each step of a transaction. If a call of the program comes in the wrong
  state, only this call fails. If the network thread itself finds a wrong state, the error is
  fatal.
# The end of a transaction, seen by broker and producer
TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit
TransactionCoordinatorTest#shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch
TransactionCoordinatorTest#shouldUseLastEpochToFenceWhenEpochsAreExhausted
  A broker acknowledges an EndTxn that is repeated. It refuses a producer that is fenced, or whose
  transaction has timed out. The tests have a simulated broker, which must respond like this too.
TransactionManagerTest#testHasOngoingTransactionSuccessfulCommit
TransactionManagerTest#testHasOngoingTransactionAbortableError
  A transaction is open from beginTransaction until the response to EndTxn. After an abortable
  error, it is still open, so the program must abort it.
SenderTest#testAbortTransactionAndReuseSequenceNumberOnError
  After an abort, the sequence numbers of the next transaction begin at 0.
KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic
  If the program sends a record to an invalid topic in a transaction, the producer refuses to
  commit the transaction.
# Connections to brokers (NetworkClient)
NetworkClientTest#testSendToUnreadyNode
  The client sends a request to a broker only if the connection and the login are complete.
NetworkClientTest#testApiVersionsRequest
NetworkClientTest#testUnsupportedApiVersionsRequestWithVersionProvidedByTheBroker
NetworkClientTest#testUnsupportedApiVersionsRequestWithoutVersionProvidedByTheBroker
  The client first asks a broker for its versions, with the newest version of the request
  ApiVersions. If the broker refuses this version, the client sends the request again in a lower
  version.
NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady
NetworkClientTest#testConnectionSetupTimeout
  If a connection does not become usable in time, the client closes it.
NetworkClientTest#testRequestTimeout NetworkClientTest#testDisconnectWithMultipleInFlights
  If a request gets no response within request.timeout.ms, the client closes the connection. All
  requests of this connection then fail, in the order in which they were sent.
NetworkClientTest#testConnectionThrottling ClusterConnectionStatesTest#testThrottled
  If a broker's response names a throttle time, for example because of a quota, the client sends
  no request to this broker during this time.
NetworkClientTest#testClose
  If the client closes its connection to one broker, its connections to other brokers stay open.
NetworkClientTest#testLeastLoadedNode
NetworkClientTest#testLeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp
  Requests that any broker can answer, such as requests for metadata, go to the broker with the
  fewest requests in flight.
ClusterConnectionStatesTest#testExponentialReconnectBackoff
ClusterConnectionStatesTest#testMaxReconnectBackoff
ClusterConnectionStatesTest#testExponentialConnectionSetupTimeout
  After each failed attempt to connect to a broker, the client waits longer, up to
  reconnect.backoff.max.ms. A successful connection sets the wait back to reconnect.backoff.ms.
ClusterConnectionStatesTest#testMultipleIPs ClusterConnectionStatesTest#testHostResolveChange
ClusterConnectionStatesTest#testSkipLastAttemptedIp
  If the name of a broker has several IP addresses, each attempt to connect uses the next address.
NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest
ClusterConnectionStatesTest#testAuthorizationFailed
  If a login fails, all threads that wait for this broker get the error. A successful login
  deletes it.
NetworkClientTest#testRebootstrap
  The client connects to bootstrap.servers again (a rebootstrap) in three cases: a broker requests
  it, no known broker can be reached, or the client has got no metadata for
  metadata.recovery.rebootstrap.trigger.ms.
NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest
  If client and broker have no common version of a request, the request fails, and no byte is
  sent.
NetworkClientTest#testCorrelationId
  Each request has a number, the correlation id, which its response repeats. The client's numbers
  stay below the range that Kafka reserves for logins with SASL.
# What the client knows of the cluster (Metadata)
MetadataTest#testUpdateLastEpoch MetadataTest#testEpochUpdateOnChangedTopicIds
MetadataTest#testRejectOldMetadata MetadataTest#testEpochUpdateAfterTopicDeletion
MetadataTest#testMetadataMergeOnIdDowngrade MetadataTest#testNoEpoch
  Each change of a partition's leader raises its leader epoch. If a broker returns an older epoch
  than the client knows, the client ignores it. Exception: the topic was created again, and has a
  new id.
ProducerMetadataTest#testMetadataPartialUpdate ProducerMetadataTest#testRequestUpdateForTopic
MetadataTest#testPartialMetadataUpdate
  A request can ask for the metadata of new topics only. If metadata of all topics is also due,
  the response to such a request is not enough: the client then requests all topics too.
MetadataTest#testTimeToNextUpdate
  The client requests metadata again when metadata.max.age.ms is over.
ProducerMetadataTest#testMetadataEquivalentResponsesBackoff
  A thread can wait for a change of metadata, for example for a new leader. As long as the
  responses bring no change, the pauses between the requests grow.
MetadataTest#testFailedUpdate MetadataTest#testTimeToNextUpdateRetryBackoff
ProducerMetadataTest#testTimeToNextUpdateOverwriteBackoff
  If a request for metadata fails, the client waits for a backoff. The first request for a new
  topic has no backoff.
ProducerMetadataTest#testTopicExpiry
  If no record was sent to a topic for metadata.max.idle.ms, the client forgets the metadata of
  this topic. The topic itself does not change.
MetadataTest#testTopicMetadataOnUpdatePartitionLeadership
  A response to Produce can name a new leader of a partition. If the client already knows a newer
  leader epoch, it ignores this.
MetadataTest#testMetadataTopicErrors MetadataTest#testInvalidTopicError
MetadataTest#testTopicAuthorizationError
  If brokers return an error for a topic, only the records for this topic fail.
ProducerMetadataTest#testMetadataWaitAbortedOnFatalException
ProducerMetadataTest#testMetadataAwaitAfterClose
KafkaProducerTest#testCloseWhenWaitingForMetadataUpdate
  If the client gets a permanent error, such as a failed login, all threads that wait for metadata
  stop waiting. The same happens if the producer is closed.
MetadataTest#testClusterListenerGetsNotifiedOfUpdate
  Objects of the program that have registered for it, such as interceptors, get the id of the
  cluster.
# Sockets (Selector)
SelectorTest#testCantSendWithInProgress
  On one connection, the client writes one request to the socket at a time. The server may not
  have responded to earlier requests.
SelectorTest#testLargeMessageSequence SelectorTest#testSendLargeRequest
SelectorTest#testEmptyRequest
  Large and empty messages arrive complete.
SelectorTest#testCloseOldestConnection SelectorTest#testIdleExpiryWithoutReadyKeys
  After connections.max.idle.ms without use, a connection is closed, the oldest one first.
SelectorTest#testServerDisconnect
  If a broker closes a connection, the client still uses the responses that arrived before.
SelectorTest#testConnectionRefused
  If a broker refuses a connection, the client handles this like a connection that breaks.
SelectorTest#testExistingConnectionId
  The client opens at most one connection to a broker. It refuses to open a second one.
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


_INTRODUCTION = """
This page is for developers who work on this package, or who compare it with another Kafka client. To use the Spark
sink, you need nothing from this page.

The Spark sink sends its rows with a [Kafka producer in Python](python-producer.md), which is a part of this package.
The producer must behave like Kafka's own producer in Java. Each row of the tables has one behaviour of the Java
producer. If the row has no words *Different here*, the Python producer behaves in the same way. The other columns name
the tests that show this:

* *test of Kafka*: the test in the repository of Apache Kafka (`class#method`). If the name of the class does not end
  with `Test`, Kafka has no test of the behaviour. The column then has the method of the Java client.
* *tests of this package*: the tests in the folder `tests` that check the same behaviour of the Python producer.

## Terms

| term | meaning on this page |
|---|---|
| record | a message in Kafka. The Spark sink makes one record from each row |
| batch | a record batch: records for one partition that the producer sends together. It is not a batch of Spark |
| in flight | sent to a broker, without a response yet |
| backoff | the pause before the producer sends something again |
| network thread | the thread of the producer that sends batches and reads responses |
| leader | the broker that accepts the records of a partition |
| leader epoch | a number that rises with each change of a partition's leader |
| idempotent producer | a producer whose records have sequence numbers, so that brokers recognise a batch that is sent twice. This is the default |
| producer id | a number that a broker gives to an idempotent producer |
| sequence number | the number of a record among the records of one producer in one partition |
| producer epoch | a version of the producer id. With a new epoch, sequence numbers begin at 0 again |
| coordinator | the broker that manages the transactions of a transactional id |
| abortable error | an error after which the producer can only abort the transaction. After that, it can begin a new one |
| fatal error | an error after which the producer can only be closed |
| TV1, TV2 | the two versions of transactions in Kafka. TV2 is the feature `transaction.version=2` of Kafka 4.0 and later. With TV2, the producer gets a new epoch after each transaction |

## Where the Spark sink differs

Spark can run a task again, and a Java application can't. So the sink treats some errors differently than the Java
producer, and differently than the method `send` of the Python producer:

| case | Java producer | Spark sink |
|---|---|---|
| a batch that was sent fails permanently | Its records fail. With a new producer epoch or new sequence numbers, the producer continues | The attempt of the task fails, and Spark runs the task again (rule R2 of [the design](../DESIGN.md)) |
| the limit of the wait for memory | max.block.ms | delivery.timeout.ms, unless you set max.block.ms |
| the time in linger.ms | counts from the creation of a batch | counts only while the task waits for Spark's next rows ([differences](migration.md#what-is-different)) |
"""

BEHAVIOURS = _parsed(_LIST)

#: How this package differs from a behaviour. A test may show the difference.
NOT_HERE = {
    "SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOf"
    "FutureBatchesIsAdjusted": (
        "In a transaction, the later batches fail too, and no sequence number is changed. In the"
        " Spark sink, [the attempt of the task fails](#where-the-spark-sink-differs)."
    ),
    "SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived": (
        "In the Spark sink, [the attempt of the task fails](#where-the-spark-sink-differs)."
    ),
    "TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump": (
        "This exists only for the method `send`. In the Spark sink, no epoch is raised."
    ),
    "SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached": (
        "The batch is not sent again, and fails. In a transaction, the error is abortable."
    ),
    "SenderTest#testIdempotenceWithMultipleInflights": (
        "The first batch of a producer in a partition is in flight alone, until it is acknowledged."
    ),
    "RecordAccumulatorTest#testLinger": (
        "In the Spark sink, linger.ms counts only while the task waits for Spark's next rows."
    ),
    "BufferPoolTest#testBlockTimeout": (
        "In the Spark sink, the limit is delivery.timeout.ms, unless max.block.ms is set."
    ),
}

#: The introductions of the groups: what the behaviours mean for a user.
_ABOUT = {
    "Numbers and checksums": (
        "These results must be the same in every client. Otherwise a row with a key would go to"
        " another partition than with a Java client, or brokers would refuse the batches."
    ),
    "Records and batches": (
        "A reader of batches is a broker, a consumer or, in this package, `kprod audit`. If a"
        " broker refuses a batch, its records are not in the topic, and the write fails."
    ),
    "Configuration and send": (
        "A user sees these behaviours as an error or a warning at the start, or as an error of a"
        " single record."
    ),
    "Memory for records (BufferPool)": (
        "The option buffer.memory limits the memory for records that are not acknowledged yet. If"
        " this memory is full, a thread that sends records waits. So a slow broker makes a task"
        " slow, but its memory does not grow."
    ),
    "Batches that wait (RecordAccumulator)": (
        "Each partition has a queue of batches. These behaviours determine how long a row waits,"
        " and whether the rows of a partition keep their order."
    ),
    "The result of a batch (ProducerBatch)": (
        "Each record has one result, which the caller gets through a future or a callback."
    ),
    "The choice of a partition (Partitioner)": (
        "These behaviours concern only records without a key and without a partition number."
    ),
    "Sending, retries and expiry (Sender)": (
        "These behaviours decide whether a row is written once, twice or not at all if a broker"
        " or a connection fails."
    ),
    "Transactions (TransactionManager)": (
        "These behaviours decide whether a transaction can be committed after an error. With"
        " exactly-once, each task of the Spark sink has a transaction, and the driver commits it."
    ),
    "The end of a transaction, seen by broker and producer": (
        "After the end of a transaction, a consumer with isolation.level=read_committed sees all of"
        " its records or none."
    ),
    "Connections to brokers (NetworkClient)": (
        "These behaviours determine how soon a client continues if a broker or a connection fails."
    ),
    "What the client knows of the cluster (Metadata)": (
        "*Metadata* is the client's list of brokers, topics, partitions and leaders. With outdated"
        " metadata, a client sends batches to the wrong broker, and must send them again."
    ),
    "Sockets (Selector)": (
        "The selector reads and writes the sockets of all connections in one thread. A user does"
        " not see these behaviours."
    ),
}

_NAME = re.compile(r"\b[A-Z]\w*(?:\.\w+)?#\w+")


def page_lines() -> Iterator[str]:
    """The lines of the page after its head."""
    shown_by = _tests_by_name()
    yield from _INTRODUCTION.strip().splitlines()
    for group, behaviours in BEHAVIOURS.items():
        yield from ("", f"## {group}", "", *textwrap.wrap(_ABOUT[group], 120), "")
        yield from ("| behaviour | test of Kafka | tests of this package |", "|---|---|---|")
        for text, *names in behaviours:
            ours = {test for name in names for test in shown_by.get(name, ())}
            shown = ", ".join(f"`{test}`" for test in sorted(ours))
            reason = NOT_HERE.get(names[0])
            here = "" if reason is None else f" **Different here:** {reason}"
            yield f"| {text}{here} | {', '.join(f'`{name}`' for name in names)} | {shown} |"


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
