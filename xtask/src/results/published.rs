//! The published figures: the tables of the book on Squid, and the comparison of objects in
//! transit.

use super::csv::{Csv, Row};
use crate::Outcome;

const BOOK: &str = include_str!("../../../lab/report/data/published-2003.csv");
const NOVM: &str = include_str!("../../../lab/report/data/novm.csv");

/// The table with all schemes on Linux.
const LINUX_TABLE: &str = "D-1";

/// The tables of the other systems.
const OTHER_TABLES: [&str; 4] = ["D-2", "D-3", "D-4", "D-5"];

/// The table about numbers of disks, which alone has no disk at all.
const DISKS_TABLE: &str = "D-6";

/// One line of the book's tables.
pub(super) struct Published {
    pub(super) table: String,
    pub(super) system: String,
    pub(super) scheme: String,
    /// Empty where the scheme needs none.
    pub(super) file_system: String,
    /// Joined by `+`; `?` if the print has lost them.
    pub(super) mount_options: String,
    disks: Option<f64>,
    pub(super) per_s: f64,
    /// From 0 to 1.
    pub(super) hit_ratio: Option<f64>,
}

/// Published figures of one run of the comparison of objects in transit.
pub(super) struct Transit {
    /// `disk` or `memory`.
    place: String,
    /// The cache's state at the start: `empty` or `full`.
    cache: String,
    pub(super) per_s: Option<f64>,
    pub(super) median_s: Option<f64>,
    pub(super) descriptors: Option<f64>,
}

/// All published figures.
pub(super) struct Book {
    rows: Vec<Published>,
    transits: Vec<Transit>,
}

impl Book {
    pub(super) fn read() -> Outcome<Self> {
        Self::parse(BOOK, NOVM)
    }

    fn parse(book: &str, novm: &str) -> Outcome<Self> {
        Ok(Self {
            rows: Csv::parse(book)?.rows().map(published).collect::<Outcome<Vec<_>>>()?,
            transits: Csv::parse(novm)?.rows().map(transit).collect::<Outcome<Vec<_>>>()?,
        })
    }

    /// Without any disk.
    pub(super) fn null(&self) -> Option<f64> {
        self.no_disk().map(|row| row.per_s)
    }

    fn no_disk(&self) -> Option<&Published> {
        self.rows.iter().find(|row| row.table == DISKS_TABLE && row.scheme == "null")
    }

    /// The best of a scheme on Linux, or no disk.
    pub(super) fn scheme(&self, scheme: &str) -> Option<f64> {
        let best = self.linux(scheme).map(|row| row.per_s).reduce(f64::max);
        if scheme == "null" { self.null() } else { best }
    }

    /// The row of a scheme on Linux without mount options, else its best; or no disk.
    pub(super) fn plain(&self, scheme: &str) -> Option<&Published> {
        if scheme == "null" {
            return self.no_disk();
        }
        let is_plain = |row: &&Published| row.mount_options.is_empty();
        self.linux(scheme)
            .find(is_plain)
            .or_else(|| self.linux(scheme).max_by(|one, other| one.per_s.total_cmp(&other.per_s)))
    }

    /// A scheme on a file system that was mounted on Linux with exactly these options.
    pub(super) fn mounted(&self, scheme: &str, file_system: &str, options: &str) -> Option<f64> {
        let is_same =
            |row: &&Published| row.file_system == file_system && row.mount_options == options;
        self.linux(scheme).find(is_same).map(|row| row.per_s)
    }

    /// `aufs` on `disks` disks, or no disk.
    pub(super) fn on_disks(&self, disks: u32) -> Option<f64> {
        let is_same =
            |row: &&Published| row.table == DISKS_TABLE && row.disks == Some(f64::from(disks));
        self.rows.iter().find(is_same).map(|row| row.per_s)
    }

    /// All lines of the tables of other systems than Linux.
    pub(super) fn other_systems(&self) -> impl Iterator<Item = &Published> {
        self.rows.iter().filter(|row| OTHER_TABLES.contains(&row.table.as_str()))
    }

    /// The base of the ratios of a table: `ufs` without mount options, else the slowest `ufs`.
    pub(super) fn base_of(&self, table: &str) -> Option<f64> {
        let is_file = |row: &&Published| row.table == table && row.scheme == "ufs";
        let files: Vec<&Published> = self.rows.iter().filter(is_file).collect();
        let plain = files.iter().find(|row| row.mount_options.is_empty()).map(|row| row.per_s);
        plain.or_else(|| files.iter().map(|row| row.per_s).reduce(f64::min))
    }

    pub(super) fn transit(&self, place: &str, cache: &str) -> Option<&Transit> {
        self.transits.iter().find(|run| run.place == place && run.cache == cache)
    }

    fn linux(&self, scheme: &str) -> impl Iterator<Item = &Published> {
        self.rows.iter().filter(move |row| row.table == LINUX_TABLE && row.scheme == scheme)
    }
}

fn published(row: Row<'_>) -> Outcome<Published> {
    let text = |column: &str| row.text(column).map(str::to_owned);
    Ok(Published {
        table: text("table")?,
        system: text("os")?,
        scheme: text("scheme")?,
        file_system: text("filesystem")?,
        mount_options: text("mount_options")?,
        disks: row.number("disks")?,
        per_s: row.number("throughput_per_s")?.ok_or("a published run has no throughput")?,
        hit_ratio: row.number("hit_ratio_pct").ok().flatten().map(|percent| percent / 100.0),
    })
}

fn transit(row: Row<'_>) -> Outcome<Transit> {
    Ok(Transit {
        place: row.text("in_transit")?.to_owned(),
        cache: row.text("cache_state")?.to_owned(),
        per_s: row.number("request_rate_per_s")?,
        median_s: row.number("median_service_time_s")?,
        descriptors: row.number("peak_fds")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_line_is_found() {
        let book = Book::read().unwrap();
        assert_eq!((book.rows.len(), book.transits.len()), (40, 4));
        assert_eq!(book.other_systems().count(), 27);
        assert_eq!((book.null(), book.scheme("null")), (Some(332.1), Some(332.1)));
        assert_eq!((book.scheme("aufs"), book.scheme("rock")), (Some(168.5), None));
        assert_eq!(book.mounted("ufs", "xfs", ""), Some(40.7));
        assert_eq!(book.mounted("aufs", "ext2fs", ""), Some(110.0));
        assert_eq!(
            (book.on_disks(0), book.on_disks(1), book.on_disks(4)),
            (Some(332.1), Some(66.0), None)
        );
        assert_eq!(book.base_of("D-2"), Some(24.4));
        let run = book.transit("disk", "empty").unwrap();
        assert_eq!(
            (run.per_s, run.median_s, run.descriptors),
            (Some(14.5), Some(3.59), Some(260.0))
        );
    }

    #[test]
    fn without_a_plain_ufs_the_slowest_is_the_base() {
        let head = "table,os,scheme,variant,filesystem,mount_options,disks,throughput_per_s\n";
        let lines =
            "D-2,A,ufs,1,UFS,async,3,20\nD-2,A,ufs,2,UFS,noatime,3,10\nD-2,A,diskd,1,UFS,,3,5\n";
        let novm = "in_transit,cache_state,request_rate_per_s,median_service_time_s,peak_fds\n";
        let book = Book::parse(&format!("{head}{lines}"), novm).unwrap();
        assert_eq!(book.base_of("D-2"), Some(10.0));
    }
}
