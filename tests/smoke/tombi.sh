#!/usr/bin/env bash
# tombi, a language server for TOML, with our schema of configuration files: it has no complaint about valid examples, and
# marks the exact place of each mistake.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
export NO_COLOR=1
folder="$scratch/lint"
mkdir "$folder"
"$BLITZ" schema >"$folder/schema.json"
printf '[[schemas]]\npath = "schema.json"\ninclude = ["*.blitz.toml"]\n' >"$folder/tombi.toml"
python3 tests/smoke/tombi.py "$tools/tombi/bin/tombi" "$folder" || fail 'tombi differs'
