//! `diskd`: ufs's files, with all file operations done by a process of its own.
//!
//! The protocol is in `docs/formats/diskd.md`. From the outside in: this file opens a directory;
//! `engine` turns file operations into calls; `service` starts and stops; `exchange` sends calls
//! and takes replies; `keeper` looks after the process; `helper` is that process; `link`,
//! `protocol`, `call` and `record` each own one thing between the two.

mod call;
mod engine;
mod exchange;
mod helper;
mod keeper;
mod link;
mod protocol;
mod record;
pub(crate) use record::FILE as RECORD_FILE;
mod service;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use self::engine::Remote;
use self::exchange::{Exchange, Limits};
pub use self::helper::{HELPER_COMMAND, HelperError, serve_as_helper};
use self::keeper::{Keeper, Pace};
use self::service::Service;
use crate::tree::{Simulated, Tree, TreeScheme};
use crate::{DirOptions, DiskdOptions, OpenError, simulated};

/// Name in squid.conf.
pub(crate) const NAME: &str = "diskd";

/// A helper that answers nothing for this long is ended.
const STALL_LIMIT: Duration = Duration::from_secs(60);

/// Opens a directory. No process or thread is started, but the resources that they will need are
/// tried.
pub(crate) fn open(options: &DirOptions<DiskdOptions>) -> Result<TreeScheme, OpenError> {
    options.own.check().map_err(|error| options.bad(error))?;
    let of_tree = options.map(|own| own.levels);
    TreeScheme::open_with(NAME, &of_tree, |tree| {
        let bytes = options.capacity_bytes;
        if let Some(disk) = simulated::current() {
            return Ok(Arc::new(Simulated::new(disk, tree, options.own.overload, bytes)));
        }
        Ok(Arc::new(Remote::new(service(options, &tree, Pace::default())?)))
    })
}

/// The directory is locked: traces of an earlier helper are left over.
fn service(
    options: &DirOptions<DiskdOptions>,
    tree: &Tree,
    pace: Pace,
) -> Result<Service, OpenError> {
    let failed =
        |operation, source| OpenError::Io { operation, path: options.path.clone(), source };
    let root = tree.root().as_fd().try_clone_to_owned().map_err(|e| failed("open", e))?;
    match record::clear(&root) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(OpenError::Locked { path: options.path.clone(), lock: record::FILE });
        }
        other => other.map_err(|e| failed("clear what an earlier diskd helper left of", e))?,
    }
    let limits = Limits { q1: options.own.q1, q2: options.own.q2, stall: STALL_LIMIT };
    let tried = keeper::create_link(&root, limits.q2);
    record::remove(&root);
    drop(tried.map_err(|e| failed("set up queues and shared memory for", e))?);
    let (l1, l2) = tree.levels();
    let program = options.own.program.clone();
    let (overload, bytes) = (options.own.overload, options.capacity_bytes);
    let exchange = Arc::new(Exchange::new(&options.path, limits, overload, bytes));
    Ok(Service::new(Keeper { exchange, path: options.path.clone(), root, l1, l2, program, pace }))
}
