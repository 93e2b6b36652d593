//! Files of certificates, keys and revocations.

use std::path::Path;
use std::sync::OnceLock;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};

use crate::error::SetupProblem;

/// Reads files.
pub trait Files {
    /// The contents of a file.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// The files of a directory.
    fn list(&self, directory: &str) -> Result<Vec<String>, String>;

    /// The authorities that the system trusts.
    fn system_roots(&self) -> Vec<CertificateDer<'static>>;
}

/// The files of this machine. The authorities of the system are read once, at their first use.
#[derive(Debug, Default)]
pub struct OnDisk {
    system_roots: OnceLock<Vec<CertificateDer<'static>>>,
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

    fn system_roots(&self) -> Vec<CertificateDer<'static>> {
        // What cannot be read is left out, as elsewhere on the system.
        self.system_roots.get_or_init(|| rustls_native_certs::load_native_certs().certs).clone()
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
    let found = certificates_in(&read(files, path)?, path)?;
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

/// The certificates of all files of a directory; files that hold something else are left out.
pub(crate) fn certificates_of_directory(
    files: &dyn Files,
    directory: &str,
) -> Result<Vec<CertificateDer<'static>>, SetupProblem> {
    let unreadable = |why| SetupProblem::Unreadable { file: directory.to_owned(), why };
    let paths = files.list(directory).map_err(unreadable)?;
    let contents = paths.iter().filter_map(|path| Some((path, files.read(path).ok()?)));
    let mut all: Vec<_> =
        contents.filter_map(|(path, bytes)| certificates_in(&bytes, path).ok()).flatten().collect();
    // A directory of OpenSSL's has each file under several names.
    all.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    all.dedup();
    Ok(all)
}

/// The private key of a file.
pub(crate) fn key(files: &dyn Files, path: &str) -> Result<PrivateKeyDer<'static>, SetupProblem> {
    let bytes = read(files, path)?;
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
