#!/usr/bin/env bash
# Holds the locked dependencies against the advisories of RustSec: known holes, and crates that
# nobody looks after. Needs the network for cargo-audit, the first time, and for the advisories;
# without them it says so, and checks licences and lists duplicates alone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools=${CARGO_TARGET_DIR:-$PWD/target}/audit
advisories=$tools/advisory-db

scripts/dependencies.py
scripts/licences.py
echo "audit: crates with more than one version:"
cargo tree --workspace --locked --duplicates --depth 0 --edges no-dev | sort -u |
    awk 'NF { versions[$1] = versions[$1] " " $2; count[$1]++ }
        END { for (name in count) if (count[name] > 1) print "  " name versions[name] }' | sort

if ! [ -x "$tools/bin/cargo-audit" ] &&
    ! cargo install --quiet --locked --root "$tools" --no-default-features cargo-audit; then
    echo "audit: cargo-audit cannot be installed: advisories NOT CHECKED" >&2
    exit 0
fi
if [ -d "$advisories" ]; then
    git -C "$advisories" pull --quiet --ff-only ||
        echo "audit: the advisories cannot be brought up to date: these are of $(git -C "$advisories" log -1 --format=%cs)" >&2
elif ! git clone --quiet --depth 1 https://github.com/RustSec/advisory-db "$advisories"; then
    echo "audit: the advisories are out of reach: NOT CHECKED" >&2
    exit 0
fi
for lock in Cargo.lock fuzz/Cargo.lock bench/ciphers/Cargo.lock rtl/cosim/Cargo.lock; do
    echo "audit: $lock"
    "$tools/bin/cargo-audit" audit --no-fetch --db "$advisories" --file "$lock"
done
