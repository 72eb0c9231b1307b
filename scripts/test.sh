#!/bin/sh
# Runs the tests: the fast ones, then those that start Spark, in a process of their own.
# Arguments go to pytest; with an own -m there is one run only.
set -u

cd "$(dirname "$0")/.."

pytest() { .venv/bin/python -m pytest "$@"; }

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
