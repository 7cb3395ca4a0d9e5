#!/bin/sh
# Builds the binary that is shipped: `make release` and the image's build stage both run this.
set -eu
cd "$(dirname "$0")/.."
exec "${CARGO:-cargo}" build --locked --release --bin fencegate
