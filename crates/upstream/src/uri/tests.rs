//! What is understood, what is refused, and that what is written means the same.

use super::*;
use proptest::prelude::*;

fn uri(text: &str) -> Uri {
    text.parse().unwrap()
}

#[test]
fn the_documented_forms_are_understood() {
    let tcp = |host: &str, port, export: &str| Uri {
        place: Place::Tcp {
            host: host.into(),
            port,
        },
        export: export.into(),
        tls: None,
    };
    assert_eq!(uri("nbd://host"), tcp("host", 10809, ""));
    assert_eq!(uri("nbd://host:/"), tcp("host", 10809, ""));
    assert_eq!(uri("NBD://10.0.0.1:1/a/b%20c"), tcp("10.0.0.1", 1, "a/b c"));
    assert_eq!(uri("nbd://[::1]:77/x"), tcp("::1", 77, "x"));
    let unix = uri("nbd+unix:///%C3%A4?socket=/run/a%3fb.sock");
    assert_eq!(
        (unix.export(), unix.socket()),
        ("ä", Some(Path::new("/run/a?b.sock")))
    );
    assert_eq!(
        unix.to_string(),
        "nbd+unix:///%C3%A4?socket=/run/a%3Fb.sock"
    );
    assert_eq!(uri("nbd://[::1]/x").to_string(), "nbd://[::1]/x");
    let secured = |certificates: Option<&str>, hostname: Option<&str>, of: Uri| Uri {
        tls: Some(Tls {
            certificates: certificates.map(Into::into),
            hostname: hostname.map(Into::into),
        }),
        ..of
    };
    assert_eq!(uri("nbds://h/x"), secured(None, None, tcp("h", 10809, "x")));
    let all = "nbds+unix:///?tls-hostname=h.example&tls-certificates=/a%20b&socket=/s";
    let plain = uri("nbd+unix:///?socket=/s");
    assert_eq!(
        uri(all),
        secured(Some("/a b"), Some("h.example"), plain.clone())
    );
    assert_eq!(uri(all).without_tls(), plain);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    for (text, word) in [
        ("/dev/sda", "no URI"),
        ("http://x/", "no URI of NBD"),
        ("nbd+vsock://2/", "vsock"),
        ("nbds://h?tls-verify-peer=false", "always verified"),
        ("nbds://h?tls-psk-file=/k", "pre-shared"),
        ("nbds://h?tls-certificates=", "is empty"),
        ("nbds://h?socket=/s", "\"socket\""),
        ("nbd://user:secret@host/", "user name"),
        ("nbd:///x", "no host"),
        ("nbd://h?tls-certificates=/x", "\"tls-certificates\""),
        ("nbd://h:0/", "port"),
        ("nbd://h:+5/", "port"),
        ("nbd://h:65536/", "port"),
        ("nbd://[::1/", "bracket"),
        ("nbd://[fe80::1%25eth0]/", "IPv6"),
        ("nbd://[::1]5/", "colon"),
        ("nbd://h%41/", "characters"),
        ("nbd://h/a%00b", "control"),
        ("nbd://h/a\nb", "control"),
        ("nbd://h/%ff", "UTF-8"),
        ("nbd://h/x#y", "fragment"),
        ("nbd+unix:///x", "needs its socket"),
        ("nbd+unix:///x?socket=", "is empty"),
        ("nbd+unix://h/x?socket=/s", "three slashes"),
        ("nbd+unix:///x?socket=/s&socket=/t", "two parameters"),
        ("nbd+unix:///x?socket=/s&tls-hostname=x", "\"tls-hostname\""),
    ] {
        let error = text.parse::<Uri>().unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error:?} lacks {word:?}");
        assert!(!error.contains("secret"));
    }
    let long = format!("nbd+unix:///?socket=/{}", "x".repeat(107));
    assert!(long.parse::<Uri>().is_err());
}

#[test]
fn what_is_meant_as_one_is_known() {
    for text in ["nbd://x", "NBDS://", "nbd+unix:///?", "nbd+vsock://1"] {
        assert!(Uri::looks_like(text), "{text}");
    }
    for text in ["nbd", "nbd:x", "./nbd://x", "http://x", "/dev/nbd0", ""] {
        assert!(!Uri::looks_like(text), "{text}");
    }
}

proptest! {
    #[test]
    fn a_uri_written_means_the_same(export in "\\PC{0,30}", path in "\\PC{1,20}", port in 1_u16..) {
        let host = || "h.example".to_owned();
        let mut places = vec![Place::Tcp { host: host(), port }, Place::Tcp { host: "::1".into(), port }];
        if path.len() <= 107 {
            places.push(Place::Unix(path.into()));
        }
        for place in places {
            let tls = Tls { certificates: Some(format!("/{export}").into()), hostname: Some(host()) };
            for tls in [None, Some(Tls::default()), Some(tls)] {
                let uri = Uri { place: place.clone(), export: export.clone(), tls };
                prop_assert_eq!(uri.to_string().parse::<Uri>(), Ok(uri));
            }
        }
    }

    #[test]
    fn any_text_is_a_uri_or_refused(text in ".{0,60}", scheme in 0_usize..SCHEMES.len()) {
        for text in [text.clone(), format!("{}://{text}", SCHEMES[scheme])] {
            if let Ok(uri) = text.parse::<Uri>() {
                prop_assert_eq!(uri.to_string().parse::<Uri>(), Ok(uri));
                prop_assert!(Uri::looks_like(&text));
            }
        }
    }
}
