//! Limit of written data that has not reached a device: the kernel's `vm.dirty_bytes`.
//!
//! With the memory of today a whole small store fits between a cache and its disk, and no request
//! ever waits for the disk. On the machines of the book all requests waited for it.

use crate::Host;
use crate::keeper::{Keeper, Kept};
use crate::undo::Undo;
use std::fs;

/// The kernel accepts no fewer than two pages; below this the limit would be about single files.
const BYTES_MIN: u64 = 1 << 20;

/// Sets it for the whole machine until the returned promise is kept.
pub(crate) fn limit(host: &Host, keeper: &Keeper, bytes: u64) -> Result<Kept, String> {
    if !host.is_root {
        return Err("needs root".to_owned());
    }
    if bytes < BYTES_MIN {
        return Err(format!("at least {BYTES_MIN} bytes"));
    }
    let folder = host.proc.join("sys/vm");
    let read = |name: &str| -> Result<String, String> {
        let file = folder.join(name);
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(text.trim().to_owned())
    };
    // Either of the two holds; the other one reads 0. Writing one clears the other.
    let before = match read("dirty_bytes")?.as_str() {
        "0" => Undo::Write(folder.join("dirty_ratio"), read("dirty_ratio")?),
        bytes => Undo::Write(folder.join("dirty_bytes"), bytes.to_owned()),
    };
    let kept = keeper.keep(host, before).map_err(|error| error.to_string())?;
    let file = folder.join("dirty_bytes");
    fs::write(&file, bytes.to_string()).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(kept)
}
