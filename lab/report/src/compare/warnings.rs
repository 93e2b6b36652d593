//! The warnings of a comparison, and the full list of those that many runs share.

use super::ages::Ages;
use super::groups::Group;
use crate::document::Warning;
use crate::format::bytes;
use crate::provenance::{self, NOT_COMPARABLE};
use crate::run_page;
use crate::table::Table;
use humboldt_lab_record::Run;

/// As many runs are named in a warning that they share; a table below names all.
pub(super) const NAMED_MAX: usize = 12;

/// That table.
const TABLE: &str = "Settings with a grave warning";

/// What speaks against comparing these runs at all.
pub(super) fn not_comparable(runs: &[Run]) -> Vec<Warning> {
    let mut found = Vec::new();
    let mut differs = |what: &str, of: fn(&Run) -> String| {
        let mut values: Vec<String> = runs.iter().map(of).collect();
        values.sort();
        values.dedup();
        if values.len() > 1 {
            found.push(Warning {
                grave: true,
                heading: format!("{NOT_COMPARABLE}the {what} differs"),
                text: format!("The runs have {}.", values.join(", ")),
            });
        }
    };
    let workload = |run: &Run| run.plan.workload.clone();
    differs("workload", workload);
    differs("time scale", |run| run.plan.time_scale.to_string());
    differs("cache size", |run| bytes(run.plan.cache_bytes as f64));
    differs("controller", |run| run.plan.controller.clone());
    // A run that failed before it began has recorded nothing.
    let begun = runs.iter().filter(|run| !run.samples.is_empty()).map(|run| &run.manifest);
    found.extend(provenance::differences(begun.clone()));
    if runs.windows(2).all(|two| workload(&two[0]) == workload(&two[1])) {
        found.extend(provenance::workload_differs(begun));
    }
    found
}

/// All warnings, the gravest first.
pub(super) fn warnings(runs: &[Run], groups: &[Group<'_>]) -> Vec<Warning> {
    let mut found = not_comparable(runs);
    found.extend(ages_differ(groups));
    found.extend(shared(groups).into_iter().map(together));
    found.extend(groups.iter().filter_map(|group| group.throughput.warning(&group.name)));
    found.sort_by_key(|warning| !warning.grave);
    found
}

/// Said if the last quarters of two settings do not overlap.
fn ages_differ(groups: &[Group<'_>]) -> Option<Warning> {
    let of_groups = groups.iter().filter_map(|group| {
        Ages::common(group.runs.iter().copied()).map(|ages| (ages, group.name.as_str()))
    });
    let (youngest, young) = of_groups.clone().min_by(|a, b| a.0.to.total_cmp(&b.0.to))?;
    let (oldest, old) = of_groups.max_by(|a, b| a.0.from.total_cmp(&b.0.from))?;
    (oldest.from > youngest.to).then(|| Warning {
        grave: true,
        heading: format!("{NOT_COMPARABLE}the caches have different ages"),
        text: format!(
            "The last quarter of {young} is at fill ratio {}, that of {old} at {}. A cache that is not full yet is \
             faster. The first table has all caches at the same fill ratio.",
            youngest.words(),
            oldest.words()
        ),
    })
}

/// Grave warnings of single runs, each with the settings that have it.
fn shared<'a>(groups: &'a [Group<'_>]) -> Vec<(Warning, Vec<&'a str>)> {
    let mut found: Vec<(Warning, Vec<&str>)> = Vec::new();
    for group in groups {
        let of_runs = group.runs.iter().flat_map(|run| run_page::warnings(run));
        for warning in of_runs.filter(|warning| warning.grave) {
            let known = found.iter_mut().find(|(other, _)| other.heading == warning.heading);
            match known {
                Some((_, names)) if names.last() == Some(&group.name.as_str()) => {}
                Some((_, names)) => names.push(&group.name),
                None => found.push((warning, vec![&group.name])),
            }
        }
    }
    found
}

/// A warning that several have in common stands once.
fn together((warning, names): (Warning, Vec<&str>)) -> Warning {
    if let [name] = names[..] {
        return Warning { heading: format!("{name}: {}", warning.heading), ..warning };
    }
    let shown = names.len().min(NAMED_MAX);
    let more = match names.len() - shown {
        0 => String::new(),
        more => format!("; and {more} more, which are in the table “{TABLE}”"),
    };
    Warning {
        text: format!("{}{more}. The report of each run says more.", names[..shown].join("; ")),
        ..warning
    }
}

/// Every warning with every setting that has it; no rows if the warnings name all of them.
pub(super) fn table(groups: &[Group<'_>]) -> Table {
    let mut table = Table::new(TABLE, &["warning", "subject"]);
    for (warning, names) in shared(groups) {
        if names.len() > NAMED_MAX {
            for name in names {
                table.row([warning.heading.clone(), name.to_owned()]);
            }
        }
    }
    table
}
