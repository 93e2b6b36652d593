//! Questions that a list needs answered before it can go on, and the place of the answers.

use std::net::IpAddr;

use humboldt_conf::Need;

/// A fact that an ACL needs before it can decide.
///
/// A new question is a variant here, a field of [`Known`] for its answer, and code in the program
/// that answers it: the compiler names that place.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Question<'a> {
    /// The addresses of the host that the URL names: [`Known::dst_ips`].
    DstIps {
        /// The ACL that asks.
        acl: &'a str,
    },
    /// The hardware address of the client, which has an IPv4 address: [`Known::hardware`].
    Hardware {
        /// The ACL that asks.
        acl: &'a str,
    },
    /// The netfilter mark of the client's connection: [`Known::mark`].
    Mark {
        /// The ACL that asks.
        acl: &'a str,
    },
    /// All annotations. There were more than are kept, so there is no answer.
    Notes {
        /// The ACL that asks.
        acl: &'a str,
    },
    /// The name of the client in the DNS: [`Known::client_name`].
    ClientName {
        /// The ACL that asks.
        acl: &'a str,
    },
    /// The user whose credentials the client sends: [`Known::login`].
    User {
        /// The ACL that asks.
        acl: &'a str,
    },
    /// The answer of a helper: [`crate::Told::external`].
    Helper {
        /// The ACL that asks.
        acl: &'a str,
        /// Its number in [`crate::AclSet::externals`].
        number: usize,
    },
}

impl<'a> Question<'a> {
    /// The ACL that asks; of a group its member.
    pub fn acl(self) -> &'a str {
        match self {
            Self::DstIps { acl }
            | Self::Hardware { acl }
            | Self::Mark { acl }
            | Self::Notes { acl }
            | Self::ClientName { acl }
            | Self::User { acl }
            | Self::Helper { acl, .. } => acl,
        }
    }

    /// The kind of answer.
    pub fn need(self) -> Need {
        match self {
            Self::DstIps { .. } => Need::DstIps,
            Self::Hardware { .. } => Need::Hardware,
            Self::Mark { .. } => Need::Mark,
            Self::Notes { .. } => Need::Notes,
            Self::ClientName { .. } => Need::ClientName,
            Self::User { .. } => Need::User,
            Self::Helper { .. } => Need::Helper,
        }
    }
}

/// The result of the check of a client's credentials.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Login<'a> {
    /// They are right: the name of the user.
    User(&'a str),
    /// There are none, or they are wrong. An ACL that asks ends its list at once, as in Squid: the
    /// client is to send others.
    Missing,
}

/// Answers to questions, as far as they are there. By default there is none.
#[derive(Copy, Clone, Debug, Default)]
pub struct Known<'a> {
    /// Addresses of the host: `None` if not looked up yet, empty if that failed. Empty, only a set
    /// with `none` matches; no other can be answered.
    pub dst_ips: Option<&'a [IpAddr]>,
    /// The client's EUI-48: `None` if not asked for yet, or if it cannot be told; `Some(None)` if
    /// the client is this machine.
    pub hardware: Option<Option<[u8; 6]>>,
    /// The mark of the client's connection; `None` if not asked for yet, or if it cannot be told.
    pub mark: Option<u32>,
    /// The client's name, `none` if it has none; `None` if not looked up yet, or if that failed.
    pub client_name: Option<&'a str>,
    /// The login of the client; `None` if not checked yet, or if that failed.
    pub login: Option<Login<'a>>,
    /// The number of addresses from which its user has come lately, this one included.
    pub user_addresses: u32,
}
