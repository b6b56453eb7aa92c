//! A newer kernel's dm-crypt, which has HCTR2: in User Mode Linux, built from
//! Debian's source the first time. `make test-uml612` runs this.
#![allow(clippy::unwrap_used, reason = "tests")]

use xtent_tests::luks::Shape;
use xtent_tests::uml::{Peer, assert_both_ways, kernel_612};

const HCTR2: Shape = Shape::wide("aes-hctr2-plain64", 256);

#[test]
#[ignore = "builds a kernel for many minutes: make test-uml612"]
fn the_kernel_agrees_on_hctr2_and_adiantum() {
    let shapes = [
        HCTR2,
        Shape {
            sector: 512,
            ..HCTR2
        },
        Shape::wide("aes-hctr2-plain64", 128),
        Shape::wide("xchacha12,aes-adiantum-plain64", 256),
        Shape::wide("xchacha20,aes-adiantum-plain64", 256),
    ];
    assert_both_ways(&shapes, &Peer::Kernel(kernel_612()));
}
