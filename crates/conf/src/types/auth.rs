//! Authentication of clients.

use std::path::PathBuf;
use std::time::Duration;

/// `auth_param`: the schemes in which clients may log in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    /// Basic, if there is a line about it. It is offered if it has a way to check passwords.
    pub basic: Option<BasicAuth>,
}

/// The scheme Basic.
#[derive(Clone, Debug, PartialEq)]
pub struct BasicAuth {
    /// The password file that the program would check; it is checked without the program.
    pub file: Option<PathBuf>,
    /// The name of the protected part, which clients show to people.
    pub realm: String,
    /// Most checks at one time.
    pub checks_at_once: u32,
    /// How long a password counts as right after it was checked.
    pub credentials_ttl: Duration,
    /// Whether the names of users have case.
    pub case_sensitive: bool,
    /// Whether clients are told that names and passwords are UTF-8, and others are converted.
    pub utf8: bool,
}

/// The default of `children` for programs that check logins, as in Squid.
const CHILDREN: u32 = 20;

impl Default for BasicAuth {
    fn default() -> Self {
        Self {
            file: None,
            realm: "Squid proxy-caching web server".to_owned(),
            checks_at_once: CHILDREN,
            credentials_ttl: Duration::from_secs(2 * 60 * 60),
            case_sensitive: false,
            utf8: false,
        }
    }
}
