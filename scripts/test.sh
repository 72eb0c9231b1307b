#!/bin/sh
# Runs the tests: those without Spark, then those that start it, so that neither slows the other.
# Each part runs in as many processes as there are cores, a test file in one of them.
# Arguments go to pytest; with an own -m there is one run only. "-n 0" runs one test after the
# other in one process, which is what -s (see what tests print) wants.
set -u

cd "$(dirname "$0")/.."

WORKERS_MAX=4

pytest() { .venv/bin/python -m pytest -n auto --maxprocesses="$WORKERS_MAX" "$@"; }

case " $* " in *" -m "*) pytest "$@"; exit ;; esac

# Exit code 5 means that nothing was selected, which is no failure of one of two runs.
echo "── tests without Spark"
pytest -m "not spark" "$@"
fast=$?
echo "── tests with Spark"
pytest -m spark "$@"
spark=$?

word() { case $1 in 0) echo passed ;; 5) echo "none selected" ;; *) echo "failed ($1)" ;; esac; }
echo "── without Spark: $(word $fast); with Spark: $(word $spark)"
case "$fast $spark" in "0 0" | "0 5" | "5 0") exit 0 ;; *) exit 1 ;; esac
