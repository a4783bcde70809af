#!/usr/bin/env bash
# WebDAV through the proxy: rclone copies, compares, moves and deletes a tree with odd names on its own server and on
# WsgiDAV, over HTTP/1.1 and over HTTP/2 with TLS, on both drivers; curl locks and lists.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
export PYTHONPATH="$tools/webdav" PYTHONDONTWRITEBYTECODE=1 HOME="$scratch" RCLONE_CONFIG=/dev/null
# By default, rclone waits 10 ms between requests.
export RCLONE_CONFIG_DAV_TYPE=webdav RCLONE_WEBDAV_PACER_MIN_SLEEP=1ms RCLONE_CA_CERT="$scratch/ca.pem"
rclone="$tools/webdav/bin/rclone"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
tree="$scratch/tree"
names=('with space' 'ünïcode 日本 🎉' '#hash' '100%' '%41%2f%zz' 'plus+sign' '[b]{c}(d)' 'what?' 'a&b=c;d,e'
  "<quote'\">" '^caret|pipe`tick`~tilde!$@*' '...' 'a..b' 'http:')
for name in "${names[@]}"; do
  mkdir -p "$tree/$name/inner $name"
  printf '%s' "$name" >"$tree/$name/file $name.txt"
  head -c 1000 /dev/urandom >"$tree/$name/inner $name/$name"
done
head -c 10000000 /dev/urandom >"$tree/large"
: >"$tree/empty"

# properties FILE: prints a listing line by line, sorted, because servers list files in any order, and without the
# space on the disk, which changes.
properties() { tr '<' '\n' <"$1" | grep --invert-match ':quota-' | sort; }

# visit SERVER VERSION BASE UPSTREAM: all checks of one server over one version of HTTP.
visit() {
  local server=$1 version=$2 base=$3 direct=$4 way="$1 over HTTP/$2" log="$scratch/rclone.log" depth token
  local path=%5Bwhole%5D%20+
  dav() {
    timeout 60 "$rclone" --contimeout 5s --timeout 20s --retries 1 --low-level-retries 1 --dump headers \
      "$@" 2>"$log" || fail "$way: rclone $*"
  }
  same() { dav check --download "$1" "$2" >/dev/null; }
  export RCLONE_CONFIG_DAV_URL=$base

  dav copy --create-empty-src-dirs "$tree" dav:new
  grep --quiet "^.*HTTP/${version/%2/2.0} 201 Created" "$log" || fail "$way: another version of HTTP"
  same "$tree" dav:new

  # Each file moves to a folder that exists, with its new name in `Destination`; then a folder as a whole.
  dav mkdir 'dav:#moved 100%'
  dav move --create-empty-src-dirs --delete-empty-src-dirs dav:new 'dav:#moved 100%'
  expect "$way: the number of moved files" "$(find "$tree" -type f | wc -l)" "$(grep --count 'DEBUG : MOVE /' "$log")"
  same "$tree" 'dav:#moved 100%'
  dav moveto 'dav:#moved 100%' 'dav:[whole] +'
  expect "$way: the number of moved folders" 1 "$(grep --count 'DEBUG : MOVE /' "$log")"
  dav copyto 'dav:[whole] +/large' 'dav:[whole] +/100%/large + copied'
  grep --quiet 'DEBUG : COPY /' "$log" || fail "$way: no COPY"
  dav deletefile 'dav:[whole] +/#hash/file #hash.txt'
  dav purge 'dav:[whole] +/%41%2f%zz'
  cp -r "$tree" "$scratch/changed"
  cp "$tree/large" "$scratch/changed/100%/large + copied"
  rm -r "$scratch/changed/%41%2f%zz" "$scratch/changed/#hash/file #hash.txt"
  same "$scratch/changed" 'dav:[whole] +'
  expect "$way: the names" "$(cd "$scratch/changed" && find . -mindepth 1 | sort)" \
    "$(dav lsf --recursive 'dav:[whole] +' | sed 's|^|./|;s|/$||' | sort)"
  rm -r "$scratch/changed"

  # Properties are the same as without the proxy.
  get() { curl --silent --show-error --max-time 20 --ipv4 "--http$version" --cacert "$scratch/ca.pem" "$@"; }
  for depth in 0 1; do
    get --request PROPFIND --header "Depth: $depth" --output "$scratch/list" --write-out '%{http_code}' \
      "$base/$path/plus+sign/" >"$scratch/status"
    expect "$way: PROPFIND, depth $depth" 207 "$(cat "$scratch/status")"
    curl --silent --max-time 20 --request PROPFIND --header "Depth: $depth" --header "Host: ${base#*//}" \
      "http://127.0.0.1:$direct/$path/plus+sign/" >"$scratch/direct"
    cmp <(properties "$scratch/direct") <(properties "$scratch/list") || fail "$way: PROPFIND, depth $depth"
  done
  # A lock keeps others from writing.
  get --request LOCK --header 'Timeout: Second-60' --dump-header "$scratch/head" --output "$scratch/lock" \
    "$base/$path/empty" --data '<lockinfo xmlns="DAV:"><lockscope><exclusive/></lockscope><locktype><write/></locktype></lockinfo>'
  token=$(sed -n 's/^lock-token: \(.*\)\r$/\1/Ip' "$scratch/head")
  put() { get --output /dev/null --write-out '%{http_code}' --upload-file "$tree/empty" "$@" "$base/$path/empty"; }
  expect "$way: PUT of a locked file" 423 "$(put)"
  expect "$way: PUT with the token" 2 "$(put --header "If: ($token)" | head -c 1)"
  expect "$way: UNLOCK" 204 \
    "$(get --output /dev/null --write-out '%{http_code}' --request UNLOCK --header "Lock-Token: $token" \
      "$base/$path/empty")"
  expect "$way: PUT of the unlocked file" 2 "$(put | head -c 1)"
  dav purge 'dav:[whole] +'
}

for server in rclone wsgidav; do
  # WsgiDAV decodes `Destination` before it parses it, and then cuts these names.
  [ "$server" = rclone ] || rm -r "$tree/what?" "$tree/a&b=c;d,e"
  upstream=$(free_port)
  mkdir "$scratch/$server"
  case "$server" in
    rclone) start rclone "$upstream" "$rclone" serve webdav --addr "127.0.0.1:$upstream" "$scratch/rclone" ;;
    wsgidav)
      # By default five connections may wait for their acceptance; a sixth takes a second or more.
      cat >"$scratch/wsgidav.yaml" <<CONF
host: 127.0.0.1
port: $upstream
provider_mapping: {"/": "$scratch/wsgidav"}
simple_dc: {user_mapping: {"*": true}}
server_args: {request_queue_size: 100}
CONF
      start wsgidav "$upstream" python3 -m wsgidav.server.server_cli --config "$scratch/wsgidav.yaml"
      ;;
  esac
  for io in uring epoll; do
    plain=$(free_port)
    port=$(free_port)
    start_blitz "blitz-$server-$io" "$plain" --io "$io" --to "http://127.0.0.1:$upstream" \
      --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"
    # WsgiDAV, which is slower, has one of the two on each driver.
    [ "$server-$io" = wsgidav-uring ] || visit "$server" 1.1 "http://127.0.0.1:$plain" "$upstream"
    [ "$server-$io" = wsgidav-epoll ] || visit "$server" 2 "https://localhost:$port" "$upstream"
    echo "webdav: $server on $io passed"
  done
done
