//! Verification of servers.

use std::sync::{Arc, OnceLock};

use humboldt_conf::{ServerVerification, TlsOutgoing};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, Der, ServerName, TrustAnchor, UnixTime,
};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};
use x509_parser::public_key::PublicKey;

use crate::error::SetupProblem;
use crate::fault::{SelfSigned, WeakKey};
use crate::files::{self, Authorities, Files};
use crate::identity::{Asked, Judge, Lists};
use crate::system::SystemRoots;

/// The shortest key of RSA that is taken.
const RSA_BITS_LEAST: usize = 2048;

/// Verifies servers by the authorities of a line.
#[derive(Debug)]
pub(crate) struct Verifier {
    /// The authorities that the line names.
    own: RootCertStore,
    /// Those of the system, if they count too.
    system: Option<Arc<SystemRoots>>,
    /// Made from both: at once where the system does not count, otherwise before the first server
    /// is verified.
    chains: OnceLock<Chains>,
    /// Certificates that are trusted as they are, if a server shows one. OpenSSL accepts a server's
    /// own certificate in `cafile=`, and so do many configurations.
    trusted: Vec<CertificateDer<'static>>,
    revocations: Vec<CertificateRevocationListDer<'static>>,
    /// When the first of them is too old, in seconds since 1970.
    revocations_end_s: Option<i64>,
    checks_whole_chain: bool,
    verification: ServerVerification,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub(crate) fn new(
        options: &TlsOutgoing,
        provider: &Arc<CryptoProvider>,
        files: &dyn Files,
    ) -> Result<Self, SetupProblem> {
        let Authorities { store, certificates, unusable } =
            files::authorities(files, &options.authorities, &options.directories)?;
        unusable.tell(&options.location);
        let verifies = options.verification != ServerVerification::None;
        let revocations = files::revocations(files, &options.revocations)?;
        let verifier = Self {
            own: store,
            system: (options.trusts_system && verifies).then(|| files.system_roots()),
            chains: OnceLock::new(),
            trusted: certificates,
            revocations_end_s: revocations.iter().filter_map(|list| end_of(list)).min(),
            revocations,
            checks_whole_chain: options.checks_whole_chain,
            verification: options.verification,
            provider: Arc::clone(provider),
        };
        match verifier.system {
            // Errors of the lists show now, although the authorities are not there yet.
            Some(_) => {
                verifier.build(Lists::All, &Arc::new(RootCertStore { roots: vec![nobody()] }))?;
            }
            None => {
                let chains = verifier.chains_of(&Arc::new(verifier.own.clone()))?;
                _ = verifier.chains.set(chains);
            }
        }
        Ok(verifier)
    }

    fn build(
        &self,
        lists: Lists,
        roots: &Arc<RootCertStore>,
    ) -> Result<Arc<WebPkiServerVerifier>, SetupProblem> {
        let (roots, provider) = (Arc::clone(roots), Arc::clone(&self.provider));
        let mut builder = WebPkiServerVerifier::builder_with_provider(roots, provider);
        if !self.revocations.is_empty() && lists != Lists::No {
            let revocations = self.revocations.iter().cloned();
            builder = builder.with_crls(revocations);
            if lists == Lists::All {
                builder = builder.enforce_revocation_expiration();
            }
            if !self.checks_whole_chain || lists == Lists::OfServer {
                builder = builder.only_check_end_entity_revocation();
            }
        }
        builder.build().map_err(|error| SetupProblem::Settings(error.to_string()))
    }

    /// What verifies by these authorities. Lists of revocations can be long: they are read here,
    /// and not by a core when it finds a fault.
    fn chains_of(&self, roots: &Arc<RootCertStore>) -> Result<Chains, SetupProblem> {
        let by = |lists| match roots.is_empty() {
            true => Ok(None),
            false => self.build(lists, roots).map(Some),
        };
        let all = by(Lists::All)?;
        if self.revocations.is_empty() {
            let (aged, of_server, without) = (all.clone(), all.clone(), all.clone());
            return Ok(Chains { all, aged, of_server, without });
        }
        let aged = by(Lists::Aged)?;
        let of_server = match self.checks_whole_chain {
            true => by(Lists::OfServer)?,
            false => aged.clone(),
        };
        Ok(Chains { all, aged, of_server, without: by(Lists::No)? })
    }

    /// `None`: the authorities cannot be read at present.
    fn chains(&self) -> Option<&Chains> {
        if let Some(chains) = self.chains.get() {
            return Some(chains);
        }
        let mut roots = self.system.as_ref()?.read()?;
        if !self.own.is_empty() {
            Arc::make_mut(&mut roots).roots.extend(self.own.roots.iter().cloned());
        }
        let chains = self.chains_of(&roots).ok()?;
        Some(self.chains.get_or_init(|| chains))
    }

    fn verify_chain(&self, lists: Lists, asked: &Asked<'_>, now: UnixTime) -> Result<(), Error> {
        let unknown = Err(Error::InvalidCertificate(CertificateError::UnknownIssuer));
        let &Asked { own, others, name } = asked;
        let verified = match self.chains().and_then(|chains| chains.by(lists)) {
            Some(chains) => chains.verify_server_cert(own, others, name, &[], now).map(drop),
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
            _ if self.trusts(own) && self.revocations.is_empty() && is_about_issuer(error) => {
                self.verify_trusted(own, name, now)
            }
            _ if is_about_issuer(error) && self.is_self_signed(own) => {
                let other = OtherError(Arc::new(SelfSigned));
                Err(Error::InvalidCertificate(CertificateError::Other(other)))
            }
            _ => verified,
        }
    }

    /// Whether a certificate is signed with its own key. One that only says so can be anybody's.
    fn is_self_signed(&self, own: &CertificateDer<'_>) -> bool {
        let Ok((_, own)) = x509_parser::parse_x509_certificate(own) else { return false };
        if own.subject() != own.issuer() {
            return false;
        }
        let key = &own.public_key().subject_public_key.data;
        let (message, signature) = (own.tbs_certificate.as_ref(), &own.signature_value.data);
        let mut algorithms = self.provider.signature_verification_algorithms.all.iter();
        algorithms.any(|one| one.verify_signature(key, message, signature).is_ok())
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

impl Judge for Verifier {
    fn verify_by(&self, lists: Lists, asked: &Asked<'_>, time: UnixTime) -> Result<(), Error> {
        match self.verification {
            ServerVerification::None => Ok(()),
            _ => self.verify_chain(lists, asked, time),
        }
    }

    fn has_current_lists(&self, now: UnixTime) -> bool {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        self.revocations_end_s.is_none_or(|end_s| now_s < end_s)
    }

    fn is_ready(&self) -> bool {
        self.chains.get().is_some() || self.verification == ServerVerification::None
    }

    fn prepare(&self) {
        _ = self.chains();
    }
}

/// The verification of chains, for each use of lists of revocations. `None`: nobody is trusted.
#[derive(Debug)]
struct Chains {
    all: Option<Arc<WebPkiServerVerifier>>,
    aged: Option<Arc<WebPkiServerVerifier>>,
    of_server: Option<Arc<WebPkiServerVerifier>>,
    without: Option<Arc<WebPkiServerVerifier>>,
}

impl Chains {
    fn by(&self, lists: Lists) -> Option<&Arc<WebPkiServerVerifier>> {
        match lists {
            Lists::All => self.all.as_ref(),
            Lists::Aged => self.aged.as_ref(),
            Lists::OfServer => self.of_server.as_ref(),
            Lists::No => self.without.as_ref(),
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_by(Lists::All, &Asked { own, others, name }, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, cert, dss, algorithms).map_err(|error| named(error, cert))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, algorithms).map_err(|error| named(error, cert))
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// When a list of revocations is too old; `None`: it does not say, or cannot be read.
fn end_of(list: &CertificateRevocationListDer<'_>) -> Option<i64> {
    let (_, list) = x509_parser::parse_x509_crl(list).ok()?;
    list.next_update().map(|end| end.timestamp())
}

/// Whether an error says no more than that no chain leads to an authority: a certificate that is
/// its own authority cannot have one.
fn is_about_issuer(error: &CertificateError) -> bool {
    match error {
        CertificateError::UnknownIssuer => true,
        // The library has no name of its own for an authority's certificate that a server uses. A
        // test fails where it writes this in another way.
        CertificateError::Other(other) => other.to_string().contains("CaUsedAsEndEntity"),
        _ => false,
    }
}

/// Why a signature of a server is refused: the library says no more than that it is wrong where the
/// key is shorter than it takes.
fn named(error: Error, own: &CertificateDer<'_>) -> Error {
    let parsed = x509_parser::parse_x509_certificate(own);
    let key = parsed.as_ref().ok().and_then(|(_, own)| own.public_key().parsed().ok());
    match key {
        Some(PublicKey::RSA(key)) if key.key_size() < RSA_BITS_LEAST => {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(WeakKey))))
        }
        _ => error,
    }
}

/// An authority that has signed nothing.
fn nobody() -> TrustAnchor<'static> {
    TrustAnchor {
        subject: Der::from_slice(&[]),
        subject_public_key_info: Der::from_slice(&[]),
        name_constraints: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use humboldt_conf::TlsSettings;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

    use super::*;
    use crate::provider::provider;
    use crate::system::SystemFiles;

    struct InMemory {
        file: Vec<u8>,
        system: Arc<SystemRoots>,
    }

    impl Files for InMemory {
        fn read(&self, _: &str) -> Result<Vec<u8>, String> {
            Ok(self.file.clone())
        }

        fn list(&self, _: &str) -> Result<Vec<String>, String> {
            Ok(Vec::new())
        }

        fn system_roots(&self) -> Arc<SystemRoots> {
            Arc::clone(&self.system)
        }
    }

    fn authority() -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["a.test".to_owned()]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().expect("a key")).expect("a certificate")
    }

    fn verify(verifier: &Verifier, own: &CertificateDer<'_>) -> Result<ServerCertVerified, Error> {
        let name = ServerName::try_from("a.test").expect("a name");
        verifier.verify_server_cert(own, &[], &name, &[], UnixTime::now())
    }

    #[test]
    fn the_systems_authorities_are_read_when_the_first_server_is_verified_and_once() {
        static READS: AtomicUsize = AtomicUsize::new(0);
        fn source() -> SystemFiles {
            READS.fetch_add(1, SeqCst);
            SystemFiles { certificates: vec![authority().der().clone()], ..SystemFiles::default() }
        }
        let files = InMemory { file: Vec::new(), system: Arc::new(SystemRoots::new(source)) };
        let new = |options: TlsOutgoing| {
            Verifier::new(&options, &provider(&TlsSettings::default()), &files).expect("settings")
        };
        let (one, two) = (new(TlsOutgoing::default()), new(TlsOutgoing::default()));
        let without = new(TlsOutgoing { trusts_system: false, ..TlsOutgoing::default() });
        let own = authority();
        assert!(verify(&without, own.der()).is_err());
        assert_eq!(READS.load(SeqCst), 0);
        for verifier in [&one, &two, &one] {
            assert!(verify(verifier, own.der()).is_err());
        }
        assert_eq!(READS.load(SeqCst), 1);
    }

    #[test]
    fn an_authoritys_own_certificate_is_one_that_is_signed_by_itself() {
        let own = authority();
        let system = Arc::new(SystemRoots::new(SystemFiles::default));
        let files = InMemory { file: own.pem().into_bytes(), system };
        let provider = provider(&TlsSettings::default());
        let trusting = TlsOutgoing {
            authorities: vec!["/a".to_owned()],
            trusts_system: false,
            ..TlsOutgoing::default()
        };
        // The library refuses it in words of its own, which are known here.
        let verifier = Verifier::new(&trusting, &provider, &files).expect("settings");
        let Some(chains) = verifier.chains().and_then(|chains| chains.all.as_ref()) else {
            panic!("an authority is trusted")
        };
        let name = ServerName::try_from("a.test").expect("a name");
        let refused = chains.verify_server_cert(own.der(), &[], &name, &[], UnixTime::now());
        let Err(Error::InvalidCertificate(error)) = &refused else { panic!("{refused:?}") };
        assert!(matches!(error, CertificateError::Other(_)) && is_about_issuer(error), "{error:?}");
        // It is trusted as it is where it is named, and has its name where it is not.
        assert!(verify(&verifier, own.der()).is_ok());
        let refused = verify(&verifier, authority().der());
        let Err(Error::InvalidCertificate(CertificateError::Other(other))) = refused else {
            panic!("{refused:?}");
        };
        assert!(other.0.is::<SelfSigned>());
    }

    #[test]
    fn a_list_of_revocations_that_cannot_be_read_shows_before_anybody_is_verified() {
        let system = Arc::new(SystemRoots::new(SystemFiles::default));
        let files = InMemory {
            file: b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n".to_vec(),
            system,
        };
        let options = TlsOutgoing { revocations: vec!["/r".to_owned()], ..TlsOutgoing::default() };
        let refused = Verifier::new(&options, &provider(&TlsSettings::default()), &files);
        assert!(matches!(refused, Err(SetupProblem::Settings(_))), "{refused:?}");
    }
}
