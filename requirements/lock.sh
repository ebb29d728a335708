#!/bin/sh
# Renews every lock from pyproject.toml and the *.in files (`make lock`). `all.txt` decides versions, `run.txt` follows,
# so that both can live in one environment. Locks hold for Python 3.11 to 3.14 and name no package index.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ ! -f requirements/lock.txt ] || "$python" -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/lock.txt
lock() {
    .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --no-annotate --custom-compile-command 'make lock' "$@"
}
lock pyproject.toml --all-extras --output-file requirements/all.txt
lock pyproject.toml --extra llamacpp --constraint requirements/all.txt --output-file requirements/run.txt
lock requirements/model.in --no-deps --output-file requirements/model.txt
lock requirements/build.in --output-file requirements/build.txt
lock requirements/lock.in --output-file requirements/lock.txt
# The pinned engine alone, as an agent installs it on a machine that has none (`gridops-agent join`).
awk '/^xllamacpp==/ { on = 1 } on { print } on && !/\\$/ { exit }' requirements/run.txt >agent/gridops_agent/life/llamacpp.lock
