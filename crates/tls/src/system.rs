//! The authorities that the system trusts. They are read when the first server is verified by them,
//! as reading them takes milliseconds, and keeping them a few hundred kilobytes.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls_native_certs::ErrorKind;

use crate::files::{Unusable, add};

/// Least time between two attempts to read them.
const RETRY_TIME: Duration = Duration::from_secs(1);

/// Errors of the system that pass: `ENOMEM`, `ENFILE`, `EMFILE`.
const SHORT_OF: [i32; 3] = [12, 23, 24];

/// What the system has.
#[derive(Debug, Default)]
pub struct SystemFiles {
    /// Its certificates.
    pub certificates: Vec<CertificateDer<'static>>,
    /// What could not be read, in words.
    pub problems: Vec<String>,
    /// Something could not be read because the machine was short of descriptors or memory.
    pub is_short: bool,
}

/// The authorities of the system, which all connections of a configuration share.
pub struct SystemRoots {
    source: fn() -> SystemFiles,
    store: OnceLock<Arc<RootCertStore>>,
    /// When the machine was last short of something.
    failed: Mutex<Option<Instant>>,
}

impl SystemRoots {
    /// Those that `source` will find.
    pub fn new(source: fn() -> SystemFiles) -> Self {
        Self { source, store: OnceLock::new(), failed: Mutex::new(None) }
    }

    /// Whether they have been read.
    pub fn are_read(&self) -> bool {
        self.store.get().is_some()
    }

    /// Reads them, if nobody has. That blocks for milliseconds: a core lets another thread do it.
    /// `None`: the machine is short of something now, and they are read again later. A part of them
    /// would refuse servers for as long as the configuration lives.
    pub fn read(&self) -> Option<Arc<RootCertStore>> {
        let mut failed = self.failed.lock();
        if let Some(store) = self.store.get() {
            return Some(Arc::clone(store));
        }
        if failed.is_some_and(|at| at.elapsed() < RETRY_TIME) {
            return None;
        }
        let found = (self.source)();
        if found.is_short {
            for problem in &found.problems {
                tracing::warn!("the authorities of the system cannot be read now: {problem}");
            }
            *failed = Some(Instant::now());
            return None;
        }
        Some(Arc::clone(self.store.get_or_init(|| Arc::new(store_of(found)))))
    }
}

fn store_of(found: SystemFiles) -> RootCertStore {
    let mut unusable = Unusable::from(found.problems);
    let mut store = RootCertStore::empty();
    for (at, certificate) in found.certificates.into_iter().enumerate() {
        let name = || format!("certificate {} of the system", at + 1);
        add(&mut store, certificate, &mut unusable, name);
    }
    unusable.tell(&"the authorities of the system");
    if store.is_empty() {
        tracing::warn!(
            "the system has no authorities, so that no server can be verified by them: install \
             ca-certificates, or name a file with cafile="
        );
    }
    store.roots.shrink_to_fit();
    store
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
    let is_short = found.errors.iter().any(|error| match &error.kind {
        ErrorKind::Io { inner, .. } => {
            inner.raw_os_error().is_some_and(|number| SHORT_OF.contains(&number))
        }
        _ => false,
    });
    SystemFiles { certificates: found.certs, problems, is_short }
}
