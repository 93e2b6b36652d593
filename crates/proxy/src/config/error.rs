//! Why a configuration cannot be compiled.

use std::fmt;

use humboldt_acl::AclError;
use humboldt_tls::SetupError;

/// Why a configuration cannot be compiled.
#[derive(Debug)]
pub enum CompileError {
    /// An ACL or a rule.
    Acl(AclError),
    /// The TLS of a line.
    Tls(SetupError),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acl(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl From<AclError> for CompileError {
    fn from(error: AclError) -> Self {
        Self::Acl(error)
    }
}

impl From<SetupError> for CompileError {
    fn from(error: SetupError) -> Self {
        Self::Tls(error)
    }
}
