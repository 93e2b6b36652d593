//! The fate of an answer, decided once, when its head has come.

use super::facts::FlowInfo;

/// Where an answer goes, besides to the clients that wait for it. A directory that is to get it is
/// chosen together with its fate ([`crate::Cache::fate`]), and is not named here, as slow clients
/// would keep it open.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Nowhere: it is for the request that fetched it alone. Others that have joined fetch for
    /// themselves ([`super::AbortReason::NotShareable`]).
    Private,
    /// Nowhere, but all who have joined may have it: it has been stored before, or a newer one has
    /// come meanwhile.
    Shared,
    /// To memory alone, if it is no longer than this. A longer one is only shared by requests that
    /// join in time; it removes the older answer nevertheless.
    Memory {
        /// In bytes.
        body_bytes_max: u64,
    },
    /// To memory, and in one piece to a directory, at its end. Its length is known, and it is kept
    /// whole until then.
    AtEnd,
    /// In one piece to a directory, and not to memory. If it comes whole with its head, its client
    /// gets it from the buffer of the directory; otherwise as with [`Fate::AtEnd`].
    Lent,
    /// To a directory that follows it as it comes, and is waited for where it is not kept whole
    /// ([`super::LAG_BYTES_MAX`]).
    AsItComes(Keep),
}

/// How much memory keeps of an answer that a directory follows as it comes.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Bytes that a reader has not read yet.
    Unread,
    /// All of it while it comes, up to this many bytes, so that requests can join at any time.
    WhileItComes(u64),
    /// All of it, up to this many bytes, and for good.
    ForGood(u64),
}

impl Fate {
    /// Whether it is new: it takes the place of what is stored.
    pub(crate) fn is_new(self) -> bool {
        !matches!(self, Self::Private | Self::Shared)
    }

    /// Whether a directory is to get it.
    pub(crate) fn goes_to_disk(self) -> bool {
        matches!(self, Self::AtEnd | Self::Lent | Self::AsItComes(_))
    }

    /// Whether memory is to keep it when it is complete.
    pub(crate) fn goes_to_memory(self) -> bool {
        matches!(self, Self::Memory { .. } | Self::AtEnd | Self::AsItComes(Keep::ForGood(_)))
    }
}

impl FlowInfo {
    /// The fate of the answer.
    pub fn fate(&self) -> Fate {
        self.fate
    }

    /// Up to how many bytes the body is kept whole while it comes.
    pub(super) fn keep_bytes_max(&self) -> u64 {
        match self.fate {
            Fate::Private | Fate::Shared | Fate::AsItComes(Keep::Unread) => 0,
            Fate::AtEnd | Fate::Lent => self.body_bytes.unwrap_or(0),
            Fate::Memory { body_bytes_max: most }
            | Fate::AsItComes(Keep::WhileItComes(most) | Keep::ForGood(most)) => most,
        }
    }

    /// Whether the body is kept whole, as far as its length is known.
    pub(super) fn is_kept_whole(&self) -> bool {
        match self.fate {
            Fate::Private | Fate::Shared | Fate::AsItComes(Keep::Unread) => false,
            Fate::AtEnd | Fate::Lent => true,
            Fate::Memory { .. } | Fate::AsItComes(_) => {
                self.body_bytes.unwrap_or(1).max(1) <= self.keep_bytes_max()
            }
        }
    }

    /// Whether the answer is stored if all of it comes and nothing fails.
    pub fn is_to_be_stored(&self) -> bool {
        match self.fate {
            Fate::Private | Fate::Shared => false,
            Fate::Memory { .. } => self.is_kept_whole(),
            Fate::AtEnd | Fate::Lent | Fate::AsItComes(_) => true,
        }
    }
}
