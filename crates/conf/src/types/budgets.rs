//! What a client may use of the proxy (`client_budget`).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use humboldt_base::client_network::V6_PREFIX_BITS;

use super::{AclTerm, RuleSource};

/// One line of `client_budget`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetRule {
    /// The limits; `None` for `none`.
    pub limits: Option<BudgetLimits>,
    /// All must match; empty matches everything.
    pub terms: Vec<AclTerm>,
    /// The line.
    pub source: Arc<RuleSource>,
}

/// The limits of a line. What is `None` has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Whose use is added up.
    pub key: BudgetKey,
    /// Length of the prefix of a network that counts as one client: of IPv4, and of IPv6.
    pub prefix_bits: (u32, u32),
    /// Requests in a period.
    pub requests: Option<Rate>,
    /// Most requests at once.
    pub burst: u64,
    /// Bytes in a period.
    pub bytes: Option<Rate>,
    /// Open tunnels.
    pub tunnels: Option<u32>,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            key: BudgetKey::default(),
            prefix_bits: (Ipv4Addr::BITS, V6_PREFIX_BITS),
            requests: None,
            burst: 0,
            bytes: None,
            tunnels: None,
        }
    }
}

/// So much in a period, and at most so much at once.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// At least 1.
    pub amount: u64,
    /// At least a second.
    pub period: Duration,
}

/// Whose use is added up.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum BudgetKey {
    /// A client's address, or its network.
    #[default]
    Address,
    /// A user; the address of a client who has not logged in.
    User,
}
