#!/usr/bin/env bash
# gRPC from Go's clients, grpcurl and ghz, through the proxy to a server of tonic.
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
# ask WHERE METHOD REQUESTS FLAGS...: the answers, without blanks.
ask() {
  local where=$1 method=$2 requests=$3 target
  shift 3
  case "$where" in
    tls) target=(-cacert "$certs/ca.pem" "localhost:$tls") ;;
    *) target=(-plaintext "127.0.0.1:$where") ;;
  esac
  timeout 30 grpcurl "${proto[@]}" "$@" -d "$requests" "${target[@]}" "$service/$method" 2>&1 |
    tr --delete ' \n'
}
# says WHAT WANTED GOT: whether one text is in the other.
says() { [[ "$3" == *"$2"* ]] || fail "grpcurl: $1: no '$2' in: $3"; }

for where in "$plain" tls; do
  expect 'grpcurl: an empty call' '{}' "$(ask "$where" EmptyCall '{}')"
  expect 'grpcurl: a unary call' '{"payload":{"body":"AAAAAA=="}}' \
    "$(ask "$where" UnaryCall '{"response_size":4}')"
  expect 'grpcurl: client streaming' '{"aggregatedPayloadSize":7}' \
    "$(ask "$where" StreamingInputCall '{"payload":{"body":"AAAAAA=="}}{"payload":{"body":"AAAA"}}')"
  expect 'grpcurl: server streaming' '{"payload":{"body":"AA=="}}{"payload":{"body":"AAA="}}' \
    "$(ask "$where" StreamingOutputCall \
      '{"response_parameters":[{"size":1},{"size":2,"interval_us":50000}]}')"
  expect 'grpcurl: both streaming' '{"payload":{"body":"AA=="}}{"payload":{"body":"AAA="}}' \
    "$(ask "$where" FullDuplexCall \
      '{"response_parameters":[{"size":1}]}{"response_parameters":[{"size":2}]}')"
done
says 'a status' 'Code:FailedPreconditionMessage:no%way' \
  "$(ask "$plain" UnaryCall '{"response_status":{"code":9,"message":"no % way"}}')"
says 'a method that is not there' 'Code:Unimplemented' "$(ask "$plain" UnimplementedCall '{}')"
says 'metadata' 'x-grpc-test-echo-trailing-bin:q6ur' \
  "$(ask "$plain" UnaryCall '{}' -v -H 'x-grpc-test-echo-trailing-bin: q6ur')"
says 'a deadline' 'Code:DeadlineExceeded' \
  "$(ask "$plain" StreamingOutputCall '{"response_parameters":[{"interval_us":5000000}]}' -max-time 0.3)"

# What the gateway has to answer.
nowhere=$(free_port)
dead=$(free_port)
start_blitz dead "$dead" --to "h2c://127.0.0.1:$nowhere"
says 'an upstream that is not there' 'Code:UnavailableMessage:theupstreamrefusedtheconnection' \
  "$(ask "$dead" EmptyCall '{}')"

# ghz: many calls at a time, over few connections.
load() {
  local what=$1
  shift
  timeout 60 ghz --insecure --import-paths "$here/grpc" --proto "$here/grpc/test.proto" \
    --concurrency 50 --connections 4 "$@" "127.0.0.1:$plain" >"$scratch/answer" 2>&1 ||
    fail "ghz: $what: $(cat "$scratch/answer")"
  grep --quiet "\[OK\] *$calls responses" "$scratch/answer" || fail "ghz: $what: $(cat "$scratch/answer")"
}
calls=10000
load 'unary calls' --call "$service.UnaryCall" --total "$calls" --data '{"response_size":1000}'
calls=1000
load 'server streaming' --call "$service.StreamingOutputCall" --total "$calls" \
  --data '{"response_parameters":[{"size":100},{"size":20000},{"size":3}]}'
echo "grpc: everything is fine"
