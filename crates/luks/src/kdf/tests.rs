//! Published vectors, bounds, estimates and refusals.

use super::*;
use std::fmt::Write as _;

const NO_LIMIT: KdfLimits = KdfLimits { longest: None };

fn secret(bytes: &[u8]) -> SecretBytes {
    SecretBytes::copy_of(bytes).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn pbkdf2(hash: &str, passphrase: &[u8], salt: &[u8], iterations: u32, length: usize) -> String {
    let kdf = Kdf::Pbkdf2 {
        hash: hash.into(),
        iterations,
    };
    hex(&kdf
        .derive(&secret(passphrase), salt, length, &NO_LIMIT)
        .unwrap())
}

/// RFC 6070 (all but the one with 16 million iterations).
#[test]
fn pbkdf2_sha1_rfc_6070() {
    for (passphrase, salt, iterations, length, expected) in [
        (
            &b"password"[..],
            &b"salt"[..],
            1,
            20,
            "0c60c80f961f0e71f3a9b524af6012062fe037a6",
        ),
        (
            b"password",
            b"salt",
            2,
            20,
            "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957",
        ),
        (
            b"password",
            b"salt",
            4096,
            20,
            "4b007901b765489abead49d926f721d065a429c1",
        ),
        (
            b"passwordPASSWORDpassword",
            b"saltSALTsaltSALTsaltSALTsaltSALTsalt",
            4096,
            25,
            "3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038",
        ),
        (
            b"pass\0word",
            b"sa\0lt",
            4096,
            16,
            "56fa6aa75548099dcc37d7f03425e0c3",
        ),
    ] {
        assert_eq!(
            pbkdf2("sha1", passphrase, salt, iterations, length),
            expected
        );
    }
}

/// RFC 7914, section 11.
#[test]
fn pbkdf2_sha256_rfc_7914() {
    assert_eq!(
        pbkdf2("sha256", b"passwd", b"salt", 1, 64),
        "55ac046e56e3089fec1691c22544b605f94185216dde0465e68b9d57c20dacbc\
         49ca9cccf179b645991664b39d77ef317c71b845b1e30bd509112041d3a19783"
    );
    assert_eq!(
        pbkdf2("sha256", b"Password", b"NaCl", 80000, 64),
        "4ddcd8f60b98be21830cee5ef22701f9641a4418d04c0414aeff08876b34ab56\
         a1d425a1225833549adb841b51c9b3176a272bdebba1d078478f62b397f33c8d"
    );
}

/// Made with OpenSSL 3 (legacy provider for RIPEMD-160 and Whirlpool; from `sha3-224` on through
/// Python's hashlib).
#[test]
fn pbkdf2_of_the_other_hashes() {
    for (hash, expected) in [
        (
            "sha224",
            "48de6790df14393babeb1c44a2cac4e753dea5ba0403379a471b9dea3fd45367",
        ),
        (
            "sha384",
            "d2b08be121ef0bc61f42fd9cefca8aa6faad35ce893a0563851d26fb6f9c7614",
        ),
        (
            "sha512",
            "8016a7c93e327ab40bdcc99a41f98e03319185fd57d1fd0dcd1596236744d277",
        ),
        (
            "ripemd160",
            "16f3259807678923d55bfbdf1a13a92e0539cbc99d902f9e494fe3df57d83894",
        ),
        (
            "whirlpool",
            "d8b51fe5f9d4f42ffe1ba8a297e79cf16629c6d310bebb24ec360794c709122e",
        ),
        (
            "sha3-224",
            "3eaff7318e6dbc3e74139d75e9f3e2288ff91512e1941e18617018b0f7cb1fef",
        ),
        (
            "sha3-256",
            "d44fc178f72531a81bd60e237a1c3be8621f225a1b13b5456f1e7701f14286e4",
        ),
        (
            "sha3-384",
            "5362ff8e9365b81316de3ed58e19f3bdd5209f29b2b7056b4505665401f2a652",
        ),
        (
            "sha3-512",
            "f52e2ff35cf56145f1bd4d00f23e692f8950539dc97f74b4a9feea23d7cd1980",
        ),
        (
            "blake2b-512",
            "a588f742a3d7be1a027b5dc22b8a3b7999520494142631e153e25438e53e717c",
        ),
        (
            "blake2s-256",
            "09466e4cd401661d62c9db0b2ee8c7672b797f1448e4aa5e1b82279f70aaf15f",
        ),
        (
            "sm3",
            "fd0b9b657010ca46e491a37bb53352ed4f93465c63b2a5d1c8de5b75706d5977",
        ),
    ] {
        assert_eq!(
            pbkdf2(hash, b"password", b"saltsalt", 3, 32),
            expected,
            "{hash}"
        );
    }
}

fn argon2(kind: KdfKind, memory: u32, cpus: u32) -> String {
    let cost = Argon2Cost {
        time: 2,
        memory,
        cpus,
    };
    let kdf = match kind {
        KdfKind::Argon2i => Kdf::Argon2i(cost),
        _ => Kdf::Argon2id(cost),
    };
    hex(&kdf
        .derive(&secret(b"password"), b"somesalt", 32, &NO_LIMIT)
        .unwrap())
}

/// From the test program of the reference implementation (version 1.3).
#[test]
fn argon2_reference_vectors() {
    use KdfKind::{Argon2i, Argon2id};
    for (kind, memory, cpus, expected) in [
        (
            Argon2i,
            256,
            1,
            "89e9029f4637b295beb027056a7336c414fadd43f6b208645281cb214a56452f",
        ),
        (
            Argon2i,
            256,
            2,
            "4ff5ce2769a1d7f4c8a491df09d41a9fbe90e5eb02155a13e4c01e20cd4eab61",
        ),
        (
            Argon2i,
            65536,
            1,
            "c1628832147d9720c5bd1cfd61367078729f6dfb6f8fea9ff98158e0d7816ed0",
        ),
        (
            Argon2id,
            256,
            1,
            "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe",
        ),
        (
            Argon2id,
            256,
            2,
            "6d093c501fd5999645e0ea3bf620d7b8be7fd2db59c20d9fff9539da2bf57037",
        ),
        (
            Argon2id,
            65536,
            1,
            "09316115d5cf24ed5a15a31a3ba326e5cf32edc24702987c02b6566f61913cf7",
        ),
    ] {
        assert_eq!(
            argon2(kind, memory, cpus),
            expected,
            "{kind:?} {memory} {cpus}"
        );
    }
}

/// RFC 9106, sections 5.2 and 5.3: with a secret and associated data, which
/// LUKS does not use, so against the library itself.
#[test]
fn argon2_rfc_9106() {
    use ::argon2::{Algorithm, Argon2, AssociatedData, Block, ParamsBuilder, Version};
    for (algorithm, expected) in [
        (
            Algorithm::Argon2i,
            "c814d9d1dc7f37aa13f0d77f2494bda1c8de6b016dd388d29952a4c4672b6ce8",
        ),
        (
            Algorithm::Argon2id,
            "0d640df58d78766c08c037a34a8b53c9d01ef0452d75b65eb52520e96b01e659",
        ),
    ] {
        let params = ParamsBuilder::new()
            .t_cost(3)
            .m_cost(32)
            .p_cost(4)
            .data(AssociatedData::new(&[4; 12]).unwrap())
            .build()
            .unwrap();
        let mut blocks = vec![Block::new(); params.block_count()];
        let mut tag = [0; 32];
        Argon2::new_with_secret(&[3; 8], algorithm, Version::V0x13, params)
            .unwrap()
            .hash_password_into_with_memory(&[1; 32], &[2; 16], &mut tag, &mut blocks)
            .unwrap();
        assert_eq!(hex(&tag), expected);
    }
}

fn argon2id(time: u32, memory: u32, cpus: u32) -> Kdf {
    Kdf::Argon2id(Argon2Cost { time, memory, cpus })
}

#[test]
fn hostile_costs_are_refused_before_they_run() {
    let limits = KdfLimits {
        longest: Some(Duration::from_secs(60)),
    };
    for (kdf, kind) in [
        (argon2id(u32::MAX, 1 << 16, 4), ErrorKind::TooCostly),
        (argon2id(u32::MAX, 8, 1), ErrorKind::TooCostly),
        (argon2id(1, u32::MAX, 1), ErrorKind::TooCostly),
        (argon2id(1, (4 << 20) + 1, 1), ErrorKind::TooCostly),
        (argon2id(1, u32::MAX, 0x00ff_ffff), ErrorKind::TooCostly),
        (argon2id(1, u32::MAX, u32::MAX), ErrorKind::Corrupt),
        (argon2id(0, 1 << 16, 4), ErrorKind::Corrupt),
        (argon2id(4, 0, 0), ErrorKind::Corrupt),
        (argon2id(4, 31, 4), ErrorKind::Corrupt),
    ] {
        let error = kdf
            .derive(&secret(b"x"), &[0; 32], 32, &limits)
            .unwrap_err();
        assert_eq!(error.kind, kind, "{kdf}: {error}");
    }
    let kdf = Kdf::Pbkdf2 {
        hash: "sha256".into(),
        iterations: u32::MAX,
    };
    let error = kdf
        .derive(&secret(b"x"), &[0; 32], 64, &limits)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooCostly);
    assert!(
        error.message.contains("minutes") || error.message.contains("hour"),
        "{error}"
    );
}

#[test]
fn too_little_memory_names_both_sizes() {
    let error = argon2id(4, u32::MAX, 4)
        .derive(&secret(b"x"), &[0; 32], 32, &NO_LIMIT)
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoMemory);
    assert!(error.message.contains("4194304 MiB"), "{error}");
    assert!(error.message.contains("MiB are free"), "{error}");
}

#[test]
fn other_nonsense_is_refused() {
    let cheap = argon2id(1, 64, 1);
    for (salt, length) in [
        (&[0; 7][..], 32),
        (&[0; 32], 0),
        (&[0; 32], 3),
        (&[0; 32], 5000),
    ] {
        let error = cheap
            .derive(&secret(b"x"), salt, length, &NO_LIMIT)
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Corrupt, "{error}");
    }
    for (hash, iterations, kind) in [
        ("sha256", 0, ErrorKind::Corrupt),
        ("crc32", 1000, ErrorKind::Unsupported),
    ] {
        let kdf = Kdf::Pbkdf2 {
            hash: hash.into(),
            iterations,
        };
        let error = kdf
            .derive(&secret(b"x"), b"salt", 32, &NO_LIMIT)
            .unwrap_err();
        assert_eq!(error.kind, kind);
        assert_eq!(kdf.estimate(32).unwrap_err().kind, kind);
    }
}

#[test]
fn a_limit_above_the_estimate_lets_it_run() {
    let limits = KdfLimits {
        longest: Some(Duration::from_secs(3600)),
    };
    for kdf in [
        argon2id(1, 64, 1),
        Kdf::Pbkdf2 {
            hash: "sha512".into(),
            iterations: 1,
        },
    ] {
        kdf.derive(&secret(b""), &[0; 32], 64, &limits).unwrap();
    }
}

fn choice(kind: KdfKind) -> KdfChoice {
    KdfChoice {
        kind: Some(kind),
        hash: None,
        target: Duration::from_millis(20),
        force_iterations: None,
        memory: None,
        parallel: None,
    }
}

#[test]
fn settling_stays_within_the_bounds() {
    // So short a target that the least of everything is already too much.
    let short = KdfChoice {
        target: Duration::from_nanos(1),
        ..choice(KdfKind::Argon2id)
    };
    let Kdf::Argon2id(cost) = short.settle(KdfKind::Pbkdf2, 64).unwrap() else {
        panic!("not what was asked for");
    };
    assert_eq!((cost.time, cost.memory), (4, 32));
    let short = KdfChoice {
        kind: None,
        ..short
    };
    let Kdf::Pbkdf2 { iterations, .. } = short.settle(KdfKind::Pbkdf2, 64).unwrap() else {
        panic!("not the default");
    };
    assert_eq!(iterations, 1000);

    // Little memory: passes make up for it. An hour, so that a busy machine's
    // delays do not count; nothing runs that long.
    let small = KdfChoice {
        memory: Some(64),
        target: Duration::from_secs(3600),
        ..choice(KdfKind::Argon2i)
    };
    let Kdf::Argon2i(cost) = small.settle(KdfKind::Pbkdf2, 32).unwrap() else {
        panic!("not what was asked for");
    };
    assert_eq!(cost.memory, 64);
    assert!(cost.time > 4, "{cost:?}");
}

#[test]
fn forced_costs_are_taken_as_they_are() {
    let forced = KdfChoice {
        force_iterations: Some(4),
        memory: Some(1 << 20),
        parallel: Some(4),
        ..choice(KdfKind::Argon2id)
    };
    assert_eq!(
        forced.settle(KdfKind::Pbkdf2, 64).unwrap(),
        argon2id(4, 1 << 20, 4)
    );
    let forced = KdfChoice {
        force_iterations: Some(1000),
        hash: Some("SHA512".into()),
        ..choice(KdfKind::Pbkdf2)
    };
    assert_eq!(
        forced.settle(KdfKind::Argon2id, 64).unwrap(),
        Kdf::Pbkdf2 {
            hash: "sha512".into(),
            iterations: 1000
        }
    );
}

#[test]
fn choices_out_of_bounds_are_refused() {
    let id = choice(KdfKind::Argon2id);
    let two = choice(KdfKind::Pbkdf2);
    for (choice, kind) in [
        (
            KdfChoice {
                force_iterations: Some(3),
                ..id.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                memory: Some(31),
                ..id.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                memory: Some((4 << 20) + 1),
                ..id.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                parallel: Some(0),
                ..id.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                parallel: Some(5),
                ..id.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                target: Duration::ZERO,
                ..id
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                force_iterations: Some(999),
                ..two.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                memory: Some(64),
                ..two.clone()
            },
            ErrorKind::Options,
        ),
        (
            KdfChoice {
                hash: Some("md5".into()),
                ..two
            },
            ErrorKind::Unsupported,
        ),
    ] {
        assert_eq!(
            choice.settle(KdfKind::Argon2id, 64).unwrap_err().kind,
            kind,
            "{choice:?}"
        );
    }
}

#[test]
fn durations_are_for_people() {
    for (seconds, text) in [
        (0, "0.0 seconds"),
        (59, "59 seconds"),
        (61, "1 minute 1 second"),
        (3600, "1 hour"),
        (7205, "2 hours"),
        (90_000, "1 day 1 hour"),
        (u64::MAX, "584542046090 years 228 days"),
    ] {
        assert_eq!(human(Duration::from_secs(seconds)), text);
    }
}

#[test]
fn every_hash_has_a_speed() {
    for hash in pbkdf2_hashes() {
        let kdf = Kdf::Pbkdf2 {
            hash: hash.into(),
            iterations: 1000,
        };
        assert!(kdf.estimate(32).unwrap() > Duration::ZERO);
    }
    assert!(pbkdf2_iterations_per_second("sha256", 32).unwrap() > 1000);
}

#[test]
fn a_budget_is_for_all_derivations_together() {
    let seconds = Duration::from_secs;
    let budget = KdfLimits {
        longest: Some(seconds(600)),
    }
    .start();
    let left = |spent| budget.left_after(seconds(spent)).longest;
    assert_eq!(left(0), Some(seconds(600)));
    assert_eq!(left(540), Some(seconds(60)));
    assert_eq!(left(601), Some(Duration::ZERO));
    assert_eq!(NO_LIMIT.start().left_after(seconds(9)).longest, None);
}
