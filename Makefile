# `make run` starts the broker, `make test` runs everything; both work on a fresh clone. `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Only names and hashes count: a local wheel directory or user configuration must not change what is installed.
PIP := $(BIN)/pip --quiet --disable-pip-version-check install --require-hashes
JARS := .cache/jars
KASKADE := .cache/kaskade
QUARKUS := .cache/quarkus
QUARKUS_SOURCES := $(shell find compat_tests/applications/quarkus -name '*.java' -o -name '*.xml' -o -name '*.properties')
QUIX := .cache/quix
COMPILED := .cache/compiled
SOURCES := $(shell find kafkawire engine coordinator tiering spark_connectors -name '*.py')
PROMTOOL := .cache/promtool/promtool
S3_SERVERS := .cache/s3
APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
  curl docker-compose iproute2 kcat procps strace
OLDEST_PYTHON := .cache/oldest-python
NEWEST_SPARK := .cache/newest-spark
BENCHMARKS := \
  $(addprefix brokers.,wire_load stock_client start quickstart connections partitions cold_seek loop_lag fairness groups) \
  $(addprefix brokers.,growth key_lookup compaction administration) parts.request_cost brokers.transactions \
  $(addprefix clusters.,replication failover contention saturation catch_up) tier.tiering \
  $(addprefix spark.,spark_decode spark_encode spark spark_segments export)

.PHONY: help install install-test run cluster compiled run-compiled check test long bench system-deps jars schema-jar kafka-jars connect-jars kafka-tier-jars spark-jars registry-jars zookeeper-jars frameworks framework-jars quarkus quix kaskade s3-server minio-server oldest-clients spark-zip newest-spark generate fmt lint release-check modules where clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 16

$(VENV)/.base: requirements/base.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -r requirements/base.txt
	$(BIN)/pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/.test: $(VENV)/.base requirements/test.txt
	$(PIP) -r requirements/test.txt
	touch $@

$(VENV)/.spark: $(VENV)/.test requirements/spark.txt
	$(PIP) -r requirements/spark.txt
	touch $@

install: $(VENV)/.base  ## create .venv with what the broker needs

install-test: $(VENV)/.test  ## and what the unit tests and checks need

run: install  ## run the broker: Kafka on 127.0.0.1:9092, HTTP on 127.0.0.1:9644, data in ./data
	@$(BIN)/kafkawire serve

cluster: install zookeeper-jars  ## run three brokers and a ZooKeeper: Kafka on 127.0.0.1:9092-9094, HTTP on 9644-9646, data in ./data-cluster
	@$(BIN)/python tools/cluster.py

compiled: $(COMPILED)/.done  ## what every request passes as extension modules, into .cache (needs a C compiler, two minutes)

$(COMPILED)/.done: $(VENV)/.base requirements/compile.txt tools/compile.py $(SOURCES)
	@if command -v cc >/dev/null; then \
	  $(PIP) -r requirements/compile.txt && $(BIN)/python -m tools.compile $(@D) && touch $@; \
	else echo "no cc on the PATH: nothing compiled"; fi

run-compiled: compiled  ## run the broker from there
	@PYTHONPATH=$(CURDIR)/$(COMPILED) $(BIN)/kafkawire serve

spark-zip:  ## the PySpark connectors for --py-files, into dist
	@$(PYTHON) tools/spark_zip.py dist

check: install-test  ## format, lint, types, import contracts, language, generated files, unit tests (minutes)
	$(BIN)/python tools/suite.py check

test: $(VENV)/.spark jars kaskade s3-server compiled  ## everything: check, hostile input, real clients, Kafka's tools, differential, Spark
	$(BIN)/python tools/suite.py test

long: $(VENV)/.spark jars kaskade s3-server minio-server compiled oldest-clients newest-spark frameworks  ## what is too long for CI; appends to docs/ledger/runs.jsonl
	$(BIN)/python tools/suite.py long

bench: $(VENV)/.spark kafka-jars kafka-tier-jars spark-jars s3-server  ## the benchmarks against Apache Kafka, full size (hours)
	set -e; for each in $(BENCHMARKS); do \
	  $(BIN)/python -m benchmarks.$$each; done
	$(BIN)/python -m benchmarks.pictures

fmt: install-test  ## format all Python files, and put their imports in order
	$(BIN)/ruff check --quiet --fix --select I .
	$(BIN)/ruff format .

lint: install-test  ## lint, types, import contracts, and the language of documents and docstrings (a minute)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/language.py check

release-check: install-test  ## build wheel and sdist; check contents, metadata, licence and an installation; print the notes for the tag
	$(BIN)/pytest -q compat_tests/features/install/test_wheel.py tools/tests/test_release_notes.py
	@$(BIN)/python -m tools.release_notes

modules:  ## print each module with its purpose: make modules FOLDER=engine/logs
	@$(BIN)/python -m tools.modules $(FOLDER)

where:  ## print the present name of an old one: make where OLD=name
	@$(BIN)/python -m tools.rename where $(OLD)

generate: install-test schema-jar  ## write the generated files: messages, docs/{protocol,configs,compatibility,ledger,mutants}.md, the dashboard
	$(BIN)/python tools/generate_messages.py
	$(BIN)/python tools/generate_protocol_doc.py
	$(BIN)/python tools/generate_config_doc.py
	$(BIN)/python tools/generate_dashboard.py
	$(BIN)/python tools/generate_compatibility_doc.py
	$(BIN)/python tools/generate_ledger_doc.py
	$(BIN)/python tools/generate_mutants_doc.py

jars: schema-jar kafka-jars connect-jars kafka-tier-jars spark-jars registry-jars zookeeper-jars
kafka-jars: $(JARS)/kafka/.done  ## Apache Kafka 4.4.0 and its tools, into .cache/jars
connect-jars: $(JARS)/connect/.done  ## Kafka Connect and MirrorMaker 2, into .cache/jars/connect
schema-jar: $(JARS)/schemas/.done  ## the schemas of Apache Kafka 4.4.0's messages, into .cache/jars/schemas
kafka-tier-jars: $(JARS)/kafka-tier/.done  ## Apache Kafka 4.3.1 with the store that it tests its remote tier with, into .cache/jars/kafka-tier
spark-jars: $(JARS)/spark/.done  ## the four jars Spark's kafka source needs, into .cache/jars/spark
registry-jars: $(JARS)/registry/.done  ## Apicurio Registry, into .cache/jars/registry
zookeeper-jars: $(JARS)/zookeeper/.done  ## ZooKeeper 3.9, into .cache/jars/zookeeper

frameworks: framework-jars quarkus quix  ## the frameworks that `make long` tries, into .cache
framework-jars: $(JARS)/spring/.done $(JARS)/flink/.done $(JARS)/camel/.done  ## Spring Boot, Flink and Camel, into .cache/jars

# Without Maven the tests that need the jars are skipped and say so. Into a new directory: jars of other versions must not
# stay beside them.
$(JARS)/%/.done: GOAL := copy-dependencies
$(JARS)/registry/.done: GOAL := unpack
$(JARS)/%/.done: tools/jars/%.xml
	@if command -v mvn >/dev/null; then \
	  rm -rf $(@D).new && \
	  mvn --batch-mode --quiet -f $< dependency:$(GOAL) -DoutputDirectory=$(CURDIR)/$(@D).new && \
	  rm -rf $(@D) && mv $(@D).new $(@D) && touch $@; \
	else echo "no mvn on the PATH: $* jars not fetched"; fi

quarkus: $(QUARKUS)/.done  ## an application for Quarkus, which its Maven plugin builds, into .cache/quarkus

$(QUARKUS)/.done: $(QUARKUS_SOURCES)
	@if command -v mvn >/dev/null; then \
	  rm -rf $(@D) && \
	  mvn --batch-mode --quiet -f compat_tests/applications/quarkus/pom.xml package -DbuildDirectory=$(CURDIR)/$(@D) && touch $@; \
	else echo "no mvn on the PATH: no application for Quarkus"; fi

quix: $(QUIX)/.done  ## Quix Streams, which needs an earlier librdkafka, into .cache/quix

$(QUIX)/.done: requirements/quix.txt

kaskade: $(KASKADE)/.done  ## a console, apart from the rest as its dependencies are many, into .cache/kaskade

$(KASKADE)/.done: requirements/kaskade.txt

s3-server: $(S3_SERVERS)/versitygw  ## VersityGW, a real S3 server over a directory, into .cache (needs Go, four minutes)
minio-server: $(S3_SERVERS)/minio  ## MinIO, another one (eight minutes, 150 MB)

$(S3_SERVERS)/versitygw: GO_PROGRAM := github.com/versity/versitygw/cmd/versitygw@v1.8.0
$(S3_SERVERS)/minio: GO_PROGRAM := github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c
$(S3_SERVERS)/%:
	@if command -v go >/dev/null; then GOBIN=$(CURDIR)/$(@D) go install $(GO_PROGRAM); \
	else echo "no go on the PATH: no $*"; fi

oldest-clients: $(JARS)/oldest-kafka/.done $(OLDEST_PYTHON)/.done  ## the oldest clients that are tried, into .cache

$(OLDEST_PYTHON)/.done: requirements/oldest-clients.txt

# Environments of their own, for packages that do not go with those of the project.
$(QUIX)/.done $(KASKADE)/.done $(OLDEST_PYTHON)/.done:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip --quiet --disable-pip-version-check install --require-hashes -r $<
	touch $@

newest-spark: $(NEWEST_SPARK)/.done  ## the newest PySpark that the connectors are tried with, into .cache (460 MB)

# What else it needs is in .venv.
$(NEWEST_SPARK)/.done: $(VENV)/.spark requirements/newest-spark.txt
	rm -rf $(@D)
	$(PIP) --no-deps --target $(@D) -r requirements/newest-spark.txt
	touch $@

system-deps:  ## Debian packages the compatibility tests use (needs root)
	$(APT_INSTALL) || { apt-get update && $(APT_INSTALL); }
	$(MAKE) $(PROMTOOL)

# The package would start a Prometheus: only its checker of rules is wanted.
$(PROMTOOL):
	mkdir -p $(@D)
	cd $(@D) && { apt-get download prometheus || { apt-get update && apt-get download prometheus; }; }
	dpkg-deb --fsys-tarfile $(@D)/prometheus_*.deb | tar --extract --directory $(@D) --strip-components 3 ./usr/bin/promtool
	rm $(@D)/prometheus_*.deb

clean:  ## remove what was built, keep data
	rm -rf $(VENV) .cache build dist
