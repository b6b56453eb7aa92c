#!/usr/bin/env bash
# Lints every module and runs the Verilator tests. Builds below the folder given,
# or target/rtl.
set -euo pipefail
rtl=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=${1:-$rtl/../target/rtl}
mkdir -p "$build"
packages=("$rtl/aes/aes_pkg.sv" "$rtl/field/gf128_pkg.sv")
folders=(-I"$rtl/common" -I"$rtl/aes" -I"$rtl/field" -I"$rtl/test")

for module in "$rtl"/{common,aes,field}/*.sv; do
    case $module in *_pkg.sv) continue ;; esac
    verilator --lint-only -Wall "${folders[@]}" "${packages[@]}" "$module"
done
echo "lint: clean"

# unit NAME TOP SOURCE.cpp VERILATOR-OPTIONS...: builds a test and runs it.
unit() {
    local name=$1 top=$2 source=$3
    shift 3
    verilator --cc --exe --build -j 2 -O3 -Wall --top-module "$top" --Mdir "$build/$name" \
        "${folders[@]}" "${packages[@]}" "$@" "$top.sv" "$rtl/test/$source" \
        >"$build/$name.log" 2>&1 || { cat "$build/$name.log" >&2; exit 1; }
    "$build/$name/V$top"
}

for bits in 128 256; do
    unit "aes$bits" aes_tb aes_test.cpp -GKeyBits=$bits -CFLAGS "-O2 -std=c++17 -DKEY_BITS=$bits"
done
for stages in 1 2 3 4; do
    unit "mult$stages" gf128_mult mult_test.cpp -GStages=$stages \
        -CFLAGS "-O2 -std=c++17 -DSTAGES=$stages"
done
