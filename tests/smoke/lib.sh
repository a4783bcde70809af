# Servers for the smoke tests: started on free ports, ended by their own process id.
# Sourced by the scripts beside it. BLITZ names the binary.

: "${BLITZ:?say which binary to test: BLITZ=target/release/blitz}"
tools="${CARGO_TARGET_DIR:-$PWD/target}/tools"
scratch=$(mktemp -d)
started=()
export PATH="$PATH:/usr/sbin"

cleanup() {
  local pid
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$scratch"
}
trap cleanup EXIT

fail() {
  echo "$1" >&2
  # What the servers said is what one needs to know next.
  tail -n 20 "$scratch"/*.log >&2 2>/dev/null || true
  exit 1
}

# free_port: prints a TCP port that nobody listens on.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start NAME PORT COMMAND...: runs a server in the background and waits until it accepts.
start() {
  local name=$1 port=$2 tries
  shift 2
  "$@" >"$scratch/$name.log" 2>&1 &
  local pid=$!
  started+=("$pid")
  for tries in $(seq 100); do
    if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then return; fi
    kill -0 "$pid" 2>/dev/null || fail "$name ended before it accepted a connection"
    sleep 0.05
  done
  fail "$name does not accept connections on port $port"
}

# start_blitz NAME PORT FLAGS...: runs the binary under test on 127.0.0.1:PORT.
start_blitz() {
  local name=$1 port=$2
  shift 2
  start "$name" "$port" "$BLITZ" run --listen "127.0.0.1:$port" --cores 1 "$@"
}

# expect WHAT WANTED GOT: compares two texts.
expect() {
  [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}
