#!/usr/bin/env bash
# git over smart HTTP through the proxy, to `git http-backend` behind lighttpd: 50 MB are pushed and cloned over
# HTTP/1.1 and over HTTP/2 with TLS, on both drivers. Pushes are chunked, or declare their length and wait for
# 100 (Continue); a fetch of many commits compresses its request.
set -euo pipefail
cd "$(dirname "$0")/../.."
source tests/smoke/lib.sh
for variable in $(git rev-parse --local-env-vars); do unset "$variable"; done
export HOME="$scratch" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL="$scratch/gitconfig" GIT_TERMINAL_PROMPT=0
# Client and server spend their time on the transfer: random content has no deltas and does not become smaller.
git config --global core.compression 0
git config --global core.bigFileThreshold 100k
git config --global transfer.unpackLimit 1
git config --global transfer.fsckObjects true
# Automatic maintenance would outlive the test.
git config --global gc.auto 0
git config --global maintenance.auto false
git config --global init.defaultBranch main
git config --global user.name tester
git config --global user.email tester@localhost

upstream=$(free_port)
mkdir "$scratch/served" "$scratch/uploads"
cat >"$scratch/lighttpd.conf" <<CONF
server.modules = ("mod_alias", "mod_cgi", "mod_setenv")
server.bind = "127.0.0.1"
server.port = $upstream
server.document-root = "$scratch/served"
server.upload-dirs = ("$scratch/uploads")
server.stream-response-body = 1
setenv.set-environment = (
  "GIT_PROJECT_ROOT" => "$scratch/served",
  "GIT_HTTP_EXPORT_ALL" => "1",
  "GIT_CONFIG_GLOBAL" => "$GIT_CONFIG_GLOBAL"
)
alias.url = ("/git" => "$(git --exec-path)/git-http-backend")
cgi.assign = ("" => "")
CONF
start lighttpd "$upstream" lighttpd -D -f "$scratch/lighttpd.conf"

"$BLITZ" cert --out "$scratch" localhost >/dev/null
export GIT_SSL_CAINFO="$scratch/ca.pem"

# A repository with 50 MB in files of different sizes.
work="$scratch/work"
git init --quiet "$work"
for number in $(seq 10); do head -c "$((number * 909090))" /dev/urandom >"$work/file $number"; done
git -C "$work" add .
git -C "$work" commit --quiet --message 'fifty megabytes'
revision=$(git -C "$work" rev-parse 'HEAD^{tree}' HEAD)

# traced NAME COMMAND...: runs a git command; NAME.trace has the heads of its requests and responses.
traced() {
  local name=$1
  shift
  GIT_TRACE_CURL="$scratch/$name.trace" GIT_TRACE_CURL_NO_DATA=1 timeout 60 "$@" >"$scratch/$name.log" 2>&1 ||
    fail "$name failed"
}
# trace_has NAME TEXT: fails unless the heads of the command have the text.
trace_has() {
  grep --quiet --ignore-case --fixed-strings -- "$2" "$scratch/$1.trace" || fail "$1: no '$2' in the heads"
}

# offered: prints a branch of two hundred commits, for `git fast-import`.
offered() {
  local number
  for number in $(seq 2000000001 2000000200); do
    printf 'commit refs/heads/offered\ncommitter tester <tester@localhost> %d +0000\ndata 2\n-\n' "$number"
    [ "$number" -gt 2000000001 ] || echo 'from refs/heads/main'
  done
}

# Pushes with 2 MB as the limit of a request whose length is declared, or with all in one such request.
chunked=(-c http.postBuffer=2000000)
whole=(-c http.postBuffer=200000000 -c 'http.extraHeader=Expect: 100-continue')
for io in uring epoll; do
  plain=$(free_port)
  port=$(free_port)
  start_blitz "blitz-$io" "$plain" --io "$io" --to "http://127.0.0.1:$upstream" \
    --listen-tls "127.0.0.1:$port" --cert "$scratch/localhost.pem" --key "$scratch/localhost.key"
  for version in 1.1 2; do
    name="$io-$version"
    base="http://127.0.0.1:$plain"
    [ "$version" = 1.1 ] || base="https://localhost:$port"
    git init --quiet --bare "$scratch/served/$name"
    git -C "$scratch/served/$name" config http.receivepack true
    url="$base/git/$name"
    over=(-c "http.version=HTTP/$version")
    # Each driver and each version of HTTP has each kind of push once.
    kind=chunked push=("${chunked[@]}")
    case "$name" in uring-2 | epoll-1.1) kind=whole push=("${whole[@]}") ;; esac

    traced "push-$name" git -C "$work" "${over[@]}" "${push[@]}" push --quiet "$url" main
    case "$kind-$version" in
      chunked-1.1) trace_has "push-$name" 'Send header: Transfer-Encoding: chunked' ;;
      whole-*) trace_has "push-$name" "Recv header: HTTP/$version 100" ;;
    esac
    traced "clone-$name" git "${over[@]}" clone --quiet "$url" "$scratch/$name"
    trace_has "clone-$name" "Recv header: HTTP/$version 200"
    git -C "$scratch/$name" fsck --full --strict >"$scratch/fsck.log" 2>&1 || fail "$name: the clone is damaged"
    for copy in "$scratch/served/$name" "$scratch/$name"; do
      expect "the tree and the commit in $copy" "$revision" "$(git -C "$copy" rev-parse 'main^{tree}' main)"
    done
    [ -z "$(git -C "$scratch/$name" status --porcelain)" ] || fail "$name: the files differ from the commit"

    # The clone offers commits that the server lacks, which makes the request long enough for compression.
    offered | git -C "$scratch/$name" fast-import --quiet
    new=$(git -C "$scratch/served/$name" commit-tree -p main -m 'on the server' 'main^{tree}')
    git -C "$scratch/served/$name" update-ref refs/heads/main "$new"
    traced "fetch-$name" git -C "$scratch/$name" "${over[@]}" fetch --quiet origin
    expect "the fetched commit over $name" "$new" "$(git -C "$scratch/$name" rev-parse origin/main)"
    trace_has "fetch-$name" 'Send header: Content-Encoding: gzip'
    rm -r "${scratch:?}/$name" "$scratch/served/$name"
    echo "git: push ($kind), clone and fetch over HTTP/$version on $io passed"
  done
done
