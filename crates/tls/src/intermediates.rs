//! Certificates that servers should have sent (`sslproxy_foreign_intermediate_certs`).

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};

use crate::identity::{Asked, Judge, Lists};

/// Most certificates that are added to a chain.
const ADDED_MAX: usize = 8;

/// Verifies servers with the certificates that they may have failed to send. Nobody is trusted
/// because of them.
pub(crate) struct Completing {
    verifier: Arc<dyn Judge>,
    /// By the name of whom they are for.
    known: HashMap<Vec<u8>, Vec<CertificateDer<'static>>>,
}

impl fmt::Debug for Completing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completing").field("known", &self.known.len()).finish_non_exhaustive()
    }
}

impl Completing {
    pub(crate) fn new(
        verifier: Arc<dyn Judge>,
        certificates: Vec<CertificateDer<'static>>,
    ) -> Self {
        let mut known: HashMap<Vec<u8>, Vec<_>> = HashMap::new();
        for certificate in certificates {
            if let Some((subject, _)) = names(&certificate) {
                known.entry(subject).or_default().push(certificate);
            }
        }
        Self { verifier, known }
    }

    /// The chain with what it lacks.
    fn complete<'a>(
        &self,
        own: &CertificateDer<'_>,
        others: &'a [CertificateDer<'a>],
    ) -> Cow<'a, [CertificateDer<'a>]> {
        let chain: Vec<_> = std::iter::once(own).chain(others).collect();
        let added = self.missing(&chain);
        if added.is_empty() {
            return Cow::Borrowed(others);
        }
        let mut all = others.to_vec();
        all.extend(added);
        Cow::Owned(all)
    }

    /// Those that a chain lacks: the signers of its certificates that are not in it.
    fn missing(&self, chain: &[&CertificateDer<'_>]) -> Vec<CertificateDer<'static>> {
        let chain_names: Vec<_> = chain.iter().filter_map(|der| names(der)).collect();
        let mut there: Vec<Vec<u8>> = Vec::new();
        let mut wanted: Vec<Vec<u8>> = Vec::new();
        for (subject, issuer) in chain_names {
            there.push(subject);
            wanted.push(issuer);
        }
        let mut added: Vec<CertificateDer<'static>> = Vec::new();
        while let Some(issuer) = wanted.pop() {
            if there.contains(&issuer) {
                continue;
            }
            for one in self.known.get(&issuer).into_iter().flatten() {
                if added.len() == ADDED_MAX {
                    return added;
                }
                wanted.extend(names(one).map(|(_, issuer)| issuer));
                added.push(one.clone());
            }
            there.push(issuer);
        }
        added
    }
}

impl Judge for Completing {
    fn verify_by(&self, lists: Lists, asked: &Asked<'_>, time: UnixTime) -> Result<(), Error> {
        let Asked { own, others, name } = *asked;
        let others = &*self.complete(own, others);
        self.verifier.verify_by(lists, &Asked { own, others, name }, time)
    }

    fn has_current_lists(&self, now: UnixTime) -> bool {
        self.verifier.has_current_lists(now)
    }

    fn is_ready(&self) -> bool {
        self.verifier.is_ready()
    }

    fn prepare(&self) {
        self.verifier.prepare();
    }
}

/// Subject and issuer.
fn names(der: &CertificateDer<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let (_, one) = x509_parser::parse_x509_certificate(der).ok()?;
    Some((one.subject().as_raw().to_vec(), one.issuer().as_raw().to_vec()))
}

impl ServerCertVerifier for Completing {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verifier.verify_server_cert(own, &self.complete(own, others), name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
