# HTTP/2 upstreams behind Blitz: nginx, Node and Go. Sourced by h2_upstream.sh and h2_upstream_tls.sh, whose
# $scheme selects TLS.
#
# Every request crosses two HTTP/2 connections. Upstreams that send GOAWAY repeatedly cause no failed request
# that may be repeated.
here=tests/smoke
source "$here/lib.sh"
go_program

"$BLITZ" cert --out "$scratch" localhost 127.0.0.1 >/dev/null
pair=("$scratch/localhost.pem" "$scratch/localhost.key")
case "$scheme" in
  https) with_tls=("${pair[@]}") nginx_tls="ssl"; to=(--upstream-ca "$scratch/ca.pem") host=localhost ;;
  *) with_tls=() nginx_tls='' to=() host=127.0.0.1 ;;
esac

# front NAME UPSTREAM_PORT [OPTION...]: starts a gateway to the upstream, with clear text on port $front.
front() {
  front=$(free_port)
  start_blitz "front-$1" "$front" --to "$scheme://$host:$2" "${to[@]}" "${@:3}"
}

# reload_under_load NAME PATH GOAWAYS [PID]: sends HUP to the upstream ten times while requests run; none
# may fail. Without PID the upstream sends GOAWAY by itself. The command GOAWAYS prints their number.
#
# 128 concurrent requests need more than one connection: a retry must not use another connection that is about
# to send GOAWAY as well.
reload_under_load() {
  h2load --duration=4 --clients=8 --max-concurrent-streams=16 --threads=1 \
    "http://127.0.0.1:$front$2" >"$scratch/load" 2>&1 &
  local load=$! turn goaways
  started+=("$load")
  goaways=$($3)
  for turn in $(seq 10); do
    sleep 0.35
    [ -z "${4:-}" ] || kill -HUP "$4"
  done
  wait "$load" || fail "$1: h2load: $(cat "$scratch/load")"
  grep --quiet ' 0 failed, 0 errored, 0 timeout' "$scratch/load" &&
    grep --quiet --extended-regexp '^status codes: [1-9][0-9]* 2xx, 0 3xx, 0 4xx, 0 5xx' "$scratch/load" ||
    fail "$1: requests failed after GOAWAY: $(cat "$scratch/load")"
  goaways=$(($($3) - goaways))
  [ "$goaways" -ge 8 ] || fail "$1: it sent GOAWAY only $goaways times"
  echo "$1: GOAWAY sent $goaways times, $(grep '^requests:' "$scratch/load")"
}
# Go and Node print the number of connections; a server without connections sends no GOAWAY.
goaways_of_node() { grep --count '^GOAWAY to [1-9]' "$scratch/node.log" || true; }
goaways_of_go() { grep --count '^GOAWAY to [1-9]' "$scratch/go-leaving.log" || true; }
# Each worker in the log, except the current one, has sent GOAWAY to its clients.
goaways_of_nginx() { sort --unique "$scratch/workers" | wc -l; }

for upstream in go node; do
  port=$(free_port)
  case "$upstream" in
    go) start go "$port" "$smoke_go" serve "127.0.0.1:$port" 0 "${with_tls[@]}" ;;
    node) start node "$port" node "$here/node_upstream.mjs" "$port" "${with_tls[@]}" ;;
  esac
  pid=${started[-1]}
  front "$upstream" "$port" --request-trailers
  node "$here/node_http2.mjs" pages "http://127.0.0.1:$front" || fail "$upstream: its pages"
  # The same with an HTTP/1.1 client.
  base="http://127.0.0.1:$front"
  expect "$upstream: over HTTP/1.1" 'HTTP/2.0' "$(curl --silent --max-time 10 "$base/version")"
  expect "$upstream: over HTTP/1.1" 3000000 \
    "$(curl --silent --max-time 10 "$base/bytes?size=3000000" | wc -c)"
  case "$upstream" in
    node) reload_under_load node /slow goaways_of_node "$pid" ;;
    go)
      port=$(free_port)
      start go-leaving "$port" "$smoke_go" serve "127.0.0.1:$port" 400 "${with_tls[@]}"
      front go-leaving "$port"
      reload_under_load go /slow goaways_of_go
      reload_under_load 'go, fast responses' /version goaways_of_go
      ;;
  esac
  echo "h2_upstream: $scheme to $upstream passed"
done

# nginx, whose reload starts new workers; the old ones send GOAWAY.
#
# The upload is stored: nginx 1.22 stops sending content to its own upstream for ever once a send to it has to
# wait after the response began, so an echo behind it hangs now and then.
port=$(free_port)
brief=$(free_port)
mkdir -p --mode=777 "$scratch/www/stored"
head -c 8388608 /dev/urandom >"$scratch/www/file"
start_nginx nginx "$port" <<CONF
  log_format worker '\$pid';
  server {
    listen 127.0.0.1:$port http2 $nginx_tls;
    ssl_certificate ${pair[0]};
    ssl_certificate_key ${pair[1]};
    root $scratch/www;
    access_log $scratch/workers worker;
    location = /version { return 200 "\$server_protocol"; }
    location /stored/ { dav_methods PUT; }
  }
  server {
    listen 127.0.0.1:$brief http2 $nginx_tls;
    ssl_certificate ${pair[0]};
    ssl_certificate_key ${pair[1]};
    keepalive_requests 10;
    location / { return 200; }
  }
CONF
pid=${started[-1]}
front nginx "$port"
base="http://127.0.0.1:$front"
get() { curl --silent --show-error --fail --max-time 20 --http2-prior-knowledge "$@"; }
expect 'nginx: version' HTTP/2.0 "$(get "$base/version")"
get --output "$scratch/response" "$base/file"
cmp "$scratch/www/file" "$scratch/response" || fail 'nginx: the file changed on the way'
get --upload-file "$scratch/www/file" "$base/stored/file"
cmp "$scratch/www/file" "$scratch/www/stored/file" || fail 'nginx: the upload changed on the way'
expect 'nginx: an unknown path' 404 \
  "$(curl --silent --output /dev/null --write-out '%{http_code}' "$base/no")"
h2load --requests=500 --clients=4 --max-concurrent-streams=8 --threads=1 "$base/file" >"$scratch/load"
grep --quiet '500 succeeded, 0 failed, 0 errored' "$scratch/load" || fail "nginx: $(cat "$scratch/load")"
grep --quiet 'status codes: 500 2xx' "$scratch/load" || fail "nginx: $(cat "$scratch/load")"
reload_under_load nginx /version goaways_of_nginx "$pid"
# Ten requests per connection, and 40 at once: GOAWAY refuses some of them two times and more.
front brief "$brief"
echo content >"$scratch/content"
for round in $(seq 10); do
  h2load --requests=40 --clients=1 --max-concurrent-streams=40 --threads=1 --data="$scratch/content" \
    "http://127.0.0.1:$front/" >"$scratch/load"
  grep --quiet 'status codes: 40 2xx' "$scratch/load" || fail "nginx, brief: $(cat "$scratch/load")"
done
echo "h2_upstream: $scheme to nginx passed"
