//! Authorities and certificates, made in memory and written to folders as servers and clients want
//! them.
#![allow(clippy::unwrap_used, reason = "for tests")]

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber, date_time_ymd,
};

/// An authority.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Valid {
    Now,
    Expired,
    NotYet,
}

/// A certificate that an authority is to sign.
#[derive(Clone, Debug)]
pub struct Wanted {
    side: &'static str,
    common_name: String,
    names: Vec<String>,
    serial: u64,
    valid: Valid,
}

impl Wanted {
    /// For a server of these hosts and addresses.
    pub fn server(names: &[&str]) -> Self {
        Self {
            side: "server",
            common_name: "the server".to_owned(),
            names: names.iter().map(|&name| name.to_owned()).collect(),
            serial: 1,
            valid: Valid::Now,
        }
    }

    /// For a client of this common name.
    pub fn client(common_name: &str) -> Self {
        Self {
            side: "client",
            common_name: common_name.to_owned(),
            names: Vec::new(),
            serial: 2,
            valid: Valid::Now,
        }
    }

    /// With a subject alternative name: a URI, if it has a colon.
    pub fn named(mut self, name: &str) -> Self {
        self.names.push(name.to_owned());
        self
    }

    /// With this serial number.
    pub fn serial(self, serial: u64) -> Self {
        Self { serial, ..self }
    }

    /// That has expired.
    pub fn expired(self) -> Self {
        Self {
            valid: Valid::Expired,
            ..self
        }
    }

    /// That is not valid yet.
    pub fn not_yet(self) -> Self {
        Self {
            valid: Valid::NotYet,
            ..self
        }
    }
}

impl Authority {
    /// One of this name.
    pub fn new(name: &str) -> Self {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Has what uses this folder trust the authority.
    pub fn trusted_in(&self, folder: &Path) -> &Self {
        fs::write(folder.join("ca-cert.pem"), self.0.pem()).unwrap();
        self
    }

    /// Writes a certificate and its key into a folder.
    pub fn certify(&self, folder: &Path, wanted: &Wanted) -> &Self {
        let mut params = params(&wanted.common_name);
        params.serial_number = Some(SerialNumber::from(wanted.serial));
        for name in &wanted.names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) if name.contains(':') => SanType::URI(name.as_str().try_into().unwrap()),
                Err(_) => SanType::DnsName(name.as_str().try_into().unwrap()),
            });
        }
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![match wanted.side {
            "server" => ExtendedKeyUsagePurpose::ServerAuth,
            _ => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        match wanted.valid {
            Valid::Now => {}
            Valid::Expired => params.not_after = date_time_ymd(2021, 1, 1),
            Valid::NotYet => {
                params.not_before = date_time_ymd(2190, 1, 1);
                params.not_after = date_time_ymd(2200, 1, 1);
            }
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let file = |what: &str| folder.join(format!("{}-{what}.pem", wanted.side));
        fs::write(file("cert"), certificate.pem()).unwrap();
        fs::write(file("key"), key.serialize_pem()).unwrap();
        self
    }

    /// Writes a list that revokes certificates of these serial numbers.
    pub fn revoke(&self, folder: &Path, serials: &[u64]) -> &Self {
        let revoked = |&serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2190, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.0).unwrap();
        fs::write(folder.join("ca-crl.pem"), list.pem().unwrap()).unwrap();
        self
    }
}

/// Valid from 2020 to 2190.
fn params(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(DnType::CommonName, common_name);
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2190, 1, 1);
    params
}
