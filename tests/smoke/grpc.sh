#!/usr/bin/env bash
# gRPC with Go's clients grpcurl and ghz, through the proxy to a tonic server.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/smoke
source "$here/lib.sh"
export PATH="$tools/bin:$PATH" XDG_STATE_HOME="$scratch/state"

upstream=$(free_port)
start_grpc_server "$upstream"
certs="$scratch/certs"
"$BLITZ" cert --out "$certs" localhost >/dev/null
plain=$(free_port)
tls=$(free_port)
start_blitz proxy "$plain" --listen-tls "127.0.0.1:$tls" --to "h2c://127.0.0.1:$upstream" \
  --cert "$certs/localhost.pem" --key "$certs/localhost.key"

service=grpc.testing.TestService
proto=(-import-path "$here/grpc" -proto test.proto)
# call WHERE METHOD REQUESTS FLAGS...: prints the responses without white space.
call() {
  local where=$1 method=$2 requests=$3 target
  shift 3
  case "$where" in
    tls) target=(-cacert "$certs/ca.pem" "localhost:$tls") ;;
    *) target=(-plaintext "127.0.0.1:$where") ;;
  esac
  timeout 30 grpcurl "${proto[@]}" "$@" -d "$requests" "${target[@]}" "$service/$method" 2>&1 |
    tr --delete ' \n'
}
# expect_contains WHAT WANTED GOT: fails unless GOT contains WANTED.
expect_contains() { [[ "$3" == *"$2"* ]] || fail "grpcurl: $1: no '$2' in: $3"; }

for where in "$plain" tls; do
  expect 'grpcurl: an empty call' '{}' "$(call "$where" EmptyCall '{}')"
  expect 'grpcurl: a unary call' '{"payload":{"body":"AAAAAA=="}}' \
    "$(call "$where" UnaryCall '{"response_size":4}')"
  expect 'grpcurl: client streaming' '{"aggregatedPayloadSize":7}' \
    "$(call "$where" StreamingInputCall '{"payload":{"body":"AAAAAA=="}}{"payload":{"body":"AAAA"}}')"
  expect 'grpcurl: server streaming' '{"payload":{"body":"AA=="}}{"payload":{"body":"AAA="}}' \
    "$(call "$where" StreamingOutputCall \
      '{"response_parameters":[{"size":1},{"size":2,"interval_us":50000}]}')"
  expect 'grpcurl: both streaming' '{"payload":{"body":"AA=="}}{"payload":{"body":"AAA="}}' \
    "$(call "$where" FullDuplexCall \
      '{"response_parameters":[{"size":1}]}{"response_parameters":[{"size":2}]}')"
done
expect_contains 'a status' 'Code:FailedPreconditionMessage:no%way' \
  "$(call "$plain" UnaryCall '{"response_status":{"code":9,"message":"no % way"}}')"
expect_contains 'an unimplemented method' 'Code:Unimplemented' "$(call "$plain" UnimplementedCall '{}')"
expect_contains 'metadata' 'x-grpc-test-echo-trailing-bin:q6ur' \
  "$(call "$plain" UnaryCall '{}' -v -H 'x-grpc-test-echo-trailing-bin: q6ur')"
expect_contains 'a deadline' 'Code:DeadlineExceeded' \
  "$(call "$plain" StreamingOutputCall '{"response_parameters":[{"interval_us":5000000}]}' -max-time 0.3)"

# Statuses that the gateway sends itself.
nowhere=$(free_port)
dead=$(free_port)
start_blitz dead "$dead" --to "h2c://127.0.0.1:$nowhere"
expect_contains 'an unavailable upstream' 'Code:UnavailableMessage:theupstreamrefusedtheconnection' \
  "$(call "$dead" EmptyCall '{}')"
http1=$(free_port)
start_blitz http1 "$http1" --to "http://127.0.0.1:$upstream"
expect_contains 'an upstream with HTTP/1.1' 'configuretheupstreamwithh2c://insteadofhttp://' \
  "$(call "$http1" EmptyCall '{}')"

# ghz: many concurrent calls over few connections.
load() {
  local what=$1
  shift
  timeout 60 ghz --insecure --import-paths "$here/grpc" --proto "$here/grpc/test.proto" \
    --concurrency 50 --connections 4 "$@" "127.0.0.1:$plain" >"$scratch/report" 2>&1 ||
    fail "ghz: $what: $(cat "$scratch/report")"
  grep --quiet "\[OK\] *$calls responses" "$scratch/report" || fail "ghz: $what: $(cat "$scratch/report")"
}
calls=10000
load 'unary calls' --call "$service.UnaryCall" --total "$calls" --data '{"response_size":1000}'
calls=1000
load 'server streaming' --call "$service.StreamingOutputCall" --total "$calls" \
  --data '{"response_parameters":[{"size":100},{"size":20000},{"size":3}]}'
echo "grpc: passed"
