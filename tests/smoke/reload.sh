#!/usr/bin/env bash
# Twenty certificate reloads under load: continuous new connections, resumed and not, and long ones with many
# streams. No request fails, and the server always presents the latest certificate.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
go_program

certs="$scratch/certs"
for turn in $(seq 0 20); do
  # The same authority each time.
  rm -f "$certs/localhost.pem" "$certs/localhost.key"
  "$BLITZ" cert --out "$certs" localhost >/dev/null
  mv "$certs/localhost.pem" "$certs/$turn.pem"
  mv "$certs/localhost.key" "$certs/$turn.key"
done
# use TURN: copies a pair to the server's files. Key and certificate change one after the other, without a HUP
# between them.
use() {
  cp "$certs/$1.key" "$certs/localhost.key"
  cp "$certs/$1.pem" "$certs/localhost.pem"
}
use 0
plain=$(free_port)
port=$(free_port)
start reload "$plain" "$BLITZ" run --control-listen off --cores 2 --listen "127.0.0.1:$plain" --listen-tls "127.0.0.1:$port" \
  --cert "$certs/localhost.pem" --key "$certs/localhost.key"
server=${started[-1]}
presented_serial() { openssl s_client -connect "127.0.0.1:$port" </dev/null 2>/dev/null | openssl x509 -noout -serial; }
read_times() { grep --count 'read again' "$scratch/reload.log" || true; }

"$smoke_go" churn "https://localhost:$port/hello" "$certs/ca.pem" "$scratch/stop" >"$scratch/churn" 2>&1 &
churn=$!
started+=("$churn")
repeat load h2load --duration=3 --clients=8 --max-concurrent-streams=8 --threads=1 \
  "https://localhost:$port/hello"
load=${started[-1]}
for turn in $(seq 20); do
  use "$turn"
  kill -HUP "$server"
  for wait in $(seq 60); do
    [ "$(read_times)" -lt "$turn" ] || break
    sleep 0.05
  done
  expect "the certificate after reload $turn" "$(openssl x509 -noout -serial -in "$certs/$turn.pem")" "$(presented_serial)"
done
# A mismatched pair never replaces a valid one.
cp "$certs/0.key" "$certs/localhost.key"
kill -HUP "$server"
for wait in $(seq 60); do
  ! grep --quiet 'WARN\|ERROR' "$scratch/reload.log" || break
  sleep 0.05
done
grep --quiet 'localhost.key' "$scratch/reload.log" || fail 'the log does not report the mismatched key'
expect 'the certificate after a failed reload' "$(openssl x509 -noout -serial -in "$certs/20.pem")" "$(presented_serial)"

touch "$scratch/stop"
wait "$churn" || fail "new connections: $(cat "$scratch/churn")"
wait "$load" || fail "h2load: $(cat "$scratch/load.log")"
all_succeeded "$scratch/load.log" || fail "h2load: $(cat "$scratch/load.log")"
read -r connections _ resumed _ seen _ <"$scratch/churn"
[ "$connections" -gt 200 ] || fail "too few connections: $(cat "$scratch/churn")"
[ "$resumed" -gt 20 ] || fail "sessions did not resume after a reload: $(cat "$scratch/churn")"
[ "$seen" -gt 10 ] || fail "clients saw few certificates: $(cat "$scratch/churn")"
echo "reload: $(cat "$scratch/churn"), h2load: $(grep '^requests:' "$scratch/load.log")"
