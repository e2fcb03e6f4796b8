# Copyright The Refract Authors
# SPDX-License-Identifier: Apache-2.0
#
# Helpers of the scripts under hack/; sourced, never run.
# shellcheck shell=bash
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
. "$ROOT/hack/pins.env"

REFRACT_CACHE=${REFRACT_CACHE:-${XDG_CACHE_HOME:-${HOME:?set HOME or REFRACT_CACHE}/.cache}/refract}
LOGS=$REFRACT_CACHE/logs

die() { # die MESSAGE [REMEDY]
  printf 'error: %s\n' "$1" >&2
  [ -z "${2:-}" ] || printf 'remedy: %s\n' "$2" >&2
  exit 1
}

# tool_dir COMPONENT: the cache folder of one pinned component. test/support/testenv computes the same.
tool_dir() {
  local upper=${1^^} version recipe
  version=${upper}_VERSION recipe=${upper}_RECIPE
  echo "$REFRACT_CACHE/tools/$1-${!version}-r${!recipe}"
}

# step NUMBER TOTAL NAME COMMAND...: runs the command with its output in a log file, shows the seconds that pass, and on
# failure the end of that log.
step() {
  local label="[$1/$2] $3" log=$LOGS/$3.log start=$SECONDS ticker= status=0
  shift 3
  mkdir -p "$LOGS"
  if [ -t 1 ]; then
    printf '%s …' "$label"
    # Background jobs of a script do not get Ctrl-C: this one ends when the script has.
    while sleep 1 && kill -0 $$ 2>/dev/null; do printf '\r%s … %d s' "$label" $((SECONDS - start)); done &
    ticker=$!
  fi
  ("$@") >"$log" 2>&1 </dev/null || status=$?
  if [ -n "$ticker" ]; then
    kill "$ticker" 2>/dev/null
    wait "$ticker" 2>/dev/null || true
    printf '\r'
  fi
  if [ "$status" -ne 0 ]; then
    printf '%s … failed after %d s\n' "$label" $((SECONDS - start))
    tail -n 20 "$log" >&2
    die "${label#* } could not be built; the whole log is $log" "$(remedy_for "$log")"
  fi
  printf '%s … %d s\n' "$label" $((SECONDS - start))
}

# remedy_for LOG: what usually helps, judged by the log of a failed step.
remedy_for() {
  if grep -q 'No space left on device' "$1"; then
    echo "free some disk space, or point REFRACT_CACHE (and GOCACHE, GOMODCACHE) at a larger file system"
  elif grep -qE 'dial tcp|no such host|proxyconnect|i/o timeout|Temporary failure resolving' "$1"; then
    echo "the Go module proxy ($(go env GOPROXY)) and the Debian mirror must be reachable; run it again when they are"
  else
    echo "read the log, then run 'make tools' again: what is finished is kept"
  fi
}

# need_apt PACKAGE...: installs the Debian packages that are missing.
need_apt() {
  local missing=() p
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  command -v apt-get >/dev/null || die "missing: ${missing[*]}" "install them with this system's package manager"
  [ "$(id -u)" = 0 ] || die "missing Debian packages: ${missing[*]}" "sudo apt-get install --no-install-recommends ${missing[*]}"
  mkdir -p "$LOGS"
  echo "installing Debian packages: ${missing[*]}"
  local install=(apt-get install -y --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}")
  export DEBIAN_FRONTEND=noninteractive
  # The package lists are fetched only when it does not work without: that takes a while.
  { "${install[@]}" || { apt-get update && "${install[@]}"; }; } >"$LOGS/apt.log" 2>&1 </dev/null || {
    tail -n 20 "$LOGS/apt.log" >&2
    die "apt-get could not install ${missing[*]}; the whole log is $LOGS/apt.log" \
      "check the network and /etc/apt/sources.list*: Debian 12 (bookworm) main has all of them"
  }
}

need_go() {
  command -v go >/dev/null || die "no 'go' on PATH" "install Go 1.26 or later: https://go.dev/dl/"
  local v
  v=$(go env GOVERSION) v=${v#go1.}
  [ "${v%%[!0-9]*}" -ge 26 ] || die "$(go version) is too old" "install Go 1.26 or later: https://go.dev/dl/"
}

# need_disk GIB DIR: the file system of DIR has that much room.
need_disk() {
  local free
  mkdir -p "$2"
  free=$(($(df --output=avail -k "$2" | tail -n 1) / 1048576))
  [ "$free" -ge "$1" ] || die "$2 has $free GiB free, the build needs about $1" "free some space, or point REFRACT_CACHE, GOCACHE and GOMODCACHE elsewhere"
}
