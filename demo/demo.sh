#!/usr/bin/env bash
# The race that a lease alone cannot stop, against a real S3 store (SeaweedFS): once with the
# writers going straight to the store, once through fencegate. Prints every command, and exits with
# 1 if either half does not end as it says.
#
#   demo/demo.sh PATH-TO-FENCEGATE        (`make demo` builds it and installs the store)
#
# FENCEGATE_DEMO_KEEP=1 leaves both servers up at the end, to repeat the commands by hand.
set -euo pipefail
cd "$(dirname "$0")/.."

fencegate=$(realpath "${1:?usage: demo/demo.sh PATH-TO-FENCEGATE}")
venv=${FENCEGATE_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/fencegate/venv}
dir=$(mktemp -d /tmp/fencegate-demo.XXXXXX)
pids=()
finish() {
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM

unset AWS_CA_BUNDLE REQUESTS_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE AWS_PROFILE AWS_SESSION_TOKEN
export NO_PROXY='*' AWS_EC2_METADATA_DISABLED=true
export AWS_CONFIG_FILE=/nonexistent AWS_SHARED_CREDENTIALS_FILE=/nonexistent
export AWS_ACCESS_KEY_ID=AKIAIOSFODNN7EXAMPLE
export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY

say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "$*" | sed -e "s#$fencegate#fencegate#g" -e "s#$venv/bin/##g"; }
die() { printf '\nDEMO FAILED: %s\n' "$*" >&2; tail -n 20 "$dir"/*.log >&2 || true; exit 1; }

# Starts a server; its pid is kept.
start() {
    local log=$1; shift
    show "$* &"
    setpriv --pdeathsig KILL -- "$@" >"$dir/$log.log" 2>&1 </dev/null &
    pids+=($!)
}
until_ready() {
    local url=$1 tries=600
    until curl -q -fsS -o /dev/null "$url" 2>/dev/null; do
        kill -0 "${pids[-1]}" 2>/dev/null || die "the server behind $url ended"
        ((tries--)) || die "$url does not answer"
        sleep 0.1
    done
}
object() { curl -q -fsS --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$1"; }

read -r s3 master volume filer g1 g2 g3 g4 proxy admin < <("$venv/bin/python" - <<'PY'
import socket
held = [socket.socket() for _ in range(10)]
for one in held:
    one.bind(("127.0.0.1", 0))
print(*(one.getsockname()[1] for one in held))
PY
)
store=http://127.0.0.1:$s3
gate=http://127.0.0.1:$proxy
export FENCEGATE_SERVER=http://127.0.0.1:$admin

say 'A store, and fencegate in front of it'
mkdir "$dir/data"
cat >"$dir/s3.json" <<JSON
{"identities":[{"name":"demo","credentials":[{"accessKey":"$AWS_ACCESS_KEY_ID","secretKey":"$AWS_SECRET_ACCESS_KEY"}],"actions":["Admin","Read","Write","List"]}]}
JSON
start store "$venv/bin/weed" server -dir="$dir/data" -ip=127.0.0.1 -ip.bind=127.0.0.1 \
    -master.telemetry=false -master.volumeSizeLimitMB=64 -volume.max=300 -s3 -s3.config="$dir/s3.json" \
    -s3.port="$s3" -s3.port.grpc="$g1" -master.port="$master" -master.port.grpc="$g2" \
    -volume.port="$volume" -volume.port.grpc="$g3" -filer.port="$filer" -filer.port.grpc="$g4" \
    -s3.port.iceberg=0 -s3.port.lance=0 -s3.localSocket="$dir/s3.sock" -filer.localSocket="$dir/filer.sock"
until_ready "$store/healthz"

cat >"$dir/fencegate.toml" <<TOML
[proxy]
listen = "127.0.0.1:$proxy"

[upstream]
kind = "s3"
url = "$store"
profile = "seaweedfs"       # an upload that ends early leaves nothing
final_answers = true        # an answer is final; nothing on the way repeats requests
linearizable = true         # one server, no cache
sole_path = true            # nothing else writes there

[fence]
level = "drained"           # refuse to start with less

[lease]
backend = "embedded"
path = "$dir/fencegate.redb"

[admin]
listen = "127.0.0.1:$admin"

[[rule]]
match = "archive/wal/**"
resource = "wal/main"
TOML
sed 's/^/    /' "$dir/fencegate.toml"
start fencegate "$fencegate" serve --config "$dir/fencegate.toml"
until_ready "$FENCEGATE_SERVER/readyz"
curl -q -fsS -o /dev/null -X PUT --aws-sigv4 aws:amz:us-east-1:s3 --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \
    -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' "$store/archive"

acquire() { # holder, ttl, further flags; the token is printed
    "$fencegate" lease acquire wal/main --holder "$1" --ttl "$2" "${@:3}"
}

# One takeover: old-primary is paused past its lease, new-primary takes over and writes, old-primary
# wakes. `flags` says whether the writers carry their tokens. Sets `old_status`.
takeover() { # endpoint, key, yes|no
    local endpoint=$1 key=$2 carry=$3 token writer flags=()
    show "fencegate lease acquire wal/main --holder old-primary --ttl 2s"
    token=$(acquire old-primary 2s) || die 'old-primary gets no lease'
    printf '%s\n' "$token"
    [ "$carry" = no ] || flags=(--token "$token")
    show "demo/writer.py old-primary $endpoint archive $key ${flags[*]} --stall &"
    "$venv/bin/python" demo/writer.py old-primary "$endpoint" archive "$key" "${flags[@]}" --stall &
    writer=$!
    pids+=("$writer")
    until [ "$(ps -o state= -p "$writer" | tr -d ' ')" = T ]; do
        kill -0 "$writer" 2>/dev/null || die 'old-primary ended instead of pausing'
        sleep 0.1
    done

    show "fencegate lease acquire wal/main --holder new-primary --ttl 60s --wait 20s   # until the lease of 2s has run out"
    token=$(acquire new-primary 60s --wait 20s) || die 'new-primary gets no lease'
    printf '%s\n' "$token"
    [ "$carry" = no ] || flags=(--token "$token")
    show "demo/writer.py new-primary $endpoint archive $key ${flags[*]}"
    "$venv/bin/python" demo/writer.py new-primary "$endpoint" archive "$key" "${flags[@]}" || die 'new-primary is refused'

    show "kill -CONT $writer"
    kill -CONT "$writer"
    old_status=0
    wait "$writer" || old_status=$?
    show "fencegate lease release wal/main $token"
    "$fencegate" lease release wal/main "$token" || die 'the release fails'
    show "curl --aws-sigv4 aws:amz:us-east-1:s3 --user \$AWS_ACCESS_KEY_ID:\$AWS_SECRET_ACCESS_KEY -H 'x-amz-content-sha256: UNSIGNED-PAYLOAD' $store/archive/$key"
    found=$(object "$store/archive/$key")
    printf '%s\n' "$found"
}

new='segment 42 as new-primary has it'
old='segment 42 as old-primary has it'

say '1. Straight to the store: both writers took the lease, and yet'
takeover "$store" wal/direct no
[ "$old_status" = 0 ] && [ "$found" = "$old" ] || die 'expected the stale write to land'

say '2. Through fencegate: the same programs, with their tokens in a header'
takeover "$gate" wal/fenced yes
[ "$old_status" = 1 ] || die "expected old-primary to be refused; it exits with $old_status"
[ "$found" = "$new" ] || die 'expected the object of new-primary to stand'

if [ -n "${FENCEGATE_DEMO_KEEP:-}" ]; then
    say 'Both servers stay up until Ctrl-C (FENCEGATE_DEMO_KEEP is set); for your own shell:'
    printf 'export %s\n' "FENCEGATE_SERVER=$FENCEGATE_SERVER" "AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID" \
        "AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY"
fi

say 'Summary'
cat <<TEXT
  straight to the store   the paused writer woke and overwrote its successor's segment: lost
  through fencegate       the paused writer got 412; its successor's segment stands, byte for byte
TEXT
if [ -n "${FENCEGATE_DEMO_KEEP:-}" ]; then
    wait "${pids[0]}"
fi
