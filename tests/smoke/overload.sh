#!/usr/bin/env bash
# An upstream sheds load: with three times as many requests as its backend can answer (8 at once, 20 ms each), goodput is
# above 90 % of the capacity, the accepted requests take less than three times as long as without load, and all is well
# within 2 s after the end. OVERLOAD_SECONDS is the length of the overload.
set -euo pipefail
here=tests/smoke
source "$here/lib.sh"
code=0
for io in uring epoll; do
  one=0
  echo -n "overload: $io: "
  python3 "$here/failing_servers/overload.py" run "$BLITZ" "$io" "${OVERLOAD_SECONDS:-10}" || one=$?
  # A miss counts more than a void run.
  [ "$one" = 0 ] || [ "$code" = 1 ] || code=$one
done
exit "$code"
