//! Who signs certificates that are made, and the key that all of them have.

use std::sync::Arc;

use humboldt_conf::CertificateFiles;
use rustls::SignatureScheme;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{AlgorithmIdentifier, CertificateDer, PrivatePkcs8KeyDer, alg_id};
use rustls::sign::{CertifiedKey, SigningKey};
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::ParsedExtension;
use x509_parser::public_key::PublicKey;
use zeroize::Zeroizing;

use super::write;
use crate::certificates::certificate_facts;
use crate::error::SetupProblem;
use crate::files::Files;

/// The signatures that certificates may have, by the kind of the authority's key.
const SIGNATURES: [(SignatureScheme, AlgorithmIdentifier); 5] = [
    (SignatureScheme::ECDSA_NISTP256_SHA256, alg_id::ECDSA_SHA256),
    (SignatureScheme::ECDSA_NISTP384_SHA384, alg_id::ECDSA_SHA384),
    (SignatureScheme::ECDSA_NISTP521_SHA512, alg_id::ECDSA_SHA512),
    (SignatureScheme::RSA_PKCS1_SHA256, alg_id::RSA_PKCS1_SHA256),
    (SignatureScheme::ED25519, alg_id::ED25519),
];

/// Most bits of a key of RSA that signs in about a millisecond.
const RSA_BITS_MOST: usize = 2048;

/// New certificates that one client may have in a second, by the time that a signature takes: tens
/// of microseconds with P-256 and Ed25519, up to a millisecond with larger curves and RSA of 2048
/// bits, milliseconds with longer keys. So no client takes more than a tenth of a core or so from
/// others. Certificates that are there cost none.
pub(super) const LEAVES_PER_CLIENT_S: u32 = 1000;
pub(super) const SLOW_LEAVES_PER_CLIENT_S: u32 = 100;
pub(super) const SLOWEST_LEAVES_PER_CLIENT_S: u32 = 20;

const DAY_S: i64 = 24 * 60 * 60;

/// Days before the end of an authority in which people are told.
const WARNED_DAYS: i64 = 30;

/// Bytes of the number of a key (RFC 7093 2, method 1).
const KEY_ID_BYTES: usize = 20;

/// An authority.
pub(super) struct Issuer {
    /// Its name, as it is in its own certificate, to the last bit: clients compare it.
    pub(super) name: Vec<u8>,
    /// Its name for people.
    common_name: String,
    /// The number of its key, as its own certificate has it.
    pub(super) key_id: Vec<u8>,
    /// The certificates that go with those that it signs.
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// Its own time, in seconds since 1970.
    pub(super) begins_s: i64,
    pub(super) ends_s: i64,
    signer: Signer,
    /// The files of its certificate and its key.
    files: (String, String),
    facts: Doubts,
}

/// What makes an authority a bad one.
struct Doubts {
    /// Certificates of its file that do not belong to its chain.
    left_out: usize,
    /// Its key takes milliseconds to sign.
    is_slow: bool,
    /// It may sign certificates of servers.
    serves: bool,
}

/// The key of certificates that are made.
pub(super) struct LeafKey {
    pub(super) key: Arc<dyn SigningKey>,
    /// As certificates have it (SubjectPublicKeyInfo).
    pub(super) public: Vec<u8>,
    pub(super) key_id: Vec<u8>,
    signer: Signer,
}

/// Signs certificates.
pub(super) struct Signer {
    key: Arc<dyn SigningKey>,
    scheme: SignatureScheme,
    pub(super) algorithm: AlgorithmIdentifier,
}

impl Issuer {
    /// The authority of a line: its certificate, those above it, and its key.
    pub(super) fn of_files(
        identity: CertifiedKey,
        pair: &CertificateFiles,
    ) -> Result<Self, SetupProblem> {
        let file = || pair.certificate.clone();
        let not_one = |why| SetupProblem::NoSigner { file: file(), why };
        let unreadable = || SetupProblem::BadCertificate {
            file: file(),
            number: 1,
            why: "it has a form that is not known".to_owned(),
        };
        let own = identity.cert.first().ok_or_else(unreadable)?;
        let (_, own) = x509_parser::parse_x509_certificate(own).map_err(|_| unreadable())?;
        if !own.is_ca() {
            return Err(not_one("it is not the certificate of an authority (`CA:TRUE`)"));
        }
        if own
            .key_usage()
            .is_ok_and(|usage| usage.is_some_and(|usage| !usage.value.key_cert_sign()))
        {
            return Err(not_one("its key may not sign certificates (`keyCertSign`)"));
        }
        let signer = Signer::new(Arc::clone(&identity.key))
            .ok_or_else(|| not_one("its key is of a kind that cannot sign certificates"))?;
        let from_key = || key_id(&own.public_key().subject_public_key.data);
        let key_id = subject_key_id(&own).unwrap_or_else(from_key);
        let (begins_s, ends_s) =
            (own.validity().not_before.timestamp(), own.validity().not_after.timestamp());
        // Clients have the root; all others they need.
        let is_root = |der: &CertificateDer<'_>| {
            x509_parser::parse_x509_certificate(der)
                .is_ok_and(|(_, one)| one.subject() == one.issuer())
        };
        let (mut chain, mut left_out) = (Vec::new(), 0);
        let mut wanted = None;
        for der in &identity.cert {
            let Ok((_, one)) = x509_parser::parse_x509_certificate(der) else { continue };
            let subject = one.subject().as_raw().to_vec();
            // Others of a bundle would go to each client, and into the memory for each certificate.
            match wanted.as_ref().is_none_or(|wanted| *wanted == subject) {
                true => {
                    wanted = Some(one.issuer().as_raw().to_vec());
                    chain.extend((!is_root(der)).then(|| der.clone()));
                }
                false => left_out += 1,
            }
        }
        let is_slow = own
            .public_key()
            .parsed()
            .is_ok_and(|key| matches!(&key, PublicKey::RSA(key) if key.key_size() > RSA_BITS_MOST));
        let serves = own.extended_key_usage().ok().flatten();
        let serves = serves.is_none_or(|usage| usage.value.any || usage.value.server_auth);
        let facts = identity.cert.first().and_then(|own| certificate_facts(own));
        let common_name = facts.as_ref().and_then(|own| own.subject.value("CN"));
        let common_name = common_name.unwrap_or("the authority").to_owned();
        let name = own.subject().as_raw().to_vec();
        let facts = Doubts { left_out, is_slow, serves };
        let key_file = pair.key.as_ref().unwrap_or(&pair.certificate).clone();
        let files = (file(), key_file);
        Ok(Self { name, common_name, key_id, chain, begins_s, ends_s, signer, files, facts })
    }

    /// What people should know, in words.
    pub(super) fn warnings(&self, now_s: i64, files: &dyn Files) -> Vec<String> {
        let (file, key_file) = &self.files;
        let mut told = Vec::new();
        match (self.ends_s - now_s).div_euclid(DAY_S) {
            ..0 => told.push(format!(
                "the authority in {file} has ended: clients refuse all certificates that it signs"
            )),
            days @ 0..=WARNED_DAYS => told.push(format!(
                "the authority in {file} ends in {days} days: clients then refuse all certificates \
                 that it signs; make another one with `humboldt ca new`"
            )),
            _ => {}
        }
        if self.begins_s > now_s {
            told.push(format!("the authority in {file} is not valid yet: clients refuse it"));
        }
        if !self.facts.serves {
            told.push(format!(
                "the authority in {file} may not sign certificates of servers (extendedKeyUsage): \
                 clients refuse them"
            ));
        }
        if self.facts.is_slow {
            told.push(format!(
                "the key in {file} is of RSA with more than {RSA_BITS_MOST} bits: each new \
                 certificate takes milliseconds of a core; an authority of P-256 takes hundreds of \
                 times less"
            ));
        }
        if files.is_open_to_all(key_file) {
            told.push(format!(
                "every user of this machine can read the key in {key_file}, and with it pass for \
                 any server before the clients that trust the authority: chmod o= {key_file}"
            ));
        }
        if self.facts.left_out > 0 {
            told.push(format!(
                "{} certificates in {file} do not belong to the chain of the first one, and are not \
                 sent",
                self.facts.left_out
            ));
        }
        told
    }

    /// An authority that no client can know, in place of another one.
    pub(super) fn unknown(known: &Self, provider: &CryptoProvider) -> Result<Self, String> {
        let own = LeafKey::new(provider)?;
        let common_name = format!("Not trusted by \"{}\"", known.common_name);
        Ok(Self {
            name: write::name(&common_name),
            common_name,
            key_id: own.key_id,
            chain: Vec::new(),
            begins_s: known.begins_s,
            ends_s: known.ends_s,
            signer: own.signer,
            files: Default::default(),
            facts: Doubts { left_out: 0, is_slow: false, serves: true },
        })
    }

    pub(super) fn signer(&self) -> &Signer {
        &self.signer
    }

    /// New certificates that one client may have in a second.
    pub(super) fn leaves_per_client_s(&self) -> u32 {
        match self.signer.scheme {
            _ if self.facts.is_slow => SLOWEST_LEAVES_PER_CLIENT_S,
            SignatureScheme::ECDSA_NISTP256_SHA256 | SignatureScheme::ED25519 => {
                LEAVES_PER_CLIENT_S
            }
            _ => SLOW_LEAVES_PER_CLIENT_S,
        }
    }
}

impl LeafKey {
    /// A new key. It is of P-256: all clients of today know it, and it is the fastest.
    pub(super) fn new(provider: &CryptoProvider) -> Result<Self, String> {
        let pair = rcgen::KeyPair::generate().map_err(|error| error.to_string())?;
        let pair = Zeroizing::new(pair);
        // The library overwrites this copy.
        let key = PrivatePkcs8KeyDer::from(pair.serialize_der());
        let key = provider.key_provider.load_private_key(key.into());
        let key = key.map_err(|error| error.to_string())?;
        let unusable = || "the library cannot sign with a key that it has made".to_owned();
        let public = key.public_key().ok_or_else(unusable)?.as_ref().to_vec();
        let signer = Signer::new(Arc::clone(&key)).ok_or_else(unusable)?;
        Ok(Self { key, public, key_id: key_id(pair.public_key_raw()), signer })
    }

    pub(super) fn signer(&self) -> &Signer {
        &self.signer
    }
}

impl Signer {
    fn new(key: Arc<dyn SigningKey>) -> Option<Self> {
        let can = |(scheme, _): &&(SignatureScheme, _)| key.choose_scheme(&[*scheme]).is_some();
        let (scheme, algorithm) = *SIGNATURES.iter().find(can)?;
        Some(Self { key, scheme, algorithm })
    }

    /// The signature of a certificate.
    pub(super) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, String> {
        let signer = self.key.choose_scheme(&[self.scheme]);
        let signer = signer.ok_or_else(|| "the key does not sign any more".to_owned())?;
        signer.sign(message).map_err(|error| error.to_string())
    }
}

fn key_id(public: &[u8]) -> Vec<u8> {
    Sha256::digest(public).iter().take(KEY_ID_BYTES).copied().collect()
}

fn subject_key_id(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    })
}
