//! The certificates of a port, and the choice among them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustls::SignatureAlgorithm;
use rustls::pki_types::UnixTime;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// A certificate with its key, and the host names that it is for.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) key: Arc<CertifiedKey>,
    /// In lower case; `*.example.com` for one label more.
    pub(crate) names: Vec<String>,
    /// The same with an answer of OCSP, if there is one.
    pub(crate) stapled: Option<WithAnswer>,
}

/// A certificate with an answer of OCSP.
#[derive(Debug)]
pub(crate) struct WithAnswer {
    pub(crate) key: Arc<CertifiedKey>,
    /// When the answer is too old, in seconds of Unix time.
    pub(crate) until_s: u64,
    /// The file that should be renewed.
    pub(crate) file: String,
    /// The log has been told that it is too old.
    pub(crate) told: AtomicBool,
}

impl Named {
    /// The certificate as it is sent now.
    fn current(&self, now: UnixTime) -> Arc<CertifiedKey> {
        let Some(stapled) = &self.stapled else { return Arc::clone(&self.key) };
        if now.as_secs() < stapled.until_s {
            return Arc::clone(&stapled.key);
        }
        if !stapled.told.swap(true, Relaxed) {
            tracing::warn!(
                "{}: this answer of OCSP is too old now, and is no longer sent: renew the file, \
                 and reconfigure",
                stapled.file
            );
        }
        Arc::clone(&self.key)
    }
}

/// The certificates of a port. The one for the name that the client has sent is chosen: one with
/// that very name, then one with a wildcard, then the first of the file. Among equals it is the
/// first whose key the client can verify, those of elliptic curves before RSA, which costs many
/// times more.
#[derive(Debug)]
pub(crate) struct ByName {
    certificates: Vec<Named>,
}

/// How well a certificate fits a name.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Exact,
    Wildcard,
    First,
    Other,
}

impl ByName {
    pub(crate) fn new(certificates: Vec<Named>) -> Self {
        Self { certificates }
    }

    fn choose(
        &self,
        name: Option<&str>,
        is_usable: impl Fn(&CertifiedKey) -> bool,
    ) -> Option<&Named> {
        let first_names = self.certificates.first().map(|first| &first.names);
        let fit = |named: &Named| match name {
            Some(name) if named.names.iter().any(|own| own == name) => Fit::Exact,
            Some(name) if named.names.iter().any(|own| covers(own, name)) => Fit::Wildcard,
            // The first certificate of the file may be there with keys of two kinds.
            _ if Some(&named.names) == first_names => Fit::First,
            _ => Fit::Other,
        };
        let usable = self.certificates.iter().filter(|named| is_usable(&named.key));
        usable.min_by_key(|named| (fit(named), is_rsa(&named.key)))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().map(str::to_ascii_lowercase);
        let can_verify =
            |key: &CertifiedKey| key.key.choose_scheme(hello.signature_schemes()).is_some();
        // A client that can verify none of them gets the alert `handshake_failure` for one. Without
        // one it would get `access_denied`, which says something else.
        let any = || self.choose(name.as_deref(), |_| true);
        let chosen = self.choose(name.as_deref(), can_verify).or_else(any)?;
        Some(chosen.current(UnixTime::now()))
    }
}

fn is_rsa(key: &CertifiedKey) -> bool {
    key.key.algorithm() == SignatureAlgorithm::RSA
}

/// Whether a wildcard covers a name: one label, never more (RFC 9525 6.3).
fn covers(own: &str, name: &str) -> bool {
    let Some(parent) = own.strip_prefix("*.") else { return false };
    name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_one_label() {
        assert!(covers("*.a.test", "b.a.test"));
        for name in ["a.test", "c.b.a.test", ".a.test", "b.a.test.", "ba.test"] {
            assert!(!covers("*.a.test", name), "{name}");
        }
    }
}
