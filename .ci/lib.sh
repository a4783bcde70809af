# Steps with a time limit, a log and a closing line. Sourced by .ci/run.

logs="${CARGO_TARGET_DIR:-$PWD/target}/ci"
mkdir -p "$logs"
passed=0
failed=0
void=0

# What a step says that proves nothing, neither good nor bad: EX_TEMPFAIL of sysexits(3).
VOID=75

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  green=$'\e[32m' red=$'\e[31m' yellow=$'\e[33m' plain=$'\e[0m'
else
  green='' red='' yellow='' plain=''
fi

# step NAME SECONDS COMMAND...: runs the command, prints one line, keeps count.
step() {
  local name=$1 limit=$2 start=$SECONDS code=0
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  local took=$((SECONDS - start))
  if [ "$code" -eq 0 ]; then
    passed=$((passed + 1))
    printf '%spassed%s  %-18s %4d s\n' "$green" "$plain" "$name" "$took"
    return
  fi
  if [ "$code" -eq "$VOID" ]; then
    void=$((void + 1))
    printf '%svoid%s    %-18s %4d s  it proves nothing, repeat: %s\n' "$yellow" "$plain" "$name" "$took" "$*"
    tail -n 40 "$logs/$name.log" | sed 's/^/        /'
    return
  fi
  failed=$((failed + 1))
  local why="exit code $code"
  [ "$code" -ne 124 ] || why="not done after $limit s"
  printf '%sfailed%s  %-18s %4d s  %s: %s\n' "$red" "$plain" "$name" "$took" "$why" "$*"
  tail -n 40 "$logs/$name.log" | sed 's/^/        /'
}

# The last line of a run, and its exit code: what is void is not green.
closing_line() {
  local colour=$green unproved=''
  if [ "$void" -ne 0 ]; then
    colour=$yellow unproved=", $void void, repeat"
  fi
  [ "$failed" -eq 0 ] || colour=$red
  printf '%s%d passed, %d failed%s%s\n' "$colour" "$passed" "$failed" "$unproved" "$plain"
  [ "$failed" -eq 0 ] && [ "$void" -eq 0 ]
}
