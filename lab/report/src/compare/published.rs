//! The published results, to hold ratios against.

use super::groups::Group;
use crate::document::{Fold, Section};
use crate::format::{NOTHING, number, percent, rough};
use crate::table::Table;

const BOOK: &str = include_str!("../../data/published-2003.csv");
const NOVM: &str = include_str!("../../data/novm.csv");

/// The table of the book with all schemes on one system, and the scheme that ratios are relative
/// to.
const RATIO_TABLE: &str = "D-1";
const RATIO_SCHEME: &str = "aufs";

/// A row of the published tables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Published {
    /// `D-1` to `D-6`.
    pub table: String,
    /// The operating system.
    pub system: String,
    /// The storage scheme.
    pub scheme: String,
    /// File system and mount options.
    pub on: String,
    /// Whether there are such options.
    has_options: bool,
    /// Number of disks.
    pub disks: String,
    /// Responses per second.
    pub throughput_per_s: f64,
    /// Mean response time in seconds.
    pub response_s: f64,
    /// Hits ÷ requests.
    pub hit_ratio: f64,
}

/// The cells of every line that is not a comment, without the header.
fn lines(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .skip(1)
        .map(|line| line.split(',').collect())
}

/// The book's tables, in their order.
pub(crate) fn book() -> Vec<Published> {
    let row = |cells: Vec<&str>| -> Option<Published> {
        let [
            table,
            system,
            scheme,
            variant,
            filesystem,
            options,
            disks,
            throughput,
            response,
            hits,
        ] = cells[..]
        else {
            return None;
        };
        let number = |text: &str| text.parse::<f64>().ok();
        let on = [filesystem, options]
            .into_iter()
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        let scheme_name =
            if variant.is_empty() { scheme.to_owned() } else { format!("{scheme} ({variant})") };
        Some(Published {
            table: table.to_owned(),
            system: system.to_owned(),
            scheme: scheme_name,
            on,
            has_options: !options.is_empty(),
            disks: disks.to_owned(),
            throughput_per_s: number(throughput)?,
            response_s: number(response)?,
            hit_ratio: number(hits)? / 100.0,
        })
    };
    lines(BOOK).filter_map(row).collect()
}

impl Published {
    /// The scheme without the number of the variant.
    fn plain_scheme(&self) -> &str {
        self.scheme.split(' ').next().unwrap_or_default()
    }
}

/// The published throughput of a scheme in a table: without mount options, as far as it has such a
/// row, and there the best.
fn plain(rows: &[Published], table: &str, scheme: &str) -> Option<f64> {
    let those = || rows.iter().filter(|row| row.table == table && row.plain_scheme() == scheme);
    let best = |rows: &mut dyn Iterator<Item = &Published>| {
        rows.map(|row| row.throughput_per_s).reduce(f64::max)
    };
    best(&mut those().filter(|row| !row.has_options)).or_else(|| best(&mut those()))
}

/// The throughput of our subjects that have everything but the scheme in common, at the same age.
/// They are those of the setting in which most of them were measured beside `aufs`.
fn comparable(groups: &[Group<'_>]) -> Vec<(String, f64)> {
    let variant = |group: &Group<'_>| group.first().plan.variant.clone();
    let of = |wanted: &str| -> Vec<(String, f64)> {
        let same = groups.iter().filter(|group| variant(group) == wanted);
        let at_common = |group: &Group<'_>| {
            group.common_per_s().map(|per_s| (group.first().plan.subject.clone(), per_s))
        };
        same.filter_map(at_common).collect()
    };
    let has_base =
        groups.iter().filter(|group| scheme_of(&group.first().plan.subject) == RATIO_SCHEME);
    has_base.map(|group| of(&variant(group))).max_by_key(Vec::len).unwrap_or_default()
}

fn scheme_of(subject: &str) -> &str {
    subject.rsplit(':').next().unwrap_or_default()
}

/// Ours beside the published ones, scheme by scheme, both as ratios to `aufs`; `None` if fewer than
/// two of ours have a counterpart.
pub(crate) fn ratios(groups: &[Group<'_>]) -> Option<Table> {
    ratios_of(&comparable(groups))
}

/// `ours`: (subject, throughput).
fn ratios_of(ours: &[(String, f64)]) -> Option<Table> {
    let rows = book();
    let published_base = plain(&rows, RATIO_TABLE, RATIO_SCHEME)?;
    let published = |subject: &str| plain(&rows, RATIO_TABLE, scheme_of(subject));
    if ours.iter().filter(|(subject, _)| published(subject).is_some()).count() < 2 {
        return None;
    }
    // Ratios within one program only.
    let own_base = |subject: &str| {
        let program = subject.split(':').next();
        let is_base =
            |other: &str| other.split(':').next() == program && scheme_of(other) == RATIO_SCHEME;
        ours.iter().find(|(other, _)| is_base(other)).map(|(_, rate)| *rate)
    };
    let columns =
        ["subject", "#answers/s here", "#÷ aufs here", "#answers/s published", "#÷ aufs published"];
    let mut table = Table::new("Ratios beside the published ones", &columns);
    for (subject, rate) in ours {
        let published = published(subject);
        let ratio = |rate: Option<f64>, base: Option<f64>| match (rate, base) {
            (Some(rate), Some(base)) if base > 0.0 => number(rate / base, 2),
            _ => NOTHING.to_owned(),
        };
        table.row([
            subject.clone(),
            rough(*rate),
            ratio(Some(*rate), own_base(subject)),
            published.map_or(NOTHING.to_owned(), |rate| number(rate, 1)),
            ratio(published, Some(published_base)),
        ]);
    }
    Some(table.note(
        "Here: on one file system, at the same age. Published: each scheme without mount options, where the print has such \
         a row (2003, table D-1, Linux 2.4.19), on other hardware. Compare ratios, not absolutes.",
    ))
}

/// The published tables as they are.
pub(crate) fn section() -> Section {
    let rows = book();
    let mut names: Vec<(&str, &str)> =
        rows.iter().map(|row| (row.table.as_str(), row.system.as_str())).collect();
    names.dedup();
    let folds = names.into_iter().map(|(name, system)| Fold {
        title: format!("Table {name}: {system}"),
        tables: vec![table(&rows, name)],
        text: String::new(),
    });
    Section {
        text:
            "As published in 2003, on other hardware and with other versions: compare ratios, not absolutes."
                .to_owned(),
        folds: folds.collect(),
        ..Section::new("Published results")
    }
}

fn table(rows: &[Published], name: &str) -> Table {
    let columns = [
        "scheme",
        "on",
        "#disks",
        "#answers/s",
        "#÷ aufs",
        "#÷ ufs",
        "#response time",
        "#hit ratio",
    ];
    let mut table = Table::new(&format!("Table {name}, as published"), &columns);
    let (aufs, ufs) = (plain(rows, name, "aufs"), plain(rows, name, "ufs"));
    for row in rows.iter().filter(|row| row.table == name) {
        let to = |base: Option<f64>| {
            base.map_or(NOTHING.to_owned(), |base| number(row.throughput_per_s / base, 2))
        };
        table.row([
            row.scheme.clone(),
            row.on.clone(),
            row.disks.clone(),
            number(row.throughput_per_s, 1),
            to(aufs),
            to(ufs),
            format!("{} s", number(row.response_s, 2)),
            percent(row.hit_ratio),
        ]);
    }
    table.note("Ratios to aufs and ufs of the same table, without mount options where it has them.")
}

/// The published comparison of objects in transit on disk and in memory.
pub(crate) fn novm() -> Table {
    let columns = [
        "run",
        "in transit",
        "cache",
        "#total time, s",
        "#requests/s",
        "#median service time, s",
        "#peak descriptors",
    ];
    let mut table = Table::new("The NOVM comparison, as published", &columns);
    for cells in lines(NOVM) {
        table.row(cells.into_iter().map(str::to_owned));
    }
    table.note("Other hardware and versions: compare ratios, not absolutes.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_published_rows_are_read() {
        let rows = book();
        let data_lines = BOOK.lines().filter(|line| line.starts_with("D-")).count();
        assert_eq!((rows.len(), data_lines), (40, 40));
        let aufs = &rows[1];
        assert_eq!((aufs.scheme.as_str(), aufs.on.as_str()), ("aufs (1)", "ext2fs noatime"));
        assert_eq!((aufs.throughput_per_s, aufs.response_s), (168.5, 1.45));
        assert!((aufs.hit_ratio - 0.563).abs() < 1e-12);
        assert_eq!(novm().rows.len(), 4);
        assert_eq!(section().folds.len(), 6);
        assert!(section().folds.iter().all(|fold| !fold.tables[0].rows.is_empty()));
    }

    #[test]
    fn a_setting_without_the_common_ages_has_no_ratio() {
        let run = |subject: &str| {
            let mut run = crate::testing::synthetic(subject, 100.0, 40);
            run.outcome = humboldt_lab_record::Outcome::Filled;
            run
        };
        let runs = [run("squid:aufs"), run("squid:ufs")];
        let mut all = super::super::groups::groups(&runs);
        assert_eq!(comparable(&all).len(), 2);
        all[1].at_common = None;
        assert_eq!(comparable(&all).len(), 1);
        assert!(ratios(&all).is_none());
    }

    #[test]
    fn ratios_stand_beside_ours() {
        let ours = [
            ("squid:aufs".to_owned(), 1000.0),
            ("squid:diskd".to_owned(), 500.0),
            ("nginx".to_owned(), 1.0),
        ];
        let table = ratios_of(&ours).unwrap();
        assert_eq!(table.rows[1], ["squid:diskd", "500", "0.50", "149.4", "1.36"]);
        assert_eq!(table.rows[2][3..], ["–", "–"]);
    }
}
