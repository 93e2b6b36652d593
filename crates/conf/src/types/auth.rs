//! Authentication of clients.

use std::path::PathBuf;
use std::time::Duration;

use super::HelperChildren;

/// `auth_param`: the schemes in which clients may log in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// Basic, if there is a line about it. It is offered if it has a way to check passwords.
    pub basic: Option<BasicAuth>,
}

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
            realm: "Squid proxy-caching web server".to_owned(),
            children: HelperChildren::default(),
            key_extras: None,
            credentials_ttl: Duration::from_secs(2 * 60 * 60),
            case_sensitive: false,
            utf8: false,
        }
    }
}
