//! Authentication of clients.

use std::path::PathBuf;
use std::time::Duration;

use super::{AclTerm, HelperChildren, Location};

/// `auth_param`: the schemes in which clients may log in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// Basic, if there is a line about it. It is offered if it has a way to check passwords.
    pub basic: Option<BasicAuth>,
    /// Digest, likewise.
    pub digest: Option<DigestAuth>,
    /// Negotiate, likewise.
    pub negotiate: Option<HandshakeAuth>,
    /// NTLM, likewise.
    pub ntlm: Option<HandshakeAuth>,
    /// The schemes of the lines, in the order of their first ones: they are offered in this order.
    pub(crate) order: Vec<AuthScheme>,
}

impl Authentication {
    /// Whether clients can log in with a scheme.
    pub fn has_way(&self, scheme: AuthScheme) -> bool {
        let has_program =
            |auth: &Option<HandshakeAuth>| auth.as_ref().is_some_and(|auth| auth.program.is_some());
        match scheme {
            AuthScheme::Basic => self.basic.as_ref().is_some_and(|auth| auth.check.is_some()),
            AuthScheme::Digest => self.digest.as_ref().is_some_and(|auth| auth.secrets.is_some()),
            AuthScheme::Negotiate => has_program(&self.negotiate),
            AuthScheme::Ntlm => has_program(&self.ntlm),
        }
    }

    /// The schemes with which clients can log in, in their order.
    pub fn ways(&self) -> impl Iterator<Item = AuthScheme> + '_ {
        self.order.iter().copied().filter(|scheme| self.has_way(*scheme))
    }
}

/// A scheme of authentication.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthScheme {
    /// Name and password with each request (RFC 7617).
    Basic,
    /// A proof for each request (RFC 7616).
    Digest,
    /// A handshake for each connection, usually with Kerberos (RFC 4559).
    Negotiate,
    /// A handshake of Windows for each connection.
    Ntlm,
}

impl AuthScheme {
    /// Every scheme.
    pub const ALL: [Self; 4] = [Self::Basic, Self::Digest, Self::Negotiate, Self::Ntlm];

    /// Its name in fields.
    pub fn name(self) -> &'static str {
        match self {
            Self::Basic => "Basic",
            Self::Digest => "Digest",
            Self::Negotiate => "Negotiate",
            Self::Ntlm => "NTLM",
        }
    }

    /// The scheme with this name, which has no case.
    pub fn of(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name().as_bytes().eq_ignore_ascii_case(name))
    }
}

/// A scheme in which a program leads a handshake with the client of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandshakeAuth {
    /// The command with its arguments; without one nobody can log in.
    pub program: Option<Vec<String>>,
    /// Its processes.
    pub children: HelperChildren,
    /// A format whose value is added to each question to the program.
    pub key_extras: Option<String>,
    /// Whether the connection stays open behind the answer that first offers the scheme.
    pub keep_alive: bool,
}

impl Default for HandshakeAuth {
    fn default() -> Self {
        let children = HelperChildren::default();
        Self { program: None, children, key_extras: None, keep_alive: true }
    }
}

/// One line of `auth_schemes`.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedSchemes {
    /// The schemes that are offered, in their order; `None` stands for all of the file.
    pub schemes: Vec<Option<AuthScheme>>,
    /// The condition.
    pub terms: Vec<AclTerm>,
    /// The place of the line.
    pub(crate) location: Location,
}

/// The way in which a user's secret of Digest is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DigestSecrets {
    /// In a file, without the program that the configuration names for it.
    File {
        /// The file.
        path: PathBuf,
        /// It has hashes instead of passwords (`-c`).
        is_hashed: bool,
    },
    /// A helper program tells it: the command with its arguments.
    Program(Vec<String>),
}

/// The scheme Digest.
#[derive(Clone, Debug, PartialEq)]
pub struct DigestAuth {
    /// How secrets are found; without a way nobody can log in.
    pub secrets: Option<DigestSecrets>,
    /// The name of the protected part. It is a part of the secrets.
    pub realm: String,
    /// The processes of the program. Of a file `max` counts: most look-ups at one time.
    pub children: HelperChildren,
    /// How often nonces that have expired are cleared away.
    pub nonce_garbage_interval: Duration,
    /// How long a nonce may be used.
    pub nonce_max_duration: Duration,
    /// How often a nonce may be used.
    pub nonce_max_count: u32,
    /// Each use of a nonce must have the number that follows the one before.
    pub nonce_strictness: bool,
    /// The uses of a nonce are counted, so that no request can be sent again by somebody else.
    pub check_nonce_count: bool,
    /// A digest for GET counts for other methods too.
    pub post_workaround: bool,
}

impl Default for DigestAuth {
    fn default() -> Self {
        Self {
            secrets: None,
            realm: REALM.to_owned(),
            children: HelperChildren::default(),
            nonce_garbage_interval: Duration::from_secs(5 * 60),
            nonce_max_duration: Duration::from_secs(30 * 60),
            nonce_max_count: 50,
            nonce_strictness: false,
            check_nonce_count: true,
            post_workaround: false,
        }
    }
}

const REALM: &str = "Squid proxy-caching web server";

/// The way in which passwords are checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PasswordCheck {
    /// Against a password file, without the program that the configuration names for it.
    File(PathBuf),
    /// By a helper program: the command with its arguments.
    Program(Vec<String>),
}

/// The scheme Basic.
#[derive(Clone, Debug, PartialEq)]
pub struct BasicAuth {
    /// How passwords are checked; without a way nobody can log in.
    pub check: Option<PasswordCheck>,
    /// The name of the protected part, which clients show to people.
    pub realm: String,
    /// The processes of the program. Of a password file `max` counts: most checks at one time.
    pub children: HelperChildren,
    /// A format whose value is added to each question to the program.
    pub key_extras: Option<String>,
    /// How long a password counts as right after it was checked.
    pub credentials_ttl: Duration,
    /// Whether the names of users have case.
    pub case_sensitive: bool,
    /// Whether clients are told that names and passwords are UTF-8, and others are converted.
    pub utf8: bool,
}

impl Default for BasicAuth {
    fn default() -> Self {
        Self {
            check: None,
            realm: REALM.to_owned(),
            children: HelperChildren::default(),
            key_extras: None,
            credentials_ttl: Duration::from_secs(2 * 60 * 60),
            case_sensitive: false,
            utf8: false,
        }
    }
}
