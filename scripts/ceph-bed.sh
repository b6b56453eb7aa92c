#!/usr/bin/env bash
# The smallest Ceph cluster that serves RBD: one monitor and one OSD (or three) on 127.0.0.1, in a
# folder of its own, with cephx and a pool called rbd. It is up in ten seconds and takes 100 MB.
#
# usage: ceph-bed.sh start DIR [PID]     builds and starts it in DIR, which is empty or not there, and
#                                        prints the settings for clients; it ends and DIR goes with
#                                        process PID, or it ends after BED_IDLE seconds
#        ceph-bed.sh stop DIR            ends its daemons and removes their data; logs and ceph.conf stay
#        ceph-bed.sh kill DIR DAEMON [SIGNAL]   sends osd.0 or mon.a a signal (KILL) and, of one
#                                        that ends it, waits for that
#        ceph-bed.sh revive DIR DAEMON   starts it again
#        ceph-bed.sh run DIR COMMAND...  start, COMMAND with CEPH_CONF set, stop
#   BED_OSDS=1           OSDs, each with a copy of everything
#   BED_STORE=bluestore  in a sparse file; what was acknowledged survives a kill. memstore is in memory
#   BED_BYTES=2147483648 room on an OSD
#   BED_IDLE=1800
set -euo pipefail
export PATH="$PATH:/usr/sbin:/sbin" LC_ALL=C

osds=${BED_OSDS:-1}
store=${BED_STORE:-bluestore}
bytes=${BED_BYTES:-2147483648}
idle=${BED_IDLE:-1800}

say() { printf 'ceph-bed: %s\n' "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# Two free ports of 127.0.0.1.
free_ports() {
    python3 -c 'import socket
held = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*[s.getsockname()[1] for s in held])'
}

# When a process began, so that none is ended that has only been given the number of one of ours.
began() { awk '{ sub(/^.*\) /, ""); if ($1 != "Z") print $20 }' "/proc/$1/stat" 2>/dev/null || true; }

is_ours() { # is_ours PID BEGAN
    [ -n "$2" ] && [ "$(began "$1")" = "$2" ]
}

# Whether threads are left of a process that has ended.
has_threads() { # has_threads PID BEGAN
    local found=(/proc/"$1"/task/*)
    [ "${#found[@]}" -gt 1 ] && [ "$(awk '{ sub(/^.*\) /, ""); print $20 }' "/proc/$1/stat" 2>/dev/null)" = "$2" ]
}

write_conf() { # write_conf FSID PORT1 PORT2
    cat >"$dir/ceph.conf" <<CONF
[global]
fsid = $1
mon host = [v2:127.0.0.1:$3/0,v1:127.0.0.1:$2/0]
mon initial members = a
public network = 127.0.0.0/8
ms bind ipv6 = false
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = $dir/keyring
run dir = $dir/run
log file = $dir/log/\$name.log
admin socket = $dir/run/\$name.asok
pid file = $dir/run/\$name.pid
osd pool default size = $osds
osd pool default min size = 1
osd pool default pg num = 8
osd pool default pgp num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
mon allow pool delete = true
mon warn on pool no redundancy = false
# Not even on a nearly full disk: a monitor that finds less room ends without a word.
mon data avail crit = -1
mon data avail warn = -1
auth allow insecure global id reclaim = false
[client]
log file =
admin socket =
# Looks for new addresses of a daemon sooner.
objecter tick interval = 0.5
objecter timeout = 1
[mon]
paxos propose interval = 0.1
mon tick interval = 1
mon osd min down reporters = 1
mon data = $dir/mon.\$id
mon cluster log file = $dir/log/cluster.log
[osd]
osd data = $dir/osd.\$id
osd objectstore = $store
osd op num shards = 2
osd op num threads per shard = 1
osd class load list = *
osd class default list = *
osd memory target = 1073741824
memstore device bytes = $bytes
bluestore block size = $bytes
bluestore block create = true
bluestore cache autotune = false
bluestore cache size = 67108864
CONF
    # memstore is one of those.
    [ "$store" != memstore ] ||
        sed -i '/^osd objectstore/a enable experimental unrecoverable data corrupting features = *' "$dir/ceph.conf"
}

launch() { # launch DAEMON: in a session of its own
    local kind=${1%%.*} id=${1#*.}
    local options=(-f -i "$id" -c "$dir/ceph.conf")
    [ "$kind" = mon ] || options+=(--keyring "$dir/$1/keyring")
    setsid "ceph-$kind" "${options[@]}" >>"$dir/log/$1.out" 2>&1 </dev/null &
    sed -i "/^$1 /d" "$dir/pids"
    echo "$1 $! $(began $!)" >>"$dir/pids"
}

wait_for() { # wait_for DAEMON COMMAND...
    local until=$((SECONDS + 120)) daemon=$1 pid began_at
    shift
    until "$@" >/dev/null 2>&1; do
        find_daemon "$daemon"
        is_ours "$pid" "$began_at" || die "$daemon has ended; room there: $(df -h --output=avail "$dir" | tail -1); see $dir/log"
        [ "$SECONDS" -lt "$until" ] || die "$daemon does not answer after two minutes: see $dir/log"
        sleep 0.1
    done
}

c() { timeout 20 ceph -c "$dir/ceph.conf" --connect-timeout 5 "$@"; }
osds_are_up() { c osd stat | grep -q "^$osds osds: $osds up"; }

start() { # start [PID]
    mkdir -p "$dir"
    [ -z "$(ls -A "$dir")" ] || die "$dir is not empty"
    dir=$(realpath "$dir")
    mkdir "$dir/log" "$dir/run" "$dir/mon.a"
    : >"$dir/pids"
    trap 'say "it could not be started: see $dir/log"; stop' ERR
    local port1 port2 fsid id uuid
    read -r port1 port2 <<<"$(free_ports)"
    fsid=$(cat /proc/sys/kernel/random/uuid)
    write_conf "$fsid" "$port1" "$port2"
    ceph-authtool --create-keyring "$dir/keyring" --gen-key -n mon. --cap mon 'allow *' >/dev/null
    ceph-authtool "$dir/keyring" --gen-key -n client.admin --cap mon 'allow *' --cap osd 'allow *' \
        --cap mgr 'allow *' >/dev/null
    monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$port2,v1:127.0.0.1:$port1]" \
        "$dir/monmap" >/dev/null
    ceph-mon --mkfs -i a --monmap "$dir/monmap" --keyring "$dir/keyring" -c "$dir/ceph.conf"
    launch mon.a
    watch "${1:-}"
    wait_for mon.a c mon stat
    for ((id = 0; id < osds; id++)); do
        mkdir "$dir/osd.$id"
        uuid=$(cat /proc/sys/kernel/random/uuid)
        c osd new "$uuid" >/dev/null
        c auth get-or-create "osd.$id" mon 'allow profile osd' mgr 'allow profile osd' osd 'allow *' \
            >"$dir/osd.$id/keyring"
        ceph-osd --mkfs -i "$id" --osd-uuid "$uuid" -c "$dir/ceph.conf" \
            --keyring "$dir/osd.$id/keyring" >"$dir/log/osd.$id.mkfs" 2>&1
        launch "osd.$id"
    done
    wait_for "osd.$((osds - 1))" osds_are_up
    c osd pool create rbd 8 8 >/dev/null 2>&1
    timeout 60 rbd -c "$dir/ceph.conf" pool init rbd
    trap - ERR
    echo "$dir/ceph.conf"
}

# Ends the cluster with a process, or in time.
watch() {
    # shellcheck disable=SC2016 # for the shell inside
    setsid bash -c 'if [ -n "$1" ]; then
            tail --pid="$1" -f /dev/null
            "$3" stop "$4"
            exec rm -rf "$4"
        fi
        sleep "$2"
        exec "$3" stop "$4"' bed-watch "$1" "$idle" "$(realpath "$0")" "$dir" >/dev/null 2>&1 </dev/null &
    echo "watch $! $(began $!)" >>"$dir/pids"
}

stop() {
    [ -f "$dir/pids" ] || die "there is no cluster in $dir"
    local tries alive name pid began_at signal
    for tries in $(seq 0 100); do
        alive=
        while read -r name pid began_at; do
            # The watch may be what calls this.
            case $pid in "$$" | "$PPID") continue ;; esac
            is_ours "$pid" "$began_at" || continue
            [ "$name" = watch ] || alive=1
            signal=
            [ "$tries" -ne 0 ] || signal=TERM
            [ "$tries" -lt 30 ] || signal=KILL
            [ -z "$signal" ] && continue
            # One that was stopped can be told nothing else.
            [ "$tries" -ne 0 ] || kill -CONT "$pid" 2>/dev/null || true
            # Each leads a group of its own; the watch is a shell that waits for another process.
            kill "-$signal" -- "-$pid" 2>/dev/null || true
        done <"$dir/pids"
        [ -n "$alive" ] || break
        sleep 0.1
    done
    rm -rf "$dir"/mon.* "$dir"/osd.* "$dir/run" "$dir/pids" "$dir/keyring" "$dir/monmap"
}

find_daemon() { # find_daemon DAEMON: sets pid and began_at
    read -r _ pid began_at <<<"$(grep "^$1 " "$dir/pids")" || true
    [ -n "${pid:-}" ] || die "there is no $1"
}

kill_daemon() { # kill_daemon DAEMON [SIGNAL]
    local signal=${2:-KILL} pid began_at
    find_daemon "$1"
    is_ours "$pid" "$began_at" || die "$1 does not run"
    kill "-$signal" "$pid"
    case $signal in
        KILL | TERM)
            # Its files and ports are free when the last of its threads has gone.
            while is_ours "$pid" "$began_at" || has_threads "$pid" "$began_at"; do sleep 0.05; done
            ;;
    esac
}

usage() {
    sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0" >&2
    exit 2
}

verb=${1:-} dir=${2:-}
[ -n "$dir" ] || usage
shift 2
case $verb in
    start) start "$@" ;;
    stop) stop ;;
    kill) kill_daemon "$@" ;;
    revive) launch "$1" ;;
    run)
        trap stop EXIT
        start >/dev/null
        CEPH_CONF="$(realpath "$dir")/ceph.conf" "$@"
        ;;
    *) usage ;;
esac
