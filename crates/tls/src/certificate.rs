//! What a certificate says of whom: its validity, and the names in it.

use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Decode, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// How long before the end of a certificate this is warned of.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);
/// Longest subject that is shown, in characters.
const MAX_SUBJECT: usize = 200;

/// Who is at the other end, by a certificate that was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The subject, for people: one line without control characters.
    pub subject: String,
    /// The names that it goes by: the DNS names and URIs among its subject alternative names;
    /// only where it has neither, the common name of its subject, if that is one.
    pub names: Vec<String>,
}

impl Peer {
    /// Reads a certificate, in DER, which somebody else has verified. What cannot be read names
    /// nobody.
    pub fn of(certificate: &[u8]) -> Self {
        let Ok(parsed) = Certificate::from_der(certificate) else {
            return Self {
                subject: "(a subject that cannot be read)".to_owned(),
                names: Vec::new(),
            };
        };
        let subject = parsed.tbs_certificate.subject.to_string();
        let clean = |c: char| if c.is_control() { ' ' } else { c };
        Self {
            subject: subject.chars().map(clean).take(MAX_SUBJECT).collect(),
            names: names(&parsed),
        }
    }
}

fn names(certificate: &Certificate) -> Vec<String> {
    let alternatives = certificate.tbs_certificate.get::<SubjectAltName>();
    let alternatives = match alternatives {
        Ok(found) => found,
        // Unreadable: the common name is not to stand in for it.
        Err(_) => return Vec::new(),
    };
    let found: Vec<String> = alternatives
        .iter()
        .flat_map(|(_, names)| &names.0)
        .filter_map(|name| match name {
            GeneralName::DnsName(name) => Some(name.to_string()),
            GeneralName::UniformResourceIdentifier(uri) => Some(uri.to_string()),
            _ => None,
        })
        .collect();
    if !found.is_empty() {
        return found;
    }
    let subject = &certificate.tbs_certificate.subject;
    let mut common: Vec<_> = subject
        .0
        .iter()
        .flat_map(|relative| relative.0.iter())
        .filter(|attribute| attribute.oid == CN)
        .filter_map(|attribute| {
            use x509_cert::der::Tag;
            let text = match attribute.value.tag() {
                Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => attribute.value.value(),
                _ => return None,
            };
            std::str::from_utf8(text).ok().map(str::to_owned)
        })
        .collect();
    // Which of several it is nobody could say.
    if common.len() > 1 {
        common.clear();
    }
    common
}

/// When a certificate of this side's can be used.
pub(crate) enum Validity {
    Good,
    /// For so many days more.
    EndsSoon(u64),
    Expired,
    NotYet,
    Unreadable,
}

pub(crate) fn validity(certificate: &CertificateDer<'_>, now: SystemTime) -> Validity {
    let Ok(parsed) = Certificate::from_der(certificate) else {
        return Validity::Unreadable;
    };
    let validity = parsed.tbs_certificate.validity;
    if now < validity.not_before.to_system_time() {
        return Validity::NotYet;
    }
    match validity.not_after.to_system_time().duration_since(now) {
        Err(_) => Validity::Expired,
        Ok(left) if left < SOON => Validity::EndsSoon(left.as_secs() / (24 * 3600)),
        Ok(_) => Validity::Good,
    }
}
