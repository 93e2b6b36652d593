//! Users, and logins that were checked.

use std::sync::Arc;

/// A user who has logged in.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    name: Arc<str>,
}

impl User {
    pub(crate) fn new(name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }
}

/// A login that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The credentials are right.
    User {
        /// Whose they are.
        user: Arc<User>,
        /// From how many addresses the user has come lately, this one included; 0 if no rule asks
        /// for that.
        addresses: u32,
    },
    /// There are no credentials, or they are wrong.
    Missing {
        /// The name that the client gave.
        name: Option<Arc<str>>,
    },
}

impl Checked {
    /// The name that the client gave, right or wrong.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::User { user, .. } => Some(user.name()),
            Self::Missing { name } => name.as_deref(),
        }
    }
}
