#!/usr/bin/env bash
# Installs what the tests and the demo need beyond Rust: a C compiler, curl, and real S3 stores and
# clients in a Python environment of their own. Idempotent; a stamp makes the second run instant.
#
# With the argument "bench": what `make bench` needs instead, Debian packages alone.
#
#   FENCEGATE_VENV   where the Python environment is (default ~/.cache/fencegate/venv)
set -euo pipefail
cd "$(dirname "$0")/.."

venv=${FENCEGATE_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/fencegate/venv}
stamp=$venv/.fencegate-stamp
want=$(cat tests/requirements.txt tests/constraints.txt | sha256sum | cut -d' ' -f1)

say() { printf 'prereqs: %s\n' "$*"; }
die() { printf 'prereqs: %s\n' "$*" >&2; exit 1; }

# Each line: a command that proves it is there, then the Debian package that brings it. The last two
# are for psycopg2, which barman needs and which comes as source.
system=$(cat <<'LIST'
command -v cc|gcc
command -v curl|curl
command -v faketime|faketime
command -v setpriv|util-linux
command -v flock|util-linux
command -v ps|procps
command -v restic|restic
command -v script|bsdutils
command -v python3|python3
python3 -c "import venv,ensurepip"|python3-venv
test -f "$(python3 -c "import sysconfig; print(sysconfig.get_path('include'))")/Python.h"|python3-dev
command -v pg_config|libpq-dev
LIST
)

# To compare with; procps has pgrep.
if [ "${1:-}" = bench ]; then
    PATH=$PATH:/usr/sbin
    system=$(cat <<'LIST'
command -v cc|gcc
command -v python3|python3
command -v taskset|util-linux
command -v pgrep|procps
command -v nginx|nginx-light
command -v haproxy|haproxy
command -v wrk|wrk
LIST
)
fi

command -v cargo >/dev/null || die 'cargo is not on PATH; install Rust (the version is in Cargo.toml, rust-version), then try again'

missing=()
while IFS='|' read -r probe package; do
    [ -n "$probe" ] || continue
    eval "$probe" >/dev/null 2>&1 || missing+=("$package")
done <<<"$system"

if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || die "missing: ${missing[*]} (Debian package names), and there is no apt-get; install them, then try again"
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || die "missing: ${missing[*]}; run as root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    "${as_root[@]}" apt-get update -q
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${missing[@]}"
fi

[ "${1:-}" != bench ] || exit 0

ready() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ] && [ -x "$venv/bin/weed" ] && [ -x "$venv/bin/python" ]
}
ready && exit 0

# Two clones may ask at once; one installs, the other finds it done.
mkdir -p "$(dirname "$venv")"
exec 9>"$venv.lock"
flock 9
ready && exit 0

say "installing S3 stores and clients into $venv (about a minute, 800 MB)"
# What is there already is kept: one more client takes seconds, and whoever tests meanwhile goes on. An
# environment that is broken (its Python was removed, or a run was interrupted) begins anew.
if ! "$venv/bin/pip" --version >/dev/null 2>&1; then
    rm -rf "$venv"
    python3 -m venv "$venv"
fi
"$venv/bin/pip" install -q --disable-pip-version-check -r tests/requirements.txt -c tests/constraints.txt ||
    die 'pip could not install tests/requirements.txt; see its message above'
printf '%s\n' "$want" >"$stamp"
say 'done'
