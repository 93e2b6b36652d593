//! The certificates of a subject that ends TLS.

use crate::environment::io;
use crate::{SubjectError, SubjectTlsWay};
use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Words for files of TLS, and their names in the run folder.
pub(crate) const TLS_FILES: [(&str, &str); 4] = [
    ("tls_authority", "tls/authority.pem"),
    ("tls_certificate", "tls/certificate.pem"),
    ("tls_key", "tls/key.pem"),
    ("tls_intercept", "tls/intercept.pem"),
];
/// Certificates and keys are for the subject's user only, who owns them.
const TLS_FILE_MODE: u32 = 0o600;

/// The certificates of a subject that ends TLS, all in PEM form. They are files of the run folder,
/// and `{tls_…}` in the subject's file are their paths.
#[derive(Clone)]
pub struct SubjectTls {
    /// How.
    pub way: SubjectTlsWay,
    /// `{tls_authority}`: the authority of the servers behind it.
    pub authority_pem: String,
    /// `{tls_certificate}`: its own certificate as an accelerator.
    pub certificate_pem: String,
    /// `{tls_key}`: the key of that certificate.
    pub key_pem: String,
    /// `{tls_intercept}`: the authority, with its key, in whose name it signs when it intercepts.
    pub intercept_pem: String,
}

/// Without its private keys, which belong in no log.
impl fmt::Debug for SubjectTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectTls").field("way", &self.way).finish_non_exhaustive()
    }
}

impl SubjectTls {
    /// Writes the files. They belong to the subject's user as soon as it gets its folder.
    pub(crate) fn write(&self, run_folder: &Path) -> Result<(), SubjectError> {
        let folder = run_folder.join("tls");
        fs::create_dir_all(&folder).map_err(io("make the folder", &folder))?;
        for (name, pem) in self.files() {
            let path = run_folder.join(name);
            let mut options = File::options();
            let file = options.write(true).create(true).truncate(true).mode(TLS_FILE_MODE);
            file.open(&path)
                .and_then(|mut file| file.write_all(pem.as_bytes()))
                .map_err(io("write", &path))?;
        }
        Ok(())
    }

    pub(crate) fn files(&self) -> [(&'static str, &str); 4] {
        let texts =
            [&self.authority_pem, &self.certificate_pem, &self.key_pem, &self.intercept_pem];
        std::array::from_fn(|index| (TLS_FILES[index].1, texts[index].as_str()))
    }
}
