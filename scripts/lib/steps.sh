# How the demos tell what they do: numbered steps, commands as one would type them, results.
# shellcheck shell=bash
# Wants: $work, the folder of the demo's files, and $xtent, the program, which are shortened.

if [ -t 1 ]; then
    bold=$'\e[1m' green=$'\e[32m' red=$'\e[31m' dim=$'\e[2m' plain=$'\e[0m'
else
    bold='' green='' red='' dim='' plain=''
fi

number=0
step() {
    number=$((number + 1))
    printf '\n%s%d. %s%s\n' "$bold" "$number" "$*" "$plain"
}
show() { # show COMMAND...: prints it as one would type it, and runs it
    local line="$*"
    line=${line//"$work"\//}
    printf '   %s$ %s%s\n' "$dim" "${line/#"$xtent"/xtent}" "$plain"
    "$@" | sed "s|$work/||g; s/^/   /"
}
good() {
    printf '   %s✓%s %s\n' "$green" "$plain" "$*"
}
failed() { # failed WHAT: for the trap
    printf '\n%s%s failed in step %d.%s\n' "$red" "$1" "$number" "$plain" >&2
}
