//! The files of a directory: their names, and who may use them.

use rustix::fs::Mode;

/// The file of slots, Squid's name for it.
pub(crate) const SLOT_FILE: &str = "rock";
/// Written by a clean stop.
pub(crate) const SNAPSHOT_FILE: &str = "rock.index";
/// A snapshot being written.
pub(crate) const SNAPSHOT_FILE_NEW: &str = "rock.index.new";
/// Purges during a rebuild.
pub(crate) const PURGE_FILE: &str = "rock.purged";

/// Permissions of files, before the umask.
pub(crate) const FILE_MODE: Mode = Mode::from_raw_mode(0o640);
