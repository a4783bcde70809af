# Stages made of steps, with time limits, logs and a closing line. Sourced by .ci/run.

logs="${CARGO_TARGET_DIR:-$PWD/target}/ci"
mkdir -p "$logs"
passed=0
failed=0
void=0

# Exit code of a step whose result is void: EX_TEMPFAIL of sysexits(3).
VOID=75

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
  green=$'\e[32m' red=$'\e[31m' yellow=$'\e[33m' plain=$'\e[0m'
else
  green='' red='' yellow='' plain=''
fi

# step NAME SECONDS COMMAND...: runs the command, prints one line, counts the result.
step() {
  local name=$1 limit=$2 start=$SECONDS code=0
  shift 2
  timeout --kill-after=10 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null || code=$?
  local took=$((SECONDS - start))
  if [ "$code" -eq 0 ]; then
    passed=$((passed + 1))
    printf '%spassed%s  %-18s %4d s\n' "$green" "$plain" "$name" "$took"
    sed -n 's/^flaky: /        flaky: /p' "$logs/$name.log"
    return
  fi
  if [ "$code" -eq "$VOID" ]; then
    void=$((void + 1))
    printf '%svoid%s    %-18s %4d s  void, repeat: %s\n' "$yellow" "$plain" "$name" "$took" "$*"
    tail -n 40 "$logs/$name.log" | sed 's/^/        /'
    return
  fi
  failed=$((failed + 1))
  local why="exit code $code"
  [ "$code" -ne 124 ] || why="not done after $limit s"
  printf '%sfailed%s  %-18s %4d s  %s: %s\n' "$red" "$plain" "$name" "$took" "$why" "$*"
  tail -n 40 "$logs/$name.log" | sed 's/^/        /'
}

# side_by_side FUNCTION ITEM...: calls the function with each item, in two lanes, each of which takes the next item that
# none has taken. The lines of a lane are printed when both have ended.
side_by_side() {
  local call=$1 lane folder counts
  shift
  folder=$(mktemp -d)
  for lane in 0 1; do
    (
      passed=0 failed=0 void=0 at=0
      for item in "$@"; do
        at=$((at + 1))
        mkdir "$folder/$at" 2>/dev/null || continue
        "$call" "$item"
      done
      echo "$passed $failed $void" >"$folder/$lane.counts"
    ) >"$folder/$lane.lines" 2>&1 &
  done
  wait
  for lane in 0 1; do
    cat "$folder/$lane.lines"
    # A lane without counts has not ended in order.
    read -r -a counts <"$folder/$lane.counts" || counts=(0 1 0)
    passed=$((passed + counts[0])) failed=$((failed + counts[1])) void=$((void + counts[2]))
  done
  rm -r "$folder"
}

# The declared stages, in order.
stages=()
declare -A stage_in=() stage_minutes=() stage_title=()

# stage NAME plain|full MINUTES TITLE: declares a stage; the function stage_NAME runs its steps. A stage
# that is `full` is only part of --full.
stage() {
  stages+=("$1")
  stage_in[$1]=$2 stage_minutes[$1]=$3 stage_title[$1]=$4
}

# stages_of plain|full: prints the names of the stages of a run.
stages_of() {
  local name
  for name in "${stages[@]}"; do
    [ "$1" != full ] && [ "${stage_in[$name]}" = full ] || echo "$name"
  done
}

# list_stages: prints all stages with their times.
list_stages() {
  local name full
  for name in "${stages[@]}"; do
    full=''
    [ "${stage_in[$name]}" = plain ] || full='--full'
    printf '%-14s %-6s  about %3s min  %s\n' "$name" "$full" "${stage_minutes[$name]}" "${stage_title[$name]}"
  done
}

# revision: prints the identity of the files in the checkout, committed or not.
revision() {
  local index
  index=$(mktemp)
  cp "$(git rev-parse --git-path index)" "$index"
  GIT_INDEX_FILE=$index git add --all
  GIT_INDEX_FILE=$index git write-tree
  rm -f "$index"
}

declare -A has_run=()

# need STAGE...: runs these stages, on which the current one depends, unless they have run. Several run side by side.
need() {
  local name missing=()
  for name in "$@"; do [ -n "${has_run[$name]:-}" ] || missing+=("$name"); done
  if [ "${#missing[@]}" -lt 2 ]; then
    for name in "${missing[@]}"; do run_stage "$name"; done
    return
  fi
  side_by_side run_stage "${missing[@]}"
  # The lanes are processes of their own.
  for name in "${missing[@]}"; do has_run[$name]=yes; done
}

# Stages that run side by side with another one if both are wanted: they have different bottlenecks or leave a core idle.
declare -A beside=()

# run_stage NAME: runs a stage once, prints its time, and records the revision if all its steps passed.
run_stage() {
  local name=$1 start=$SECONDS before=$((failed + void)) outcome=failed
  [ -z "${has_run[$name]:-}" ] || return 0
  has_run[$name]=yes
  "stage_$name"
  if [ $((failed + void)) -eq "$before" ]; then
    outcome=passed
    echo "$revision" >"$(stage_record "$name")"
  fi
  local took=$((SECONDS - start)) over=''
  [ "$took" -le $((stage_minutes[$name] * 60)) ] || over=", in more than its ${stage_minutes[$name]} min"
  printf 'stage   %-18s %4d s  %s%s\n' "$name" "$took" "$outcome" "$over"
}

# has_passed NAME: whether the stage has passed for exactly this revision.
has_passed() {
  [ "$(cat "$(stage_record "$1")" 2>/dev/null)" = "$revision" ]
}

# stage_record NAME: prints the file with the revision for which the stage has passed. Each kind of run has its
# own records, because a stage may take longer in --full.
stage_record() { echo "$logs/$1.$kind.passed"; }

# Prints the last line and returns the exit code: 0 only without failed and void steps.
closing_line() {
  local colour=$green void_text=''
  if [ "$void" -ne 0 ]; then
    colour=$yellow void_text=", $void void, repeat"
  fi
  [ "$failed" -eq 0 ] || colour=$red
  printf '%s%d passed, %d failed%s%s\n' "$colour" "$passed" "$failed" "$void_text" "$plain"
  [ "$failed" -eq 0 ] && [ "$void" -eq 0 ]
}
