//! What must be reached, and what is aimed at, for each kind of CPU. `bench/GOALS.md` says why
//! some of it is not.

use sector_cipher::{Backend, PortsSource};

/// What must be reached, and what is aimed at.
pub(super) type Ratios = (f64, f64);

/// XTS with one key size, sector size and run.
pub(super) struct Xts {
    pub(super) aes_bits: usize,
    pub(super) sector_size: usize,
    pub(super) run: usize,
    /// Against the AES limit.
    pub(super) limit: Option<Ratios>,
    /// Against the best peer.
    pub(super) peer: Option<Ratios>,
}

/// A wide-block cipher in runs of 64, against the AES limit.
pub(super) struct Wide {
    /// dm-crypt's name.
    pub(super) cipher: &'static str,
    pub(super) sector_size: usize,
    pub(super) aes128: Ratios,
    pub(super) aes256: Ratios,
}

/// For one kind of CPU.
pub(crate) struct Expected {
    /// Which.
    pub(crate) kind: &'static str,
    pub(super) xts: &'static [Xts],
    /// XTS with AES-256 on smaller back-ends, runs of 64, against the AES limit of
    /// their own vectors: the back-end, and the sector size.
    pub(super) smaller: &'static [(Backend, usize, Ratios)],
    pub(super) wide: &'static [Wide],
    /// FAST-Horner and HCTR2 with AES-128, 4096 bytes in a call, against the AES limit.
    pub(super) one_per_call: Ratios,
}

const fn of_limit(aes_bits: usize, sector_size: usize, run: usize, limit: Ratios) -> Xts {
    Xts {
        aes_bits,
        sector_size,
        run,
        limit: Some(limit),
        peer: None,
    }
}

/// Of AES-256.
const fn of_peer(sector_size: usize, run: usize, peer: Ratios) -> Xts {
    Xts {
        aes_bits: 256,
        sector_size,
        run,
        limit: None,
        peer: Some(peer),
    }
}

const fn wide(cipher: &'static str, sector_size: usize, aes128: Ratios, aes256: Ratios) -> Wide {
    Wide {
        cipher,
        sector_size,
        aes128,
        aes256,
    }
}

const BRW: &str = "capi:fast(aes)-plain64";
const HORNER: &str = "capi:fast_horner(aes)-plain64";
const HCTR2: &str = "aes-hctr2-plain64";
const EME2: &str = "capi:eme2(aes)-plain64";
const AEZ10: &str = "capi:aez10(aes)-plain64";
const XCB: &str = "capi:xcb(aes)-plain64";

const SMALLER: &[(Backend, usize, Ratios)] = &[
    (Backend::Vaes256, 512, (0.85, 0.90)),
    (Backend::Vaes256, 4096, (0.92, 0.97)),
    (Backend::AesNi, 512, (0.85, 0.92)),
    (Backend::AesNi, 4096, (0.92, 0.95)),
];

/// Set on a Xeon of the kind Emerald Rapids.
static INTEL: Expected = Expected {
    kind: "Intel, family 6, model 207 (Emerald Rapids)",
    xts: &[
        of_limit(256, 512, 64, (0.90, 0.95)),
        of_peer(512, 64, (1.7, 1.85)),
        of_limit(128, 512, 64, (0.88, 0.93)),
        of_limit(256, 512, 8, (0.85, 0.90)),
        of_peer(512, 1, (1.1, 1.2)),
        of_limit(256, 4096, 8, (0.97, 0.99)),
        of_peer(4096, 8, (1.07, 1.10)),
        of_limit(256, 4096, 64, (0.97, 0.99)),
        of_peer(4096, 64, (1.07, 1.10)),
        of_peer(4096, 1, (1.02, 1.05)),
    ],
    smaller: SMALLER,
    wide: &[
        wide(BRW, 4096, (0.60, 0.70), (0.75, 0.87)),
        wide(BRW, 512, (0.52, 0.60), (0.65, 0.75)),
        wide(HORNER, 4096, (0.66, 0.76), (0.84, 0.92)),
        wide(HORNER, 512, (0.52, 0.63), (0.65, 0.80)),
        wide(HCTR2, 4096, (0.66, 0.77), (0.84, 0.93)),
        wide(HCTR2, 512, (0.52, 0.64), (0.65, 0.82)),
        wide(EME2, 4096, (0.44, 0.48), (0.46, 0.49)),
        wide(EME2, 512, (0.40, 0.44), (0.42, 0.46)),
        wide(AEZ10, 4096, (0.33, 0.38), (0.34, 0.39)),
        wide(AEZ10, 512, (0.28, 0.34), (0.30, 0.36)),
        wide(XCB, 4096, (0.50, 0.65), (0.60, 0.80)),
        wide(XCB, 512, (0.40, 0.55), (0.50, 0.65)),
    ],
    one_per_call: (0.55, 0.55),
};

/// Two AES rounds a cycle, one product in two. So the ciphers that hash twice with Horner's
/// rule, whose limit their products set at 0.42 (AES-128) and 0.58 (AES-256), must reach nine
/// tenths of that with 4096 bytes, and eight with 512.
static ZEN_5: Expected = Expected {
    kind: "AMD, family 26, model 2 (Zen 5)",
    xts: &[
        of_limit(256, 512, 64, (0.90, 0.95)),
        of_peer(512, 64, (1.7, 1.85)),
        of_limit(128, 512, 64, (0.80, 0.90)),
        of_limit(256, 512, 8, (0.82, 0.88)),
        of_limit(128, 512, 8, (0.70, 0.78)),
        of_peer(512, 1, (1.1, 1.2)),
        of_limit(256, 4096, 8, (0.94, 0.97)),
        of_peer(4096, 8, (1.07, 1.10)),
        of_limit(256, 4096, 64, (0.97, 0.99)),
        of_peer(4096, 64, (1.07, 1.10)),
        of_limit(128, 4096, 64, (0.93, 0.97)),
        of_peer(4096, 1, (1.02, 1.05)),
    ],
    smaller: SMALLER,
    wide: &[
        wide(BRW, 4096, (0.46, 0.52), (0.58, 0.66)),
        wide(BRW, 512, (0.42, 0.46), (0.52, 0.60)),
        wide(HORNER, 4096, (0.38, 0.40), (0.52, 0.56)),
        wide(HORNER, 512, (0.34, 0.37), (0.46, 0.51)),
        wide(HCTR2, 4096, (0.38, 0.40), (0.52, 0.56)),
        wide(HCTR2, 512, (0.34, 0.37), (0.46, 0.51)),
        wide(EME2, 4096, (0.45, 0.48), (0.47, 0.49)),
        wide(EME2, 512, (0.41, 0.45), (0.43, 0.46)),
        wide(AEZ10, 4096, (0.36, 0.38), (0.36, 0.39)),
        wide(AEZ10, 512, (0.31, 0.34), (0.32, 0.35)),
        wide(XCB, 4096, (0.38, 0.40), (0.52, 0.56)),
        wide(XCB, 512, (0.34, 0.37), (0.46, 0.51)),
    ],
    one_per_call: (0.32, 0.34),
};

/// 64-byte vectors take two turns of each of four ports, of which two do AES rounds, so that there is
/// one round a cycle; a product takes a round's turn, and what comes to 6.5 turns of all
/// ports with it. Counted in this way, a wide-block cipher's instructions set a bound: nine tenths of it must
/// be reached with 4096 bytes, and 0.85 with 512.
/// XTS on smaller vectors has a product for each, which takes as long as with the long ones.
static ZEN_4: Expected = Expected {
    kind: "AMD, family 25, model 17 (Zen 4)",
    xts: &[
        of_limit(256, 512, 64, (0.84, 0.90)),
        of_peer(512, 64, (1.7, 1.85)),
        of_limit(128, 512, 64, (0.80, 0.87)),
        of_limit(256, 512, 8, (0.72, 0.80)),
        of_limit(128, 512, 8, (0.67, 0.75)),
        of_peer(512, 1, (1.1, 1.2)),
        of_limit(256, 4096, 8, (0.86, 0.90)),
        of_peer(4096, 8, (1.07, 1.10)),
        of_limit(256, 4096, 64, (0.90, 0.94)),
        of_peer(4096, 64, (1.07, 1.10)),
        of_limit(128, 4096, 64, (0.86, 0.92)),
        of_peer(4096, 1, (1.02, 1.05)),
    ],
    smaller: &[
        (Backend::Vaes256, 512, (0.77, 0.85)),
        (Backend::Vaes256, 4096, (0.79, 0.87)),
        (Backend::AesNi, 512, (0.77, 0.85)),
        (Backend::AesNi, 4096, (0.79, 0.87)),
    ],
    wide: &[
        wide(BRW, 4096, (0.46, 0.50), (0.58, 0.64)),
        wide(BRW, 512, (0.40, 0.46), (0.51, 0.59)),
        wide(HORNER, 4096, (0.47, 0.52), (0.60, 0.66)),
        wide(HORNER, 512, (0.38, 0.44), (0.48, 0.56)),
        wide(HCTR2, 4096, (0.48, 0.53), (0.60, 0.67)),
        wide(HCTR2, 512, (0.41, 0.47), (0.52, 0.60)),
        wide(EME2, 4096, (0.43, 0.48), (0.44, 0.48)),
        wide(EME2, 512, (0.40, 0.46), (0.41, 0.47)),
        wide(AEZ10, 4096, (0.36, 0.39), (0.36, 0.39)),
        wide(AEZ10, 512, (0.33, 0.38), (0.34, 0.38)),
        wide(XCB, 4096, (0.43, 0.47), (0.54, 0.60)),
        wide(XCB, 512, (0.36, 0.42), (0.46, 0.54)),
    ],
    one_per_call: (0.43, 0.47),
};

/// For the CPU whose best back-end is this; `None` if nothing is expected of its kind.
pub(crate) fn of_this_cpu(best: Backend) -> Option<&'static Expected> {
    match best.ports()?.source {
        PortsSource::Table { maker: "Intel", .. } => Some(&INTEL),
        PortsSource::Table {
            maker: "AMD",
            family: 26,
            ..
        } => Some(&ZEN_5),
        PortsSource::Table {
            maker: "AMD",
            family: 25,
            ..
        } => Some(&ZEN_4),
        _ => None,
    }
}
