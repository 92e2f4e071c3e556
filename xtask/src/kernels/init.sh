#!/bin/busybox sh
# The first program of the machine that `cargo xtask kernels` boots. Each check is one line:
# CHECK, the row, the column, and `ok` or what was seen instead.

b=/bin/busybox

# The kernel lets nobody replace the root that it unpacked an archive into.
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
chmod 1777 /tmp
for module in /modules/*.ko; do
    [ -e "$module" ] && insmod "$module"
done
printf 'root:x:0:0:root:/root:/bin/sh\nperson:x:1000:1000:person:/home/person:/bin/sh\n' > /etc/passwd
# Caches are looked for where there are tools that use them.
ln -s /bin/busybox /bin/node
echo "KERNEL $(uname -r)"

# A home with a project and secrets in it.
furnish() {
    mkdir -p "$1/.ssh" "$1/.yarn" "$1/app/.git/hooks" "$1/other" "$1/plain"
    echo secret > "$1/.ssh/id_rsa"
    echo secret > "$1/app/.env"
    echo theirs > "$1/other/file"
    echo 'ref: refs/heads/main' > "$1/app/.git/HEAD"
    # Something to build: only then are the host's caches laid under the project's own.
    echo '{}' > "$1/app/package.json"
    echo there > "$1/.yarn/old"
}
furnish /root
furnish /home/person
chown -R person /home/person

# check ROW COLUMN EXPECTED SCRIPT: what the script says, as the user and in the project.
check() {
    said=$(su "$user" -c "$4" 2>/tmp/talk </dev/null)
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
    # In a project without secrets: there the lookout finds no cover that is used already.
    check "$1" late yes "cd ~/plain && rm -f * .env
        { until [ -e started ]; do sleep 0.1; done; echo secret > .env; touch there; } &
        ringfence run -c 'touch started; until [ -e there ]; do sleep 0.1; done; sleep 1; cat .env || echo yes'"
    check "$1" told "$2" "ringfence run --json -- cat .env | grep -o '\"blocked\":[a-z]*'"
}

for user in root person; do
    if [ "$user" = root ]; then cd /root/app; else cd /home/person/app; fi
    if [ -e /dev/fuse ]; then
        chmod 666 /dev/fuse
        trials "$user, /dev/fuse" '"blocked":true'
        mv /dev/fuse /dev/away
    fi
    trials "$user, no /dev/fuse" '"blocked":false'
    [ -e /dev/away ] && mv /dev/away /dev/fuse
done
echo END
poweroff -f
