//! What a floor has done, in a file that others read while it works.

use crate::Outcome;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Totals since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Accepted connections.
    pub(super) connections: u64,
    /// Requests that were answered.
    pub(super) requests: u64,
}

impl Counts {
    /// Over the ones before: both numbers always have the same width.
    pub(super) fn write(self, file: &File) -> io::Result<()> {
        file.write_all_at(format!("{:20} {:20}\n", self.connections, self.requests).as_bytes(), 0)
    }

    pub(super) fn read(path: &Path) -> Outcome<Self> {
        let text = std::fs::read_to_string(path)?;
        let mut numbers = text.split_whitespace().map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(connections), Some(requests)) => {
                Ok(Self { connections: connections?, requests: requests? })
            }
            _ => Err(format!("{}: no counts of a floor", path.display()).into()),
        }
    }

    /// What has come since those before.
    pub(super) fn since(self, before: Self) -> Self {
        Self {
            connections: self.connections.saturating_sub(before.connections),
            requests: self.requests.saturating_sub(before.requests),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_counts_replace_those_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counts");
        let file = File::create(&path).unwrap();
        assert!(Counts::read(&path).is_err());
        let [one, two] = [(9, 1_000_000), (10, 1_000_007)]
            .map(|(connections, requests)| Counts { connections, requests });
        for counts in [one, two] {
            counts.write(&file).unwrap();
            assert_eq!(Counts::read(&path).unwrap(), counts);
        }
        assert_eq!(two.since(one), Counts { connections: 1, requests: 7 });
    }
}
