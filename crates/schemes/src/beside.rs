//! Files that may lie beside a store.

use crate::diskd::RECORD_FILE;

/// Name of the log of purges, where it is kept in the directory of a store.
pub const PURGE_LOG: &str = "humboldt.purges";

/// Whether a file of this name may be beside a store, without making its directory foreign. Such a
/// file comes with the file system, or with the log of purges, which may be the only file left, or
/// be written again, if a store was deleted while it was in use; so may the keys of a helper of
/// diskd.
pub(crate) fn may_be_beside(name: &str) -> bool {
    name == "lost+found"
        || name == RECORD_FILE
        || name.strip_prefix(PURGE_LOG).is_some_and(|rest| ["", ".new"].contains(&rest))
}
