#!/usr/bin/env bash
# QPACK, the field compression of HTTP/3, against ls-qpack.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
export PYTHONPATH="$tools/qpack"
target="${CARGO_TARGET_DIR:-target}"
build_example blitz-proto qpack
python3 tests/smoke/qpack.py "$target/debug/examples/qpack" || fail "the implementations disagree"
