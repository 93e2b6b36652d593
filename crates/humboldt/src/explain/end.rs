//! The end of an explanation, or why there is none.

use humboldt_acl::AclError;

use crate::error::StartError;

/// The end of an explanation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    Allowed,
    Refused,
    Undecided,
}

/// Why nothing can be explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExplainError {
    #[error("{0}")]
    Start(#[from] StartError),
    #[error("{0}")]
    Rules(String),
    #[error(
        "{0}\nusage: humboldt -f FILE -k explain METHOD URL [--src IP] [--user NAME] [--header 'NAME: VALUE']"
    )]
    Usage(String),
    #[error("cannot read {path}: {source}")]
    Log { path: String, source: std::io::Error },
}

impl ExplainError {
    pub(super) fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            _ => 1,
        }
    }
}

impl From<Vec<AclError>> for ExplainError {
    fn from(errors: Vec<AclError>) -> Self {
        Self::Rules(errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }
}
