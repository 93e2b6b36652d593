//! Files of certificates, keys and revocations.

use std::cell::RefCell;
use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::error::SetupProblem;
use crate::system::{self, SystemRoots};

/// Most authorities that cannot be used and are named one by one for a line.
const UNUSABLE_NAMED_MAX: usize = 8;

/// Reads files.
pub trait Files {
    /// The contents of a file.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// The files of a directory.
    fn list(&self, directory: &str) -> Result<Vec<String>, String>;

    /// Whether every user of the machine can read a file.
    fn is_open_to_all(&self, _path: &str) -> bool {
        false
    }

    /// The authorities that the system trusts, which nobody has read yet.
    fn system_roots(&self) -> Arc<SystemRoots>;
}

/// The files of this machine. The authorities of the system are read once, at their first use.
#[derive(Debug)]
pub struct OnDisk {
    system_roots: Arc<SystemRoots>,
}

impl Default for OnDisk {
    fn default() -> Self {
        Self { system_roots: Arc::new(SystemRoots::new(system::of_this_machine)) }
    }
}

impl Files for OnDisk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, String> {
        let read = std::fs::read_dir(directory).map_err(|error| error.to_string())?;
        let paths = read.filter_map(|entry| entry.ok()?.path().to_str().map(str::to_owned));
        let mut paths: Vec<String> = paths.filter(|path| Path::new(path).is_file()).collect();
        paths.sort_unstable();
        Ok(paths)
    }

    fn is_open_to_all(&self, path: &str) -> bool {
        /// Others than the owner and his group.
        const READ_BY_OTHERS: u32 = 0o004;
        std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & READ_BY_OTHERS != 0)
    }

    fn system_roots(&self) -> Arc<SystemRoots> {
        Arc::clone(&self.system_roots)
    }
}

/// Files whose contents are noted as they are read.
pub(crate) struct Noting<'f> {
    files: &'f dyn Files,
    noted: RefCell<Sha256>,
}

impl<'f> Noting<'f> {
    pub(crate) fn new(files: &'f dyn Files) -> Self {
        Self { files, noted: RefCell::default() }
    }

    /// The digest of everything that was read, in its order.
    pub(crate) fn noted(self) -> [u8; 32] {
        self.noted.into_inner().finalize().into()
    }
}

impl Files for Noting<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let bytes = self.files.read(path)?;
        let mut noted = self.noted.borrow_mut();
        noted.update((bytes.len() as u64).to_le_bytes());
        noted.update(&bytes);
        Ok(bytes)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, String> {
        self.files.list(directory)
    }

    fn is_open_to_all(&self, path: &str) -> bool {
        self.files.is_open_to_all(path)
    }

    fn system_roots(&self) -> Arc<SystemRoots> {
        self.files.system_roots()
    }
}

/// Authorities that a line names and that nobody can be verified by, in words.
#[derive(Debug, Default)]
pub(crate) struct Unusable {
    named: Vec<String>,
    others: usize,
}

impl Unusable {
    pub(crate) fn note(&mut self, problem: String) {
        match self.named.len() < UNUSABLE_NAMED_MAX {
            true => self.named.push(problem),
            false => self.others += 1,
        }
    }

    /// Tells them in cache.log. `line` is where they are named.
    pub(crate) fn tell(&self, line: &dyn Display) {
        for problem in &self.named {
            tracing::warn!("{line}: {problem}: nobody is verified by it");
        }
        if self.others > 0 {
            tracing::warn!("{line}: {} more cannot be used", self.others);
        }
    }
}

impl From<Vec<String>> for Unusable {
    fn from(problems: Vec<String>) -> Self {
        let mut unusable = Self::default();
        problems.into_iter().for_each(|problem| unusable.note(problem));
        unusable
    }
}

/// The authorities of a line.
pub(crate) struct Authorities {
    /// As they are trusted.
    pub(crate) store: RootCertStore,
    /// All certificates, also those that cannot be used as authorities.
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    /// What cannot be used.
    pub(crate) unusable: Unusable,
}

/// The authorities of files and directories. A file must be readable and whole; of a directory,
/// what cannot be used is left out.
pub(crate) fn authorities(
    files: &dyn Files,
    paths: &[String],
    directories: &[String],
) -> Result<Authorities, SetupProblem> {
    let (mut store, mut all) = (RootCertStore::empty(), Vec::new());
    let mut unusable = Unusable::default();
    let mut add_all = |found: Vec<CertificateDer<'static>>, path: &str, unusable: &mut Unusable| {
        for (at, certificate) in found.into_iter().enumerate() {
            let name = || format!("certificate {} of {path}", at + 1);
            // A directory of OpenSSL's has each file under several names.
            if !all.contains(&certificate) {
                all.push(certificate.clone());
                add(&mut store, certificate, unusable, name);
            }
        }
    };
    for path in paths {
        add_all(certificates(files, path)?, path, &mut unusable);
    }
    for directory in directories {
        let unreadable = |why| SetupProblem::Unreadable { file: directory.clone(), why };
        for path in files.list(directory).map_err(unreadable)? {
            let found = read(files, &path).and_then(|bytes| certificates_in(&bytes, &path));
            match found {
                Ok(found) => add_all(found, &path, &mut unusable),
                Err(problem) => unusable.note(problem.to_string()),
            }
        }
    }
    Ok(Authorities { store, certificates: all, unusable })
}

/// Trusts an authority, or notes that it cannot be used.
pub(crate) fn add(
    store: &mut RootCertStore,
    certificate: CertificateDer<'static>,
    unusable: &mut Unusable,
    name: impl Fn() -> String,
) {
    if let Err(error) = store.add(certificate) {
        unusable.note(format!("{} is no authority ({error})", name()));
    }
}

pub(crate) fn read(files: &dyn Files, path: &str) -> Result<Vec<u8>, SetupProblem> {
    files.read(path).map_err(|why| SetupProblem::Unreadable { file: path.to_owned(), why })
}

/// The certificates of a file, at least one.
pub(crate) fn certificates(
    files: &dyn Files,
    path: &str,
) -> Result<Vec<CertificateDer<'static>>, SetupProblem> {
    // The key may be in the same file.
    let found = certificates_in(&Zeroizing::new(read(files, path)?), path)?;
    match found.is_empty() {
        true => Err(SetupProblem::NoCertificate { file: path.to_owned() }),
        false => Ok(found),
    }
}

fn certificates_in(bytes: &[u8], path: &str) -> Result<Vec<CertificateDer<'static>>, SetupProblem> {
    let mut found = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(bytes) {
        let number = found.len() + 1;
        let bad = |why: String| SetupProblem::BadCertificate { file: path.to_owned(), number, why };
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        x509_parser::parse_x509_certificate(&certificate)
            .map_err(|error| bad(error.to_string()))?;
        found.push(certificate);
    }
    Ok(found)
}

/// The private key of a file, whose contents are overwritten after use. For the key that is the
/// part of who takes it (rustls' `load_private_key` does it).
pub(crate) fn key(files: &dyn Files, path: &str) -> Result<PrivateKeyDer<'static>, SetupProblem> {
    let bytes = Zeroizing::new(read(files, path)?);
    let file = path.to_owned();
    match PrivateKeyDer::from_pem_slice(&bytes) {
        // This form has the name of a plain key, and fields in front of it.
        _ if has(&bytes, b"Proc-Type: 4,ENCRYPTED") => Err(SetupProblem::EncryptedKey { file }),
        Ok(key) => Ok(key),
        Err(_) if has(&bytes, b"BEGIN ENCRYPTED PRIVATE KEY") => {
            Err(SetupProblem::EncryptedKey { file })
        }
        Err(_) => Err(SetupProblem::NoKey { file }),
    }
}

/// The lists of revoked certificates in files, PEM or DER.
pub(crate) fn revocations(
    files: &dyn Files,
    paths: &[String],
) -> Result<Vec<CertificateRevocationListDer<'static>>, SetupProblem> {
    let mut all = Vec::new();
    for path in paths {
        let bad = || SetupProblem::BadRevocations { file: path.clone() };
        let bytes = read(files, path)?;
        let before = all.len();
        for list in CertificateRevocationListDer::pem_slice_iter(&bytes) {
            all.push(list.map_err(|_| bad())?);
        }
        if all.len() == before {
            x509_parser::parse_x509_crl(&bytes).map_err(|_| bad())?;
            all.push(bytes.into());
        }
    }
    Ok(all)
}

fn has(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rcgen::{CertifiedKey, generate_simple_self_signed};

    use super::*;

    struct InMemory(BTreeMap<&'static str, Vec<u8>>);

    impl Files for InMemory {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            self.0.get(path).cloned().ok_or_else(|| "no permission".to_owned())
        }

        fn list(&self, _: &str) -> Result<Vec<String>, String> {
            let mut paths: Vec<_> = self.0.keys().map(ToString::to_string).collect();
            paths.push("/d/secret.pem".to_owned());
            Ok(paths)
        }

        fn system_roots(&self) -> Arc<SystemRoots> {
            Arc::new(SystemRoots::new(Default::default))
        }
    }

    #[test]
    fn authorities_that_cannot_be_used_are_named() {
        let CertifiedKey { cert, .. } =
            generate_simple_self_signed(["a.test".to_owned()]).expect("a certificate");
        let good = cert.pem().into_bytes();
        let damaged = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec();
        let files = InMemory(BTreeMap::from([
            ("/d/1.pem", good.clone()),
            ("/d/again.0", good.clone()),
            ("/d/damaged.pem", [good, damaged].concat()),
            ("/d/readme", b"hello".to_vec()),
        ]));
        let found = authorities(&files, &[], &["/d".to_owned()]).expect("authorities");
        assert_eq!((found.store.len(), found.certificates.len()), (1, 1));
        let named = found.unusable.named.join("; ");
        assert!(named.contains("certificate 2 of /d/damaged.pem"), "{named}");
        assert!(named.contains("/d/secret.pem cannot be read: no permission"), "{named}");
        assert_eq!(found.unusable.named.len(), 2, "{named}");
        // In a file they are errors.
        assert!(authorities(&files, &["/d/damaged.pem".to_owned()], &[]).is_err());
        // Many are counted.
        let many = Unusable::from(vec![String::new(); UNUSABLE_NAMED_MAX + 3]);
        assert_eq!((many.named.len(), many.others), (UNUSABLE_NAMED_MAX, 3));
    }

    #[test]
    fn a_certificate_that_is_no_authority_is_named_with_its_file_and_number() {
        let mut store = RootCertStore::empty();
        let mut unusable = Unusable::default();
        let garbage = CertificateDer::from(vec![0x30, 0]);
        add(&mut store, garbage, &mut unusable, || "certificate 3 of /x.pem".to_owned());
        assert!(store.is_empty());
        assert!(unusable.named[0].starts_with("certificate 3 of /x.pem is no authority"));
    }
}
