//! Storage schemes and file systems (table D-1 of the book): Squid's and Humboldt's, and two caches
//! with one scheme each.

use super::figures::{NOTHING, over, over_base, per_s, published_per_s, ratio, table, with_hits};
use super::peaks::{Group, Matrix};
use super::published::Book;
use super::{Inputs, Made};

/// The experiment on devices with few operations a second, and the one without that limit.
const LIMITED: &str = "schemes";
const UNLIMITED: &str = "schemes-unthrottled";

/// Experiments of their own, which were a part of the first one before.
const FILE_SYSTEMS_APART: &str = "file-systems";
const ACCESS_TIMES_APART: &str = "access-times";

/// No disk, the book's schemes, and newer ones.
const SCHEMES: [&str; 7] = ["null", "coss", "aufs", "diskd", "ufs", "rock", "ring"];

/// The scheme that the others of the same program are divided by.
const BASE: &str = "ufs";

const PROGRAMS: [&str; 2] = ["squid", "humboldt"];

/// Caches that have one way to store.
const OTHERS: [&str; 2] = ["nginx", "trafficserver"];

const NOATIME: &str = "noatime";
const STRICTATIME: &str = "strictatime";

/// File systems, and their names in the book; none if it does not have them.
const FILE_SYSTEMS: [(&str, &str); 6] = [
    (BASE_FILE_SYSTEM, "ext2fs"),
    ("ext3", "ext3fs"),
    ("ext4", ""),
    ("xfs", "xfs"),
    ("btrfs", ""),
    (GONE_FILE_SYSTEM, "reiserfs"),
];

/// The file system that the others are divided by.
const BASE_FILE_SYSTEM: &str = "ext2";

/// Linux had it when the book was written.
const GONE_FILE_SYSTEM: &str = "reiserfs";
const GONE: &str = "no longer in Linux";

/// One scheme of a [`Series`].
struct Rate {
    scheme: &'static str,
    per_s: f64,
    /// The best of the scheme, by which schemes are ordered: with the mount options that helped it.
    best_per_s: f64,
    shown: String,
    /// Whether no limit was found.
    is_bound: bool,
}

/// Answers per second of one program's schemes under the same conditions.
struct Series {
    rates: Vec<Rate>,
}

impl Series {
    fn published(book: &Book) -> Self {
        let rate = |scheme: &'static str| {
            let row = book.plain(scheme)?;
            let shown = with_hits(&published_per_s(Some(row.per_s)), row.hit_ratio);
            // The print has lost the options of some rows; those that it has gain `aufs` a half.
            let mark = if row.mount_options.is_empty() { "" } else { " ‡" };
            let best_per_s = book.scheme(scheme)?;
            Some(Rate {
                scheme,
                per_s: row.per_s,
                best_per_s,
                shown: format!("{shown}{mark}"),
                is_bound: false,
            })
        };
        Self { rates: SCHEMES.into_iter().filter_map(rate).collect() }
    }

    fn measured(matrix: &Matrix, program: &str) -> Self {
        let rate = |scheme: &'static str| {
            let group = match scheme {
                "null" => matrix.without_disk(program),
                _ => on_common_ground(matrix, &format!("{program}:{scheme}")),
            }?;
            let per_s = group.mean_per_s();
            Some(Rate {
                scheme,
                per_s,
                best_per_s: per_s,
                shown: shown(Some(group)),
                is_bound: group.is_capped(),
            })
        };
        Self { rates: SCHEMES.into_iter().filter_map(rate).collect() }
    }

    fn rate(&self, scheme: &str) -> Option<&Rate> {
        self.rates.iter().find(|rate| rate.scheme == scheme)
    }

    fn shown(&self, scheme: &str) -> String {
        self.rate(scheme).map_or_else(|| NOTHING.to_owned(), |rate| rate.shown.clone())
    }

    fn over_base(&self, scheme: &str) -> String {
        let bounded = |rate: &Rate| (rate.per_s, rate.is_bound);
        match self.rate(scheme) {
            None => NOTHING.to_owned(),
            Some(_) if scheme == BASE => ratio(Some(1.0)),
            Some(rate) => over_base(bounded(rate), self.rate(BASE).map(bounded)),
        }
    }

    /// The schemes that store, fastest first, as far as that is known.
    fn order(&self) -> Vec<&Rate> {
        let mut rates: Vec<&Rate> =
            self.rates.iter().filter(|rate| rate.scheme != "null").collect();
        rates.sort_by(|left, right| right.best_per_s.total_cmp(&left.best_per_s));
        rates
    }

    /// "coss > ring ? rock": the second may be slower than the third. Before a ">" each scheme is
    /// known to be faster than each one after it.
    fn order_words(&self) -> Option<String> {
        let mut words = String::new();
        let order = self.order();
        for (at, rate) in order.iter().enumerate() {
            let (before, after) = order.split_at(at);
            let is_known = before
                .iter()
                .all(|before| after.iter().all(|after| before.is_faster_than(after) == Some(true)));
            words += match (at, is_known) {
                (0, _) => "",
                (_, true) => " > ",
                (_, false) => " ? ",
            };
            words += rate.scheme;
        }
        (!words.is_empty()).then_some(words)
    }

    /// Whether a scheme stands between the same ones as in `other`, among those that both have;
    /// `None` if that is not known.
    fn has_place_of(&self, scheme: &str, other: &Series) -> Option<bool> {
        let (own, others) = (self.rate(scheme)?, other.rate(scheme)?);
        let pairs = self.order().into_iter().filter(|rate| rate.scheme != scheme);
        let pairs = pairs.filter_map(|rate| Some((rate, other.rate(rate.scheme)?)));
        let verdicts = pairs.map(|(rate, beside)| {
            Some(own.is_faster_than(rate)? == others.is_faster_than(beside)?)
        });
        let verdicts: Vec<Option<bool>> = verdicts.collect();
        if verdicts.contains(&Some(false)) {
            return Some(false);
        }
        (!verdicts.contains(&None)).then_some(true)
    }
}

impl Rate {
    /// `None`: that is not known, since the slower one found no limit.
    fn is_faster_than(&self, other: &Rate) -> Option<bool> {
        let is_faster = self.best_per_s > other.best_per_s;
        let slower = if is_faster { other } else { self };
        (!slower.is_bound).then_some(is_faster)
    }
}

/// Table D-1, on disks that are slow beside the processor.
pub(super) fn schemes(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix(LIMITED)? else { return Ok(None) };
    let published = Series::published(&inputs.book);
    let [squid, humboldt] = PROGRAMS.map(|program| Series::measured(&matrix, program));
    let columns = [
        "scheme",
        "#published answers/s · hits",
        "#÷ ufs",
        "#Squid here answers/s · hits",
        "#÷ ufs",
        "#Humboldt here answers/s · hits",
        "#÷ ufs",
        "same order?",
    ];
    let rows = SCHEMES.map(|scheme| {
        [
            scheme.to_owned(),
            published.shown(scheme),
            published.over_base(scheme),
            squid.shown(scheme),
            squid.over_base(scheme),
            humboldt.shown(scheme),
            humboldt.over_base(scheme),
            same_order(scheme, &published, [("Squid", &squid), ("Humboldt", &humboldt)]),
        ]
    });
    Ok(Some(table(columns, rows)))
}

/// Whether a scheme has the same place in each program's order as in the published one.
fn same_order(scheme: &str, published: &Series, programs: [(&'static str, &Series); 2]) -> String {
    let has_both = |series: &Series| {
        scheme != "null" && published.rate(scheme).is_some() && series.rate(scheme).is_some()
    };
    let verdicts: Vec<(&str, Option<bool>)> = programs
        .into_iter()
        .filter(|(_, series)| has_both(series))
        .map(|(program, series)| (program, series.has_place_of(scheme, published)))
        .collect();
    let word = |is_same: Option<bool>| match is_same {
        Some(true) => "yes",
        Some(false) => "no",
        None => "not known",
    };
    match verdicts.as_slice() {
        [] => NOTHING.to_owned(),
        [(_, first), others @ ..] if others.iter().all(|(_, is_same)| is_same == first) => {
            word(*first).to_owned()
        }
        all => {
            let words: Vec<String> = all
                .iter()
                .map(|(program, is_same)| format!("{program}: {}", word(*is_same)))
                .collect();
            words.join(", ")
        }
    }
}

/// The schemes that store, as a line for each program.
pub(super) fn order(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix(LIMITED)? else { return Ok(None) };
    let [squid, humboldt] = PROGRAMS.map(|program| Series::measured(&matrix, program));
    let published = Series::published(&inputs.book);
    let lines = [("published", published), ("Squid here", squid), ("Humboldt here", humboldt)];
    let lines = lines.map(|(name, series)| match series.order_words() {
        None => format!("- {name}: {NOTHING}"),
        Some(words) => format!("- {name}: `{words}`"),
    });
    Ok(Some(lines.join("\n")))
}

/// The same on a device without a limit. There are no published figures for it.
pub(super) fn unthrottled(inputs: &Inputs) -> Made {
    let Some(matrix) = inputs.matrix(UNLIMITED)? else { return Ok(None) };
    let [squid, humboldt] = PROGRAMS.map(|program| Series::measured(&matrix, program));
    let columns = [
        "scheme",
        "#Squid here answers/s · hits",
        "#÷ ufs",
        "#Humboldt here answers/s · hits",
        "#÷ ufs",
    ];
    let rows = SCHEMES.map(|scheme| {
        [
            scheme.to_owned(),
            squid.shown(scheme),
            squid.over_base(scheme),
            humboldt.shown(scheme),
            humboldt.over_base(scheme),
        ]
    });
    Ok(Some(table(columns, rows)))
}

/// Other caches beside Squid's ufs, on a device with few operations a second.
pub(super) fn others(inputs: &Inputs) -> Made {
    others_of(inputs, LIMITED)
}

/// The same on a device without a limit.
pub(super) fn others_unthrottled(inputs: &Inputs) -> Made {
    others_of(inputs, UNLIMITED)
}

fn others_of(inputs: &Inputs, experiment: &str) -> Made {
    let Some(matrix) = inputs.matrix(experiment)? else { return Ok(None) };
    if OTHERS.iter().all(|subject| on_common_ground(&matrix, subject).is_none()) {
        return Ok(None);
    }
    let base = on_common_ground(&matrix, "squid:ufs");
    let rows = OTHERS.map(|subject| {
        let group = on_common_ground(&matrix, subject);
        [subject.to_owned(), shown(group), Group::any_over(group, base)]
    });
    Ok(Some(table(["subject", "#answers/s · hits", "#÷ Squid's ufs"], rows)))
}

/// One file per object on every file system.
pub(super) fn file_systems(inputs: &Inputs) -> Made {
    let (apart, together) = (inputs.matrix(FILE_SYSTEMS_APART)?, inputs.matrix(LIMITED)?);
    let option = if apart.is_some() { STRICTATIME } else { NOATIME };
    let Some(matrix) = apart.or(together) else { return Ok(None) };
    let on_others = FILE_SYSTEMS.iter().filter(|(name, _)| *name != BASE_FILE_SYSTEM);
    let subjects = PROGRAMS.map(|program| format!("{program}:{BASE}"));
    if on_others.clone().all(|(name, _)| {
        subjects.iter().all(|subject| matrix.mounted(subject, name, option).is_none())
    }) {
        return Ok(None);
    }
    let published = |name: &str| inputs.book.mounted(BASE, name, "");
    let [(_, published_base), ..] = FILE_SYSTEMS;
    let here = |program: &str, file_system: &str| {
        let group = |on: &str| matrix.mounted(&format!("{program}:{BASE}"), on, option);
        match file_system {
            GONE_FILE_SYSTEM => GONE.to_owned(),
            _ => Group::any_over(group(file_system), group(BASE_FILE_SYSTEM)),
        }
    };
    let rows = FILE_SYSTEMS.map(|(file_system, book_name)| {
        [
            file_system.to_owned(),
            ratio(over(published(book_name), published(published_base))),
            here("squid", file_system),
            here("humboldt", file_system),
        ]
    });
    let columns =
        ["file system", "#published ÷ ext2", "#Squid here ÷ ext2", "#Humboldt here ÷ ext2"];
    Ok(Some(table(columns, rows)))
}

/// The gain from not writing the time of the last read.
pub(super) fn noatime(inputs: &Inputs) -> Made {
    let (apart, together) = (inputs.matrix(ACCESS_TIMES_APART)?, inputs.matrix(LIMITED)?);
    let file_system = if apart.is_some() { BASE_FILE_SYSTEM } else { "ext4" };
    let Some(matrix) = apart.or(together) else { return Ok(None) };
    let mut rows = Vec::new();
    let subjects = ["squid:ufs", "squid:aufs", "humboldt:ufs", "humboldt:aufs"];
    if subjects.iter().all(|subject| matrix.mounted(subject, file_system, NOATIME).is_none()) {
        return Ok(None);
    }
    for subject in subjects {
        let on = |option: &str| matrix.mounted(subject, file_system, option);
        let (with, without) = (on(STRICTATIME), on(NOATIME));
        let factor = without.map_or(NOTHING.to_owned(), |group| group.over(with));
        let scheme = subject.split_once(':').map_or(subject, |(_, scheme)| scheme);
        let published = |options: &str| inputs.book.mounted(scheme, "ext2fs", options);
        let published_factor = over(published(NOATIME), published(""));
        rows.push([
            subject.to_owned(),
            shown(with),
            shown(without),
            factor,
            ratio(published_factor),
        ]);
    }
    let columns = [
        "program and scheme",
        "#strictatime, answers/s",
        "#noatime, answers/s",
        "#factor",
        "#published factor",
    ];
    Ok(Some(table(columns, rows)))
}

/// A subject on the file system on which all schemes of an experiment are compared: the book's,
/// with access times; in older experiments ext4 without them.
pub(super) fn on_common_ground<'a>(matrix: &'a Matrix, subject: &str) -> Option<&'a Group> {
    match matrix.mounted("squid:aufs", BASE_FILE_SYSTEM, STRICTATIME) {
        Some(_) => matrix.mounted(subject, BASE_FILE_SYSTEM, STRICTATIME),
        None => matrix.mounted(subject, "ext4", NOATIME),
    }
}

fn shown(group: Option<&Group>) -> String {
    group.map_or_else(|| per_s(None), |group| with_hits(&group.shown(), group.hit_ratio()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::testing::{cells, inputs};

    const HEAD: &str = "subject,variant,outcome,throughput_per_s,lab_limited_share\n";

    fn csv(lines: &[(&str, &str, f64)]) -> String {
        let line = |(subject, variant, per_s): &(&str, &str, f64)| {
            format!("{subject},\"{variant}, 1500 reads/s, 1500 writes/s\",filled,{per_s},0\n")
        };
        HEAD.to_owned() + &lines.iter().map(line).collect::<String>()
    }

    fn small() -> String {
        csv(&[
            ("squid:null", "ext4, noatime", 900.0),
            ("squid:ufs", "ext4, noatime", 100.0),
            ("squid:ufs", "ext4, strictatime", 80.0),
            ("squid:ufs", "ext2, noatime", 125.0),
            ("squid:aufs", "ext4, noatime", 150.0),
            ("squid:diskd", "ext4, noatime", 160.0),
            ("humboldt:ufs", "ext4, noatime", 200.0),
            ("humboldt:aufs", "ext4, noatime", 500.0),
            ("humboldt:diskd", "ext4, noatime", 400.0),
            ("humboldt:coss", "ext4, noatime", 2000.0),
            ("nginx", "ext4, noatime", 250.0),
        ])
    }

    #[test]
    fn every_program_is_divided_by_its_own_ufs() {
        let (_folder, inputs) = inputs(&[("schemes/index.csv", &small())]);
        let text = schemes(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "null"), ["332.1 · 0.4 %", "6.05", "900", "9.00", "–", "–", "–"]);
        assert_eq!(
            cells(&text, "coss"),
            ["326.3 · 53.9 %", "5.94", "–", "–", "2,000", "10.00", "yes"]
        );
        let aufs =
            ["110.0 · 55.6 %", "2.00", "150", "1.50", "500", "2.50", "Squid: no, Humboldt: yes"];
        assert_eq!(cells(&text, "aufs"), aufs);
        assert_eq!(
            cells(&text, "ufs"),
            ["54.9 · 55.6 %", "1.00", "100", "1.00", "200", "1.00", "yes"]
        );
        assert_eq!(cells(&text, "ring"), ["–"; 7]);
    }

    #[test]
    fn schemes_are_sorted_by_throughput() {
        let (_folder, inputs) = inputs(&[("schemes/index.csv", &small())]);
        let text = order(&inputs).unwrap().unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "- published: `coss > aufs > diskd > ufs`");
        assert_eq!(lines[1], "- Squid here: `diskd > aufs > ufs`");
        assert_eq!(lines[2], "- Humboldt here: `coss > aufs > diskd > ufs`");
    }

    #[test]
    fn what_found_no_limit_has_no_known_place_among_faster_ones() {
        let csv = "subject,variant,outcome,throughput_per_s,lab_limited_share,limit_reached\n\
            humboldt:ufs,\"ext4, noatime\",filled,500,0,1\n\
            humboldt:aufs,\"ext4, noatime\",filled,1500,0,0\n\
            humboldt:diskd,\"ext4, noatime\",filled,1490,0,0\n\
            humboldt:coss,\"ext4, noatime\",filled,3500,0,0\n\
            humboldt:ring,\"ext4, noatime\",filled,2000,0,1\n";
        let (_folder, inputs) = inputs(&[("schemes/index.csv", csv)]);
        let text = order(&inputs).unwrap().unwrap();
        let wanted = "- Humboldt here: `coss ? ring ? aufs ? diskd > ufs`";
        assert_eq!(text.lines().nth(2), Some(wanted));
        let text = schemes(&inputs).unwrap().unwrap();
        let places = ["coss", "aufs", "diskd", "ufs"].map(|name| cells(&text, name).pop());
        let wanted = ["not known", "not known", "not known", "yes"];
        assert_eq!(places, wanted.map(|word| Some(word.to_owned())));
    }

    #[test]
    fn others_file_systems_and_noatime_have_their_bases() {
        let (_folder, inputs) = inputs(&[("schemes/index.csv", &small())]);
        let text = others(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "nginx"), ["250", "2.50"]);
        assert_eq!(cells(&text, "trafficserver"), ["–", "–"]);
        let text = file_systems(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "ext2"), ["1.00", "1.00", "–"]);
        assert_eq!(cells(&text, "ext4"), ["–", "0.80", "–"]);
        assert_eq!(cells(&text, "reiserfs"), ["0.39", GONE, GONE]);
        let text = noatime(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "squid:ufs"), ["80.0", "100", "1.25", "–"]);
        assert_eq!(cells(&text, "squid:aufs"), ["–", "150", "–", "1.53"]);
    }

    /// As `experiments/schemes.toml`, `file-systems.toml` and `access-times.toml` are now.
    #[test]
    fn schemes_on_the_books_file_system_and_its_variants_come_from_experiments_of_their_own() {
        let on_ext2 = csv(&[
            ("squid:null", "ext2, strictatime", 600.0),
            ("squid:ufs", "ext2, strictatime", 100.0),
            ("squid:aufs", "ext2, strictatime, 3 stores", 200.0),
            ("squid:diskd", "ext2, strictatime, 3 stores", 150.0),
        ]);
        let file_systems_csv = csv(&[
            ("squid:ufs", "ext2, strictatime", 100.0),
            ("squid:ufs", "xfs, strictatime", 70.0),
        ]);
        let access_times = csv(&[
            ("squid:aufs", "ext2, strictatime", 200.0),
            ("squid:aufs", "ext2, noatime", 300.0),
        ]);
        let (_folder, inputs) = inputs(&[
            ("schemes/index.csv", &on_ext2),
            ("file-systems/index.csv", &file_systems_csv),
            ("access-times/index.csv", &access_times),
        ]);
        let text = schemes(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "aufs")[..4], ["110.0 · 55.6 %", "2.00", "200", "2.00"]);
        assert_eq!(cells(&text, "diskd")[..2], ["149.4 · 56.1 % ‡", "2.72"]);
        let text = file_systems(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "xfs")[1], "0.70");
        let text = noatime(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "squid:aufs"), ["200", "300", "1.50", "1.53"]);
    }

    #[test]
    fn the_other_device_has_an_experiment_of_its_own() {
        let (_folder, inputs) = inputs(&[("schemes-unthrottled/index.csv", &small())]);
        assert!(schemes(&inputs).unwrap().is_none());
        let text = unthrottled(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "aufs"), ["150", "1.50", "500", "2.50"]);
        let text = others_unthrottled(&inputs).unwrap().unwrap();
        assert_eq!(cells(&text, "nginx"), ["250", "2.50"]);
    }
}
