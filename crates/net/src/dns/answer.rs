//! The answer of a look-up.

use std::net::IpAddr;
use std::sync::Arc;

/// Why a name has no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// No such name exists (NXDOMAIN).
    #[error("no such name")]
    NoSuchName,
    /// The name exists but has no address.
    #[error("the name has no address")]
    Empty,
    /// No name server answered in time.
    #[error("the name servers did not answer in time")]
    Timeout,
    /// The name servers could not answer (SERVFAIL, REFUSED, …).
    #[error("the name servers could not answer: {0}")]
    ServFail(Arc<str>),
    /// The text cannot be a host name.
    #[error("not a host name")]
    InvalidName,
    /// Too many look-ups are under way. The question made way for another one
    /// ([`super::QUESTIONS_MAX`]), or there was no place for it within `dns_timeout`
    /// ([`super::WAITING_MAX`]).
    #[error("too many look-ups at once")]
    Busy,
    /// The look-up itself failed: a defect of this program.
    #[error("the look-up broke off")]
    Broken,
    /// There was no descriptor for a socket. Not remembered: the next try may have one.
    #[error("no descriptor is free")]
    NoDescriptor,
    /// There is no name server to ask, and why.
    #[error("there is no name server to ask: {0}")]
    Unavailable(Arc<str>),
}

/// The addresses of a name, or why there are none. Never an empty list.
pub type Answer = Result<Arc<[IpAddr]>, DnsError>;

/// The name of an address, or why there is none. Case as the name server has it, no final dot.
pub type NameAnswer = Result<Arc<str>, DnsError>;

/// What name servers know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Records {
    /// The addresses of a name.
    Addresses(Arc<[IpAddr]>),
    /// The name of an address.
    Name(Arc<str>),
}

impl Records {
    /// As the answer to a question for addresses.
    pub(super) fn addresses(self) -> Answer {
        match self {
            Self::Addresses(addresses) => Ok(addresses),
            Self::Name(_) => Err(DnsError::Broken),
        }
    }

    /// As the answer to a question for a name.
    pub(super) fn name(self) -> NameAnswer {
        match self {
            Self::Name(name) => Ok(name),
            Self::Addresses(_) => Err(DnsError::Broken),
        }
    }
}

/// The answer to a question of either kind.
pub(super) type Told = Result<Records, DnsError>;
