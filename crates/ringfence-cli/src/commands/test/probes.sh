# Runs in the sandbox. Arguments come in threes: a function, its number, its target.
# A function succeeds if the attempt succeeds; 127 means that the tool for it is missing.
# The content of a file is never printed: it might be a secret.
LC_ALL=C
export LC_ALL

# A file may be shown as empty: it was read only if it has a byte.
look() { head -c 1 -- "$1" | grep -q '^'; }
list() { ls -- "$1" >/dev/null; }
make() { true >"$1" && rm -f -- "$1"; }
append() { true >>"$1"; }
leave() { true >"$1"; }
variable() { env | grep -q "^$1=" || grep -aqs "$1=" /proc/[0-9]*/environ; }

# A pid in here is not the host's: a process in here with the same pid is not signalled.
signal() {
    if [ "$1" = 1 ] || [ "$1" = "$$" ]; then return 1; fi
    kill -TERM "$1"
}

namespaces() {
    command -v unshare >/dev/null || return 127
    unshare --user --map-root-user --mount true
}

# Looks for an interface other than the loopback; sends nothing.
interface() { grep -v -e 'lo:' -e '|' /proc/net/dev | grep -q :; }

connect() {
    if command -v bash >/dev/null && command -v timeout >/dev/null; then
        timeout 3 bash -c 'exec 3<>"/dev/tcp/${1% *}/${1#* }"' bash "$1"
    elif command -v python3 >/dev/null; then
        python3 -c 'import socket, sys; socket.create_connection(sys.argv[1].split(), 3)' "$1"
    else
        return 127
    fi
}

while [ $# -ge 3 ]; do
    message=$("$1" "$3" 2>&1 </dev/null)
    printf '%s\037%s\037%s\036' "$2" "$?" "$message"
    shift 3
done
