# Sourced by every script here: where things are, and how to find a CPython. Changes nothing by itself.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/overdrive" # build caches live outside the clone, so clones share them
STATE="$ROOT/.make"                               # stamps: what was installed and built for this clone
PYTHONS="3.11 3.12 3.13"
FIRST_PYTHON="3.11"
LOCKED="${CI:+--locked}" # a new dependency may write Cargo.lock on a desk, never in CI
LLVM_PREFIX="${LLVM_SYS_221_PREFIX:-/usr/lib/llvm-22}"

mkdir -p "$STATE" "$CACHE"
cd "$ROOT"

say() { printf '\033[1m== %s\033[0m\n' "$*" >&2; }
loud() { printf '\033[1;33m!!!! %s\033[0m\n' "$*" >&2; }
die() {
    printf '\033[1;31mxx %s\033[0m\n' "$*" >&2
    exit 1
}

# The newest CPython X.Y of pyenv, else the one on PATH. It must be able to make a virtual environment (a
# pyenv shim that leads nowhere is not, nor is Debian's own without python3.11-venv).
find_python() { # X.Y
    local version="$1" candidate
    for candidate in $(ls -d "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python 2>/dev/null | sort -rV) \
        "$(command -v "python$version" || true)"; do
        [ -n "$candidate" ] || continue
        "$candidate" -c 'import ensurepip, sys; print(sys.executable)' 2>/dev/null && return 0
    done
    return 1
}

need_python() { # X.Y
    find_python "$1" || die "CPython $1 is neither under pyenv nor on PATH. 'pyenv install $1' brings it."
}

venv_dir() { # X.Y
    if [ "$1" = "$FIRST_PYTHON" ]; then echo "$ROOT/.venv"; else echo "$ROOT/.venv-$1"; fi
}

# One target directory per CPython: PyO3 is compiled against a version, and switching one directory
# between versions would compile it again at each switch.
target_dir() { # X.Y
    echo "$CACHE/target-$1"
}

# Cargo tells by times of files whether its artefacts are fresh, and gives the crates of all clones one name: what another
# clone built last looks fresh to this one although its sources were others. So a clone that finds the cache in another's
# hands makes its own sources new.
claim_cache() {
    mkdir -p "$CARGO_TARGET_DIR"
    if [ "$(cat "$CARGO_TARGET_DIR/clone" 2>/dev/null)" != "$ROOT" ]; then
        find "$ROOT/crates" "$ROOT/Cargo.toml" -type f -exec touch {} +
        echo "$ROOT" >"$CARGO_TARGET_DIR/clone"
    fi
}

# Every cargo call goes through this, so that no two calls disagree on what invalidates the cache.
use_cargo_for() { # X.Y
    PYO3_PYTHON="$(need_python "$1")"
    CARGO_TARGET_DIR="$(target_dir "$1")"
    export PYO3_PYTHON CARGO_TARGET_DIR
    claim_cache
    # Test binaries embed this libpython; it need not be where the loader looks.
    LD_LIBRARY_PATH="$("$PYO3_PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR"))')${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
}

# True when a stamp holds exactly this key: the step it stands for need not run again.
stamped() { [ -e "$1" ] && [ "$(cat "$1")" = "$2" ]; } # stamp key

# A suite that passed in full leaves its key, and when and how it passed. Its key is a hash of everything that can
# change the result: the files of the clone, what is installed, and these.
surroundings() {
    uname -srm
    env | grep -E '^(CARGO|LANG|LC_|LD_|LLVM|OVERDRIVE|PYTEST|PYTHON|RUST)' | LC_ALL=C sort || true
}

# True, and said, when a suite passed on exactly this key. An empty key (no git to ask what changed) fits nothing.
passed_before() { # stamp key suite
    [ -z "${AGAIN:-}" ] && [ -n "$2" ] && [ -e "$1" ] && [ "$(head -n 1 "$1")" = "$2" ] || return 1
    say "$3: nothing changed since it passed on $(tail -n 1 "$1"); AGAIN=1 make test runs it anyway"
}

# To be called with the key from before the run and the one from after it: what changed meanwhile was not tested.
remember_pass() { # stamp key key how
    if [ -n "$2" ] && [ "$2" = "$3" ]; then printf '%s\n%s (%s)\n' "$2" "$(date '+%Y-%m-%d %H:%M')" "$4" >"$1"; fi
}

# For pytest. An idle core takes tests from the longest queue: they last from 1 ms to half a minute.
# shellcheck disable=SC2034
ALL_CORES="-n auto --dist worksteal"

# What a run of the Python suite depends on.
suite_key() { # X.Y interpreter
    {
        surroundings
        readlink -f "$2"
        "$2" -VV
        ls "$("$2" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" # packages with their versions
        cc --version 2>&1 || true # where there is none, tests that compile C are skipped
        sha256sum python/overdrive/_core.cpython-"${1/./}"-*.so
        "$2" scripts/fingerprint.py # last: without git it fails, and there is no key
    } | sha256sum
}

# "1940 passed in 301.15s", from pytest's last line.
how_it_went() { # log
    tail -n 1 "$1" | sed -E 's/\x1b\[[0-9;]*m//g; s/^=+ //; s/ =+$//; s/ \([0-9:]+\)$//'
}
