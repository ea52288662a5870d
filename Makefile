# Everything sets up .venv by itself. Needed on the machine: Python 3.11+ (with venv), a JDK 17+,
# make. PYTHON=... chooses the Python that .venv is made of.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
comma := ,
VENV := .venv
BIN := $(VENV)/bin
# Spark starts its Python workers by these names; the plain "python3" would be another Python.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

.DEFAULT_GOAL := help
.PHONY: help demo demo-ops test test-long test-timing simulate queries mutants orders faults changelogs debezium soak fuzz sparks compat mutate \
	quick check format docs wheel notebooks site site-test messages bench floors kafka install lock sbom licences audit dist release-check clean \
	distclean

# What locks, what the released package alone depends on, what builds the documentation.
SUPPLY := .venv-supply
RUNTIME := .venv-runtime
SITE := .venv-site
# What the demo needs: 13 packages in place of all developers'.
DEMO := .venv-demo
HAS_PYTHON := test -n "$(PYTHON)" || \
	{ echo "make: no Python 3.11 or newer on PATH; name one: make PYTHON=..." >&2; exit 1; }
COMPILE := $(SUPPLY)/bin/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --custom-compile-command 'make lock' \
	$(if $(UPGRADE),--upgrade)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: export PYSPARK_PYTHON := $(abspath $(DEMO)/bin/python)
demo: export PYSPARK_DRIVER_PYTHON := $(abspath $(DEMO)/bin/python)
demo: $(DEMO)/installed  ## a real Kafka, a batch and a stream, the driver killed in between, rows counted
	@PYTHONPATH=$(CURDIR) $(DEMO)/bin/python -m spark_kafka_sink.demo --kill-driver

demo-ops: install  ## a stream with its metrics, three Kafka nodes and Prometheus; OPS_ARGS="--kill-broker"
	$(BIN)/python tools/demo_ops.py $(OPS_ARGS)

test: install  ## the tests, against a real Kafka; PYTEST_ARGS="tests/records -x" for some
	@echo "The tests$(if $(PYTEST_ARGS),: $(PYTEST_ARGS),, all of the default ring: 6 minutes on two quiet cores$(comma) 13 on busy ones)."
	$(BIN)/python $(if $(PYTEST_ARGS),-m pytest $(PYTEST_ARGS),tools/run_tests.py default)

test-long: install  ## what make test leaves out: killed drivers, three nodes, more seeds (20 minutes)
	$(BIN)/python tools/run_tests.py long

test-timing: install  ## tests that assert wall-clock times, for a machine that does nothing else
	$(BIN)/python tools/run_tests.py timing

simulate: $(VENV)/installed  ## whole producers over a simulated world; SEEDS=20000 FROM=0
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),200) --from $(or $(FROM),0) --page

queries: $(VENV)/installed  ## queries and jobs, killed and cut, over it; SEEDS=5000, or LONG=24000 KIND=stream
	$(BIN)/python -m tests.simulation.spark_lives $(if $(LONG),--long $(LONG) \
		--kind $(or $(KIND),stream),--seeds $(or $(SEEDS),200) --from $(or $(FROM),0) --page)

mutants: $(VENV)/installed  ## which broken protocols the queries find; SEEDS=500 NAMES="s2 never"
	$(BIN)/python -m tests.simulation.spark_mutants --seeds $(or $(SEEDS),500) $(NAMES)

orders: $(VENV)/installed  ## every order of a commit's steps with each fault: ten minutes of CPU
	KPROD_EVERY_ORDER=1 $(BIN)/python -m pytest tests/transactions/test_every_order.py --timeout 1800

changelogs: install  ## a Delta table that changes, its stream, killed drivers, the topic compared; CHANGES=1000 KEYS=10000 KILLS=20
	$(BIN)/python -m tests.changelogs --changes $(or $(CHANGES),1000) --keys $(or $(KEYS),10000) \
		--kills $(or $(KILLS),20) --seed $(or $(SEED),1) $(if $(MINUTES),--minutes $(MINUTES)) --page

debezium: install  ## changes of a PostgreSQL through Debezium's engine into topics, beside its own transformation; CHANGES=300
	$(BIN)/python -m tests.changelogs.debezium --changes $(or $(CHANGES),300) --seed $(or $(SEED),1)

soak: install  ## a stream of small micro-batches for MINUTES=20, whose memory, sockets, ids and log are looked at
	KPROD_SOAK_MINUTES=$(or $(MINUTES),20) $(BIN)/python -m pytest tests/exactly_once/test_soak.py -s

faults: install  ## exactly-once while drivers, tasks and answers are lost; ROUNDS=5 NODES=1,3 KILLS=20
	$(BIN)/python -m tests.exactly_once --rounds $(or $(ROUNDS),5) --nodes $(or $(NODES),1$(comma)3) \
		--kills $(or $(KILLS),20) $(if $(ONLY),--only "$(ONLY)")

fuzz: $(VENV)/installed  ## random bytes for all that reads them; MINUTES=10 ONLY=tls FROM=0 CASES=1
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),1) $(addprefix --only ,$(ONLY)) \
		$(addprefix --from ,$(FROM)) $(addprefix --cases ,$(CASES))

# Other PySparks, in place of the one that the group asks for. (Older ones leak sockets, which our
# own pytest settings make an error.)
SPARKS := $(or $(VERSIONS),4.0.1 4.1.1 4.3.0)

.venv-pyspark-%/installed: pyproject.toml | $(SUPPLY)/installed
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(SUPPLY)/bin/uv pip install --quiet --python $(@D)/bin/python --editable . --group test
	$(SUPPLY)/bin/uv pip install --quiet --python $(@D)/bin/python "pyspark[connect]==$*"
	touch $@

sparks: install $(SPARKS:%=.venv-pyspark-%/installed)  ## the tests of datasource/ on other PySparks; VERSIONS="4.0.1 4.1.1 4.3.0"
	set -e; for version in $(SPARKS); do \
		python=$(CURDIR)/.venv-pyspark-$$version/bin/python; \
		PYSPARK_PYTHON=$$python PYSPARK_DRIVER_PYTHON=$$python \
		$$python -m pytest -m spark tests/datasource -p no:unraisableexception \
			-W ignore::ResourceWarning; \
	done

# (Of the PySparks only those that COMPAT_ARGS names.)
COMPAT_SPARKS := $(if $(COMPAT_ARGS),$(filter $(COMPAT_ARGS),$(SPARKS)),$(SPARKS))

compat: install $(COMPAT_SPARKS:%=.venv-pyspark-%/installed)  ## other brokers and PySparks, into tests/other_brokers/RESULTS.md; COMPAT_ARGS="--broker kfake --pyspark 4.1.1"
	$(BIN)/python -m tests.other_brokers $(or $(COMPAT_ARGS),--pyspark $(SPARKS))

mutate: $(VENV)/installed  ## mutation testing; MUTATE_ARGS="sender --sample 50"
	$(BIN)/python tools/mutate.py $(MUTATE_ARGS)

# What people read, for the check of its words.
PROSE := README.md CHANGELOG.md CONTRIBUTING.md DESIGN.md SECURITY.md docs tests/README.md

# Commands, options and blocks of code that pages and errors quote.
QUOTED := $(addprefix tests/docs/test_,quoted_commands.py names_in_the_pages.py code_of_the_pages.py public_names.py) \
	tests/transactions/test_rows_of_the_page.py tests/config/test_migration_docs.py

quick: $(VENV)/installed  ## before a commit: format, lint, types, layers, tests of what changed; QUICK_ARGS="--base REV"
	$(BIN)/python tools/quick.py $(QUICK_ARGS)

check: $(VENV)/installed  ## format, lint, types, layers, unused code, prose, generated docs, what pages quote
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/unused.py
	$(BIN)/codespell -D - -D tools/words.txt $(PROSE) spark_kafka_sink tools/*.py mkdocs.yml
	$(BIN)/proselint check --config .proselintrc.json $(PROSE)
	$(BIN)/python tools/generate_docs.py --check
	$(BIN)/python tools/generate_messages.py --check
	$(BIN)/python -m pytest -q -p no:randomly -m "not long and not broker and not spark and not notebook" $(QUOTED)

format: $(VENV)/installed  ## let ruff format and fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(VENV)/installed  ## write the generated pages of docs/
	$(BIN)/python tools/generate_docs.py

notebooks: install  ## run the notebooks; write docs/notebooks and notebooks/databricks; NAMES="tuning"
	$(BIN)/python tools/notebooks.py $(NAMES)

site: $(SITE)/installed  ## build/site: the documentation, strict and offline
	$(SITE)/bin/python tools/build_site.py

site-test: site  ## the site in headless Chromium (apt install chromium): nothing overflows; pictures in build/
	$(SITE)/bin/python tools/look_at_site.py

messages: $(VENV)/installed  ## write protocol/messages/ from Kafka's definitions; JAR=kafka-clients-x.jar for newer ones
	$(BIN)/python tools/generate_messages.py $(if $(JAR),--from-jar $(JAR))

bench: install  ## the side-by-side benchmarks; BENCH_ARGS="--help" says what can be chosen
	$(BIN)/python -m bench $(BENCH_ARGS)

floors: install  ## where a micro-batch's milliseconds go, beside Spark alone; twenty minutes of a machine that does nothing else
	$(BIN)/python -m bench floors

kafka: install  ## a Kafka in the foreground; KAFKA_ARGS="--nodes 3 --port 9092"
	$(BIN)/python -m spark_kafka_sink.local_kafka $(KAFKA_ARGS)

lock: $(SUPPLY)/installed  ## requirements/*.lock of pyproject.toml, with hashes; UPGRADE=1: the newest
	$(COMPILE) pyproject.toml --group dev --group build --extra spark -o requirements/dev.lock
	$(COMPILE) pyproject.toml --extra demo -c requirements/dev.lock -o requirements/demo.lock
	$(COMPILE) pyproject.toml --extra all -o requirements/runtime.lock
	$(COMPILE) --group site -o requirements/site.lock
	$(COMPILE) --group supply -o requirements/supply.lock

sbom: $(SUPPLY)/installed $(RUNTIME)/installed  ## dist/sbom.cdx.json: what the package brings (CycloneDX)
	@mkdir -p dist
	$(SUPPLY)/bin/cyclonedx-py environment $(RUNTIME) --pyproject pyproject.toml \
		--output-reproducible --output-file dist/sbom.cdx.json
	@echo dist/sbom.cdx.json

licences: $(SUPPLY)/installed $(RUNTIME)/installed  ## docs/licences.md: under which licences it comes
	$(SUPPLY)/bin/python tools/licences.py $(RUNTIME)/bin/python > docs/licences.md.new
	mv docs/licences.md.new docs/licences.md

audit: $(SUPPLY)/installed  ## known vulnerabilities of what requirements/*.lock name; asks pypi.org
	$(SUPPLY)/bin/python tools/audit.py $(addprefix requirements/,runtime.lock dev.lock supply.lock)

wheel:  ## dist/*.whl, and nothing else: what an environment or a cluster installs
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/*.whl

dist: $(SUPPLY)/installed  ## dist/: the sdist, and the wheel built from it
	$(SUPPLY)/bin/pyproject-build --no-isolation --outdir dist .

release-check: $(SUPPLY)/installed  ## what must hold before a release: built, installed, used (5 minutes)
	$(SUPPLY)/bin/python tools/release_check.py

install: $(VENV)/installed  ## .venv, and Kafka's server jars in the user's cache
	@$(BIN)/python -m spark_kafka_sink.local_kafka --prepare >/dev/null

# Made once, and again when the lock file or pyproject.toml changes. Everything comes with its hash,
# what builds the package too; the pip that reads them is Python's own.
$(VENV)/installed: pyproject.toml requirements/dev.lock
	@$(HAS_PYTHON)
	@$(PYTHON) tools/environment.py $(VENV) --lock requirements/dev.lock --megabytes 1350 --editable
	@touch $@

$(DEMO)/installed: requirements/demo.lock
	@$(HAS_PYTHON)
	@$(PYTHON) tools/environment.py $(DEMO) --lock requirements/demo.lock --megabytes 750 --kafka
	@touch $@

$(RUNTIME)/installed: pyproject.toml requirements/runtime.lock $(VENV)/installed
	$(PYTHON) -m venv --clear $(RUNTIME)
	$(RUNTIME)/bin/python -m pip install --quiet --require-hashes -r requirements/runtime.lock
	$(BIN)/python -m hatchling build -t wheel -d $(RUNTIME)/dist >/dev/null
	$(RUNTIME)/bin/python -m pip install --quiet --no-deps $(RUNTIME)/dist/*.whl
	$(RUNTIME)/bin/python -m pip uninstall --quiet --yes pip
	@touch $@

# Anew each time: what a change of the lock leaves out must not stay. (Also pip itself is in it.)
$(SUPPLY)/installed: requirements/supply.lock
	$(PYTHON) -m venv --clear $(SUPPLY)
	$(SUPPLY)/bin/python -m pip install --quiet --require-hashes -r requirements/supply.lock
	@touch $@

$(SITE)/installed: requirements/site.lock
	test -x $(SITE)/bin/python || $(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --require-hashes -r requirements/site.lock
	@touch $@

clean:  ## what builds, tests and linters left
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log artifacts
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean  ## also .venv (Kafka's jars stay in the user's cache)
	rm -rf $(VENV) .venv-pyspark-* $(SUPPLY) $(RUNTIME) $(SITE) $(DEMO)
