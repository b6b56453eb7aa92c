#!/usr/bin/env bash
# Packs the crates that may be published, and looks into the packages: each has its licences,
# its README and what Cargo.toml says of it. Without --quick each package is also built, from
# nothing but the packages and what the registry has.
#
# usage: package-check.sh [--quick]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

crates=(sector-cipher xtent-secret xtent-store xtent-luks sector-cipher-c)
packages=()
for crate in "${crates[@]}"; do
    packages+=(--package "$crate")
done

# What the workspace would publish is this list, and what a registry shows of it is there.
published=$(grep -l '^publish = true$' crates/*/Cargo.toml | xargs sed -n 's/^name = "\([^"]*\)"$/\1/p' |
    grep -vx sector_cipher | sort | tr '\n' ' ')
expected=$(printf '%s\n' "${crates[@]}" | sort | tr '\n' ' ')
[ "$published" = "$expected" ] || {
    echo "package-check: Cargo.toml files publish $published, not $expected" >&2
    exit 1
}
mapfile -t manifests < <(grep -l '^publish = true$' crates/*/Cargo.toml)
for manifest in "${manifests[@]}"; do
    for field in description readme keywords categories rust-version.workspace license.workspace; do
        grep -q "^$field = " "$manifest" || {
            echo "package-check: $manifest has no $field" >&2
            exit 1
        }
    done
done

if [ "${1:-}" = --quick ]; then
    for crate in "${crates[@]}"; do
        list=$(cargo package --quiet --allow-dirty --offline --list --package "$crate" 2>/dev/null)
        for file in Cargo.toml LICENSE-APACHE LICENSE-MIT README.md src/lib.rs; do
            grep -qx "$file" <<<"$list" || {
                echo "package-check: the package of $crate lacks $file" >&2
                exit 1
            }
        done
    done
    exit 0
fi
target=${CARGO_TARGET_DIR:-target}/package-check
cargo package --allow-dirty --target-dir "$target" "${packages[@]}"
cargo test --package sector-cipher --features hazmat --doc
cargo doc --no-deps --package sector-cipher --features hazmat
