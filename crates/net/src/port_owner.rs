//! Finds out which process listens on a port, for a message that helps: from `/proc`, so only
//! processes that we may look into are found.

use std::fs;
use std::path::Path;

/// State LISTEN in `/proc/net/tcp`.
const LISTEN: &str = "0A";

/// The process that listens on TCP `port`, as `name (process 123)`.
pub(crate) fn who_listens(port: u16) -> Option<String> {
    let inodes: Vec<String> = ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| listening_inodes(table, port))
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let processes = fs::read_dir("/proc").ok()?;
    for process in processes.flatten() {
        let path = process.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok()) else {
            continue;
        };
        if holds_one_of(&path, &inodes) {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            return Some(format!("{} (process {pid})", name.trim_end()));
        }
    }
    None
}

/// The inodes of the sockets that listen on `port`, as `socket:[123]`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    let port = format!(":{port:04X}");
    let text = fs::read_to_string(table).unwrap_or_default();
    text.lines()
        .skip(1)
        .filter_map(|line| {
            let mut columns = line.split_ascii_whitespace();
            let local = columns.nth(1)?;
            let state = columns.nth(1)?;
            let inode = columns.nth(5)?;
            (local.ends_with(&port) && state == LISTEN).then(|| format!("socket:[{inode}]"))
        })
        .collect()
}

fn holds_one_of(process: &Path, inodes: &[String]) -> bool {
    let Ok(descriptors) = fs::read_dir(process.join("fd")) else { return false };
    descriptors.flatten().filter_map(|descriptor| fs::read_link(descriptor.path()).ok()).any(
        |target| target.to_str().is_some_and(|target| inodes.iter().any(|inode| inode == target)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_this_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let owner = who_listens(port).expect("an owner");
        assert!(owner.ends_with(&format!("(process {})", std::process::id())), "{owner}");
        drop(listener);
        assert_eq!(who_listens(port), None);
    }
}
