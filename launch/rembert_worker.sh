#!/usr/bin/env bash
# Runs on every worker of a TPU slice: creates the environment; starts, shows and stops the run of the machine.
# launch.tpu_vm and launch.queued_resource copy it to the home directory and call it over ssh:
#
#   rembert_worker.sh setup PYTHON          code and environment, from ~/rembert_code.tar.gz; can be repeated
#   rembert_worker.sh start COMMAND …       under launch.supervise, detached; rejected during a run
#   rembert_worker.sh status                one line: rembert-launch HOST idle|running|ended|lost CODE MOMENT
#   rembert_worker.sh logs LINES [follow]
#   rembert_worker.sh stop SECONDS          SIGTERM, with a timeout for saving
set -euo pipefail

readonly folder="$HOME/rembert-launch"
readonly code="$folder/code" venv="$folder/venv" run="$folder/run"
readonly refused=73 # sysexits.h, EX_CANTCREAT

say() { echo "$(hostname): $*"; }

fail() {
  echo "$(hostname): $1" >&2
  exit "${2:-1}"
}

# All processes of the run hold the lock, and no others: it is free when the last one has ended,
# in any way, which a process id in a file could not show.
is_running() { ! flock --nonblock "$run/lock" true; }

setup() {
  local python=$1 recipe
  exec 8> "$folder/setup.lock"
  flock 8
  is_running && fail 'a run is in progress with this code; stop it first' "$refused"

  rm -rf "$code.new" "$code.old"
  mkdir "$code.new"
  tar --extract --gzip --file="$HOME/rembert_code.tar.gz" --directory="$code.new"
  [[ ! -e $code ]] || mv "$code" "$code.old"
  mv "$code.new" "$code"
  rm -rf "$code.old"

  recipe=$(cat "$code/requirements.txt" "$HOME/rembert_worker.sh" <(echo "$python") | sha256sum)
  if [[ -e $venv/.made-from && $(< "$venv/.made-from") == "$recipe" ]]; then
    say 'code updated, environment unchanged'
    return
  fi
  # Ubuntu 22.04 of the TPU runtimes has Python 3.10, so uv downloads a newer one. A pip that ignores the variable, as
  # in 22.04, does not need it.
  say "creating the environment with Python $python (takes minutes)"
  PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user --disable-pip-version-check uv
  rm -rf "$venv"
  python3 -m uv venv --quiet --python "$python" "$venv"
  # The lock file, then additional packages for TPUs: libtpu, at the version that the locked JAX requires, and the
  # client with which Orbax deletes in a bucket.
  python3 -m uv pip install --quiet --python "$venv/bin/python" --no-deps --requirement "$code/requirements.txt"
  python3 -m uv pip install --quiet --python "$venv/bin/python" --constraint "$code/requirements.txt" \
    'jax[tpu]' 'google-cloud-storage>=2.18'
  echo "$recipe" > "$venv/.made-from"
  say 'environment is ready'
}

start() {
  [[ -e $venv/.made-from ]] || fail 'no environment; run setup first'
  exec 9> "$run/lock"
  flock --nonblock 9 || fail 'a run is already in progress' "$refused"
  rm -f "$run/pid" "$run/exit_code"
  # A separate session outlives the ssh connection, and requires neither root (systemd-run), nor a user's systemd with
  # lingering, nor a terminal (tmux). It does not outlive a reboot, which
  # `launch.queued_resource watch` detects.
  setsid bash "$HOME/rembert_worker.sh" supervise "$@" >> "$run/log" 2>&1 < /dev/null &
  for _ in {1..100}; do
    [[ ! -e $run/pid ]] || break
    sleep 0.1
  done
  [[ -e $run/pid ]] || fail 'the run did not start within ten seconds: see the log'
  say 'started'
}

supervise() {
  local ended=0
  cd "$code"
  export PATH="$venv/bin:$PATH" PYTHONUNBUFFERED=1
  echo "$(date --utc --iso-8601=seconds) $(hostname): ${*@Q}"
  python -m launch.supervise -- "$@" &
  echo $! > "$run/pid.new"
  mv "$run/pid.new" "$run/pid"
  wait $! || ended=$?
  echo "$ended" > "$run/exit_code.new"
  mv "$run/exit_code.new" "$run/exit_code" # atomically: an empty file would mean an end without a code
  echo "$(date --utc --iso-8601=seconds) $(hostname): ended with $ended"
}

status() {
  local state=idle ended=- file=$run
  if is_running; then
    state=running file=$run/pid
  elif [[ -e $run/exit_code ]]; then
    state=ended ended=$(< "$run/exit_code") file=$run/exit_code
  elif [[ -e $run/pid ]]; then
    state=lost file=$run/pid # no process could write a code: a reboot, or SIGKILL for all
  fi
  echo "rembert-launch $(hostname) $state $ended $(date --utc --iso-8601=seconds --reference="$file")"
}

logs() { tail --lines="$1" ${2:+--follow=name} "$run/log"; }

stop() {
  local left=$1
  is_running || {
    say 'no run in progress'
    return
  }
  kill -TERM "$(< "$run/pid")"
  while is_running; do
    ((left-- > 0)) || fail "the run has not stopped within $1 s; it may still be saving"
    sleep 1
  done
  say "stopped with $(cat "$run/exit_code" 2> /dev/null || echo 'no exit code')"
}

main() {
  mkdir -p "$run"
  case ${1:-} in
    setup) setup "$2" ;;
    start) start "${@:2}" ;;
    supervise) supervise "${@:2}" ;;
    status) status ;;
    logs) logs "${@:2}" ;;
    stop) stop "$2" ;;
    *) fail "unknown: ${*@Q}" 2 ;;
  esac
}

# On one line, since a shell reads its script while it runs, and setup may replace this file meanwhile.
main "$@"; exit
