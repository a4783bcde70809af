#!/usr/bin/env bash
# A folder on a disk that takes 3 s for each look-up and read (a file system of FUSE, so root is needed): 300 requests
# for its files hold up neither files of another folder nor a request that is buffered in a file, and those beyond the
# queue get 503.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
if [ "$(id -u)" != 0 ] || [ ! -c /dev/fuse ]; then
  echo 'slow_disk: skipped, because it needs root and /dev/fuse'
  exit
fi
slow="$scratch/slow"
mkdir "$slow" "$scratch/fast"
unmount() { umount -l "$slow" 2>/dev/null || true; }
trap 'unmount; cleanup' EXIT
head -c 1000 /dev/urandom >"$scratch/fast/small"
head -c 1048576 /dev/urandom >"$scratch/fast/large"
for io in uring epoll; do
  python3 "$here/slow_disk.py" mount "$slow" >"$scratch/mount-$io.log" 2>&1 &
  disk=$!
  started+=("$disk")
  for tries in $(seq 100); do
    ! grep --quiet mounted "$scratch/mount-$io.log" || break
    sleep 0.1
  done
  mountpoint --quiet "$slow" || fail 'the slow disk is not mounted'
  port=$(free_port)
  metrics=$(free_port)
  dead=$(free_port)
  cat >"$scratch/blitz-$io.toml" <<CONF
listen = ["127.0.0.1:$port"]
control = { socket = false, listen = "127.0.0.1:$metrics" }

[server]
cores = 1
io = "$io"

[site."*"]
"/slow".files = "$slow"
"/fast".files = "$scratch/fast"
"/hello".respond = "200 Hello"
"/buffered" = { to = "http://127.0.0.1:$dead", buffer_request = "8m" }
CONF
  start "blitz-$io" "$port" "$BLITZ" run --config "$scratch/blitz-$io.toml"
  blitz=${started[-1]}
  python3 "$here/slow_disk.py" check "$port" "$metrics" || fail "a slow disk on $io"
  # It would wait for the requests that are still in its queue.
  kill -9 "$blitz"
  unmount
  kill "$disk" 2>/dev/null || true
  echo "slow_disk: $io passed"
done
