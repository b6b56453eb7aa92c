#!/usr/bin/env bash
# Builds the computer with the co-processor, and its program.
#
# usage: build.sh [--level N] [--bus N] [--key-bits N] [--build FOLDER]
#
#   --level     of the co-processor: 1, 2 or 3, which is the default
#   --bus       bytes of a beat of the memory bus: 4, 8 or 16, which is the default
#   --key-bits  of AES: 128 or 256, which is the default
#   --build     where to build, target/rtl/soc if it is not said
#
# Prints the folder with `simulate` and `program.bin`; soc_test.cpp has the options of the former.
# Quick when nothing has changed. Needs what scripts/setup.sh rtl installs.
set -euo pipefail
soc=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rtl=$(dirname "$soc")
target=${CARGO_TARGET_DIR:-$rtl/../target}
build=$target/rtl/soc
level=3
bus=16
key_bits=256

usage() {
    sed -n '2,12s/^# \{0,1\}//p' "$0" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || usage
    case $1 in
    --level) level=$2 ;;
    --bus) bus=$2 ;;
    --key-bits) key_bits=$2 ;;
    --build) build=$2 ;;
    *) usage ;;
    esac
    shift 2
done

cpu=$(compgen -G "$target/rtl/venv/lib/python3*/site-packages/pythondata_cpu_vexriscv/verilog/VexRiscv_Full.v") || cpu=
if [ -z "$cpu" ] || ! command -v riscv64-unknown-elf-gcc verilator >/dev/null; then
    echo "build.sh: the CPU, its compiler or verilator is missing: run scripts/setup.sh rtl" >&2
    exit 1
fi
folder=$build/level$level-bus$bus-key$key_bits
mkdir -p "$folder"
# Verilator's makefiles run elsewhere.
folder=$(cd "$folder" && pwd)

folders=()
packages=()
for part in aes field common designs engine; do
    folders+=(-I"$rtl/$part")
    for package in "$rtl/$part"/*_pkg.sv; do
        [ -e "$package" ] && packages+=("$package")
    done
done

# logged COMMAND...: shows what a command said only if it fails.
logged() {
    "$@" >"$folder/log" 2>&1 || {
        cat "$folder/log" >&2
        echo "build.sh: failed: $1" >&2
        exit 1
    }
}

program=$folder/program
logged riscv64-unknown-elf-gcc -march=rv32im_zicsr -mabi=ilp32 -O2 -ffreestanding -nostdlib -Wall -Wextra -Werror \
    -Wl,--no-warn-rwx-segments -I"$soc/software/include" -T "$soc/software/soc.ld" -o "$program.elf" \
    "$soc"/software/start.S "$soc"/software/{main,engine,aes}.c -lgcc
logged riscv64-unknown-elf-objcopy -O binary "$program.elf" "$program.bin"
logged nice verilator --cc --exe --build -j 2 -O3 -Wall --x-assign fast --x-initial fast --top-module soc \
    -MAKEFLAGS OPT_FAST=-O2 --Mdir "$folder" -o simulate -I"$soc" "${folders[@]}" "${packages[@]}" \
    -GLevel="$level" -GBusBytes="$bus" -GKeyBits="$key_bits" \
    -CFLAGS "-std=c++17 -Wall -Wextra -I$rtl/test -DBUS_BYTES=$bus -DKEY_BITS=$key_bits" \
    "$soc/soc.vlt" "$cpu" "$soc/soc.sv" "$soc/soc_test.cpp"
echo "$folder"
