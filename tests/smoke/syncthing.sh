#!/usr/bin/env bash
# The interface of Syncthing under another host name, which it refuses by itself: page, REST and events.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
command -v syncthing >/dev/null || fail 'syncthing is missing: .ci/tools applications'

home="$scratch/syncthing"
HOME="$scratch" syncthing generate --home "$home" --no-default-folder --skip-port-probing >"$scratch/generate.log" 2>&1 ||
  fail 'no keys for Syncthing'
upstream=$(free_port)
# It connects to nobody. The settings of its interface stay.
sed --in-place --regexp-extended \
  -e 's#<(globalAnnounceEnabled|localAnnounceEnabled|relaysEnabled|natEnabled|crashReportingEnabled)>true<#<\1>false<#' \
  -e 's#<listenAddress>default<#<listenAddress>tcp://127.0.0.1:0<#' \
  -e 's#<urAccepted>0<#<urAccepted>-1<#' "$home/config.xml"
start syncthing "$upstream" env HOME="$scratch" STNOUPGRADE=1 syncthing serve --home "$home" --no-browser --no-restart \
  --gui-address "127.0.0.1:$upstream"
key=$(sed -n 's#.*<apikey>\(.*\)</apikey>.*#\1#p' "$home/config.xml")

port=$(free_port)
cat >"$scratch/blitz.toml" <<TOML
control = false
listen = ["127.0.0.1:$port"]

[site."sync.example"]
to = "http://127.0.0.1:$upstream"
host = "localhost"

[site."kept.example"]
to = "http://127.0.0.1:$upstream"
TOML
start blitz "$port" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1
get() {
  local host=$1 path=$2
  shift 2
  curl --silent --show-error --max-time 30 --header "Host: $host" "$@" "http://127.0.0.1:$port$path"
}
expect 'a host that Syncthing does not know' 'Host check error' "$(get kept.example /)"
# grep would end before curl has written all.
get sync.example / --fail --output "$scratch/page"
grep --quiet '<title.*Syncthing' "$scratch/page" || fail 'no page'
expect 'REST without its key' 403 "$(get sync.example /rest/system/version --output /dev/null --write-out '%{http_code}')"
expect 'REST' pong "$(get sync.example /rest/system/ping --fail --header "X-API-Key: $key" | sed -n 's/.*"ping": *"\(.*\)".*/\1/p')"
get sync.example '/rest/events?since=0&limit=1&timeout=20' --fail --header "X-API-Key: $key" --output "$scratch/events"
grep --quiet '"type"' "$scratch/events" || fail 'no event'
echo 'syncthing: passed'
