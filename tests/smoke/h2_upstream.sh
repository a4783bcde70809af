#!/usr/bin/env bash
# Upstreams that speak HTTP/2 without TLS: `--to h2c://`.
set -euo pipefail
scheme=h2c
source tests/smoke/h2_upstreams.sh
