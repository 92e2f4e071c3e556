#!/bin/busybox sh
# The init of the virtual machine that `cargo xtask kernels` boots. Each check prints one line:
# CHECK, the row, the column, and `ok` or the unexpected output.

b=/bin/busybox

# pivot_root does not work on the initial rootfs.
if [ -z "$MOVED" ]; then
    $b mkdir /new && $b mount -t tmpfs root /new && $b cp -a /bin /modules /init /new/ || $b poweroff -f
    export MOVED=yes
    exec $b switch_root /new /init
fi

$b --install -s /bin
export PATH=/bin
mkdir -p proc sys dev etc tmp usr home/person root
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
# cgroup v2, with controllers enabled at the top.
groups=/sys/fs/cgroup
seat=
if mount -t cgroup2 groups $groups 2>/dev/null; then
    echo '+memory +pids' > $groups/cgroup.subtree_control
    seat=$groups
fi

# give GROUP…: creates cgroups owned by the ordinary user.
give() {
    for group in "$@"; do
        mkdir $groups/$group
        chown 1000 $groups/$group $groups/$group/cgroup.procs $groups/$group/cgroup.subtree_control
    done
}
chmod 1777 /tmp
for module in /modules/*.ko; do
    [ -e "$module" ] && insmod "$module"
done
printf 'root:x:0:0:root:/root:/bin/sh\nperson:x:1000:1000:person:/home/person:/bin/sh\n' > /etc/passwd
# Caches are set up only for installed tools.
ln -s /bin/busybox /bin/node
echo "KERNEL $(uname -r)"

# A home directory with a project and secrets.
furnish() {
    mkdir -p "$1/.ssh" "$1/.yarn" "$1/app/.git/hooks" "$1/other" "$1/plain"
    echo secret > "$1/.ssh/id_rsa"
    echo secret > "$1/app/.env"
    echo theirs > "$1/other/file"
    echo 'ref: refs/heads/main' > "$1/app/.git/HEAD"
    # With a package.json the host's cache is visible below the project's own cache.
    echo '{}' > "$1/app/package.json"
    echo there > "$1/.yarn/old"
}
furnish /root
furnish /home/person
chown -R person /home/person

# check ROW COLUMN EXPECTED SCRIPT: compares the output of the script, run as the user, in the
# project and in the cgroup. Only the last program of the script stays in it.
check() {
    said=$(sh -c '[ -z "$0" ] || echo $$ > "$0/cgroup.procs"; exec su "$1" -c "$2"' "$seat" "$user" "$4" 2>/tmp/talk </dev/null)
    if [ "$said" = "$3" ]; then
        echo "CHECK|$1|$2|ok"
    else
        echo "CHECK|$1|$2|$(echo "$said" | cat - /tmp/talk | tr '\n|' '  ')"
    fi
}

trials() {
    check "$1" doctor yes 'said=$(ringfence doctor) && echo yes || echo "$said" | grep -A2 cause'
    check "$1" test yes 'said=$(ringfence test) && echo yes || echo "$said" | grep ✗'
    check "$1" work yes "ringfence run -c 'mkdir a && echo yes > a/b && mv a/b a/c && cat a/c && rm -r a'"
    check "$1" cache 'there yes' "ringfence run -c 'cd ~/.yarn; echo yes > new; echo \$(cat old new)'; cat ~/.yarn/new"
    check "$1" shut yes "ringfence run -c 'cat .env || echo > .env.new || mkdir .vscode || cat ~/other/file || echo yes'"
    # In a project without secrets: there the watcher has no prepared mask.
    check "$1" late yes "cd ~/plain && rm -f * .env
        { until [ -e started ]; do sleep 0.1; done; echo secret > .env; touch there; } &
        ringfence run -c 'touch started; until [ -e there ]; do sleep 0.1; done; sleep 1; cat .env || echo yes'"
    check "$1" told "$2" "ringfence run --json -- cat .env | grep -o '\"evidence\":\"[a-z]*'"
}

# heard ROW COLUMN WORDS COMMAND: checks that `ringfence`, alone in its cgroup, prints these words
# and leaves no cgroup.
heard() {
    # The first process that is alone in a cgroup divides it, so each check gets a new one.
    case $seat in */alone*) give "alone-$2" && seat=$groups/alone-$2 ;; esac
    check "$1" "$2" '' "exec ringfence $4 > /tmp/said"
    grep -q "$3" /tmp/said || echo "CHECK|$1|$2|$(tr '\n|' '  ' < /tmp/said)"
    left=$(find $groups -name 'ringfence-*')
    [ -z "$left" ] || echo "CHECK|$1|$2|$left"
}

grouped() {
    heard "$1" counts 'v2 counts memory.*CPU time' doctor
    heard "$1" memory '"limit":"memory"' 'run --json --limit memory=20MiB -- sh -c "for at in /tmp /dev/shm; do head -c 15000000 /dev/zero > \$at/x; done; sleep 9"'
    heard "$1" cpu '"limit":"cpu"' 'run --json --limit cpu=500ms -- sh -c "while :; do :; done"'
    heard "$1" processes '"limit":"processes"' 'run --json --limit processes=20 -- sh -c "f() { f | f & }; f; sleep 99"'
}

if [ -n "$seat" ]; then
    chmod 1777 /tmp && touch /tmp/said && chmod 666 /tmp/said
    user=root; cd /root/app
    grouped 'root, at the top'
    user=person; cd /home/person/app
    give given given/ringfence
    for name in given/ringfence alone; do
        seat=$groups/$name
        grouped "person, $name"
    done
    seat=$groups
fi
for user in root person; do
    if [ "$user" = root ]; then cd /root/app; else cd /home/person/app; fi
    if [ -e /dev/fuse ]; then
        chmod 666 /dev/fuse
        trials "$user, /dev/fuse" '"evidence":"kernel'
        mv /dev/fuse /dev/away
    fi
    trials "$user, no /dev/fuse" '"evidence":"guessed'
    [ -e /dev/away ] && mv /dev/away /dev/fuse
done
echo END
poweroff -f
