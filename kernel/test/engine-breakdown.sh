#!/usr/bin/env bash
# Where the time of XTS over an ECB engine goes, for runs cut to 512 bytes, to 4096
# bytes, and not at all: the rows of the tables of Demir et al. Runs in User Mode
# Linux on one CPU, with requests of 1 MiB to a RAM disk of 512-byte sectors, each request
# to the engine after the other. Prints Markdown: of several rounds, in each of which all
# figures are measured, the quickest for each.
#
# usage: engine-breakdown.sh [ROUNDS]    (5)
set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
rounds=${1:-5}
if ! [ "$rounds" -ge 1 ] 2>/dev/null; then
    sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | sed '$d' >&2
    exit 2
fi
export CONFIG_XTENT_RUN_TEST=m
modules=$("$here/build.sh" uml)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/job" <<JOB
insmod /in/dm-xtent.ko timing=1 && modprobe cryptd && insmod /in/xtent_run_test.ko || exit 1
rmmod brd
modprobe brd rd_nr=1 rd_size=16384
key=000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f
# measure NAME ENGINE CUT MEGABYTES: the counters before and after each direction
measure() {
    [ \$3 = 1048576 ] && options="1 in_flight:1" || options="2 in_flight:1 request_size:\$3"
    dmsetup create d --noudevrules --noudevsync --table "0 32768 xtent engine:\$2-plain64 \$key 0 /dev/ram0 0 \$options" || exit 1
    dmsetup mknodes d
    for direction in encryption decryption; do
        if [ \$direction = encryption ]; then
            set -- "\$@" if=/dev/zero of=/dev/mapper/d oflag=direct
        else
            set -- "\$1" "\$2" "\$3" "\$4" if=/dev/mapper/d of=/dev/null iflag=direct
        fi
        # Once before, for what is allocated on first use.
        dd bs=1M count=1 "\$5" "\$6" "\$7" 2>/dev/null || exit 1
        echo "BEFORE \$1 \$direction \$3 \$(dmsetup status d)"
        dd bs=1M count=\$4 "\$5" "\$6" "\$7" 2>/dev/null || exit 1
        echo "AFTER \$1 \$direction \$3 \$(dmsetup status d)"
    done
    dmsetup remove d --noudevrules --noudevsync
}
round=0
while [ \$round -lt $rounds ]; do
    for cut in 512 4096 1048576; do
        measure cryptd "cryptd(ecb(aes-generic))" \$cut 16
        for cost in 0 1 2 5 10 25; do
            echo \$cost >/sys/module/xtent_run_test/parameters/cost_us
            measure \$cost ecb-xtent-test \$cut 2
        done
    done
    round=\$((round + 1))
done
JOB
"$root/scripts/guest.sh" --file "dm-xtent.ko=$modules/dm-xtent.ko" \
    --file "xtent_run_test.ko=$modules/xtent_run_test.ko" \
    --timeout 110 "$work/job" >"$work/log" || {
    cat "$work/log" >&2
    exit 1
}

awk '
function value(name,  i) {
    for (i = 1; i <= NF; i++) if ($i == name) return $(i + 1)
    return 0
}
function row(title, names,  n, list, i, j, cell) {
    n = split(names, list, " ")
    printf "| %s", title
    for (i = 1; i <= 6; i++) {
        cell = 0
        for (j = 1; j <= n; j++) cell += got[column[i], list[j]] / units[column[i]]
        printf " | %.0f", cell
    }
    print " |"
}
function table(name, title,  i, c, sum, j) {
    i = 0
    for (d = 1; d <= 2; d++) for (c = 1; c <= 3; c++) column[++i] = name " " directions[d] " " cuts[c]
    printf "\n%s\n\n", title
    print "| ns per 512 bytes | encryption, 512 | 4096 | 1 MiB | decryption, 512 | 4096 | 1 MiB |"
    print "|---|---|---|---|---|---|---|"
    row("total in the driver", "total")
    row("tweak computation", "tweak iv_engine")
    row("of it, IVs in the engine", "iv_engine")
    row("first XOR", "xor1")
    row("second XOR", "xor2")
    row("engine", "engine")
    row("other", "other")
    printf "| total for a run of that size, us"
    for (i = 1; i <= 6; i++) printf " | %.1f", got[column[i], "total"] / runs[column[i]] / 1000
    print " |"
    printf "| speed, 512 = 1"
    for (i = 1; i <= 6; i++) {
        c = column[i <= 3 ? 1 : 4]
        printf " | %.2f", (got[c, "total"] / units[c]) / (got[column[i], "total"] / units[column[i]])
        # Rounding aside, the rows are the total.
        sum = 0
        for (j = 1; j <= 6; j++) sum += got[column[i], parts[j]]
        if (sum < got[column[i], "total"] * 0.999 || sum > got[column[i], "total"] * 1.001) bad = 1
    }
    print " |"
}
# What a request costs beside its data, by what 512 bytes cost in a long one.
function curve(  n, list, i, e, short, page, long) {
    printf "\n%s\n\n", "An engine (`ecb-xtent-test`) with more and more fixed costs for each request, encryption"
    print "| added us | total, ns per 512 bytes, 512 | 4096 | 1 MiB | fixed cost / 512 bytes | speed of 4096 | of 1 MiB |"
    print "|---|---|---|---|---|---|---|"
    n = split("0 1 2 5 10 25", list, " ")
    for (i = 1; i <= n; i++) {
        short = list[i] " encryption 512"; page = list[i] " encryption 4096"; long = list[i] " encryption 1048576"
        e = got[long, "engine"] / units[long]
        printf "| %s | %.0f | %.0f | %.0f | %.1f | %.2f | %.2f |\n", list[i], best[short], best[page], best[long],
            (got[short, "engine"] / units[short] - e) / e, best[short] / best[page], best[short] / best[long]
    }
}
BEGIN {
    split("tweak iv_engine xor1 xor2 engine other", parts, " ")
    split("encryption decryption", directions, " ")
    split("512 4096 1048576", cuts, " ")
}
function note(into,  i) {
    for (i = 1; i <= 6; i++) into[parts[i]] = value(parts[i])
    into["total"] = value("total")
    into["units"] = value($3 == "encryption" ? "write_sectors" : "read_sectors")
    into["runs"] = value("requests") / 2
}
$1 == "BEFORE" { note(before) }
$1 == "AFTER" {
    note(after)
    id = $2 " " $3 " " $4
    cost = (after["total"] - before["total"]) / (after["units"] - before["units"])
    if (!(id in best) || cost < best[id]) {
        best[id] = cost
        for (i = 1; i <= 6; i++) got[id, parts[i]] = after[parts[i]] - before[parts[i]]
        got[id, "total"] = after["total"] - before["total"]
        units[id] = after["units"] - before["units"]
        runs[id] = after["runs"] - before["runs"]
    }
}
END {
    table("cryptd", "`cryptd(ecb(aes-generic))`: an asynchronous engine in software")
    curve()
    if (bad) { print "the rows do not sum to the total" >"/dev/stderr"; exit 1 }
}' "$work/log"
