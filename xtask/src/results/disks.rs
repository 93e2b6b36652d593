//! Other systems (tables D-2 to D-5 of the book), and the gain of another disk (table D-6).

use super::figures::{NOTHING, over, per_s, published_per_s, ratio, table, with_hits};
use super::peaks::{Group, Matrix};
use super::published::{Book, Published};
use super::schemes::on_common_ground;
use super::{Inputs, Made};

/// The book's own system of those that are here, its table, and the schemes in it.
const LINUX: &str = "Linux 2.4.19";
const LINUX_TABLE: &str = "D-1";
const BOOK_SCHEMES: [&str; 4] = ["coss", "aufs", "diskd", "ufs"];

/// Replaces mount options that the book has lost.
const LOST: &str = "?";

const DISKS_MAX: u32 = 3;

/// Processes with one store each, beside one process with as many stores.
const INSTANCES: u32 = 3;

/// The columns of our measurements: a subject and its title.
const SUBJECTS: [(&str, &str); 3] = [
    ("squid:aufs", "#Squid aufs here"),
    ("humboldt:aufs", "#Humboldt aufs here"),
    ("humboldt:ring", "#Humboldt ring here"),
];

/// The book's schemes on Linux beside ours, and on systems that are not here, as they were
/// published.
pub(super) fn other_systems(inputs: &Inputs) -> Made {
    let here = inputs.matrix("schemes")?;
    let mut rows: Vec<[String; 6]> =
        BOOK_SCHEMES.iter().map(|scheme| linux(&inputs.book, here.as_ref(), scheme)).collect();
    rows.extend(inputs.book.other_systems().map(|row| other_system(&inputs.book, row)));
    let columns = [
        "system",
        "scheme",
        "file system and options",
        "#answers/s",
        "#÷ plain ufs",
        "Humboldt here",
    ];
    let text = table(columns, rows);
    Ok(Some(format!("{text}\n`{LOST}`: the printed tables have lost the mount options.")))
}

/// A scheme on Linux, without mount options where the book has that, and ours with its ratio to our
/// `ufs`.
fn linux(book: &Book, here: Option<&Matrix>, scheme: &str) -> [String; 6] {
    let row = book.plain(scheme);
    let published = row.map(|row| row.per_s);
    let ours = |scheme: &str| on_common_ground(here?, &format!("humboldt:{scheme}"));
    let ufs = ours("ufs");
    [
        LINUX.to_owned(),
        scheme.to_owned(),
        row.map_or_else(|| NOTHING.to_owned(), on),
        published_per_s(published),
        ratio(over(published, book.base_of(LINUX_TABLE))),
        ours(scheme).map_or_else(
            || "not run yet".to_owned(),
            |group| format!("{}, ÷ ufs {}", group.shown(), group.over(ufs)),
        ),
    ]
}

/// File system and mount options, separated by commas.
fn on(row: &Published) -> String {
    let parts = [row.file_system.as_str(), row.mount_options.as_str()];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|part| !part.is_empty())
        .map(|part| part.replace('+', ", "))
        .collect();
    if parts.is_empty() { NOTHING.to_owned() } else { parts.join(", ") }
}

fn other_system(book: &Book, row: &Published) -> [String; 6] {
    [
        row.system.clone(),
        row.scheme.clone(),
        on(row),
        published_per_s(Some(row.per_s)),
        ratio(over(Some(row.per_s), book.base_of(&row.table))),
        "not run here".to_owned(),
    ]
}

/// Throughput with no disk and with one to three.
pub(super) fn spindles(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix("spindles")? else { return Ok(None) };
    let [squid, humboldt, ring] = SUBJECTS.map(|(_, title)| title);
    let columns = [
        "disks",
        "#published answers/s",
        "#÷ 1 disk",
        squid,
        "#÷ 1",
        humboldt,
        "#÷ 1",
        ring,
        "#÷ 1",
    ];
    let mut rows = Vec::new();
    for disks in 0..=DISKS_MAX {
        let published = inputs.book.on_disks(disks);
        let published =
            [published_per_s(published), ratio(over(published, inputs.book.on_disks(1)))];
        rows.push(row(disks.to_string(), published, &matrix, |subject| {
            on_disks(&matrix, subject, disks)
        }));
    }
    let name = format!("{INSTANCES} × one instance with one disk");
    let unpublished = [NOTHING.to_owned(), NOTHING.to_owned()];
    rows.push(row(name, unpublished, &matrix, |subject| matrix.with_instances(subject, INSTANCES)));
    Ok(Some(table(columns, rows)))
}

/// A subject's result with `disks` disks; without any, that of the same program's scheme that
/// stores nothing.
fn on_disks<'m>(matrix: &'m Matrix, subject: &str, disks: u32) -> Option<&'m Group> {
    match disks {
        0 => matrix.without_disk(subject.split_once(':').map_or(subject, |(program, _)| program)),
        _ => matrix.with_stores(subject, disks),
    }
}

/// A line of the table: published figures, and each subject's group beside its own with one disk.
fn row<'m>(
    name: String,
    published: [String; 2],
    matrix: &Matrix,
    group_of: impl Fn(&str) -> Option<&'m Group>,
) -> [String; 9] {
    let [squid, humboldt, ring] = SUBJECTS.map(|(subject, _)| {
        let group = group_of(subject);
        let base = matrix.with_stores(subject, 1);
        let shown =
            group.map_or_else(|| per_s(None), |group| with_hits(&group.shown(), group.hit_ratio()));
        [shown, Group::any_over(group, base)]
    });
    let [rate, share] = published;
    let ([squid, squid_share], [humboldt, humboldt_share], [ring, ring_share]) =
        (squid, humboldt, ring);
    [name, rate, share, squid, squid_share, humboldt, humboldt_share, ring, ring_share]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::testing::{cells, inputs};

    #[test]
    fn other_systems_are_divided_by_their_plain_ufs() {
        let (_folder, inputs) = inputs(&[]);
        let text = other_systems(&inputs).unwrap().unwrap();
        assert_eq!(text.matches("not run here").count(), 27);
        assert_eq!(cells(&text, "Linux 2.4.19"), ["coss", "–", "326.3", "5.94", "not run yet"]);
        assert_eq!(cells(&text, "FreeBSD 4.8"), ["coss", "–", "330.7", "13.55", "not run here"]);
        assert_eq!(cells(&text, "NetBSD 1.6.1")[1], "UFS, softupdate, noatime, async");
    }

    #[test]
    fn each_series_is_divided_by_its_own_single_disk() {
        let csv = "subject,variant,outcome,throughput_per_s,lab_limited_share,limit_reached\n\
            humboldt:null,,filled,9000,0,0\n\
            humboldt:aufs,\"ext4, noatime, 600 reads/s\",filled,1000,0,1\n\
            humboldt:aufs,\"ext4, noatime, 2 stores, 600 reads/s\",filled,1500,0,1\n\
            humboldt:aufs,\"ext4, noatime, 600 reads/s, 3 instances\",filled,2500,0,0\n\
            squid:aufs,\"ext4, noatime, 2 stores, 600 reads/s\",filled,300,0,1\n";
        let (_folder, inputs) = inputs(&[("spindles/index.csv", csv)]);
        let text = spindles(&inputs).unwrap().unwrap();
        assert_eq!(
            cells(&text, "0"),
            ["332.1", "5.03", "–", "–", "≥ 9,000", "≥ 9.00", "≥ 9,000", "–"]
        );
        assert_eq!(cells(&text, "1"), ["66.0", "1.00", "–", "–", "1,000", "1.00", "–", "–"]);
        assert_eq!(cells(&text, "2"), ["85.3", "1.29", "300", "–", "1,500", "1.50", "–", "–"]);
        let instances = cells(&text, "3 × one instance with one disk");
        assert_eq!(instances, ["–", "–", "–", "–", "≥ 2,500", "≥ 2.50", "–", "–"]);
    }
}
