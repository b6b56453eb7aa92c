//! Our kernel modules in Debian's User Mode Linux: volumes that Xtent makes, read
//! and written by dm-xtent, and by dm-crypt with our ciphers. `make kernel-test`
//! runs this; the rest of its tests are in `kernel/test`.
#![allow(clippy::unwrap_used, reason = "tests")]

use xtent_tests::luks::Shape;
use xtent_tests::mappings::{assert_growth_is_refused, assert_mappings_grow};
use xtent_tests::suspended::assert_keys_are_taken_and_given;
use xtent_tests::uml::{Peer, assert_both_ways, assert_opens_like_cryptsetup, kernel_modules};

const BRW: Shape = Shape::wide("capi:fast(aes)-plain64", 256);
const HORNER: Shape = Shape::wide("capi:fast_horner(aes)-plain64", 256);

#[test]
#[ignore = "builds modules, for which it fetches a kernel's source: make kernel-test"]
fn dm_crypt_opens_volumes_with_our_ciphers() {
    let shapes = [
        BRW,
        Shape { sector: 512, ..BRW },
        Shape::wide("capi:fast(aes)-plain64", 128),
        HORNER,
        Shape {
            sector: 512,
            ..HORNER
        },
        Shape::wide("capi:fast_horner(aes)-plain64", 128),
    ];
    assert_both_ways(&shapes, &Peer::OurCiphers(kernel_modules()));
}

#[test]
#[ignore = "builds modules, for which it fetches a kernel's source: make kernel-test"]
fn dm_xtent_opens_volumes_of_xtent() {
    let shapes = [
        Shape::wide("aes-xts-plain64", 512),
        Shape {
            sector: 512,
            ..Shape::wide("aes-xts-plain64", 512)
        },
        Shape::wide("aes-xts-plain64", 256),
        Shape::wide("xchacha12,aes-adiantum-plain64", 256),
        BRW,
        HORNER,
    ];
    assert_both_ways(&shapes, &Peer::DmXtent(kernel_modules()));
}

#[test]
#[ignore = "builds modules, for which it fetches a kernel's source: make kernel-test"]
fn xtent_open_takes_dm_xtent_where_it_is_loaded() {
    let shapes = [Shape::LUKS1, Shape::LUKS2, Shape::LUKS2_4096];
    let said = assert_opens_like_cryptsetup(&shapes, Some(&kernel_modules()));
    assert!(
        said.contains("Opening with dm-xtent: it is loaded."),
        "{said}"
    );
}

#[test]
#[ignore = "builds modules, for which it fetches a kernel's source: make kernel-test"]
fn mappings_of_dm_xtent_take_the_size_of_what_has_grown() {
    assert_mappings_grow(Some(&kernel_modules()));
}

#[test]
#[ignore = "builds modules, for which it fetches a kernel's source: make kernel-test"]
fn mappings_of_dm_xtent_that_change_or_are_suspended_keep_their_size() {
    assert_growth_is_refused(Some(&kernel_modules()));
}

#[test]
#[ignore = "builds modules, for which it fetches a kernel's source: make kernel-test"]
fn keys_of_dm_xtent_are_taken_away_and_given_back() {
    assert_keys_are_taken_and_given(Some(&kernel_modules()));
}
