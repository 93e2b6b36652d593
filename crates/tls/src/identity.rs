//! Connections to servers whose certificates are judged after the handshake, so that rules can
//! forgive faults (`sslproxy_cert_error`), and a certificate with the same ones can be made.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::bump::ServerIdentity;
use humboldt_conf::ServerVerification;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use sha1::{Digest, Sha1};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::certificates::{certificate_facts, names};
use crate::fault::CertificateFault;

/// Most certificates of a chain that is followed.
const CHAIN_MAX: usize = 10;

/// A server, and all that is wrong with its certificate.
#[derive(Clone, Debug, Default)]
pub struct Identified {
    /// For rules and logs. Version and cipher are left open.
    pub identity: ServerIdentity,
    /// The faults, in the order of `identity.faults`.
    pub faults: Vec<CertificateFault>,
}

/// What verifies servers, in parts.
pub(crate) trait Judge: ServerCertVerifier {
    /// As [`ServerCertVerifier::verify_server_cert`], with these lists of revocations only.
    fn verify_by(&self, lists: Lists, asked: &Asked<'_>, time: UnixTime) -> Result<(), Error>;

    /// Whether none of the lists of revocations is too old.
    fn has_current_lists(&self, now: UnixTime) -> bool;

    /// Whether it can verify at once.
    fn is_ready(&self) -> bool;

    /// Makes it ready, which blocks: the authorities of the system are read.
    fn prepare(&self);
}

/// Which lists of revocations are looked at.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// As the settings say.
    All,
    /// The same, however old they are.
    Aged,
    /// Those for the server's own certificate, however old they are.
    OfServer,
    /// None.
    No,
}

/// Finds everything that is wrong with a server's certificate. The library stops at the first
/// fault; a rule that forgives one of them must not forgive the others with it. So the time of the
/// server's own certificate, its names, its chain and the lists of revocations are looked at one by
/// one.
pub(crate) fn identify(
    verifier: &dyn Judge,
    verification: ServerVerification,
    chain: &[CertificateDer<'_>],
    name: &ServerName<'_>,
    now: UnixTime,
) -> Identified {
    let Some((own, others)) = chain.split_first() else {
        return Identified::default().with(vec![CertificateFault::Missing]);
    };
    let mut found = Identified::default();
    found.identity.der = own.as_ref().into();
    found.identity.sha1 = Sha1::digest(own.as_ref()).into();
    found.identity.certificate = certificate_facts(own);
    let parsed = x509_parser::parse_x509_certificate(own).ok();
    let parsed = parsed.as_ref().map(|(_, parsed)| parsed);
    found.identity.names = parsed.map(all_names).unwrap_or_default();
    if verification == ServerVerification::None {
        return found.with(Vec::new());
    }
    let asked = Asked { own, others, name };
    let faults = match (parsed, &found.identity.certificate) {
        (Some(parsed), Some(_)) if others.len() < CHAIN_MAX => {
            let times = Times::of(parsed, others);
            let faults = asked.faults(verifier, parsed, &times, now, verification);
            found.identity.chain_time_s = times.of_chain(now, &faults);
            faults
        }
        // Rules about names that cannot be read could not be answered, and nobody follows a chain
        // that is so long. So everything else may be wrong too.
        (parsed, _) => {
            let mut faults = vec![CertificateFault::Invalid, CertificateFault::UnknownIssuer];
            faults.extend(parsed.and_then(|own| out_of_time(own, now)));
            faults.extend(asked.fault_of_name(parsed, verification));
            faults
        }
    };
    found.with(faults)
}

impl Identified {
    fn with(mut self, faults: Vec<CertificateFault>) -> Self {
        self.identity.faults = faults.iter().map(CertificateFault::name).collect();
        self.faults = faults;
        self
    }
}

/// A chain and the name that it is to be for.
pub(crate) struct Asked<'a> {
    pub(crate) own: &'a CertificateDer<'a>,
    pub(crate) others: &'a [CertificateDer<'a>],
    pub(crate) name: &'a ServerName<'a>,
}

impl Asked<'_> {
    /// Six looks at the chain at most: each may cost the library its whole budget. At another time
    /// than now lists of revocations are looked at however old they are, as their own time is now.
    fn faults(
        &self,
        verifier: &dyn Judge,
        own: &X509Certificate<'_>,
        times: &Times,
        now: UnixTime,
        verification: ServerVerification,
    ) -> Vec<CertificateFault> {
        use CertificateFault::{Expired, NotYetValid, Revoked, UnknownIssuer, UnknownRevocation};
        let mut faults: Vec<CertificateFault> = Vec::new();
        let fault_at = |lists, time| self.fault_at(verifier, lists, time);
        let (mut of_chain, mut time) = (fault_at(Lists::All, now), now);
        let mut late = None;
        if let Some(Expired | NotYetValid) = of_chain {
            // Only the time has been looked at so far, that of the server's own certificate or of
            // an authority's.
            late = of_chain;
            // If there is no moment at which the chain was valid as a whole, nobody can tell who
            // has signed it.
            of_chain = Some(UnknownIssuer);
            for other in times.tried(now) {
                match fault_at(Lists::Aged, other) {
                    Some(Expired | NotYetValid) => {}
                    found => {
                        (of_chain, time) = (found, other);
                        break;
                    }
                }
            }
        }
        // The lists are looked at before what is signed below them.
        if let Some(Revoked | UnknownRevocation) = of_chain {
            faults.extend(fault_at(Lists::OfServer, time));
            faults.extend(fault_at(Lists::No, time));
        }
        let is_told_by_now = late.is_none() && of_chain != Some(Revoked);
        faults.extend(of_chain);
        if !is_told_by_now && !verifier.has_current_lists(now) {
            faults.push(UnknownRevocation);
        }
        if faults.iter().any(is_found_before_the_issuer) {
            faults.push(UnknownIssuer);
        }
        let of_time = out_of_time(own, now);
        faults.extend(of_time);
        if late.is_some() {
            // The library tells the first one only, and an authority may be out of its time in
            // another way.
            faults.extend(late);
            faults.extend(times.others.iter().filter_map(|time| out_of(*time, now)));
        }
        // Names are the last thing that the library looks at.
        faults.retain(|fault| !matches!(fault, CertificateFault::WrongName(_)));
        faults.extend(self.fault_of_name(Some(own), verification));
        let mut told = Vec::new();
        for fault in faults {
            if !told.contains(&fault) {
                told.push(fault);
            }
        }
        told
    }

    /// The first fault that the library finds, if this were the time.
    fn fault_at(
        &self,
        verifier: &dyn Judge,
        lists: Lists,
        time: UnixTime,
    ) -> Option<CertificateFault> {
        match verifier.verify_by(lists, self, time) {
            Ok(()) => None,
            Err(Error::InvalidCertificate(error)) => Some(CertificateFault::from(&error)),
            Err(_) => Some(CertificateFault::Invalid),
        }
    }

    fn fault_of_name(
        &self,
        own: Option<&X509Certificate<'_>>,
        verification: ServerVerification,
    ) -> Option<CertificateFault> {
        let is_for_name = || {
            let parsed = ParsedCertificate::try_from(self.own);
            parsed.is_ok_and(|own| rustls::client::verify_server_name(&own, self.name).is_ok())
        };
        let is_wrong = verification == ServerVerification::Full && !is_for_name();
        is_wrong.then(|| CertificateFault::WrongName(own.map(all_names).unwrap_or_default()))
    }
}

/// Whether the library may have stopped before it knew who has signed, or whether the signature is
/// nobody's.
fn is_found_before_the_issuer(fault: &CertificateFault) -> bool {
    use CertificateFault::{
        BadSignature, Invalid, NotPermitted, WeakKey, WeakSignature, WrongPurpose,
    };
    matches!(fault, BadSignature | Invalid | NotPermitted | WeakKey | WeakSignature | WrongPurpose)
}

/// The times of a chain, in seconds since 1970: begin and end.
struct Times {
    own: (i64, i64),
    /// What all certificates have in common; its end may be before its begin.
    common: (i64, i64),
    /// The certificates of the chain that are not the server's own.
    others: Vec<(i64, i64)>,
}

impl Times {
    fn of(own: &X509Certificate<'_>, others: &[CertificateDer<'_>]) -> Self {
        let time = |one: &X509Certificate<'_>| {
            (one.validity().not_before.timestamp(), one.validity().not_after.timestamp())
        };
        let parsed = others.iter().filter_map(|der| x509_parser::parse_x509_certificate(der).ok());
        let others: Vec<_> = parsed.map(|(_, other)| time(&other)).collect();
        let own = time(own);
        let common = others.iter().fold(own, |all, one| (all.0.max(one.0), all.1.min(one.1)));
        Self { own, common, others }
    }

    /// The time of the chain, if its faults say that it is out of it, and the server's own
    /// certificate is not: a certificate that is made after that one alone would hide it. The one
    /// to blame may not have been sent: then the time has just ended.
    fn of_chain(&self, now: UnixTime, faults: &[CertificateFault]) -> Option<(i64, i64)> {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let is_out = |(begins, ends): (i64, i64)| now_s < begins || now_s > ends;
        let is_of_time = |fault: &CertificateFault| {
            matches!(fault, CertificateFault::Expired | CertificateFault::NotYetValid)
        };
        if is_out(self.own) || !faults.iter().any(is_of_time) {
            return None;
        }
        Some(if is_out(self.common) { self.common } else { (self.own.0, now_s - 1) })
    }

    /// Moments at which the chain may have been valid: one in the time that all have in common, or,
    /// as servers send certificates that do not belong to the chain, the ends of their own.
    fn tried(&self, now: UnixTime) -> Vec<UnixTime> {
        let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let (begin, end) = self.common;
        let mut tried = Vec::new();
        if begin <= end {
            tried.push(now_s.clamp(begin, end));
        }
        tried.extend([self.own.1, self.own.0]);
        tried.dedup();
        let time = |s: i64| UnixTime::since_unix_epoch(Duration::from_secs(s.max(0) as u64));
        tried.into_iter().filter(|s| *s != now_s).map(time).collect()
    }
}

fn out_of_time(certificate: &X509Certificate<'_>, now: UnixTime) -> Option<CertificateFault> {
    let validity = certificate.validity();
    out_of((validity.not_before.timestamp(), validity.not_after.timestamp()), now)
}

fn out_of((begins_s, ends_s): (i64, i64), now: UnixTime) -> Option<CertificateFault> {
    let now_s = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    match () {
        () if now_s > ends_s => Some(CertificateFault::Expired),
        () if now_s < begins_s => Some(CertificateFault::NotYetValid),
        () => None,
    }
}

/// The names and addresses that a certificate is for.
fn all_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let alternative = extension.iter().flat_map(|extension| &extension.value.general_names);
    let addresses = alternative.filter_map(|name| match name {
        GeneralName::IPAddress(bytes) => address(bytes).map(|ip| ip.to_string()),
        _ => None,
    });
    let addresses: Vec<String> = addresses.collect();
    let mut all = match addresses.is_empty() || has_host_names(certificate) {
        true => names(certificate),
        // The common name counts only where the extension names nothing.
        false => Vec::new(),
    };
    all.extend(addresses);
    // What could end a line of a log is not passed on.
    for name in &mut all {
        if name.contains(char::is_control) {
            *name = name.replace(char::is_control, "?");
        }
    }
    all
}

fn has_host_names(certificate: &X509Certificate<'_>) -> bool {
    let extension = certificate.subject_alternative_name().ok().flatten();
    let mut alternative = extension.iter().flat_map(|extension| &extension.value.general_names);
    alternative.any(|name| matches!(name, GeneralName::DNSName(_)))
}

/// An address as certificates have it.
pub(crate) fn address(bytes: &[u8]) -> Option<IpAddr> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(v4.into());
    }
    <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from)
}

/// Lets every certificate pass the handshake. Its signatures are verified, so that the server has
/// the key of the certificate that it shows; the certificate itself is [`identify`]'s matter,
/// afterwards, also where a session goes on.
pub(crate) struct JudgedLater(pub(crate) Arc<dyn Judge>);

impl fmt::Debug for JudgedLater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JudgedLater")
    }
}

impl ServerCertVerifier for JudgedLater {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // One that cannot be read has no key to verify signatures by.
        match ParsedCertificate::try_from(own) {
            Ok(_) => Ok(ServerCertVerified::assertion()),
            Err(_) => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests;
