//! The origin of figures: builds, machine, stores. Rows whose origins differ cannot be compared.

use crate::document::{Section, Warning};
use crate::format::{NOTHING, bytes, percent, plain};
use crate::table::Table;
use humboldt_lab_record::{Build, Machine, Manifest, Provenance, Run, StoreGround};
use std::collections::BTreeSet;

/// As many characters of a text are shown; summary.json has all.
const CHARS_MAX: usize = 400;

/// As many digits of a digest are shown beside others; the page of a single run has all.
const DIGITS_SHOWN: usize = 16;

/// The digest of no text: earlier laboratories recorded it where there was no workload.
const NO_TEXT_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The heading of a warning that forbids a comparison begins like this.
pub(crate) const NOT_COMPARABLE: &str = "Not comparable: ";

fn shown(text: &str) -> String {
    if text.is_empty() { NOTHING.to_owned() } else { plain(text, CHARS_MAX) }
}

/// The origin of one run's figures; no rows if nothing was recorded.
pub(crate) fn of_one(manifest: &Manifest) -> Table {
    let mut table = Table::new("Origin of the figures", &["", "value"]);
    let origin = &manifest.provenance;
    if !origin.is_known() {
        return table;
    }
    let mut row = |name: &str, value: &str| table.row([name.to_owned(), shown(value)]);
    row("Laboratory", &origin.lab.version);
    row("SHA-256 of its program", &origin.lab.sha256);
    if let Some(subject) = &origin.subject {
        row("Subject", &subject.version);
        row("Program of the subject", &subject.path);
        row("SHA-256 of that program", &subject.sha256);
        row("Commit of the subject", subject.commit.as_deref().unwrap_or_default());
        row("Debian package of the subject", subject.package.as_deref().unwrap_or_default());
    }
    row("Command", &origin.command);
    if let Some(command) = &origin.run_command {
        row("The same as one command", command);
    }
    row("SHA-256 of the workload file", &origin.workload_sha256);
    for (name, value) in MACHINE_COLUMNS.iter().zip(machine_cells(&origin.machine)) {
        row(name.trim_start_matches('#'), &value);
    }
    for store in &origin.stores {
        row("A store is on", &store_cells(store).join(", "));
    }
    table
}

const MACHINE_COLUMNS: [&str; 5] =
    ["processor", "#processors", "#memory", "virtualisation", "kernel"];

fn machine_cells(machine: &Machine) -> [String; 5] {
    [
        shown(&machine.processor),
        machine.processors.to_string(),
        bytes(machine.memory_bytes as f64),
        shown(&machine.virtualization),
        shown(&machine.kernel),
    ]
}

const STORE_COLUMNS: [&str; 4] = ["file system", "mount options", "device", "#size"];

fn store_cells(store: &StoreGround) -> [String; 4] {
    // Each run has another of the loop devices, which are all alike.
    let device = match &store.image {
        Some(image) => format!("loop device, its image on {}", store_cells(image).join(", ")),
        None => shown(&store.device),
    };
    let kind = match store.rotates {
        Some(true) => " (rotates)",
        Some(false) => " (does not rotate)",
        None => "",
    };
    [
        shown(&store.file_system),
        shown(&store.mount_options),
        format!("{device}{kind}"),
        store.device_bytes.map_or(NOTHING.to_owned(), |size| bytes(size as f64)),
    ]
}

/// The origins of several runs: every build, machine and store once.
pub(crate) fn of_many<'a>(manifests: impl Iterator<Item = &'a Manifest>) -> Section {
    let known: Vec<&Provenance> =
        manifests.map(|manifest| &manifest.provenance).filter(|origin| origin.is_known()).collect();
    let builds = known.iter().flat_map(|origin| [Some(&origin.lab), origin.subject.as_ref()]);
    let builds: BTreeSet<[String; 5]> = builds.flatten().map(build_cells).collect();
    let machines: BTreeSet<_> = known.iter().map(|origin| machine_cells(&origin.machine)).collect();
    let stores: BTreeSet<_> =
        known.iter().flat_map(|origin| &origin.stores).map(store_cells).collect();
    let workloads: BTreeSet<[String; 1]> =
        known.iter().map(|origin| [shown(&origin.workload_sha256)]).collect();
    let columns = ["program", "version", "commit", "Debian package", "SHA-256 begins with"];
    Section {
        short: true,
        tables: vec![
            filled(Table::new("Programs", &columns), builds),
            filled(Table::new("Machine", &MACHINE_COLUMNS), machines),
            filled(Table::new("Stores", &STORE_COLUMNS), stores),
            filled(Table::new("Workload file", &["SHA-256"]), workloads),
        ],
        ..Section::new("Origin of the figures")
    }
}

fn filled<const N: usize>(mut table: Table, rows: BTreeSet<[String; N]>) -> Table {
    rows.into_iter().for_each(|row| table.row(row));
    table
}

fn build_cells(build: &Build) -> [String; 5] {
    [
        shown(&build.path),
        shown(&build.version),
        shown(build.commit.as_deref().unwrap_or_default()),
        shown(build.package.as_deref().unwrap_or_default()),
        shown(&build.sha256.chars().take(DIGITS_SHOWN).collect::<String>()),
    ]
}

/// Warnings of runs whose figures have different origins, or none.
pub(crate) fn differences<'a>(manifests: impl Iterator<Item = &'a Manifest>) -> Vec<Warning> {
    let all: Vec<&Provenance> = manifests.map(|manifest| &manifest.provenance).collect();
    let known: Vec<&Provenance> = all.iter().copied().filter(|one| one.is_known()).collect();
    let mut found: Vec<Warning> = [
        differ("processor", known.iter().map(|one| one.machine.processor.clone())),
        differ("number of processors", known.iter().map(|one| one.machine.processors.to_string())),
        differ("memory", known.iter().map(|one| bytes(one.machine.memory_bytes as f64))),
        differ("virtualisation", known.iter().map(|one| one.machine.virtualization.clone())),
        differ("kernel", known.iter().map(|one| one.machine.kernel.clone())),
        differ("laboratory's build", known.iter().map(|one| identity(&one.lab))),
    ]
    .into_iter()
    .flatten()
    .collect();
    // Another program at another path was chosen on purpose; the same path means the same program.
    let subjects: Vec<&Build> = known.iter().filter_map(|one| one.subject.as_ref()).collect();
    let paths: BTreeSet<&str> = subjects.iter().map(|build| build.path.as_str()).collect();
    found.extend(paths.into_iter().filter_map(|path| {
        let same = subjects.iter().filter(|build| build.path == path);
        differ(&format!("build of {}", plain(path, CHARS_MAX)), same.map(|build| identity(build)))
    }));
    let unknown = all.len() - known.len();
    if unknown > 0 {
        found.push(Warning {
            grave: false,
            heading: "Origin not recorded".to_owned(),
            text: format!(
                "An earlier laboratory measured {unknown} of {} runs: it recorded no builds and no \
                 machine.",
                all.len()
            ),
        });
    }
    found
}

/// A warning of runs that name the same workload, if it was not the same file each time. Runs
/// without a workload, and those whose laboratory recorded no digest, say nothing.
pub(crate) fn workload_differs<'a>(
    manifests: impl Iterator<Item = &'a Manifest>,
) -> Option<Warning> {
    let digests = manifests.map(|manifest| manifest.provenance.workload_sha256.as_str());
    let known = digests.filter(|digest| !["", NO_TEXT_SHA256].contains(digest));
    differ("workload file", known.map(|digest| digest.chars().take(DIGITS_SHOWN).collect()))
}

fn identity(build: &Build) -> String {
    let digits: String = build.sha256.chars().take(DIGITS_SHOWN).collect();
    format!("{} ({digits})", build.version)
}

/// A warning, if there are several values.
fn differ(what: &str, values: impl Iterator<Item = String>) -> Option<Warning> {
    let values: BTreeSet<String> = values.map(|value| shown(&value)).collect();
    (values.len() > 1).then(|| Warning {
        grave: true,
        heading: format!("{NOT_COMPARABLE}the {what} differs"),
        text: format!("The runs have {}.", values.into_iter().collect::<Vec<_>>().join("; ")),
    })
}

/// The share of the processors that the host took during a run: mean and largest of the samples.
/// `None` if nobody looked.
pub(crate) fn steal(run: &Run) -> Option<(f64, f64)> {
    let shares: Vec<f64> = run.samples.iter().filter_map(|sample| sample.steal).collect();
    let most = shares.iter().copied().reduce(f64::max)?;
    Some((shares.iter().sum::<f64>() / shares.len() as f64, most))
}

/// The same in words: "0.1 %, at most 2.0 %".
pub(crate) fn steal_words(run: &Run) -> String {
    let Some((mean, most)) = steal(run) else { return NOTHING.to_owned() };
    format!("{}, at most {}", percent(mean), percent(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(kernel: &str, sha256: &str) -> Manifest {
        let build = |version: &str, sha256: &str| Build {
            path: format!("/usr/bin/{version}"),
            sha256: sha256.to_owned(),
            ..Build::of_version(version)
        };
        let provenance = Provenance {
            lab: build("humboldt-lab", "1"),
            subject: Some(build("squid", sha256)),
            machine: Machine { kernel: kernel.to_owned(), ..Machine::default() },
            ..Provenance::default()
        };
        Manifest { provenance, ..Manifest::default() }
    }

    fn headings(manifests: &[Manifest]) -> Vec<String> {
        differences(manifests.iter()).into_iter().map(|warning| warning.heading).collect()
    }

    #[test]
    fn another_kernel_or_build_cannot_be_compared() {
        assert_eq!(headings(&[manifest("6.1", "2"), manifest("6.1", "2")]), [""; 0]);
        assert_eq!(
            headings(&[manifest("6.1", "2"), manifest("6.2", "3")]),
            [
                "Not comparable: the kernel differs",
                "Not comparable: the build of /usr/bin/squid differs"
            ]
        );
        assert_eq!(headings(&[manifest("6.1", "2"), Manifest::default()]), ["Origin not recorded"]);
    }

    #[test]
    fn another_file_of_the_same_workload_cannot_be_compared() {
        let differs = |digests: &[&str]| {
            let of = |digest: &&str| {
                let mut manifest = manifest("6.1", "2");
                manifest.provenance.workload_sha256 = (*digest).to_owned();
                manifest
            };
            let manifests: Vec<Manifest> = digests.iter().map(of).collect();
            workload_differs(manifests.iter()).map(|warning| warning.heading)
        };
        assert_eq!(differs(&["a1", "a1", "", NO_TEXT_SHA256]), None);
        let heading = "Not comparable: the workload file differs";
        assert_eq!(differs(&["a1", "a2"]).as_deref(), Some(heading));
    }

    #[test]
    fn every_build_and_machine_stands_once() {
        let manifests = [manifest("6.1", "2"), manifest("6.1", "2"), Manifest::default()];
        let section = of_many(manifests.iter());
        let rows: Vec<usize> = section.tables.iter().map(|table| table.rows.len()).collect();
        assert_eq!(rows, [2, 1, 0, 1]);
        assert!(of_one(&Manifest::default()).rows.is_empty());
        assert!(of_one(&manifests[0]).rows.iter().any(|row| row[1] == "6.1"));
    }
}
