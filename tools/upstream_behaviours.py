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
# Numbers and checksums
UtilsTest#testMurmur2
  The hash function murmur2 returns the values that Kafka's test expects.
DefaultPartitionerTest#testKeyPartitionIsStable
  The partition of a key is (murmur2 & 0x7fffffff) % N. N is the number of all partitions of the
  topic, including partitions without a leader.
Crc32CTest#testValue
  The checksum CRC-32C has the values that Kafka's test expects.
ByteUtilsTest#testVarintSerde ByteUtilsTest#testVarlongSerde ByteUtilsTest#testInvalidVarint
ByteUtilsTest#testInvalidVarlong
  Signed varints (integers of variable length) of 32 and 64 bits have the bytes that Kafka's test
  expects. A varint with too many bytes is refused.
ByteUtilsTest#testUnsignedVarintSerde
  Unsigned varints have the bytes that Kafka's test expects.
TransactionManagerTest#testSequenceNumberOverflow DefaultRecordBatchTest#testIncrementSequence
  The sequence number after 2147483647 (2^31 - 1) is 0.
# Records and batches
DefaultRecordBatchTest#testInvalidCrc DefaultRecordBatchTest#testInvalidRecordSize
DefaultRecordBatchTest#testInvalidRecordCountTooManyNonCompressedV2
  A client that reads a batch refuses it if its checksum or its number of records is wrong, or if it
  is shorter than its header.
DefaultRecordTest#testNullHeaderKey
  A header's key may not be null. A header's value may be null.
DefaultRecordTest#testInvalidHeaderKey DefaultRecordTest#testInvalidHeaderValue
DefaultRecordTest#testInvalidValueSize
  A client that reads a record refuses it if the length of a field is larger than the number of
  bytes that follow.
MemoryRecordsBuilderTest#testWriteTransactionalWithInvalidPID
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidEpoch
MemoryRecordsBuilderTest#testWriteIdempotentWithInvalidBaseSequence
  A batch is refused if its fields contradict each other, for example a producer id without a
  sequence number.
MemoryRecordsBuilderTest#buildUsingCreateTime
  The header of a batch has the largest timestamp of its records. A timestamp before 1970 is
  refused.
MemoryRecordsBuilderTest#testWriteEmptyRecordSet
  Without records, no bytes are written.
MemoryRecordsBuilderTest#shouldThrowIllegalStateExceptionOnAppendWhenClosed
  A closed batch takes no more records.
MemoryRecordsBuilderTest#testSmallWriteLimit MemoryRecordsBuilderTest#writePastLimit
  An empty batch takes any record, even if the record is larger than batch.size. Each further record
  must fit into batch.size.
CompressionRatioEstimatorTest#testUpdateEstimation MemoryRecordsBuilderTest#testEstimatedSizeInBytes
  The size of a compressed batch is estimated from earlier batches. The estimate rises immediately
  after worse compression, and falls slowly after better compression.
# Configuration and send
KafkaProducerTest#testDeliveryTimeoutAndLingerMsConfig
KafkaProducerTest#testAcksAndIdempotenceForIdempotentProducers
KafkaProducerTest#testRetriesAndIdempotenceForIdempotentProducers
KafkaProducerTest#testInflightRequestsAndIdempotenceForIdempotentProducers
  If two options of the user contradict each other, the producer raises an error. If an option of
  the user contradicts a default, the producer can change the default, with a warning. For example,
  acks=1 switches off idempotence.
KafkaProducerTest#testMetadataTimeoutWithMissingTopic
KafkaProducerTest#testMetadataTimeoutWithPartitionOutOfRange
  If a topic or partition is unknown, send waits for at most max.block.ms. If a broker has returned
  an error, such as UNKNOWN_TOPIC_OR_PARTITION, the error of send names the broker's error.
KafkaProducerTest#testSendToInvalidTopic
  Outside of a transaction, an invalid topic name fails only the records for this topic.
KafkaProducer#doSend
  In a call of send, the wait for metadata and the wait for memory together last at most
  max.block.ms.
KafkaProducerTest#testCommitTransactionWithRecordTooLargeException
KafkaProducerTest#testCommitTransactionWithMetadataTimeoutForMissingTopic
  If send fails for a record in a transaction, the producer refuses to commit the transaction.
KafkaProducerTest#testPartitionAddedToTransaction
  A partition is added to the transaction only after one of its records was put into a batch.
KafkaProducerTest#testHeaders
  After send, the headers of a record can't be changed.
# Memory for records (BufferPool)
BufferPoolTest#testSimple
  Memory that a batch has released is used again.
BufferPoolTest#testCantAllocateMoreMemoryThanWeHave
  A batch that needs more memory than the whole pool is refused immediately. A batch can get the
  whole pool.
BufferPoolTest#testDelayedAllocation
  A thread that waits for memory collects the pieces that other threads release.
BufferPoolTest#testBlockTimeout BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnBlockTimeout
  A thread that has waited for too long stops waiting, and releases the memory that it has
  collected.
BufferPoolTest#testCleanupMemoryAvailabilityWaiterOnInterruption
  A waiting thread that is interrupted releases the memory that it has collected.
BufferPool#allocate
  The thread that has waited longest gets memory first.
BufferPoolTest#testCloseNotifyWaiters BufferPoolTest#testCloseAllocations
  When the producer is closed, all threads stop waiting, and no thread gets memory any more.
BufferPoolTest#testLargeAvailableMemory
  buffer.memory may be larger than 2 GiB.
BufferPoolTest#testStressfulSituation
  After many threads have used the pool at the same time, the whole pool is free again.
# Batches that wait (RecordAccumulator)
RecordAccumulatorTest#testFull
  A full batch is sent before linger.ms is over.
RecordAccumulatorTest#testLinger
  A batch that is not full is sent when linger.ms is over.
RecordAccumulatorTest#testNextReadyCheckDelay
  While no batch may be sent, the network thread sleeps, until the linger time or the backoff of any
  batch is over.
RecordAccumulatorTest#testAppendLargeNonCompressed RecordAccumulatorTest#testAppendLargeCompressed
  A record that is larger than batch.size gets its own batch.
RecordAccumulator#drainBatchesForOneNode
  A request has at most one batch of each partition.
RecordAccumulatorTest#testPartialDrain
  A request takes batches up to max.request.size. A larger batch is sent alone.
RecordAccumulatorTest#testDrainBatches
  The partitions of a broker take turns: each request continues after the last partition of the
  previous request.
RecordAccumulatorTest#testMutedPartitions
  With max.in.flight.requests.per.connection=1, no other batch of a partition is sent while one of
  its batches is in flight.
RecordAccumulatorTest#testFlush RecordAccumulatorTest#testRecordsDrainedWhenTransactionCompleting
  In four cases, a batch is sent before linger.ms is over: a thread waits for memory, the program
  calls flush, the producer closes, or a transaction ends. These cases do not shorten a backoff.
RecordAccumulatorTest#testRetryBackoff RecordAccumulatorTest#testExponentialRetryBackoff
  The backoff of a retry begins when the previous attempt fails, and delays no other partition.
RecordAccumulatorTest#testExponentialRetryBackoffLeaderChange
RecordAccumulatorTest#testReadyAndDrainWhenABatchIsBeingRetried
  If the partition of a batch has a new leader, the batch skips the rest of its backoff. A further
  retry of the batch has a backoff again.
RecordAccumulator#insertInSequenceOrder
  A batch that is sent again goes to the head of its partition's queue. There, an idempotent
  producer sorts batches by their sequence numbers.
RecordAccumulatorTest#testExpiredBatches RecordAccumulatorTest#testExpiredBatchSingle
SenderTest#testExpiredBatchesInMultiplePartitions
  A batch that was not acknowledged within delivery.timeout.ms expires, and its records fail. The
  oldest batch expires first.
RecordAccumulatorTest#testSoonToExpireBatchesArePickedUpForExpiry
  The network thread waits for responses at most until the next batch expires.
RecordAccumulatorTest#testSplitAndReenqueue ProducerBatchTest#testSplitPreservesHeaders
ProducerBatchTest#testSplitPreservesMagicAndCompressionType
  If a broker refuses a batch as too large, the producer splits the batch. The parts keep its age,
  headers, compression and futures. They go to the head of the queue, in their order.
RecordAccumulatorTest#testSplitBatchOffAccumulator
  A part that is still too large is split again, down to single records.
RecordAccumulatorTest#testSplitFrequency
  If some records compress well and others badly, the estimated size of a compressed batch can be
  too small. But fewer than one batch in ten becomes larger than batch.size.
RecordAccumulatorTest#testAwaitFlushComplete
  flush waits for all batches that exist at the time of the call, and for their parts.
RecordAccumulatorTest#testAbortIncompleteBatches
  After a fatal error or a forced close, all batches fail and release their memory.
RecordAccumulatorTest#testAbortUnsentBatches
  If a transaction is aborted, only batches that were never sent fail. They release their memory.
RecordAccumulator#ready
  If there are records for a partition without a leader, the producer requests metadata.
RecordAccumulatorTest#testStressfulSituation
  If many threads send records, and the producer has little memory, no record is lost.
RecordAccumulatorTest#testBuiltInPartitionerFractionalBatches
  Records without a key go to one partition at a time. The producer fills the batch of this
  partition before it chooses the next partition.
# The result of a batch (ProducerBatch)
ProducerBatchTest#testBatchCannotCompleteTwice ProducerBatchTest#testBatchAbort
ProducerBatchTest#testBatchCannotAbortTwice
  A batch ends once, with success or failure. The callbacks of its records run once, in the order of
  the records.
ProducerBatchTest#testCompleteExceptionallyWithRecordErrors
  If a broker names a faulty record of a batch, the future of this record has the broker's error.
ProducerBatchTest#testBatchExpiration ProducerBatchTest#testBatchExpirationAfterReenqueue
  If the clock goes back, no batch expires.
ProducerBatchTest#testWithLeaderChangesAcrossRetries
  If the leader changes before a retry of a batch, this retry has no backoff. The retry after it has
  a backoff again.
# The choice of a partition (Partitioner)
BuiltInPartitionerTest#testStickyPartitioning
  Records without a key go to one partition, the sticky partition. After batch.size bytes, the
  producer chooses another partition.
BuiltInPartitionerTest#unavailablePartitionsTest
  A partition without a leader is chosen only if no partition has a leader.
BuiltInPartitionerTest#adaptivePartitionsTest
  The more batches of a partition wait, the less often the partition is chosen.
RecordAccumulatorTest#testAdaptiveBuiltInPartitioner
  If a broker has accepted no data for longer than partitioner.availability.timeout.ms, its
  partitions are not chosen.
BuiltInPartitioner#nextPartition
  With partitioner.rack.aware=true, the producer chooses only partitions with a leader in the rack
  that the option client.rack names. If no leader is in this rack, it chooses from all partitions.
# Sending, retries and expiry (Sender)
SenderTest#testSimple
  A batch is sent, and a broker acknowledges it.
SenderTest#testRetries
  If the connection breaks before the response, the batch is sent again, up to the number in the
  option retries.
SenderTest#testSendInOrder
  With max.in.flight.requests.per.connection=1, a batch waits until the previous batch of its
  partition has a result, retries included.
Sender#handleProduceResponse
  With acks=0, a batch is a success when its bytes are written to the socket. The offset is unknown.
SenderTest#testInitProducerIdRequest SenderTest#testSenderShouldRetryWithBackoffOnRetriableError
  An idempotent producer sends no batch before it has a producer id.
SenderTest#testIdempotenceWithMultipleInflights
  At most five batches of a partition are in flight (max.in.flight.requests.per.connection=5). The
  sixth batch waits.
SenderTest#testIdempotenceWithMultipleInflightsRetriedInOrder
  If several batches are in flight, and a broker refuses the first one with a temporary error, the
  producer sends all of them again, in their order.
SenderTest#testCorrectHandlingOfOutOfOrderResponses
SenderTest#testCorrectHandlingOfOutOfOrderResponsesWhenSecondSucceeds
  Brokers append the batches of a partition in order. So when a broker acknowledges a batch, the
  earlier batches are in the log too. If one of these earlier batches waits to be sent again, the
  producer counts it as a success, and does not send it.
SenderTest#testCorrectHandlingOfDuplicateSequenceError
  DUPLICATE_SEQUENCE_NUMBER is a success.
SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached
SenderTest#testTransactionalUnknownProducerHandlingWhenRetentionLimitReached
  After UNKNOWN_PRODUCER_ID, the batch is sent again with a new sequence number.
SenderTest#testExpiryOfUnsentBatchesShouldNotCauseUnresolvedSequences
SenderTest#testExpiryOfAllSentBatchesShouldCauseUnresolvedSequences
  A batch that expires before it was sent is not in the log. A batch that expires in flight may be
  in the log: it is unresolved.
SenderTest#testUnresolvedSequencesAreNotFatal
SenderTest#testExpiryOfFirstBatchShouldNotCauseUnresolvedSequencesIfFutureBatchesSucceed
SenderTest#testReceiveFailedBatchTwiceWithTransactions
  An unresolved batch is resolved by its own late response, or by the acknowledgement of a later
  batch of the partition.
SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOfFutureBatchesIsAdjusted
  After a batch has failed permanently, the later batches of the partition get new sequence numbers.
SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived
SenderTest#testEpochBumpOnOutOfOrderSequenceForNextBatch
  After OUT_OF_ORDER_SEQUENCE_NUMBER, an idempotent producer gets a new producer epoch.
TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump
  While one partition waits for a new producer epoch, the batches of other partitions are sent.
SenderTest#testIdempotentSplitBatchAndSend SenderTest#testTransactionalSplitBatchAndSend
  If a batch with several records is too large for the broker, the producer sends two batches.
  Each record keeps its sequence number.
SenderTest#testTooLargeBatchesAreSafelyRemoved
  If a batch with a single record is too large for the broker, the record fails.
SenderTest#testExpiredBatchDoesNotSplitOnMessageTooLargeError
SenderTest#testExpiredBatchDoesNotRetry
  A batch that gets an error after delivery.timeout.ms is neither split nor sent again.
SenderTest#testInflightBatchesExpireOnDeliveryTimeout SenderTest#testNoDoubleDeallocation
  A batch that expires in flight releases its memory only when its response comes or its connection
  is closed.
SenderTest#testWhenFirstBatchExpireNoSendSecondBatchIfGuaranteeOrder
  With max.in.flight.requests.per.connection=1, a batch that expires in flight delays the next batch
  of the partition, until its response comes or its connection is closed.
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorAndNewLeaderInformation
SenderTest#testWhenProduceResponseReturnsWithALeaderShipChangeErrorButNoNewLeaderInformation
  If a response names the new leader of a partition, the batch is sent to this leader immediately.
  If it does not, the producer requests metadata.
SenderTest#testRecordErrorPropagatedToApplication SenderTest#testDefaultErrorMessage
SenderTest#testCustomErrorMessage
  Each record of a failed batch gets the error and its text.
SenderTest#testCanRetryWithoutIdempotence
  With enable.idempotence=false, a failed batch fails no other batch.
SenderTest#testCancelInFlightRequestAfterFatalError
SenderTest#testUnsupportedVersionInProduceRequest
SenderTest#testClusterAuthorizationExceptionInProduceRequest
  After a fatal error, the producer sends no further request.
SenderTest#testAwaitPendingRecordsBeforeCommittingTransaction
SenderTest#testRecordsFlushedImmediatelyOnTransactionCompletion
  A commit first sends all records. After their acknowledgements, it ends the transaction.
SenderTest#testIncompleteTransactionAbortOnShutdown
SenderTest#testForceShutdownWithIncompleteTransaction
SenderTest#testTransactionalRequestsSentOnShutdown
SenderTest#testSenderShouldCloseWhenTransactionManagerInErrorState
SenderTest#testSenderShutdownWithPendingTransactions
KafkaProducerTest#testCloseIsForcedOnPendingFindCoordinator
  close first sends all records. If a commit has begun, close then completes the commit. If no
  commit has begun, close then aborts the open transaction, also the records that it has just sent.
  A close with the timeout 0 waits for nothing.
SenderTest#testDoNotPollWhenNoRequestSent
  While no request can be sent, the network thread sleeps.
# Transactions (TransactionManager)
TransactionManagerTest#testBasicTransaction
  The producer sends its requests to the coordinator in order, one at a time.
TransactionManagerTest#testFailIfNotReadyForSendNoOngoingTransaction
TransactionManagerTest#testFailIfNotReadyForSendNoProducerId
TransactionManagerTest#testInitializeTransactionsTwiceRaisesError
  If send is called before initTransactions or beginTransaction, it fails. A second call of
  initTransactions fails too.
TransactionManagerTest#testMaybeAddPartitionToTransaction
TransactionManagerTest#testNoDrainWhenPartitionsPending
  With TV1, a batch is sent only after AddPartitionsToTxn for its partition was acknowledged.
TransactionManagerTest#testTransactionManagerEnablesV2
  With TV2, the producer sends version 12 of Produce, version 5 of EndTxn, and no
  AddPartitionsToTxn.
TransactionManager#nextRequest
  A transaction without partitions ends without a request.
TransactionManagerTest#testEndTxnNotSentIfIncompleteBatches
TransactionManagerTest#testFlushPendingPartitionsOnCommit
TransactionManagerTest#testCommitTransactionWithUnsentProduceRequest
  EndTxn is sent after the results of all batches and of all AddPartitionsToTxn requests.
TransactionManagerTest#testAddPartitionToTransactionOverridesRetryBackoffForConcurrentTransactions
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffWhenPartitionsAlreadyAdded
  After CONCURRENT_TRANSACTIONS, AddPartitionsToTxn is sent again after a backoff. The backoff is
  shorter if the transaction has no partitions yet.
TransactionManagerTest#testRetriableErrors TransactionManagerTest#testCoordinatorNotAvailable
TransactionManagerTest#testAddPartitionToTransactionRetainsRetryBackoffForRegularRetriableError
  If a transactional request fails with a temporary error other than CONCURRENT_TRANSACTIONS, it is
  sent again after retry.backoff.ms.
TransactionManagerTest#testLookupCoordinatorOnDisconnectAfterSend
TransactionManagerTest#testLookupCoordinatorOnDisconnectBeforeSend
TransactionManagerTest#testLookupCoordinatorOnNotCoordinatorError
TransactionManagerTest#testDisconnectAndRetry
TransactionManagerTest#testFindCoordinatorAllowedInAbortableErrorState
  If the coordinator moves, or if its connection breaks, the producer looks up the coordinator
  again.
TransactionManagerTest#testProducerFencedExceptionInInitProducerId
TransactionManagerTest#testProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInInitProducerId
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInAddPartitionToTxn
TransactionManagerTest#testInvalidProducerEpochConvertToProducerFencedInEndTxn
  If a newer producer uses the same transactional id, the older producer is fenced. This error is
  fatal.
TransactionManagerTest#testInvalidProducerEpochFromProduce
SenderTest#testInvalidTxnStateIsAnAbortableError
  In the response to Produce, INVALID_PRODUCER_EPOCH and INVALID_TXN_STATE are abortable errors.
TransactionManagerTest#testInvalidTxnStateInAddPartitions
TransactionManagerTest#testTransactionalIdAuthorizationFailureInAddPartitions
  In the responses to AddPartitionsToTxn and EndTxn, INVALID_TXN_STATE and
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED are fatal errors.
TransactionManagerTest#testTransactionalIdAuthorizationFailureInInitProducerId
  In the response to InitProducerId, TRANSACTIONAL_ID_AUTHORIZATION_FAILED is not a fatal error: the
  program can call initTransactions again.
TransactionManagerTest#testUnsupportedFindCoordinator
  If client and broker have no common version of a transactional request, the error is fatal.
TransactionManagerTest#testTopicAuthorizationFailureInAddPartitions
TransactionManagerTest#shouldNotSendAbortTxnRequestWhenOnlyAddPartitionsRequestFailed
  A missing right to write to a topic is an abortable error.
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionStarted
TransactionManagerTest#testRecoveryFromAbortableErrorTransactionNotStarted
  After an abortable error, batches that were already sent get their results. After the abort, the
  producer can begin a new transaction.
TransactionManagerTest#testAbortResendsProduceRequestIfRetried
TransactionManagerTest#testAbortResendsAddPartitionErrorIfRetried
  An abort first sends pending retries of batches and of AddPartitionsToTxn.
TransactionManagerTest#testCancelUnsentAddPartitionsAndProduceOnAbort
SenderTest#testTransactionAbortedExceptionOnAbortWithoutError
  An abort drops batches and AddPartitionsToTxn requests that were never sent.
TransactionManagerTest#testTransactionAbortableExceptionInInitProducerId
TransactionManagerTest#testTransactionAbortableExceptionInAddPartitions
TransactionManagerTest#testTransactionAbortableExceptionInEndTxn
TransactionManagerTest#testTransactionAbortableExceptionInFindCoordinator
SenderTest#testTransactionAbortableExceptionIsAnAbortableError
  TRANSACTION_ABORTABLE is an abortable error, in the response to every request.
TransactionManagerTest#testDisallowCommitOnProduceFailure
TransactionManagerTest#testAllowAbortOnProduceFailure
  If a batch fails, the producer refuses to commit its transaction, but can abort it.
TransactionManagerTest#testRetryCommitTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterTimeout
TransactionManagerTest#testRetryAbortTransactionAfterCommitTimeout
TransactionManagerTest#testRetryCommitTransactionAfterAbortTimeout
TransactionManagerTest#testRetryInitTransactionsAfterTimeout
  If initTransactions, commitTransaction or abortTransaction times out, the program may only call
  the same method again.
TransactionManagerTest#testTransitionToAbortableErrorOnBatchExpiry
TransactionManagerTest#testDropCommitOnBatchExpiry
TransactionManagerTest#testTransitionToFatalErrorWhenRetriedBatchIsExpired
  If a batch expires, the producer refuses to commit its transaction. Brokers before Kafka 2.5 can't
  raise the producer epoch. With these brokers, the error is fatal if the expired batch was sent.
TransactionManager.EndTxnHandler#handleResponse
  With TV2, the response to EndTxn has the next producer epoch. If the epoch has
  its largest value, the response has a new producer id.
TransactionManager#maybeUpdateTransactionV2Enabled
  If the cluster changes to TV2, an open transaction ends with TV1. The next transaction begins with
  TV2.
TransactionManagerTest#testBackgroundInvalidStateTransitionIsFatal
TransactionManagerTest#testForegroundInvalidStateTransitionIsRecoverable
  If the program calls a method that does not fit the state of the transaction, the call fails, and
  changes nothing. If an action of the network thread does not fit the state, the error is fatal.
# The end of a transaction, seen by broker and producer
TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit
TransactionCoordinatorTest#shouldAbortExpiredTransactionsInOngoingStateAndBumpEpoch
TransactionCoordinatorTest#shouldUseLastEpochToFenceWhenEpochsAreExhausted
  A broker acknowledges a repeated EndTxn. It refuses a producer that is fenced, or whose
  transaction has timed out. The simulated broker of the tests does the same.
TransactionManagerTest#testHasOngoingTransactionSuccessfulCommit
TransactionManagerTest#testHasOngoingTransactionAbortableError
  A transaction is open from beginTransaction until the response to EndTxn, even after an abortable
  error.
SenderTest#testAbortTransactionAndReuseSequenceNumberOnError
  After an abort, the sequence numbers of the next transaction begin at 0.
KafkaProducerTest#testCommitTransactionWithSendToInvalidTopic
  After send to an invalid topic, the producer refuses to commit the transaction.
# Connections to brokers (NetworkClient)
NetworkClientTest#testSendToUnreadyNode
  A request is sent only after the connection and the login are complete.
NetworkClientTest#testApiVersionsRequest
NetworkClientTest#testUnsupportedApiVersionsRequestWithVersionProvidedByTheBroker
NetworkClientTest#testUnsupportedApiVersionsRequestWithoutVersionProvidedByTheBroker
  ApiVersions is sent in its newest version first. If the broker refuses this version, the client
  sends a lower version.
NetworkClientTest#testConnectionDoesNotRemainStuckInCheckingApiVersionsStateIfChannelNeverBecomesReady
NetworkClientTest#testConnectionSetupTimeout
  A connection that does not become usable in time is closed.
NetworkClientTest#testRequestTimeout NetworkClientTest#testDisconnectWithMultipleInFlights
  If a request gets no response within request.timeout.ms, the connection is closed. All its
  requests fail, in the order in which they were sent.
NetworkClientTest#testConnectionThrottling ClusterConnectionStatesTest#testThrottled
  During the throttle time that a response names, no request is sent to the broker.
NetworkClientTest#testClose
  If the connection to one broker is closed, the connections to other brokers stay open.
NetworkClientTest#testLeastLoadedNode
NetworkClientTest#testLeastLoadedNodeProvideDisconnectedNodesPrioritizedByLastConnectionTimestamp
  A request that any broker can answer goes to the broker with the fewest requests in flight.
ClusterConnectionStatesTest#testExponentialReconnectBackoff
ClusterConnectionStatesTest#testMaxReconnectBackoff
ClusterConnectionStatesTest#testExponentialConnectionSetupTimeout
  The wait before a new connection grows up to reconnect.backoff.max.ms. A successful connection
  resets it.
ClusterConnectionStatesTest#testMultipleIPs ClusterConnectionStatesTest#testHostResolveChange
ClusterConnectionStatesTest#testSkipLastAttemptedIp
  The IP addresses of a host name are used in turn.
NetworkClientTest#testAuthenticationFailureWithInFlightMetadataRequest
ClusterConnectionStatesTest#testAuthorizationFailed
  After a failed login, all threads that wait for the broker get the error of the login, until a
  later login succeeds.
NetworkClientTest#testRebootstrap
  The client connects to bootstrap.servers again (a rebootstrap) in three cases: a broker requests
  it, no known broker can be reached, or the client needs metadata and gets none within
  metadata.recovery.rebootstrap.trigger.ms.
NetworkClientTest#testUnsupportedVersionDuringInternalMetadataRequest
  If client and broker have no common version of a request, the request fails and is not sent.
NetworkClientTest#testCorrelationId
  The correlation ids of requests stay below the range that is reserved for SASL.
# What the client knows of the cluster (Metadata)
MetadataTest#testUpdateLastEpoch MetadataTest#testEpochUpdateOnChangedTopicIds
MetadataTest#testRejectOldMetadata MetadataTest#testEpochUpdateAfterTopicDeletion
MetadataTest#testMetadataMergeOnIdDowngrade MetadataTest#testNoEpoch
  The leader epoch of a partition never goes back, unless the topic was created again and has a new
  id.
ProducerMetadataTest#testMetadataPartialUpdate ProducerMetadataTest#testRequestUpdateForTopic
MetadataTest#testPartialMetadataUpdate
  If the client needs new metadata of all topics, a response with the metadata of only new topics is
  not enough. A response to an older request is not enough either.
MetadataTest#testTimeToNextUpdate
  Metadata is requested again after metadata.max.age.ms.
ProducerMetadataTest#testMetadataEquivalentResponsesBackoff
  While the responses with metadata bring no change, the backoff before the next request grows.
MetadataTest#testFailedUpdate MetadataTest#testTimeToNextUpdateRetryBackoff
ProducerMetadataTest#testTimeToNextUpdateOverwriteBackoff
  A failed request for metadata causes a backoff. The first request for a new topic has no backoff.
ProducerMetadataTest#testTopicExpiry
  The client forgets the metadata of a topic that was not used for metadata.max.idle.ms.
MetadataTest#testTopicMetadataOnUpdatePartitionLeadership
  If a response to Produce names a new leader, but the client knows a newer leader epoch, the client
  ignores the leader.
MetadataTest#testMetadataTopicErrors MetadataTest#testInvalidTopicError
MetadataTest#testTopicAuthorizationError
  The error of a topic fails only the records for this topic.
ProducerMetadataTest#testMetadataWaitAbortedOnFatalException
ProducerMetadataTest#testMetadataAwaitAfterClose
KafkaProducerTest#testCloseWhenWaitingForMetadataUpdate
  A failed login ends every wait for metadata. The close of the producer does the same.
MetadataTest#testClusterListenerGetsNotifiedOfUpdate
  Interceptors can get the id of the cluster.
# Sockets (Selector)
SelectorTest#testCantSendWithInProgress
  A connection writes one request to the socket at a time.
SelectorTest#testLargeMessageSequence SelectorTest#testSendLargeRequest
SelectorTest#testEmptyRequest
  Large and empty messages arrive complete.
SelectorTest#testCloseOldestConnection SelectorTest#testIdleExpiryWithoutReadyKeys
  Connections that were not used for connections.max.idle.ms are closed, the oldest first.
SelectorTest#testServerDisconnect
  Responses that arrived before the broker closed the connection are still used.
SelectorTest#testConnectionRefused
  A refused connection is handled like a connection that breaks.
SelectorTest#testExistingConnectionId
  A second connection to the same broker is refused.
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


_INTRODUCTION = """\
This page is for developers who work on this package, or who compare it with another Kafka client.
The Spark sink sends its rows with a [Kafka producer in Python](python-producer.md). Each row of the
tables below has a behaviour of Kafka's own producer in Java. The Python producer behaves in the
same way, except in rows with the words *Different here*. Some of these differences are only in the
Spark sink, and the row then names it.

* *test of Kafka*: the test in the repository of Apache Kafka (`class#method`). If Kafka has no such
  test, the column has the method of the Java client.
* *tests of this package*: the tests that check the behaviour of the Python producer."""

#: By term: its meaning on the page.
_TERMS = {
    "batch": "the records for one partition that the producer sends together",
    "in flight": "sent to a broker, without a response yet",
    "network thread": "the thread of the producer that sends batches and reads responses",
    "leader epoch": "a number that rises with each change of a partition's leader",
    "producer epoch": (
        "a version of the producer id. With a new epoch, sequence numbers begin at 0 again"
    ),
    "abortable error": "an error after which the producer must abort the transaction",
    "fatal error": "an error after which the producer can only be closed",
    "TV1, TV2": (
        "the two versions of transactions in Kafka. TV2 is `transaction.version=2` of Kafka 4.0 and"
        " later"
    ),
}

#: By case: the behaviour of the Java producer, and of the Spark sink.
_SINK = {
    "a batch that was sent fails permanently": (
        "The records of the batch fail, and the producer continues",
        "The attempt of the task fails, and Spark runs it again ([rule R2](../DESIGN.md))",
    ),
    "the limit of the wait for memory": (
        "max.block.ms",
        "delivery.timeout.ms, unless max.block.ms is set",
    ),
    "linger.ms": (
        "The time runs from the creation of a batch",
        (
            "The time runs only while the task waits for [Spark's next"
            " rows](migration.md#what-is-different)"
        ),
    ),
}

BEHAVIOURS = _parsed(_LIST)

_SINK_DIFFERS = "#where-the-spark-sink-differs"

#: How this package differs from a behaviour. A test may show the difference.
NOT_HERE = {
    "SenderTest#testIdempotenceWithMultipleInflightsWhereFirstFailsFatallyAndSequenceOf"
    "FutureBatchesIsAdjusted": (
        "In a transaction, the later batches of the partition fail too, and no sequence number"
        f" changes. In the Spark sink, [the attempt of the task fails]({_SINK_DIFFERS})."
    ),
    "SenderTest#testBumpEpochWhenOutOfOrderSequenceReceived": (
        "In the Spark sink, the producer epoch stays the same. If neither a retry nor the"
        " acknowledgement of a later batch shows that the batch is in the log, [the attempt of the"
        f" task fails]({_SINK_DIFFERS})."
    ),
    "TransactionManagerTest#testHealthyPartitionRetriesDuringEpochBump": (
        f"In the Spark sink, [the attempt of the task fails]({_SINK_DIFFERS})."
    ),
    "SenderTest#testIdempotentUnknownProducerHandlingWhenRetentionLimitReached": (
        "The batch fails. In a transaction, the error is abortable."
    ),
    "SenderTest#testIdempotenceWithMultipleInflights": (
        "With each producer epoch, the first batch of a partition is sent alone. The next batch"
        " waits until the first is acknowledged."
    ),
    "RecordAccumulatorTest#testLinger": (
        f"In the Spark sink, [the time in linger.ms]({_SINK_DIFFERS}) runs differently."
    ),
    "BufferPoolTest#testBlockTimeout": (
        f"The Spark sink has [another limit of the wait]({_SINK_DIFFERS})."
    ),
}

_NAME = re.compile(r"\b[A-Z]\w*(?:\.\w+)?#\w+")


def page_lines() -> Iterator[str]:
    """The lines of the page after its head."""
    shown_by = _tests_by_name()
    yield from _INTRODUCTION.splitlines()
    yield from ("", "## Terms", "", "| term | meaning on this page |", "|---|---|")
    yield from (f"| {term} | {meaning} |" for term, meaning in _TERMS.items())
    yield from ("", "## Where the Spark sink differs", "")
    yield from ("| case | Java producer | Spark sink |", "|---|---|---|")
    yield from (f"| {case} | {java} | {sink} |" for case, (java, sink) in _SINK.items())
    for group, behaviours in BEHAVIOURS.items():
        yield from ("", f"## {group}", "")
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
