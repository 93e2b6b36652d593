//! The lists of subjects and workloads.

use crate::cli::{NameArgs, WorkloadsArgs};
use crate::fleet::world;
use crate::{Failure, experiment, output::say};
use humboldt_lab_report::wrapped;
use humboldt_lab_subjects::{Mode, SubjectFile};
use humboldt_lab_workload::Workload;
use std::sync::Arc;

/// Cache size for which the ideal of a workload is printed.
const CACHE_BYTES: u64 = 1 << 30;

/// Width of a description in characters.
const DESCRIPTION_WIDTH: usize = 82;

/// The subject that no package has.
const OWN: &str = "humboldt";

/// `humboldt-lab subjects [NAME]`.
pub(crate) fn subjects(arguments: &NameArgs) -> Result<(), Failure> {
    let Some(name) = &arguments.name else {
        for (name, description) in SubjectFile::builtin_names() {
            say!("{name:<18} {description}");
        }
        say!("\nOn this machine:");
        families().iter().for_each(|family| say!("{}", installed(family)));
        say!("\n`humboldt-lab subjects NAME` prints a file that you can copy and change.");
        return Ok(());
    };
    let family = name.split(':').next().unwrap_or(name);
    if let Some(text) = SubjectFile::builtin_text(family) {
        say!("{}", text.trim_end());
        return Ok(());
    }
    let file = experiment::named_subject(name)?;
    let mode = match file.mode() {
        Mode::Forward => "forward proxy",
        Mode::Accelerator => "accelerator",
    };
    say!("{}: {} ({mode}); the file is in order", file.name(), file.description());
    Ok(())
}

/// Families of built-in subjects, each once: `squid`, `nginx`, …
fn families() -> Vec<String> {
    let names = SubjectFile::builtin_names().into_iter();
    let mut families: Vec<String> =
        names.map(|(name, _)| name.split(':').next().unwrap_or(&name).to_owned()).collect();
    families.dedup();
    families
}

/// The program of a family here: version and path, or the package to install.
fn installed(family: &str) -> String {
    let Some(Ok(file)) = SubjectFile::builtin(family) else { return String::new() };
    let what = match file.find() {
        Ok(program) => {
            let version = file.version_of(&program);
            let version = version.unwrap_or_else(|| "it does not say its version".to_owned());
            format!("{} ({version})", program.display())
        }
        Err(_) if family == OWN => "not installed: cargo build --release -p humboldt".to_owned(),
        Err(_) => format!("not installed: apt install {}", file.package()),
    };
    format!("{family:<18} {what}")
}

/// `humboldt-lab workloads [NAME] [--ideal]`.
pub(crate) fn workloads(arguments: &WorkloadsArgs) -> Result<(), Failure> {
    let Some(name) = &arguments.name else {
        for name in Workload::builtin_names() {
            let Some(Ok(workload)) = Workload::builtin(name) else { continue };
            let lines = wrapped(workload.description(), DESCRIPTION_WIDTH);
            for (index, line) in lines.iter().enumerate() {
                say!("{:<16} {line}", if index == 0 { name } else { "" });
            }
        }
        say!("\n`humboldt-lab workloads NAME` prints a file that you can copy and change.");
        return Ok(());
    };
    let order = world::plain_order(name, 1, 1.0)?;
    let workload = Arc::new(world::load(&order).map_err(Failure::usage)?);
    let Some(requests) = arguments.ideal else {
        say!("{}", workload.text().trim_end());
        return Ok(());
    };
    let ideal = workload.ideal(order.seed, requests, workload.working_set_objects(CACHE_BYTES));
    say!("of {requests} requests:");
    say!(
        "{:6.2} % of plain GETs are offered hits: for something cachable that was requested before",
        ideal.offered_plain * 100.0
    );
    say!(
        "an unlimited cache, which stores only the answers that pass through it, answers from its store:"
    );
    say!("{:6.2} % of plain GETs", ideal.hit_ratio_plain * 100.0);
    say!("{:6.2} % of all requests", ideal.hit_ratio_all * 100.0);
    say!("{:6.2} % of the bytes of plain GETs", ideal.byte_hit_ratio * 100.0);
    say!(
        "{:8.0} bytes is the mean object, {:.1} % are cachable",
        workload.mean_object_bytes(),
        workload.cachable_share() * 100.0
    );
    Ok(())
}
