//! The machine of a run, for its manifest.

use crate::{Environment, Host, Running, provenance};
use humboldt_lab_record::{Manifest, Provenance};
use std::fs;
use std::path::Path;

/// The file with a distribution's name.
const OS_RELEASE: &str = "/etc/os-release";

/// Everything that someone needs to judge or repeat a run. `lab_version` is the laboratory's own.
#[must_use]
pub fn manifest(
    lab_version: &str,
    host: &Host,
    environment: Option<&Environment>,
    running: &Running,
) -> Manifest {
    let mut facts = running.facts();
    facts.extend(environment.map(Environment::facts).unwrap_or_default());
    facts.extend(machine_facts(host));
    let skipped =
        environment.map(Environment::skipped).unwrap_or_default().iter().chain(running.skipped());
    Manifest {
        lab_version: lab_version.to_owned(),
        provenance: Provenance {
            subject: running.build().cloned(),
            machine: provenance::machine(host),
            stores: environment.map(Environment::grounds).unwrap_or_default(),
            ..Provenance::default()
        },
        facts,
        files: running.files().clone(),
        skipped: skipped.map(ToString::to_string).collect(),
    }
}

/// Kernel, processor, memory, limits: name → value. Unknown ones are left out.
#[must_use]
pub fn machine_facts(host: &Host) -> Vec<(String, String)> {
    let read = |folder: &Path, name: &str| {
        fs::read_to_string(folder.join(name))
            .ok()
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
    };
    let proc = |name: &str| read(&host.proc, name);
    let sys = |name: &str| read(&host.sys, name);
    let cpuinfo = proc("cpuinfo").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    [
        (
            "Kernel",
            proc("sys/kernel/osrelease")
                .zip(proc("sys/kernel/version"))
                .map(|(a, b)| format!("{a} ({b})")),
        ),
        (
            "Distribution",
            fs::read_to_string(OS_RELEASE).ok().and_then(|text| quoted(&text, "PRETTY_NAME=")),
        ),
        ("Processor", after_colon(&cpuinfo, "model name")),
        (
            "Cores",
            Some(format!("{cores} for the laboratory, {} online", count(&cpuinfo, "processor"))),
        ),
        ("Virtual machine", is_virtual(&cpuinfo).then(|| "yes".to_owned())),
        (
            "Memory",
            proc("meminfo")
                .and_then(|text| after_colon(&text, "MemTotal"))
                .and_then(|kb| megabytes(&kb)),
        ),
        ("Frequency governor", sys("devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        ("Clock source", sys("devices/system/clocksource/clocksource0/current_clocksource")),
        ("Mitigations", mitigations(host)),
        ("Transparent huge pages", sys("kernel/mm/transparent_hugepage/enabled")),
        ("Swappiness", proc("sys/vm/swappiness")),
        (
            "Dirty ratio, background/hard",
            proc("sys/vm/dirty_background_ratio")
                .zip(proc("sys/vm/dirty_ratio"))
                .map(|(a, b)| format!("{a} % / {b} %")),
        ),
        (
            "Local ports",
            proc("sys/net/ipv4/ip_local_port_range")
                .map(|range| range.split_ascii_whitespace().collect::<Vec<_>>().join(" to ")),
        ),
        ("Longest accept queue", proc("sys/net/core/somaxconn")),
        (
            "Open descriptors, limit",
            Some(limit.map_or_else(|| "none".to_owned(), |limit| limit.to_string())),
        ),
        ("Rights", Some(if host.is_root { "root" } else { "an ordinary user's" }.to_owned())),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), value?)))
    .collect()
}

/// The value of `NAME="value"`.
fn quoted(text: &str, name: &str) -> Option<String> {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .map(|value| value.trim_matches('"').to_owned())
}

/// The value of the first `name : value`.
pub(crate) fn after_colon(text: &str, name: &str) -> Option<String> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.into_iter().find(|(own, _)| own.trim() == name).map(|(_, value)| value.trim().to_owned())
}

pub(crate) fn count(cpuinfo: &str, name: &str) -> usize {
    cpuinfo
        .lines()
        .filter(|line| line.split(':').next().is_some_and(|own| own.trim() == name))
        .count()
}

pub(crate) fn is_virtual(cpuinfo: &str) -> bool {
    after_colon(cpuinfo, "flags")
        .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

fn megabytes(kilobytes: &str) -> Option<String> {
    let kilobytes: u64 = kilobytes.split(' ').next()?.parse().ok()?;
    Some(format!("{} MB", kilobytes / 1024))
}

/// Number of the processor's weaknesses whose mitigations cost time here.
fn mitigations(host: &Host) -> Option<String> {
    let files = fs::read_dir(host.sys.join("devices/system/cpu/vulnerabilities")).ok()?;
    let states: Vec<String> =
        files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok()).collect();
    let starting = |word: &str| states.iter().filter(|state| state.starts_with(word)).count();
    Some(format!(
        "{} mitigated, {} vulnerable, {} not affected",
        starting("Mitigation"),
        starting("Vulnerable"),
        starting("Not affected")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_something() {
        let facts = machine_facts(&Host::current());
        for name in ["Kernel", "Cores", "Memory", "Open descriptors, limit"] {
            assert!(
                facts.iter().any(|(own, value)| own == name && !value.is_empty()),
                "{name} in {facts:?}"
            );
        }
    }

    #[test]
    fn what_a_machine_does_not_tell_is_left_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let host = Host {
            proc: folder.path().to_path_buf(),
            sys: folder.path().to_path_buf(),
            is_root: false,
        };
        fs::write(
            folder.path().join("cpuinfo"),
            "processor\t: 0\nmodel name\t: Fast: One\nflags\t\t: fpu hypervisor\nprocessor\t: 1\n",
        )
        .expect("a file");
        let facts = machine_facts(&host);
        let fact =
            |name: &str| facts.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str());
        assert_eq!(fact("Processor"), Some("Fast: One"));
        assert_eq!(fact("Virtual machine"), Some("yes"));
        assert_eq!((fact("Kernel"), fact("Memory"), fact("Mitigations")), (None, None, None));
        assert!(fact("Cores").is_some_and(|cores| cores.ends_with("2 online")));
        assert_eq!(
            quoted("A=1\nPRETTY_NAME=\"Some OS\"\n", "PRETTY_NAME="),
            Some("Some OS".to_owned())
        );
    }
}
