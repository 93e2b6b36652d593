//! `ufs`: one file per object in a tree of directories, blocking I/O on the request's own core. All
//! but that is in `tree`.

use std::sync::Arc;

use crate::OpenError;
use crate::tree::{Blocking, DirOptions, TreeScheme};

/// Name in squid.conf.
pub(crate) const NAME: &str = "ufs";

/// Opens a directory.
pub(crate) fn open(options: &DirOptions) -> Result<TreeScheme, OpenError> {
    TreeScheme::open(NAME, options, |tree| Arc::new(Blocking::new(tree)))
}
