#!/bin/sh
# Set-up of `.venv` for the Makefile: checks what the machine must bring, then installs the locks.
#
#   requirements/setup.sh run    what the product and its demo need
#   requirements/setup.sh all    that, and the tools of tests, lint and bench
#
# Everything missing is named before anything is created. A stamp holds the digest of the locks, of pyproject.toml and
# of this path, so a second call is over in milliseconds and a moved checkout is noticed. Installed with pip and not
# with something faster, because pip obeys the mirrors and certificates that the machine is configured with.
set -eu
cd "$(dirname "$0")/.."
umask 022
set_name=${1:-all}
stamp=.venv/.gridops-$set_name
log=.venv/setup.log

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        if suits "$PYTHON"; then echo "$PYTHON"; fi
        return 0
    fi
    for candidate in python3 python3.11 python3.12 python3.13 python3.14; do
        if suits "$candidate"; then echo "$candidate"; return 0; fi
    done
}

has_gomp() {
    [ "$(uname -s)" != Linux ] && return 0
    if [ -n "$python" ]; then "$python" -c 'import ctypes; ctypes.CDLL("libgomp.so.1")' >/dev/null 2>&1
    else PATH="$PATH:/sbin:/usr/sbin" ldconfig -p 2>/dev/null | grep -q 'libgomp\.so\.1'; fi
}

check_machine() {
    missing='' packages=''
    lacks() { missing="$missing  $1
"; packages="$packages $2"; }
    if [ -z "$python" ]; then
        lacks "Python 3.11 or newer${PYTHON:+ (PYTHON=$PYTHON is none)}" "python3 python3-venv"
    elif ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        lacks "the modules venv and ensurepip of $python" python3-venv
    fi
    command -v git >/dev/null 2>&1 || lacks "git" git
    has_gomp || lacks "libgomp.so.1, which the llama.cpp engine links" libgomp1
    command -v sha256sum >/dev/null 2>&1 || command -v shasum >/dev/null 2>&1 || lacks "sha256sum" coreutils
    [ -z "$missing" ] && return 0
    printf 'setup: this machine lacks\n%s' "$missing" >&2
    printf 'hint: on Debian or Ubuntu: apt-get install%s\n' "$packages" >&2
    printf 'Nothing was changed.\n' >&2
    exit 1
}

sum() { if command -v sha256sum >/dev/null 2>&1; then sha256sum; else shasum -a 256; fi; }

# What the environment was made from.
wanted() { { pwd; cat requirements/*.txt pyproject.toml requirements/setup.sh; } | sum; }

# True when .venv has the interpreter that the caller names; without a name any that works will do.
same_python() {
    version='import sys; print(sys.version_info[:2])'
    found=$(.venv/bin/python -c "$version" 2>/dev/null) || return 1
    [ -z "${PYTHON:-}" ] || [ "$found" = "$("$PYTHON" -c "$version" 2>/dev/null)" ]
}

current() { [ -f "$1" ] && [ "$(cat "$1")" = "$want" ] && same_python; }

run_logged() {
    if "$@" >>"$log" 2>&1 </dev/null; then return 0; fi
    tail -n 30 "$log" >&2
    printf 'setup: failed: %s\nhint: the whole log is %s\n' "$*" "$log" >&2
    exit 1
}

install() {
    run_logged .venv/bin/python -m pip install --no-input --disable-pip-version-check --require-hashes --no-deps \
        --only-binary :all: "$@"
}

make_venv() {
    if ! same_python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        rm -rf .venv
        "$python" -m venv .venv </dev/null
    fi
    rm -f .venv/.gridops-*
    : >"$log"
}

want=$(wanted)
current "$stamp" && command -v git >/dev/null 2>&1 && exit 0
python=$(find_python)
check_machine
if command -v flock >/dev/null 2>&1 && [ -z "${GRIDOPS_SETUP_LOCKED:-}" ]; then
    # Two targets started at once must not install over each other.
    GRIDOPS_SETUP_LOCKED=1 exec flock requirements/setup.sh sh requirements/setup.sh "$set_name"
fi
current "$stamp" && exit 0
current .venv/.gridops-run && ready=yes || ready=no
if [ "$ready" = no ]; then
    printf 'setup: making .venv with %s (once; a minute or so)\n' "$("$python" --version)" >&2
    make_venv
    # A build tool, the locked dependencies, the small model, then this checkout itself.
    install -r requirements/build.txt -r requirements/run.txt -r requirements/model.txt
    run_logged .venv/bin/python -m pip install --no-input --disable-pip-version-check --no-deps \
        --no-build-isolation --no-index --editable .
    printf '%s\n' "$want" >.venv/.gridops-run
fi
if [ "$set_name" = all ]; then
    printf 'setup: installing the tools for tests and lint\n' >&2
    install -r requirements/all.txt
    printf '%s\n' "$want" >.venv/.gridops-all
fi
