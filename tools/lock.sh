#!/bin/sh
# Writes requirements/*.txt: every package pinned and hashed, no index address. Needs uv; run it by hand after a
# change to the dependencies in pyproject.toml.
set -eu
cd "$(dirname "$0")/.."
lock() { uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
    --no-emit-find-links --no-annotate --no-header --no-config "$@"; }
lock -o requirements/base.txt pyproject.toml requirements/build.in
lock -o requirements/test.txt -c requirements/base.txt --extra test pyproject.toml requirements/build.in
lock --no-strip-extras -o requirements/kaskade.txt requirements/kaskade.in  # pip 23 wants the extras named
lock --no-strip-extras -o requirements/quix.txt requirements/quix.in
lock -o requirements/compile.txt -c requirements/test.txt requirements/compile.in
lock -o requirements/oldest-clients.txt requirements/oldest-clients.in
lock -o requirements/newest-spark.txt requirements/newest-spark.in
lock -o requirements/spark.txt -c requirements/base.txt --extra test --extra spark --extra pictures \
  pyproject.toml requirements/build.in requirements/spark.in
