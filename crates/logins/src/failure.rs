//! Reasons for the lack of an answer about a login.

/// Why a login could not be checked.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Too many checks wait.
    Busy,
    /// The password file cannot be read, or the program gives no answer.
    NoAnswer,
    /// There were too many wrong logins from the client's address.
    TooManyWrong,
}

impl Failure {
    /// The reason for the client.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Busy => "too many logins are being checked",
            Self::NoAnswer => "logins cannot be checked at the moment",
            Self::TooManyWrong => "there were too many wrong logins from your address",
        }
    }
}
