#!/usr/bin/env bash
# Builds Verilator models of the co-processor, as shared libraries that xtent-engine-sim opens.
#
# usage: model.sh [--trace] [--models FOLDER] NAME...
#        model.sh --list
#
#   NAME      a design of designs.txt; its model is FOLDER/NAME.so
#   --trace   models that can write all signals to a file, and are slower: FOLDER/NAME-trace.so
#   --models  where to build, target/rtl/cosim if it is not said
#   --list    shows the names
#
# Quick when nothing has changed. Needs what scripts/setup.sh rtl installs.
set -euo pipefail
cosim=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rtl=$(dirname "$cosim")
models=${CARGO_TARGET_DIR:-$rtl/../target}/rtl/cosim
trace=()
names=()

usage() {
    sed -n '2,13s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

# name, parameters
designs() {
    sed 's/#.*//; /^[[:space:]]*$/d' "$cosim/designs.txt"
}

while [ $# -gt 0 ]; do
    case $1 in
    --list)
        designs | awk '{ print $1 }'
        exit
        ;;
    --trace) trace=(--trace) ;;
    --models)
        [ $# -gt 1 ] || usage
        models=$2
        shift
        ;;
    -*) usage ;;
    *) names+=("$1") ;;
    esac
    shift
done
[ ${#names[@]} -gt 0 ] || usage
command -v verilator >/dev/null || {
    echo "model.sh: there is no verilator: run scripts/setup.sh rtl" >&2
    exit 1
}
mkdir -p "$models"
# Verilator's makefiles run elsewhere.
models=$(cd "$models" && pwd)

folders=()
packages=()
for folder in aes field common designs top engine; do
    folders+=(-I"$rtl/$folder")
    for package in "$rtl/$folder"/*_pkg.sv; do
        [ -e "$package" ] && packages+=("$package")
    done
done

build() {
    local name=$1 parameters parameter options=()
    local model=$models/$name${trace:+-trace}
    parameters=$(designs | awk -v name="$name" '$1 == name { print $2 }')
    [ -n "$parameters" ] || {
        echo "model.sh: there is no design $name; there are: $(designs | awk '{ printf " %s", $1 }')" >&2
        exit 2
    }
    for parameter in ${parameters//,/ }; do options+=(-G"$parameter"); done
    mkdir -p "$model"
    # Two that build the same model take turns. What lint says is for ../test/run.sh.
    exec 9>"$model/lock"
    flock 9
    if ! nice verilator --cc --exe --build -j 2 -O3 --x-assign fast --x-initial fast -Wno-fatal ${trace[@]+"${trace[@]}"} \
        --top-module xtent_engine --prefix Vmodel --Mdir "$model" -o "$model/model.so" \
        -CFLAGS "-std=c++17 -fPIC -fvisibility=hidden -I$cosim/model" -LDFLAGS -shared \
        -MAKEFLAGS "OPT_FAST=-O2 OPT_SLOW=-O1 OPT_GLOBAL=-O2" \
        "${folders[@]}" "${packages[@]}" "${options[@]}" "$rtl/engine/xtent_engine.sv" "$cosim/model/model.cpp" \
        >"$model/log" 2>&1; then
        cat "$model/log" >&2
        echo "model.sh: $name was not built" >&2
        exit 1
    fi
    # Whoever has the model of before open keeps it.
    if ! cmp -s "$model/model.so" "$model.so"; then
        cp "$model/model.so" "$model.so.new"
        mv "$model.so.new" "$model.so"
    fi
    exec 9>&-
    echo "$model.so"
}

for name in "${names[@]}"; do build "$name"; done
