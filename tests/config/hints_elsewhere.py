"""Hints that no row of options raises: the test that follows each, or the reason why none does.

Data only: each text is the beginning of a hint as the code has it, with ``{}`` for a value that is
filled in; no other hint begins with it, unless it is the whole text of one.
"""

from __future__ import annotations

#: Tests, below ``tests``, that do as the hint tells and see that the error is gone.
FOLLOWED_BY: dict[str, tuple[str, ...]] = {
    "transactions/test_driver_transactions.py::test_a_search_for_an_id_ends_and_a_new_run_commits":
        ("start the query or the job again: its new run",),
    "simulation/test_edges_reports_of_aborts.py"
    "::test_a_committed_job_is_not_aborted_beside_a_silent_broker":
        ("start the query again, or the job with the same",),
    "simulation/test_edges_reports_of_aborts.py"
    "::test_a_partial_batch_that_is_resolved_is_not_aborted":
        ("an operator has resolved it, and",),
    "simulation/test_edges_attempts.py::test_a_version_that_the_log_has_forgotten_is_an_error":
        ("if it was written, set verifyReplays",),
    "config/test_hints_are_followed.py::test_the_hint_of_dead_letters_that_are_off_ends_the_warning":
        ("set {}=all, or remove them",),
    "config/test_hints_are_followed.py::test_the_hint_of_a_column_with_two_sources_leads_to_a_plan":
        ("drop the column {}, name it in {}",),
    "config/test_hints_are_followed.py::test_the_hint_of_a_compacted_topic_leads_to_a_plan":
        ("add a column key, or set keyColumns",),
    "config/test_hints_are_followed.py::test_the_hint_of_the_sinks_option_is_right_for_a_producer":
        ("remove it, or write with format('kprod')",),
    "network/test_hints_of_stores_are_followed.py"
    "::test_the_hint_of_a_store_or_a_suite_leads_to_a_context": (
        "set {}.type to PEM, or give {}.location", "convert it: keytool", "is {} right?",
        "remove ssl.cipher.suites: OpenSSL", "is ssl.key.password right",
    ),
    "network/test_schema_registry_client.py"
    "::test_a_token_endpoint_that_is_not_trusted_needs_our_truststore":
        ("another CA goes to {}",),
    "datasource/test_hints_of_schemas_are_followed.py"
    "::test_the_hint_of_a_schema_leads_to_a_plan": (
        "remove {}, or take a registry with GUIDs", "register the schema there",
        "register the schema, or set use.latest.version", "list the topics in schemaTopics",
        "set {}Schema, or {}SchemaName", "set {}Schema to the schema of a record",
        "cast the column; ", "add a column of that name{}", "drop these, or write with a schema",
        "rename it to letters, digits and underscores",
        "imports are the schema's references",
    ),
    "datasource/test_payload_schemas.py::test_a_rule_for_null_keys_needs_a_key_of_a_record":
        ("remove onNullKey, or set keySchema",),
    "datasource/test_hints_of_registries_are_followed.py"
    "::test_the_final_address_of_a_redirect_is_taken":
        ("redirects are not followed; give the final address",),
    "datasource/test_hints_of_registries_are_followed.py"
    "::test_a_login_that_the_registry_knows_opens_it":
        ("set {} or bearer.auth.*",),
    "datasource/test_hints_of_registries_are_followed.py"
    "::test_a_right_to_the_subject_lets_the_schema_in":
        ("the principal needs the right to",),
    "datasource/test_hints_of_registries_are_followed.py"
    "::test_an_id_that_the_registry_has_takes_the_place_of_a_wrong_one":
        ("the registry does not have it",),
    "datasource/test_hints_of_registries_are_followed.py"
    "::test_a_changed_schema_or_subject_takes_the_write":
        ("change the schema so that", "change the schema, or register"),
    "datasource/test_hints_of_registries_are_followed.py"
    "::test_a_limit_that_is_raised_waits_for_a_slow_registry":
        ("nothing was written; {} limits",),
    "datasource/test_hints_of_a_write_are_followed.py"
    "::test_the_hint_of_a_topics_setting_ends_its_warning": (
        "set kafka.{}={}, or the topic's", "raise {}, or lower kafka.max.request.size",
        "lower kafka.batch.size, or raise {}",
    ),
    "datasource/test_hints_of_a_write_are_followed.py"
    "::test_the_hint_of_a_report_topic_ends_its_warning":
        ("raise {} of the topic that reportTopic names",),
    "datasource/test_hints_of_a_write_are_followed.py::test_the_mode_of_a_hint_plans":
        ('use .mode("append")', "to append the whole result in every micro-batch"),
    "datasource/test_hints_of_a_write_are_followed.py"
    "::test_columns_that_are_made_by_hand_plan_without_arrow":
        ("use pyspark 4.1 or later",),
    "datasource/test_hints_of_a_write_are_followed.py"
    "::test_a_limit_of_letters_that_is_raised_lets_the_write_go":
        ("correct the rows, or raise {}",),
    "datasource/test_hints_of_a_write_are_followed.py"
    "::test_a_transaction_s_time_that_is_raised_lets_the_task_go":
        ("an exactly-once job must finish within kafka.transaction.timeout.ms",),
    "datasource/test_hints_of_a_write_are_followed.py"
    "::test_a_rate_or_a_time_that_is_raised_lets_the_task_go":
        ("raise the limit or kafka.transaction.timeout.ms",),
    "datasource/test_change_columns.py::test_the_hint_of_a_refused_feed_leads_to_a_plan": (
        "cast it, or name another column in the option changelog",
        "name the table's primary key in keyColumns", "the DataFrame has {}; read the whole feed",
        "give keyColumns and the keys of upserts", "rename it to {}",
        "name other columns, or cast it to decimal", "set {}=yyyy-MM-dd'T'HH:mm:ss.SSSSSS{}",
    ),
    "datasource/test_upserts.py::test_the_hints_of_upserts_lead_to_its_rows":
        ("there are {}", "changelog takes {}, or a mapping such as"),
    "datasource/test_upserts.py::test_a_delete_that_is_named_is_the_end_of_an_old_key":
        ("add the field delete to the description",),
    "datasource/test_changes_on_kafka.py::test_a_stream_calls_upserts_for_each_micro_batch":
        ("call it in a foreachBatch function",),
    "changelogs/test_divided_version.py"
    "::test_the_hint_of_a_divided_version_writes_the_lost_rows_again":
        ("set maxFilesPerTrigger=2147483647",),
    "datasource/test_json_of_types.py::test_the_hint_of_a_refused_type_works":
        ("select {} in its place", "select {} in its place, or drop it"),
    "datasource/jobs/test_backfill_ledger.py::test_a_name_without_another_job_is_fenced":
        ("a name of backfill is a txnAppId",),
    "datasource/jobs/test_backfill_ledger.py"
    "::test_a_reset_before_a_step_is_settled_needs_force":
        ("call backfill once more, which",),
    "datasource/jobs/test_backfill_ledger.py::test_a_forgotten_backfill_has_no_record":
        ("this process was silent for too long",),
    "datasource/jobs/test_backfill_on_kafka.py::test_another_plan_under_a_name_is_refused":
        ("call it as it was called first",),
    "datasource/jobs/test_backfill_on_kafka.py"
    "::test_a_call_that_is_paused_before_its_write_writes_nothing":
        ("'kprod backfill NAME' shows whether another call runs",),
    "datasource/jobs/test_backfill_on_kafka.py"
    "::test_a_step_shows_a_line_and_the_command_shows_the_backfill":
        ("it begins with the first call of backfill(",),
    "datasource/jobs/test_backfill_on_kafka.py"
    "::test_the_hint_of_a_rate_that_is_too_low_is_followed":
        ("raise maxRecordsPerSecond or maxBytesPerSecond, or set kafka",),
    "datasource/jobs/test_backfill_plan.py"
    "::test_the_timeout_of_the_hint_lets_the_smallest_step_go":
        ("set kafka.transaction.timeout.ms={} or more (",),
    "datasource/jobs/test_backfill_rows.py"
    "::test_a_stored_column_and_a_text_like_a_function_have_slices":
        ("store the rows in a table first, or make the DataFrame without",),
    "datasource/jobs/test_backfill_rows.py"
    "::test_a_source_of_the_files_that_were_planned_goes_on":
        ("give a source of the files that were planned",),
    "datasource/jobs/test_hints_of_backfills_are_followed.py"
    "::test_progress_that_another_program_wrote_is_forgotten":
        ("use the version that began the backfill",),
    "datasource/jobs/test_hints_of_backfills_are_followed.py"
    "::test_a_plan_that_another_program_wrote_is_forgotten":
        ("no other client may write to the topic of commitLogTopic; 'kprod backfill",),
    "datasource/jobs/test_hints_of_backfills_are_followed.py"
    "::test_a_lost_plan_is_shown_and_forgotten":
        ("'kprod backfill {}' shows what was written",),
    "datasource/test_rate_limit.py::test_the_option_is_asked_for_where_the_number_is_unknown":
        ("set tasksAtOnce: ",),
    "datasource/test_tables_on_kafka.py::test_a_table_without_columns_has_the_canonical_ones":
        ("use INSERT INTO table WITH (",),
    "datasource/exactly_once/test_offsets_group.py"
    "::test_a_group_with_members_is_refused_unless_allowed":
        ("choose a group that no consumer uses",),
    "datasource/exactly_once/test_exactly_once_jobs_on_spark.py"
    "::test_other_rows_under_a_done_version_are_an_error_by_default":
        ("a checkpoint was copied or restored, a version was used for other data",),
    "producer/test_hints_of_a_producer_are_followed.py"
    "::test_a_limit_that_is_raised_lets_the_record_go":
        ("raise max.request.size, and", "raise buffer.memory"),
    "producer/test_hints_of_a_producer_are_followed.py"
    "::test_a_limit_that_is_raised_lets_the_columns_go":
        (
        "raise kafka.max.request.size, and max.message.bytes of the topic",
        "raise kafka.buffer.memory", "raise kafka.buffer.memory, or write smaller rows",
    ),
    "producer/test_hints_of_a_producer_are_followed.py::test_an_int_makes_a_partition":
        ("int({}) makes one",),
    "producer/test_hints_of_a_producer_are_followed.py::test_a_file_s_name_is_given_back_as_bytes":
        ("is it a file name? encode(",),
    "producer/test_hints_of_a_producer_are_followed.py"
    "::test_a_key_of_eight_bytes_has_an_iceberg_bucket":
        ("in Spark, unhex(lpad(hex(column)",),
    "records/test_records_columns.py"
    "::test_a_long_in_seconds_names_the_row_and_how_to_write_it":
        ("write timestamp_seconds(timestamp)",),
    "records/test_arrow_schema.py::test_what_is_no_batch_is_refused":
        ("a table's are in table.to_batches()",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_foreach_batch_sets_the_options_that_a_stream_refuses":
        ("with foreachBatch, ",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_the_checkpoint_as_an_option_lets_a_group_go":
        ("set it with .option(",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_foreach_batch_with_the_querys_checkpoint_takes_a_group":
        ("give foreach_batch or",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_the_querys_own_checkpoint_takes_the_place_of_another_one":
        ("give the write its query's",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_a_checkpoint_that_is_there_takes_the_place_of_a_wrong_path":
        ("checkpointLocation must be given",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_another_checkpoint_goes_on_by_both_ways":
        ("the checkpoint was copied",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_two_writes_of_a_function_go_by_both_ways":
        ("give each write in a foreachBatch",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_a_write_within_the_block_goes":
        ("all writes of a micro-batch",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_a_mounted_path_or_a_topic_takes_a_report":
        ("it is a file or a directory of the driver",),
    "datasource/test_hints_of_micro_batches_are_followed.py"
    "::test_a_superseded_query_goes_on_under_another_prefix": (
        ("a query runs twice with one checkpoint, or two queries share a transactionalIdPrefix or "
         "a name of foreach_batch: use"),
    ),
    "datasource/test_worker_memory.py"
    "::test_the_setting_that_is_raised_or_removed_lets_the_attempt_go":
        ("raise {}, which limits address space",),
    "datasource/test_json_of_types.py::test_bytes_that_are_no_variant_are_an_error_of_their_row":
        ("the value is damaged where it was made",),
    "network/test_schema_registry_client.py"
    "::test_the_path_that_a_hint_asks_for_finds_the_registry":
        ("is {} right, with its path?",),
    "records/test_letter_writer.py::test_a_limit_that_is_raised_lets_the_letter_go":
        ("raise kafka.max.request.size, and max.message.bytes of that topic",),
    "sasl/test_hints_of_token_code_are_followed.py::test_text_or_a_pair_makes_a_token":
        ("token() returns text",),
    "sasl/test_hints_of_token_code_are_followed.py"
    "::test_an_oserror_of_the_code_may_be_tried_again":
        ("it is the code that {}",),
    "sasl/test_hints_of_token_code_are_followed.py::test_a_function_of_one_argument_is_taken":
        ("name a function that takes one",),
    "security/test_hints_of_listeners_are_followed.py"
    "::test_the_hint_of_a_listener_leads_to_a_written_row": (
        "the port speaks TLS", "is it a listener of type",
        "set kafka.sasl.mechanism to one of these",
    ),
    "transactions/test_hints_of_commits_are_followed.py"
    "::test_the_hint_of_a_commit_leads_to_visible_rows": (
        "brokers or a partition's leader were away",
        ("a query runs twice with one checkpoint, or two queries share a transactionalIdPrefix or "
         "a name of foreach_batch (use"), "its topic (commitLogTopic)", "nothing of the batch",
        "the query runs twice", "versions of one txnAppId",
        "two jobs with one txnAppId ran at the same time: write", "this one must stop",
        "a transaction may stay open for", "if the batch took less time",
        "write the batch again; if no", "write the batch again; this driver",
        "nothing of this batch is visible: start the query", "'kprod txn describe' shows",
        "'kprod txn resolve {} --batch {} --as done' continues without them, '--as replay' lets",
        "no other client may write to the topic of commitLogTopic; {}",
        "another client has written", ("no other client may write to the topic of commitLogTopic, "
        "and its"),
    ),
    "transactions/test_hints_of_commits_are_followed.py"
    "::test_a_job_that_ran_beside_another_one_writes_after_it":
        ("two jobs with one txnAppId ran at the same time: nothing",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_list_shows_the_keys_to_who_gave_an_id":
        ("that looks like a transactional id",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_list_shows_ids_of_tasks_and_fence_ends_another_clients":
        ("'kprod txn list PREFIX'",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_blockers_and_list_show_the_ids_that_can_be_fenced":
        ("'kprod txn blockers' and",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_an_id_of_a_task_is_ended_by_abort_and_not_by_fence":
        ("'kprod txn abort' ends",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_a_transaction_of_a_decision_is_ended_by_both_ways":
        ("'kprod txn commit {}' ends it as decided",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_an_owners_transaction_is_aborted_by_force":
        ("if it is not running",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_a_batch_that_is_decided_is_committed_and_not_resolved":
        ("'kprod txn commit {}' commits it",),
    "simulation/test_edges_commands.py::test_a_plan_at_a_deposed_leader_says_what_it_has_read":
        ("if an error says that this batch is PARTIAL", "is --batch right? {}"),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_the_key_of_a_stream_and_of_a_job_are_as_the_hint_has_them":
        ("a stream's key is its",),
    "transactions/test_hints_of_operators_are_followed.py"
    "::test_another_topic_of_the_log_is_named_by_its_option":
        ("--log-topic names",),
    "transactions/test_hints_of_plans_are_followed.py"
    "::test_a_batch_of_expired_ids_is_resolved_by_force":
        ("--force resolves",),
    "transactions/test_hints_of_plans_are_followed.py"
    "::test_a_plan_that_another_driver_overtook_is_made_again":
        ("a driver is running",),
    "transactions/test_hints_of_waits_are_followed.py"
    "::test_transactions_without_markers_are_listed_until_they_end":
        ("see which brokers are down; 'kprod",),
    "transactions/test_hints_of_waits_are_followed.py"
    "::test_transactions_that_hang_are_shown_as_blockers":
        ("brokers write no marker",),
    "transactions/test_hints_of_waits_are_followed.py"
    "::test_a_batch_that_lost_more_rows_is_done_when_asked_again":
        ("check with 'kprod txn describe', and run the command again",),
    "transactions/test_hints_of_waits_are_followed.py"
    "::test_a_write_of_the_log_that_has_not_ended_is_awaited":
        ("try again; if it stays",),
    "transactions/test_commit_log.py::test_a_too_large_record_affects_only_its_own_key":
        ("no other client may write to the topic of commitLogTopic; with",),
    "cli/test_shared_options.py::test_the_options_that_a_hint_names_are_listed":
        ("{}'kprod options'",),
    "cli/test_cli_secrets.py::test_a_secret_is_given_as_the_warning_asks":
        ("give a reference, ${} or ${}, or a file by --config",),
    "cli/test_cli_report.py::test_the_report_path_of_a_write_is_shown":
        ("the option reportPath writes", "PATH is the value of"),
    "datasource/test_planning_on_spark.py::test_a_later_trigger_takes_the_continuous_one_back":
        ("with the continuous trigger",),
    "exactly_once/test_restart_faults.py"
    "::test_a_query_survives_another_one_with_its_prefix":
        ("use trigger(processingTime='1 second')",),
    "datasource/test_read_dead_letters.py::test_letters_are_rows_with_their_reason":
        ("read with Spark's source",),
    "datasource/test_reports_on_kafka.py::test_the_report_has_rows_and_offsets":
        ("give the writes the option reportPath",),
    "datasource/test_check_of_coordinators.py"
    "::test_a_service_without_a_request_gets_what_works_there":
        ("use deliveryGuarantee={}",),
    "datasource/exactly_once/test_transactional_producers.py"
    "::test_a_task_whose_id_gets_no_answer_names_the_broker":
        ("see whether its brokers run",),
    "datasource/exactly_once/test_transactional_producers.py"
    "::test_a_task_fails_when_every_init_producer_id_times_out":
        ("this attempt has written nothing",),
    "transactions/test_operator_faults.py::test_a_reset_is_refused_while_a_broker_is_silent":
        ("try again when they answer",),
    "transactions/test_outcome_hints.py::test_an_expired_id_is_told_from_one_initialized_again":
        ("{}, so no restart can",),
    "transactions/test_outcome_hints.py::test_a_broker_without_timeouts_gets_no_promise_of_a_start":
        ("{} of them are open for longer",),
    "transactions/test_blockers.py::test_each_blocker_is_named_and_the_advice_frees_the_consumer":
        ("if its query is running, wait", "let this client end the transaction"),
    "transactions/test_blockers.py::test_a_decided_transaction_is_advised_to_be_committed":
        ("start its query, or: {}",),
    "transactions/test_blockers.py::test_a_decided_job_that_was_run_again_is_aborted":
        ("if its job was run again",),
    "transactions/test_blockers.py::test_orphans_come_before_owners":
        ("kprod txn abort {}", "check that its job is not running"),
    "transactions/test_cli.py::test_abort_of_a_live_owner_needs_force":
        ("stop it first ('kprod txn sweep",),
    "transactions/test_cli.py::test_reset_refuses_what_is_under_way_or_alive_unless_forced":
        ("first 'kprod txn {} {}'; or --force",),
    "simulation/test_edges_report_order.py::test_a_batch_that_lacks_only_its_report_says_so":
        ("if 'kprod txn describe {}' shows no transaction with an unknown outcome",),
    "transactions/test_cli.py::test_resolve_ends_a_partial_batch_and_its_open_transactions":
        ("'kprod txn resolve {} --batch {} --as done' continues without them, '--as replay' has",),
    "datasource/test_hints_of_checks_are_followed.py"
    "::test_brokers_that_are_started_make_the_replicas_green":
        ("start the brokers that are down, or give", "give the topic more replicas than {}"),
    "datasource/test_hints_of_checks_are_followed.py"
    "::test_another_topic_for_reports_makes_its_row_green":
        ("set {}=delete on it, or name another topic",),
    "datasource/test_driver_python.py::test_the_archive_unpacked_beside_the_job_is_green":
        ("unpack the archive in the folder",),
    "security/test_check_topics.py::test_a_compacted_topic_is_named":
        ("give each row a key: a column key, or keyColumns",),
    "security/test_check_topics.py::test_a_missing_topic_of_progress_is_a_warning":
        ("create {} with one partition, and allow WRITE",),
}  # fmt: skip

#: Reasons, and the hints that each is of.
NOT_FOLLOWED: dict[str, tuple[str, ...]] = {
    "it passes on or lists what is filled in": (
        "the principal needs {}", "{} is false", " What to do: {}", "the last lines of its log",
        "versions: {}", "the brokers answered {}", "`{} -I -S", "{}; an executor or a Python",
        "see kprod explain {}", "check {}", "{}: its partitions have other leaders",
    ),
    "a right, a file, a program or a clock outside is at fault, and no option": (
        "the principal needs CREATE, DELETE", "the principal needs CREATE on it",
        "the principal needs READ on the topic", "the principal needs WRITE and DESCRIBE",
        "install a JDK", "set PYSPARK_PYTHON", "kinit, or useKeyTab",
        "is the ticket still valid", "it comes from code named in", "see awsProfileName",
        "readers would not understand",
        "the offset log is the file with the batch", "a web server answers there",
        "perhaps the port is no", "is it running? Then its advertised.listeners",
        "install them there; --py-files", "give a line of reportPath, a record of reportTopic",
        "use deliveryGuarantee=at-least-once here, or turn",
        "set kafka.security.protocol to {}, and kafka.sasl", "start them, or take them out of",
    ),
    "Kafka's kafka-topics.sh does it": ("delete it: {}", "if no other check runs: {}"),
    "Kafka's kafka-transactions.sh does it: no request of ours aborts by a partition's offset":
        ("the principal may not DESCRIBE its id", "an abort loses its rows"),
    "it explains what has happened or what comes next; there is nothing to set": (
        "it may still be written", "kafka.delivery.timeout.ms limits",
        "close() waits", "call {} again",
        "no other client may write to the topic of commitLogTopic; kafka",
        "the micro-batch was written without", "only writes with kafka.acks other than all",
        "rows are committed; a batch whose driver", "commits and replays work; the open",
    ),
    "a guard that other checks stand before": ("set transactional.id", "a client's id is {}"),
}  # fmt: skip
