//! The manager pages of Humboldt and of Squid, and the figures in them.

use super::load::Deadline;
use crate::Outcome;
use humboldt_lab_wire::response_head;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A page takes no longer, or something is broken.
const REPLY_LIMIT: Duration = Duration::from_secs(20);

const POLL_PAUSE: Duration = Duration::from_millis(50);

/// The body of a manager page.
pub(super) fn page(address: SocketAddr, name: &str) -> Outcome<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(REPLY_LIMIT))?;
    let request = format!("GET /squid-internal-mgr/{name} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head = response_head(&answer)?.ok_or("a manager page without an end of its head")?;
    if head.status() != 200 {
        return Err(format!("{address}: manager page {name}: {}", head.status()).into());
    }
    Ok(String::from_utf8_lossy(&answer[head.len_bytes()..]).into_owned())
}

/// Figures about objects on disk on the page `counters`, in Humboldt and in Squid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swaps {
    /// Objects written.
    pub(super) outs: u64,
    /// Objects read.
    pub(super) ins: u64,
}

impl Swaps {
    pub(super) fn read(address: SocketAddr) -> Outcome<Self> {
        Self::parse(&page(address, "counters")?)
    }

    fn parse(text: &str) -> Outcome<Self> {
        let value = |label: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(label)?.strip_prefix(" = "));
            line.and_then(|value| value.trim().parse::<f64>().ok()).map(|value| value as u64)
        };
        let of = |label: &str| {
            value(label).ok_or_else(|| format!("no line {label} on the page `counters`"))
        };
        Ok(Self { outs: of("swap.outs")?, ins: of("swap.ins")? })
    }
}

/// Humboldt's metrics of its cache directories, all added up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Device {
    /// Reads that were asked of the device.
    pub(super) reads: f64,
    /// Bytes written to it.
    pub(super) written_bytes: f64,
    /// Bytes of objects that were stored.
    pub(super) object_bytes: f64,
    /// 1 when the index is complete; 1 without directories.
    pub(super) rebuilt: f64,
}

impl Device {
    pub(super) fn read(address: SocketAddr) -> Outcome<Self> {
        Ok(Self::parse(&page(address, "metrics")?))
    }

    fn parse(text: &str) -> Self {
        let values = |name: &str| -> Vec<f64> {
            let of = |line: &str| {
                line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once(' ')?.1.parse().ok()
            };
            text.lines().filter_map(of).collect()
        };
        let sum = |name: &str| values(name).iter().sum();
        Self {
            reads: sum("humboldt_store_device_reads_total"),
            written_bytes: sum("humboldt_store_device_written_bytes_total"),
            object_bytes: sum("humboldt_store_object_bytes_total"),
            rebuilt: values("humboldt_store_rebuild_ratio").into_iter().fold(1.0, f64::min),
        }
    }
}

/// Waits until Humboldt's indexes are complete.
pub(super) fn wait_rebuilt(address: SocketAddr, limit: Duration) -> Outcome {
    let deadline = Deadline::after(limit);
    while Device::read(address)?.rebuilt < 1.0 {
        deadline.check()?;
        std::thread::sleep(POLL_PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_whole_label() {
        let text =
            "sample_time = 1.5 (now)\nswap.outs = 12\nswap.ins = 3\nswap.files_cleaned = 9\n";
        assert_eq!(Swaps::parse(text).unwrap(), Swaps { outs: 12, ins: 3 });
        assert!(Swaps::parse("swap.outs = 1\n").is_err());
    }

    #[test]
    fn figures_of_several_directories_are_added() {
        let text = "# HELP x\nhumboldt_store_device_reads_total{dir=\"0\"} 5\nhumboldt_store_device_reads_total{dir=\"1\"} 7\n\
                    humboldt_store_rebuild_ratio{dir=\"0\"} 1\nhumboldt_store_rebuild_ratio{dir=\"1\"} 0.25\n";
        let device = Device::parse(text);
        assert_eq!((device.reads, device.rebuilt, device.object_bytes), (12.0, 0.25, 0.0));
        assert_eq!(Device::parse("").rebuilt, 1.0);
    }
}
