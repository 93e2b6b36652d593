//! The authorities that the system trusts. They are read when the first server is verified by them,
//! as reading them takes milliseconds, and keeping them a few hundred kilobytes.

use std::fmt;
use std::sync::{Arc, OnceLock};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;

use crate::files::{Unusable, add};

/// What the system has.
#[derive(Debug, Default)]
pub struct SystemFiles {
    /// Its certificates.
    pub certificates: Vec<CertificateDer<'static>>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
}

/// The authorities of the system, which all connections of a configuration share.
pub struct SystemRoots {
    source: fn() -> SystemFiles,
    store: OnceLock<Arc<RootCertStore>>,
}

impl SystemRoots {
    /// Those that `source` will find.
    pub fn new(source: fn() -> SystemFiles) -> Self {
        Self { source, store: OnceLock::new() }
    }

    /// Whether they have been read.
    pub fn are_read(&self) -> bool {
        self.store.get().is_some()
    }

    /// Reads them, if nobody has. That blocks for milliseconds: a core lets another thread do it.
    pub fn read(&self) -> &Arc<RootCertStore> {
        self.store.get_or_init(|| {
            let SystemFiles { certificates, problems } = (self.source)();
            let mut unusable = Unusable::from(problems);
            let mut store = RootCertStore::empty();
            for (at, certificate) in certificates.into_iter().enumerate() {
                let name = || format!("certificate {} of the system", at + 1);
                add(&mut store, certificate, &mut unusable, name);
            }
            unusable.tell(&"the authorities of the system");
            if store.is_empty() {
                tracing::warn!(
                    "the system has no authorities, so that no server can be verified by them: \
                     install ca-certificates, or name a file with cafile="
                );
            }
            store.roots.shrink_to_fit();
            Arc::new(store)
        })
    }
}

impl fmt::Debug for SystemRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemRoots").field("are_read", &self.are_read()).finish_non_exhaustive()
    }
}

/// The certificates of this machine, where OpenSSL looks for them too.
pub(crate) fn of_this_machine() -> SystemFiles {
    let found = rustls_native_certs::load_native_certs();
    let problems = found.errors.iter().map(ToString::to_string).collect();
    SystemFiles { certificates: found.certs, problems }
}
