//! The page of one run.

mod curve;
mod figures;
mod filling;
mod glossary;
mod now;
mod resources;
mod tables;
mod words;

use crate::document::{Document, Fold, Section};
use crate::format::{number, plain_lines};
use crate::provenance;
use humboldt_lab_record::Run;

pub(crate) use figures::{cumulative, distribution, mean_response_ms, over_fill};
pub(crate) use filling::{filled, flatness, written};
pub(crate) use tables::{fault_tables, per_s};
pub use words::objection;
pub(crate) use words::{lead, title, warnings};

/// As many characters of one configuration file are on the page; summary.json has all.
const FILE_CHARS_MAX: usize = 200_000;

/// The page of a run that goes on or has ended.
pub(crate) fn document(run: &Run) -> Document {
    let beginning = [now::section(run), result(run), trace(run)];
    let sections = beginning.into_iter().chain(curve::section(run)).chain([
        times(run),
        hits(run),
        errors(run),
        resource_section(run),
        requests(run),
        controller(run),
        environment(run),
        Section { terms: glossary::TERMS.to_vec(), ..Section::new("What the numbers mean") },
    ]);
    Document {
        title: title(run),
        subtitle: words::subtitle(run),
        lead: lead(run),
        warnings: warnings(run),
        sections: sections.collect(),
    }
}

fn result(run: &Run) -> Section {
    if let Some(from) = now::judged_from(run) {
        let text = format!(
            "Not judged yet: the result is the last quarter, which begins at fill ratio {}.",
            number(from, 2)
        );
        return Section { text, ..Section::new("Result") };
    }
    Section {
        short: true,
        tables: vec![tables::summary(run), tables::times(run)],
        ..Section::new("Result")
    }
}

fn trace(run: &Run) -> Section {
    let figures = [figures::trace(run)].into_iter().chain(figures::stored(run)).collect();
    Section { figures, ..Section::new("Trace") }
}

fn times(run: &Run) -> Section {
    Section {
        figures: vec![
            figures::response_times(run),
            figures::added_times(run),
            distribution(
                "cdf",
                "Distribution of response times in the last quarter",
                &figures::classes(run),
            ),
            figures::backlog(run),
        ],
        ..Section::new("Response times")
    }
}

fn hits(run: &Run) -> Section {
    Section {
        figures: vec![figures::hit_ratio(run), figures::byte_hit_ratio(run)],
        ..Section::new("Hits")
    }
}

fn errors(run: &Run) -> Section {
    let total = &run.total;
    let tables = fault_tables(&total.faults, &total.fault_samples, total.answers());
    let none = tables.is_empty() && !run.samples.is_empty();
    let text = if none { "Every answer was right, to the last byte." } else { "" };
    Section { short: true, text: text.to_owned(), tables, ..Section::new("Errors") }
}

fn resource_section(run: &Run) -> Section {
    let mut section = Section { figures: resources::subject(run), ..Section::new("Resources") };
    if section.figures.is_empty() && !run.samples.is_empty() {
        section.text = "The subject's processes were not watched.".to_owned();
    }
    section.figures.extend(resources::laboratory(run));
    section
}

fn requests(run: &Run) -> Section {
    let tables = vec![
        tables::kinds("By kind of request, whole run", "kind", &run.total.by_kind),
        tables::kinds("By type of content, whole run", "type", &run.total.by_type),
        tables::totals(run),
    ];
    Section { tables, ..Section::new("Requests") }
}

fn controller(run: &Run) -> Section {
    let folds = if run.samples.is_empty() {
        Vec::new()
    } else {
        vec![Fold {
            title: format!("Decisions, sample by sample ({})", run.samples.len()),
            tables: vec![tables::decisions(run)],
            text: String::new(),
        }]
    };
    Section { tables: vec![tables::settings(run)], folds, ..Section::new("Controller") }
}

fn environment(run: &Run) -> Section {
    let files = run.manifest.files.iter().map(|(name, text)| (name.clone(), text));
    let workload = (!run.plan.workload_text.is_empty())
        .then(|| (format!("Workload {}", run.plan.workload), &run.plan.workload_text));
    let folds = files
        .chain(workload)
        .map(|(title, text)| Fold {
            title,
            tables: Vec::new(),
            text: plain_lines(text, FILE_CHARS_MAX),
        })
        .collect();
    Section {
        tables: vec![provenance::of_one(&run.manifest), tables::facts(&run.manifest)],
        folds,
        ..Section::new("Configuration and environment")
    }
}
