#!/usr/bin/env bash
# DokuWiki with PHP's own server: its style sheet of 107 kB arrives compressed over HTTP/1.1 and HTTP/2, in each coding,
# with the same text.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
wiki=/usr/share/dokuwiki
[ -d "$wiki" ] || fail 'dokuwiki is missing: .ci/tools applications'

# The settings and the data of the package, in places that nobody else uses.
cp -rL /etc/dokuwiki "$scratch/conf"
mkdir -p "$scratch"/data/{attic,cache,index,locks,log,media,media_attic,media_meta,meta,pages,tmp}
echo "<?php \$conf['savedir'] = '$scratch/data';" >"$scratch/conf/local.php"
printf "<?php define('DOKU_MAIN_CONF', '%s'); define('DOKU_CONF', '%s');\n" "$scratch/conf/" "$scratch/conf/" \
  >"$scratch/prepend.php"
upstream=$(free_port)
start php "$upstream" php -d auto_prepend_file="$scratch/prepend.php" -S "127.0.0.1:$upstream" -t "$wiki"

"$BLITZ" cert --out "$scratch" wiki.localhost >/dev/null
plain=$(free_port)
secure=$(free_port)
cat >"$scratch/blitz.toml" <<TOML
control = false
listen = ["127.0.0.1:$plain"]
listen_tls = ["127.0.0.1:$secure"]
certificates = ["$scratch/wiki.localhost.pem"]

[site."wiki.localhost"]
tls = true
https_redirect = false
to = "http://127.0.0.1:$upstream"
compress = true
TOML
start blitz "$plain" "$BLITZ" run --config "$scratch/blitz.toml" --cores 1

sheet='/lib/exe/css.php?t=dokuwiki'
get() { curl --silent --show-error --fail --max-time 20 "$@"; }
get --output "$scratch/direct.css" "http://127.0.0.1:$upstream$sheet"
size=$(wc -c <"$scratch/direct.css")
[ "$size" -gt 100000 ] || fail "the style sheet has only $size bytes"

for url in "http://wiki.localhost:$plain" "https://wiki.localhost:$secure"; do
  connect=(--connect-to "wiki.localhost:$plain:127.0.0.1:$plain" --connect-to "wiki.localhost:$secure:127.0.0.1:$secure"
    --cacert "$scratch/ca.pem")
  get "${connect[@]}" --output "$scratch/plain.css" "$url$sheet"
  cmp "$scratch/direct.css" "$scratch/plain.css" || fail "another style sheet without compression from $url"
  for coding in gzip br zstd; do
    get "${connect[@]}" --header "Accept-Encoding: $coding" --dump-header "$scratch/head" \
      --output "$scratch/coded" "$url$sheet"
    grep --quiet --ignore-case "^content-encoding: $coding" "$scratch/head" || fail "no $coding from $url"
    got=$(wc -c <"$scratch/coded")
    # A fourth, and what faster levels leave.
    [ "$got" -lt $((size * 28 / 100)) ] || fail "$coding leaves $got of $size bytes from $url"
    echo "dokuwiki: ${url%%:*}, $coding: $got of $size bytes"
  done
  get "${connect[@]}" --compressed --output "$scratch/decoded.css" "$url$sheet"
  cmp "$scratch/direct.css" "$scratch/decoded.css" || fail "another style sheet with compression from $url"
done
# grep would end before curl has written all.
get --connect-to "wiki.localhost:$plain:127.0.0.1:$plain" --output "$scratch/page" "http://wiki.localhost:$plain/doku.php"
grep --quiet 'content="DokuWiki"' "$scratch/page" || fail 'no page of the wiki'
