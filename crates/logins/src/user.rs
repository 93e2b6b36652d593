//! Users, and logins that were checked.

use std::sync::Arc;

use humboldt_base::notes::Notes;
use humboldt_conf::AuthScheme;

/// A user who has logged in.
#[derive(Debug, PartialEq, Eq)]
pub struct User {
    name: Arc<str>,
    told: Told,
}

/// What a helper program has told beside its result: keys and values, which become annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told(Arc<[Pair]>);

/// A key and its value.
type Pair = (Box<str>, Box<[u8]>);

impl Told {
    /// All but secrets, as in Squid.
    pub(crate) fn new(pairs: Vec<Pair>) -> Self {
        Self(pairs.into_iter().filter(|(key, _)| !matches!(&**key, "password" | "ha1")).collect())
    }

    /// Puts them among annotations, in the place of those with the same names.
    pub fn annotate(&self, notes: &mut Notes) {
        if self.0.is_empty() {
            return;
        }
        let mut told = Notes::NONE;
        self.0.iter().for_each(|(name, value)| told.add(name, value));
        notes.replace_all(&told);
    }
}

impl User {
    pub(crate) fn new(name: impl Into<Arc<str>>, told: Told) -> Self {
        Self { name: name.into(), told }
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
        /// What the helper program has told about them.
        told: Told,
        /// They are right, but too old: the client can repeat them with a new nonce by itself.
        is_stale: bool,
        /// What a program has for the client that leads a handshake with it.
        handshake: Option<Handshake>,
    },
}

impl Checked {
    /// The name that the client gave, right or wrong.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::User { user, .. } => Some(user.name()),
            Self::Missing { name, .. } => name.as_deref(),
        }
    }

    /// What a helper program has told about the login.
    pub fn told(&self) -> &Told {
        match self {
            Self::User { user, .. } => &user.told,
            Self::Missing { told, .. } => told,
        }
    }

    /// With credentials that are no login, and this name.
    pub(crate) fn without(name: Option<Arc<str>>) -> Self {
        Self::Missing { name, told: Told::default(), is_stale: false, handshake: None }
    }

    /// Without credentials.
    pub fn nobody() -> Self {
        Self::without(None)
    }
}

/// What a program has for the client with which it leads a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The client has to answer this token on the same connection.
    Next {
        /// The scheme.
        scheme: AuthScheme,
        /// The token.
        token: Box<str>,
    },
    /// The login is none. The connection ends with the answer.
    Failed {
        /// The scheme.
        scheme: AuthScheme,
        /// A token that says why.
        token: Option<Box<str>>,
    },
}

impl Handshake {
    /// The token for the client, if it is one of this scheme.
    pub(crate) fn token_of(&self, of: AuthScheme) -> Option<&str> {
        match self {
            Self::Next { scheme, token } if *scheme == of => Some(token),
            Self::Failed { scheme, token } if *scheme == of => token.as_deref(),
            Self::Next { .. } | Self::Failed { .. } => None,
        }
    }
}
