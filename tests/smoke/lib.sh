# Servers for the smoke tests: started on free ports, stopped by their process id.
# Sourced by the scripts in this folder. BLITZ is the path of the binary.

: "${BLITZ:?set the binary to test: BLITZ=target/release/blitz}"
tools="${CARGO_TARGET_DIR:-$PWD/target}/tools"
scratch=$(mktemp -d)
started=()
export PATH="$PATH:/usr/sbin"

cleanup() {
  local pid tries
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
  # Child processes of a browser may still write after it has ended.
  for tries in $(seq 50); do
    ! rm -rf "$scratch" 2>/dev/null || return 0
    sleep 0.1
  done
  rm -rf "$scratch"
}
trap cleanup EXIT

fail() {
  echo "$1" >&2
  # The end of the servers' logs.
  tail -n 20 "$scratch"/*.log >&2 2>/dev/null || true
  # Again, because CI shows only the last lines of a failed step.
  echo "$1" >&2
  exit 1
}

# claim_ports: gives this script a hundred ports that no script beside it gets. The lock is held until the script and
# the servers that it started have ended. They are not ports that the kernel gives to connections: those could take one
# before the server does.
claim_ports() {
  local folder="${TMPDIR:-/tmp}/blitz-smoke-ports" hundred
  mkdir -p "$folder"
  for hundred in $(shuf --input-range=100-326); do
    exec {claimed}>"$folder/$hundred"
    if flock --nonblock "$claimed"; then
      first_port=$((hundred * 100))
      return
    fi
    exec {claimed}>&-
  done
  fail 'other scripts hold all ports'
}
claim_ports

# free_port: prints a port that is unused over TCP and UDP, and that this script has not got before.
free_port() {
  python3 - "$scratch/ports" "$first_port" <<'PYTHON'
import random, socket, sys

given = open(sys.argv[1], "a+")
given.seek(0)
taken = {int(line) for line in given}
first = int(sys.argv[2])
for port in random.sample(range(first, first + 100), 100):
    if port in taken:
        continue
    try:
        with socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
    except OSError:
        continue
    print(port, file=given)
    print(port)
    sys.exit()
sys.exit("this script has no free port left")
PYTHON
}

# start NAME PORT COMMAND...: starts a server in the background and waits until it accepts connections.
start() {
  local name=$1 port=$2 tries
  shift 2
  "$@" >"$scratch/$name.log" 2>&1 &
  local pid=$!
  started+=("$pid")
  for tries in $(seq 400); do
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
  start "$name" "$port" "$BLITZ" run --control-listen off --listen "127.0.0.1:$port" --cores 1 "$@"
}

# start_nginx NAME PORT: runs nginx; standard input is part of its http block.
start_nginx() {
  local folder="$scratch/$1"
  # Started by root, nginx reads its files as another user.
  chmod 755 "$scratch"
  mkdir -p "$folder"
  {
    cat <<CONF
daemon off;
worker_processes 1;
pid $folder/pid;
events { worker_connections 1000; }
http {
  access_log off;
  client_max_body_size 0;
  client_body_temp_path $folder/body;
  proxy_temp_path $folder/proxy;
  fastcgi_temp_path $folder/fastcgi;
  uwsgi_temp_path $folder/uwsgi;
  scgi_temp_path $folder/scgi;
  keepalive_requests 1000000;
CONF
    cat
    echo '}'
  } >"$folder/conf"
  start "$1" "$2" nginx -e stderr -g 'error_log stderr;' -c "$folder/conf"
}

# repeat NAME COMMAND...: repeats the command in the background until "$scratch/stop" exists or a run fails.
# Its process id is the last in "${started[@]}", its output is in NAME.log.
repeat() {
  local name=$1
  shift
  (
    # Ends the current run with the loop.
    trap 'kill "$!"; wait; exit 1' TERM
    while [ ! -e "$scratch/stop" ]; do
      "$@" &
      wait "$!" || exit
    done
  ) >"$scratch/$name.log" 2>&1 &
  started+=("$!")
}

# all_succeeded FILE: whether the file has at least one report of h2load, and in each of them requests
# succeeded and none failed.
all_succeeded() {
  grep --quiet '^requests:' "$1" &&
    ! grep '^requests:' "$1" |
      grep --quiet --invert-match --extended-regexp ' [1-9][0-9]* succeeded, 0 failed, 0 errored, 0 timeout'
}

# build_example PACKAGE NAME: builds an example, unless the caller has built all of them.
build_example() {
  [ -n "${EXAMPLES_ARE_BUILT:-}" ] || cargo build --quiet --package "$1" --example "$2"
}

# start_grpc_server PORT: runs the service of gRPC's interoperability tests with tonic.
start_grpc_server() {
  build_example blitz-gateway grpc_server
  start grpc-server "$1" "${CARGO_TARGET_DIR:-target}/debug/examples/grpc_server" "$1"
}

# expect WHAT WANTED GOT: fails unless the texts are equal.
expect() {
  [ "$2" = "$3" ] || fail "$1: expected '$2', got '$3'"
}

# go_program: builds the program in tests/smoke/go; its path is "$smoke_go".
go_program() {
  build_go tests/smoke/go smoke-go
  smoke_go=$go_binary
}

# build_go FOLDER NAME: builds the Go program in a folder; its path is "$go_binary".
build_go() {
  mkdir -p "$tools/bin"
  go_binary="$(realpath "$tools")/bin/$2"
  [ ! -x "$tools/go/bin/go" ] || PATH="$(realpath "$tools")/go/bin:$PATH"
  (cd "$1" && GOTOOLCHAIN=local go build -o "$go_binary" .) || fail "$1 does not compile"
}
