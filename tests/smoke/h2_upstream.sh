#!/usr/bin/env bash
# HTTP/2 upstreams without TLS: `--to h2c://`.
set -euo pipefail
scheme=h2c
source tests/smoke/h2_upstreams.sh
