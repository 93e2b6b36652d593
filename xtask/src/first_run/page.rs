//! The page as it grows: prose, and commands with their output.

use super::stage::Stage;
use crate::Outcome;
use crate::prose::wrapped;
use std::fs;

/// The section between these lines stays when the page is made without the benchmarks.
pub(super) const BENCH_BEGIN: &str = "<!-- benchmarks: begin -->";
pub(super) const BENCH_END: &str = "<!-- benchmarks: end -->";

const NO_BENCHMARKS: &str = "Not recorded yet: `cargo xtask first-run --with-bench` runs the benchmarks and writes their tables here.";

#[derive(Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Adds Markdown.
    pub(super) fn prose(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// Runs commands in sequence and adds them with their output.
    pub(super) fn show(&mut self, stage: &Stage, commands: &[&str]) -> Outcome {
        let mut block = String::new();
        for command in commands {
            let command = stage.fill(command);
            println!("first-run: {command}");
            let output = stage.shell(&command)?;
            block += &format!("$ {command}\n{}", stage.public(&with_end(&output)));
        }
        self.console(&block);
        Ok(())
    }

    /// Adds the command that has just started the proxy, with its output until its store is open.
    pub(super) fn show_started(&mut self, stage: &Stage, command: &str) -> Outcome {
        let said = stage.wait_said("% full")?;
        self.console(&format!("$ {command} &\n{}", stage.public(&with_end(&said))));
        Ok(())
    }

    /// Adds what a terminal shows.
    pub(super) fn console(&mut self, block: &str) {
        let lines: Vec<&str> = block.lines().map(str::trim_end).collect();
        self.prose(&format!("```console\n{}\n```", lines.join("\n")));
    }

    /// The whole page, if it names no machine but this one, and this one by its loopback address
    /// only.
    pub(super) fn checked(self) -> Outcome<String> {
        let machine = rustix::system::uname();
        let name = machine.nodename().to_string_lossy();
        for (number, line) in self.text.lines().enumerate() {
            let foreign = foreign_host(line).map(str::to_owned);
            let own = words(line).any(|word| word == name).then(|| name.to_string());
            if let Some(host) = foreign.or(own) {
                return Err(
                    format!("line {} of the page would name `{host}`: {line}", number + 1).into()
                );
            }
        }
        Ok(wrapped(&self.text))
    }
}

/// The first host of an `http://` or `https://` address that is neither a loopback address nor the
/// name that is reserved for examples.
fn foreign_host(line: &str) -> Option<&str> {
    line.split("://")
        .skip(1)
        .map(|rest| {
            let end =
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')));
            rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
        })
        .find(|host| !matches!(*host, "" | "127.0.0.1" | "localhost" | "example.com"))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_')))
}

/// Output that ends with a line end, if there is any.
fn with_end(output: &str) -> String {
    match output.trim_end() {
        "" => String::new(),
        text => format!("{text}\n"),
    }
}

/// The section about benchmarks of an earlier page.
pub(super) fn bench_section(page: &str) -> String {
    let begun = page.split_once(BENCH_BEGIN).map(|(_, rest)| rest);
    let section =
        begun.and_then(|rest| rest.split_once(BENCH_END)).map(|(section, _)| section.trim());
    section.filter(|section| !section.is_empty()).unwrap_or(NO_BENCHMARKS).to_owned()
}

/// The lines of a benchmark that are a table or its title.
pub(super) fn benchmark_tables(printed: &str) -> String {
    let lines = printed.lines().filter(|line| !line.starts_with("packages:"));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Time and machine of the benchmarks.
pub(super) fn machine() -> Outcome<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let field = |name: &str| {
        let line = cpus.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':'))
            .map_or("unknown", |(_, value)| value.trim())
            .to_owned()
    };
    let release = rustix::system::uname();
    let release: String =
        release.release().to_string_lossy().split('.').take(2).collect::<Vec<_>>().join(".");
    let cores = std::thread::available_parallelism()?;
    Ok(format!(
        "Recorded by `cargo xtask first-run --with-bench` on {cores} cores of {}, Linux {release}. The server under test is pinned \
         to one core, load and origin to the other. Absolute figures belong to this machine; ratios carry over.",
        field("model name")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_machines_are_found() {
        assert_eq!(foreign_host("Get:1 http://127.0.0.1:8080/debian ./ Packages"), None);
        assert_eq!(foreign_host("curl -x 127.0.0.1:3128 http://example.com/"), None);
        assert_eq!(
            foreign_host("http://127.0.0.1/ and https://mirror.example.org:81/x"),
            Some("mirror.example.org")
        );
    }

    #[test]
    fn the_section_about_benchmarks_is_kept() {
        let page = format!("a\n{BENCH_BEGIN}\n\nfigures\n\n{BENCH_END}\nb\n");
        assert_eq!(bench_section(&page), "figures");
        assert_eq!(bench_section("nothing"), NO_BENCHMARKS);
    }
}
