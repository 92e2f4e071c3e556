# Runs in the sandbox. Arguments come in threes: a deed, its number, its target.
# A deed succeeds if what it names can be done; 127 means that the tool for it is missing.
# What a deed reads is never printed: it might be a secret.
LC_ALL=C
export LC_ALL

# A file may be shown as empty: it was read if there is a byte of it.
look() { head -c 1 -- "$1" | grep -q '^'; }
list() { ls -- "$1" >/dev/null; }
make() { true >"$1" && rm -f -- "$1"; }
append() { true >>"$1"; }
leave() { true >"$1"; }
variable() { env | grep -q "^$1=" || grep -aqs "$1=" /proc/[0-9]*/environ; }

# Numbers in here are not the host's: what happens to have the same one is spared.
signal() {
    if [ "$1" = 1 ] || [ "$1" = "$$" ]; then return 1; fi
    kill -TERM "$1"
}

namespaces() {
    command -v unshare >/dev/null || return 127
    unshare --user --map-root-user --mount true
}

# A way out is an interface besides the loopback; nothing is sent anywhere to find out.
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
    said=$("$1" "$3" 2>&1 </dev/null)
    printf '%s\037%s\037%s\036' "$2" "$?" "$said"
    shift 3
done
