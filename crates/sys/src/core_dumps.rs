//! Core dumps, which would hold whatever is in memory.

use std::io;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From now on the kernel writes no core dump of this process, and lets no other process of its
/// user look into its memory. A change of the process's user may end that: call it after.
///
/// # Errors
/// The kernel's.
pub fn forbid() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::dumpable_behavior;

    #[test]
    fn the_process_is_not_dumped_afterwards() {
        forbid().expect("the kernel agrees");
        assert_eq!(dumpable_behavior().ok(), Some(DumpableBehavior::NotDumpable));
    }
}
