#!/usr/bin/env bash
# oauth2-proxy decides on requests for `forward_auth`: with a password, with its cookie and without, over HTTP/1.1, 2 and
# 3, on both drivers; and what happens when it is stopped.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
"$BLITZ" cert --out "$scratch" localhost >/dev/null

# The password is `secret` (SHA-1, which needs no other tool).
printf 'alice:{SHA}%s\n' "$(printf secret | openssl sha1 -binary | base64)" >"$scratch/htpasswd"

# oauth2_proxy PORT: the authorizer; its provider is never connected to.
oauth2_proxy() {
  start oauth2-proxy "$1" "$tools/bin/oauth2-proxy" --http-address="127.0.0.1:$1" --reverse-proxy --set-xauthrequest \
    --upstream=static://202 --provider=github --client-id=id --client-secret=secret --email-domain='*' \
    --cookie-secret=0123456789abcdef --cookie-secure=false --htpasswd-file="$scratch/htpasswd" \
    --redirect-url=http://localhost/oauth2/callback --skip-provider-button
}

python3 - "$scratch/echo.port" <<'PYTHON' >"$scratch/echo.log" 2>&1 &
import http.server, sys

class Echo(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        names = ("x-auth-request-user", "x_auth_request_user")
        content = repr([self.headers.get_all(name) for name in names]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
with open(sys.argv[1] + ".part", "w") as out:
    out.write(str(server.server_port))
import os
os.rename(sys.argv[1] + ".part", sys.argv[1])
server.serve_forever()
PYTHON
started+=("$!")
for _ in $(seq 200); do [ ! -e "$scratch/echo.port" ] || break; sleep 0.05; done
echo_port=$(cat "$scratch/echo.port")

auth_port=$(free_port)
oauth2_proxy "$auth_port"
auth_pid=${started[-1]}

declare -A ports
for io in uring epoll; do
  plain=$(free_port) secure=$(free_port)
  cat >"$scratch/$io.toml" <<TOML
listen = ["127.0.0.1:$plain"]
listen_tls = ["127.0.0.1:$secure"]

[server]
cores = 1
io = "$io"

[site."localhost"]
tls = { cert = "$scratch/localhost.pem", key = "$scratch/localhost.key" }
https_redirect = false
to = "http://127.0.0.1:$echo_port"
forward_auth = { url = "http://127.0.0.1:$auth_port/", copy = ["X-Auth-Request-User"] }
"/open".forward_auth = { url = "http://127.0.0.1:$auth_port/", copy = ["X-Auth-Request-User"], on_failure = "open" }
TOML
  start "blitz-$io" "$plain" "$BLITZ" run --config "$scratch/$io.toml" --control-listen off
  ports[$io]="$plain $secure"
done

# ask VERSION BASE PATH FLAGS...: prints status, `Location` and content.
ask() {
  local version=$1 base=$2 path=$3
  shift 3
  curl --silent --show-error --max-time 20 --ipv4 --cacert "$scratch/ca.pem" "$version" --output "$scratch/content" \
    --write-out '%{http_code} %{redirect_url}' -H 'X-Auth-Request-User: root' -H 'x_auth_request_user: root' \
    "$@" "$base$path"
  printf ' %s\n' "$(head -c 100 "$scratch/content" | head -n 1)"
}

versions=(--http1.1 --http2)
! curl --version | grep --quiet HTTP3 || versions+=(--http3-only)
for io in uring epoll; do
  read -r plain secure <<<"${ports[$io]}"
  for version in "${versions[@]}"; do
    base="https://localhost:$secure"
    [ "$version" != --http1.1 ] || base="http://localhost:$plain"
    way="$io $version"
    expect "$way: a known user" "200  [['alice'], None]" "$(ask "$version" "$base" /a --user alice:secret)"
    answer=$(ask "$version" "$base" '/a?b=c')
    [[ "$answer" == '302 https://github.com/login/oauth/authorize?'* ]] || fail "$way: not known: $answer"
    # It remembers where the client wanted to go by `X-Forwarded-Uri`.
    [[ "$answer" == *'%2Fa%3Fb%3Dc'* ]] || fail "$way: no way back: $answer"
    answer=$(ask "$version" "$base" /a --user alice:wrong)
    [[ "$answer" == 302* || "$answer" == 403* ]] || fail "$way: a wrong password: $answer"
  done
done

kill "$auth_pid"
wait "$auth_pid" 2>/dev/null || true
for io in uring epoll; do
  read -r plain secure <<<"${ports[$io]}"
  base="http://localhost:$plain"
  answer=$(ask --http1.1 "$base" /a --user alice:secret)
  [[ "$answer" == 503* ]] || fail "$io: closed: $answer"
  expect "$io: open" "200  [None, None]" "$(ask --http1.1 "$base" /open --user alice:secret)"
done

oauth2_proxy "$auth_port"
for io in uring epoll; do
  read -r plain secure <<<"${ports[$io]}"
  expect "$io: again" "200  [['alice'], None]" "$(ask --http1.1 "http://localhost:$plain" /a --user alice:secret)"
done
echo "forward_auth: oauth2-proxy decides"
