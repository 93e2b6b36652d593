//! Verification of servers.

use std::sync::Arc;

use humboldt_conf::{ServerVerification, TlsOutgoing};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::error::SetupProblem;
use crate::fault::SelfSigned;
use crate::files::{self, Files};

/// Verifies servers by the authorities of a line.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// `None`: nobody is trusted.
    chains: Option<Arc<WebPkiServerVerifier>>,
    /// Certificates that are trusted as they are, if a server shows one. OpenSSL accepts a server's
    /// own certificate in `cafile=`, and so do many configurations.
    trusted: Vec<CertificateDer<'static>>,
    has_revocations: bool,
    verification: ServerVerification,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(crate) fn new(
        options: &TlsOutgoing,
        provider: &Arc<CryptoProvider>,
        files: &dyn Files,
    ) -> Result<Self, SetupProblem> {
        let mut trusted = Vec::new();
        for file in &options.authorities {
            trusted.extend(files::certificates(files, file)?);
        }
        for directory in &options.directories {
            trusted.extend(files::certificates_of_directory(files, directory)?);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(trusted.iter().cloned());
        let verifies = options.verification != ServerVerification::None;
        if options.trusts_system && verifies {
            roots.add_parsable_certificates(files.system_roots());
        }
        let revocations = files::revocations(files, &options.revocations)?;
        let has_revocations = !revocations.is_empty();
        let chains = match roots.is_empty() {
            true => None,
            false => {
                let provider = Arc::clone(provider);
                let mut builder =
                    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
                if has_revocations {
                    builder = builder.with_crls(revocations).enforce_revocation_expiration();
                    if !options.checks_whole_chain {
                        builder = builder.only_check_end_entity_revocation();
                    }
                }
                let built = builder.build();
                Some(built.map_err(|error| SetupProblem::Settings(error.to_string()))?)
            }
        };
        Ok(Self {
            chains,
            trusted,
            has_revocations,
            verification: options.verification,
            provider: Arc::clone(provider),
        })
    }

    fn verify_chain(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<(), Error> {
        let unknown = Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let verified = match &self.chains {
            Some(chains) => chains.verify_server_cert(own, chain, name, ocsp, now).map(drop),
            None => unknown,
        };
        let Err(Error::InvalidCertificate(error)) = &verified else { return verified };
        match error {
            // The chain was found good before the name was looked at.
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
                if self.verification == ServerVerification::ChainOnly =>
            {
                Ok(())
            }
            // A list of revocations could say something about this one; nobody can tell.
            _ if self.trusts(own) && !self.has_revocations && is_about_issuer(error) => {
                self.verify_trusted(own, name, now)
            }
            _ if is_about_issuer(error) && is_self_signed(own) => {
                let other = OtherError(Arc::new(SelfSigned));
                Err(Error::InvalidCertificate(CertificateError::Other(other)))
            }
            _ => verified,
        }
    }

    fn trusts(&self, own: &CertificateDer<'_>) -> bool {
        self.trusted.iter().any(|trusted| trusted.as_ref() == own.as_ref())
    }

    /// Verifies a certificate that is trusted as it is: its time and its names.
    fn verify_trusted(
        &self,
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<(), Error> {
        let bad = |error| Err(Error::InvalidCertificate(error));
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(own) else {
            return bad(CertificateError::BadEncoding);
        };
        let (now_s, validity) = (i64::try_from(now.as_secs()), certificate.validity());
        let now_s = now_s.unwrap_or(i64::MAX);
        if now_s > validity.not_after.timestamp() {
            return bad(CertificateError::Expired);
        }
        if now_s < validity.not_before.timestamp() {
            return bad(CertificateError::NotValidYet);
        }
        if self.verification == ServerVerification::ChainOnly {
            return Ok(());
        }
        rustls::client::verify_server_name(&ParsedCertificate::try_from(own)?, name)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.verification != ServerVerification::None {
            self.verify_chain(end_entity, intermediates, server_name, ocsp_response, now)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Whether an error says no more than that no chain leads to an authority: a certificate that is
/// its own authority cannot have one.
fn is_about_issuer(error: &CertificateError) -> bool {
    match error {
        CertificateError::UnknownIssuer => true,
        // The library has no name of its own for an authority's certificate that a server uses.
        CertificateError::Other(other) => other.to_string().contains("CaUsedAsEndEntity"),
        _ => false,
    }
}

fn is_self_signed(own: &CertificateDer<'_>) -> bool {
    x509_parser::parse_x509_certificate(own)
        .is_ok_and(|(_, certificate)| certificate.subject() == certificate.issuer())
}
