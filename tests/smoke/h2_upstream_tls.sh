#!/usr/bin/env bash
# Upstreams that agree to HTTP/2 by ALPN: `--to https://`. Node and Go speak nothing else here.
set -euo pipefail
scheme=https
source tests/smoke/h2_upstreams.sh
