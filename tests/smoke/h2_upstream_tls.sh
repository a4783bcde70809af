#!/usr/bin/env bash
# Upstreams that negotiate HTTP/2 by ALPN: `--to https://`. Node and Go support nothing else here.
set -euo pipefail
scheme=https
source tests/smoke/h2_upstreams.sh
