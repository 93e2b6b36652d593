//! Authentication of clients.

use std::path::PathBuf;
use std::time::Duration;

use super::HelperChildren;

/// `auth_param`: the schemes in which clients may log in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// Basic, if there is a line about it. It is offered if it has a way to check passwords.
    pub basic: Option<BasicAuth>,
    /// Digest, likewise.
    pub digest: Option<DigestAuth>,
    /// Digest is offered before Basic.
    pub digest_is_first: bool,
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
