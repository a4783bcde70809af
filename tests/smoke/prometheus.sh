#!/usr/bin/env bash
# Two Prometheus servers read a gateway under load, one of them with native histograms: their counts are those of the
# clients, each query of the dashboard returns data, and the rules work. promtool tests each alert.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
here=tests/smoke
rules=contrib/prometheus/blitz.rules.yml
rounds=3

contrib/grafana/dashboard.py --check || fail 'the dashboard is not up to date'
promtool check rules "$rules" >"$scratch/promtool" || fail "$(cat "$scratch/promtool")"
promtool test rules "$here/alerts.yml" >"$scratch/promtool" 2>&1 || fail "$(cat "$scratch/promtool")"
python3 "$here/prometheus.py" rules "$rules" "$here/alerts.yml" || fail 'alerts lack a test or a remedy'

"$BLITZ" cert --out "$scratch" app.example >/dev/null
upstream=$(free_port)
refusing=$(free_port)
port=$(free_port)
tls_port=$(free_port)
control=$(free_port)
start_blitz upstream "$upstream"
cat >"$scratch/blitz.toml" <<TOML
listen = ["127.0.0.1:$port"]
listen_tls = ["127.0.0.1:$tls_port"]
certificates = ["$scratch/app.example.pem"]
log.access = "$scratch/access.json"
control = { listen = "127.0.0.1:$control", socket = "$scratch/control.sock" }

[site."app.example"]
tls = true
https_redirect = false
to = "http://127.0.0.1:$upstream"
"/broken" = "http://127.0.0.1:$refusing"
"/no-tls" = "https://127.0.0.1:$upstream"
"/closed" = { allow = ["192.0.2.0/24"], respond = 204 }
"/checked" = "checked"

[site."shop.example"]
to = "http://127.0.0.1:$upstream"

[upstream.checked]
servers = ["http://127.0.0.1:$upstream"]
health = { path = "/health", interval = "1s" }
TOML
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 2

# read_metrics NAME FLAGS...: a Prometheus that reads each second; its URL is "${url[NAME]}".
declare -A url
read_metrics() {
  local name=$1 listen
  shift
  listen=$(free_port)
  cat >"$scratch/$name.yml" <<YML
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: ["$PWD/$rules"]
scrape_configs:
  - job_name: blitz
    static_configs: [{ targets: ["127.0.0.1:$control"] }]
YML
  start "$name" "$listen" prometheus --config.file="$scratch/$name.yml" --storage.tsdb.path="$scratch/$name" \
    --web.listen-address="127.0.0.1:$listen" --log.level=warn "$@"
  url[$name]="http://127.0.0.1:$listen"
}
read_metrics classic
read_metrics native --enable-feature=native-histograms

# load REQUESTS URL FLAGS...: so many requests with h2load.
load() {
  local requests=$1 target=$2 own=$port
  shift 2
  [[ "$target" != https:* ]] || own=$tls_port
  h2load --requests="$requests" --clients=10 --connect-to="127.0.0.1:$own" "$@" "$target" >"$scratch/h2load" 2>&1 ||
    fail "h2load: $(cat "$scratch/h2load")"
  grep -q " $requests done" "$scratch/h2load" || fail "h2load: $(cat "$scratch/h2load")"
}

# one_round: the same requests each time. `count` has them by version and status.
one_round() {
  local try
  load 3000 "http://app.example:$port/hello" --h1
  load 1000 "http://shop.example:$port/hello" --h1
  echo content >"$scratch/content"
  load 100 "http://app.example:$port/echo" --h1 --data="$scratch/content"
  load 200 "http://app.example:$port/broken" --h1
  load 50 "http://app.example:$port/no-tls" --h1
  load 100 "http://app.example:$port/closed" --h1
  load 50 "http://unknown.example:$port/" --h1
  load 3000 "https://app.example:$tls_port/hello" --max-concurrent-streams=10
  # It sends two requests before. Its exit code says whether its times are valid.
  rm -f "$scratch/load.json"
  "$BLITZ" load --http 3 -n 1000 -c 4 -m 8 --insecure --address "127.0.0.1:$tls_port" --keep-going --json \
    "$scratch/load.json" "https://app.example:$tls_port/hello" >"$scratch/load.log" 2>&1 || true
  python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["counts"]["completed"] == 1000' \
    "$scratch/load.json" || fail "blitz load: $(cat "$scratch/load.log")"
  for try in 1 2 3 4 5; do
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET / HTTP/1.1\r\nHost: app.example\r\nContent-Length: x\r\n\r\n' >&3
    grep -q '^HTTP/1.1 400 ' <&3 || fail 'a malformed request is not refused'
    exec 3>&-
    # It does not know the authority, and says so.
    ! curl --silent --max-time 10 --connect-to "::127.0.0.1:$tls_port" "https://app.example:$tls_port/" || fail 'curl'
  done
}
count=(1.1/2xx=4100 1.1/5xx=250 1.1/4xx=155 2/2xx=3000 3/2xx=1002)

for round in $(seq "$rounds"); do
  one_round
  "$BLITZ" reload --control "$scratch/control.sock" >/dev/null || fail 'the file is not read again'
  # A counter has a rate once it is read twice.
  sleep 2
done
for name in classic native; do
  python3 "$here/prometheus.py" counts "${url[$name]}" "$name" "$rounds" "${count[@]}" || fail "$name: other counts"
  python3 "$here/prometheus.py" dashboard "${url[$name]}" contrib/grafana/blitz.json ||
    fail "$name: queries of the dashboard return nothing"
done

echo 'listen = 7' >"$scratch/blitz.toml"
! "$BLITZ" reload --control "$scratch/control.sock" >/dev/null 2>&1 || fail 'a broken file is read'
for name in classic native; do
  python3 "$here/prometheus.py" alerts "${url[$name]}" firing=BlitzReloadFailed pending=BlitzUpstreamFails ||
    fail "$name: other alerts"
done
echo "prometheus: passed"
