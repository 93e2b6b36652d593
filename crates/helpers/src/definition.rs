//! The settings of a helper.

use std::time::Duration;

use humboldt_conf::HelperChildren;

/// Longest time from a question's dispatch to its answer, and longest time in the queue, unless the
/// definition says otherwise.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(120);

/// The purpose of a helper. Its name is that of Squid's manager page.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `auth_param basic program`.
    BasicAuthenticator,
    /// `auth_param digest program`.
    DigestAuthenticator,
    /// `auth_param negotiate program`.
    NegotiateAuthenticator,
    /// `auth_param ntlm program`.
    NtlmAuthenticator,
    /// `external_acl_type`.
    ExternalAcl,
    /// `url_rewrite_program`.
    Redirector,
    /// `store_id_program`.
    StoreId,
}

impl Kind {
    /// The name of its manager page.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BasicAuthenticator => "basicauthenticator",
            Self::DigestAuthenticator => "digestauthenticator",
            Self::NegotiateAuthenticator => "negotiateauthenticator",
            Self::NtlmAuthenticator => "ntlmauthenticator",
            Self::ExternalAcl => "external_acl",
            Self::Redirector => "redirector",
            Self::StoreId => "store_id",
        }
    }

    /// The title of its manager page.
    pub const fn title(self) -> &'static str {
        match self {
            Self::BasicAuthenticator => "Basic Authenticator Statistics",
            Self::DigestAuthenticator => "Digest Authenticator Statistics",
            Self::NegotiateAuthenticator => "Negotiate Authenticator Statistics",
            Self::NtlmAuthenticator => "NTLM Authenticator Statistics",
            Self::ExternalAcl => "External ACL Statistics",
            Self::Redirector => "Redirector Statistics",
            Self::StoreId => "StoreId helper Statistics",
        }
    }
}

/// What becomes of a question when as many wait as `queue-size` says.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Overload {
    /// It has no answer.
    Refuse,
    /// It waits too, until the overload has lasted for three minutes.
    Tolerate,
}

/// The settings of a helper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its purpose.
    pub kind: Kind,
    /// Its name in messages and figures.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Number of processes, channels of each, length of the queue.
    pub children: HelperChildren,
    /// Longest time from a question's dispatch to its answer, and longest time in the queue.
    pub timeout: Duration,
    /// What becomes of questions beyond the length of the queue.
    pub overload: Overload,
}

impl Definition {
    /// With the defaults: two minutes for an answer, and questions beyond the length of the queue
    /// wait too.
    pub fn new(
        kind: Kind,
        name: impl Into<String>,
        command: Vec<String>,
        children: HelperChildren,
    ) -> Self {
        Self {
            kind,
            name: name.into(),
            command,
            children,
            timeout: ANSWER_TIME_MAX,
            overload: Overload::Tolerate,
        }
    }

    /// Questions that one process may have at a time.
    pub(crate) fn capacity(&self) -> usize {
        self.children.concurrency.max(1) as usize
    }

    /// Whether lines begin with the number of a channel.
    pub(crate) fn has_channels(&self) -> bool {
        self.children.concurrency > 0
    }

    pub(crate) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }
}
