//! `cargo xtask from-squid`: the figures of `docs/from-squid.md`, from real files and from the
//! comparison of rules with Squid.

use crate::{Outcome, first_run, marks, prose, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The page, relative to the root of the checkout.
const PAGE: &str = "docs/from-squid.md";

/// Most rounds in which files that a configuration names get an empty stand-in.
const STAND_IN_ROUNDS_MAX: usize = 100;

/// Directives about TLS: those of the first group begin so.
const TLS: [&str; 6] = ["ssl", "tls", "https_port", "sslproxy", "sslcrtd", "sslpassword"];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A folder with files of Squid, *.conf
    corpus: PathBuf,
    /// Put the figures into docs/from-squid.md
    #[arg(long)]
    write: bool,
    /// Compare rules with Squid in this many starts of 720 requests each; none leaves the last
    /// figures in the page
    #[arg(long, default_value_t = 0)]
    starts: usize,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    let root = workspace::root();
    let program = first_run::program(&root)?;
    let mut parts = vec![("corpus", corpus(&program, &arguments.corpus)?)];
    if arguments.starts > 0 {
        parts.push(("rules", rules(&root, &program, arguments.starts)?));
    }
    let path = root.join(PAGE);
    let mut page = fs::read_to_string(&path)?;
    for (label, text) in parts {
        println!("{text}\n");
        let label = format!("from-squid {label}");
        page = marks::replaced(&page, &label, &text)
            .ok_or_else(|| format!("{PAGE} has no marks for `{label}`"))?;
    }
    if arguments.write {
        fs::write(&path, page)?;
        println!("from-squid: {PAGE} is written");
    }
    Ok(())
}

/// What the program says about one file.
enum Verdict {
    /// It does not start with it.
    Refused,
    /// It starts: directives that are not supported yet, and those that have no effect.
    Loads { unsupported: BTreeSet<String>, without_effect: BTreeSet<String> },
}

fn corpus(program: &Path, folder: &Path) -> Outcome<String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Outcome<_>>()?;
    files.retain(|file| file.extension().is_some_and(|ending| ending == "conf"));
    files.sort();
    let verdicts: Vec<Verdict> =
        files.iter().map(|file| verdict(program, file)).collect::<Outcome<_>>()?;
    Ok(summary(&verdicts, &today()?))
}

fn summary(verdicts: &[Verdict], date: &str) -> String {
    let (mut loads, mut of_tls, mut whole) = (0_usize, 0_usize, 0_usize);
    let mut refused = 0;
    let mut missing: BTreeMap<&str, usize> = BTreeMap::new();
    let mut idle: BTreeMap<&str, usize> = BTreeMap::new();
    for verdict in verdicts {
        match verdict {
            Verdict::Refused => refused += 1,
            Verdict::Loads { unsupported, without_effect } => {
                loads += 1;
                let others: Vec<&str> =
                    unsupported.iter().map(String::as_str).filter(|name| !is_tls(name)).collect();
                of_tls += usize::from(others.len() < unsupported.len());
                whole += usize::from(unsupported.is_empty());
                others.into_iter().for_each(|name| *missing.entry(name).or_default() += 1);
                without_effect.iter().for_each(|name| *idle.entry(name).or_default() += 1);
            }
        }
    }
    let share = 100.0 * whole as f64 / (loads - of_tls).max(1) as f64;
    let list = |names: &BTreeMap<&str, usize>| {
        let words: Vec<_> = names.iter().map(|(name, files)| format!("`{name}` {files}")).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    };
    let text = format!(
        "{total} files that people have published, on {date}. Files that they name were replaced by \
         empty ones where they are missing, and certificates by one that was made for that.\n\nfiles | number\n--- | ---\nall | {total}\n\
         start | {loads}\nof these, need TLS for something | {of_tls}\n\
         of the others, do all that they say | {whole} of {others} ({share:.0} %)\n\
         do not start, mostly for errors of their own | {refused}\n\n\
         Directives other than TLS that are not supported, with the number of files: {missing}.\n\n\
         Directives that have no effect because nothing here needs them: {idle}.",
        total = verdicts.len(),
        others = loads - of_tls,
        missing = list(&missing),
        idle = list(&idle),
    );
    prose::wrapped(&text)
}

fn is_tls(directive: &str) -> bool {
    TLS.iter().any(|start| directive.starts_with(start))
}

/// Asks the program about a file, after a stand-in has been made for each file that it misses.
fn verdict(program: &Path, file: &Path) -> Outcome<Verdict> {
    let folder = TempDir::with_prefix("from-squid-")?;
    let stand_in = folder.path().join("empty");
    fs::write(&stand_in, "")?;
    let authority = folder.path().join("authority.pem");
    let own = folder.path().join("squid.conf");
    let mut text = String::from_utf8_lossy(&fs::read(file)?).into_owned();
    let mut said = String::new();
    let mut starts = false;
    for _ in 0..STAND_IN_ROUNDS_MAX {
        fs::write(&own, &text)?;
        let output = Command::new(program)
            .arg("-f")
            .arg(&own)
            .args(["-k", "parse", "--explain"])
            .output()?;
        said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        starts = output.status.success();
        let mut changed = text.clone();
        for path in missing_files(&said) {
            // The value of an option of TLS: a certificate, a key or both.
            let is_of_tls = text.contains(&format!("={path}"));
            if is_of_tls && !authority.exists() {
                make_authority(&authority)?;
            }
            let other = if is_of_tls { &authority } else { &stand_in };
            changed = changed.replace(path, &other.to_string_lossy());
        }
        if changed == text {
            break;
        }
        text = changed;
    }
    if !starts {
        return Ok(Verdict::Refused);
    }
    Ok(Verdict::Loads {
        unsupported: directives(&said, " are not supported yet:"),
        without_effect: directives(&said, " have no effect here:"),
    })
}

/// A certificate that may sign others, and its key, in one file.
fn make_authority(file: &Path) -> Outcome {
    let key = file.with_extension("key");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"])
        .args(["-subj", "/CN=from-squid", "-addext", "keyUsage=critical,keyCertSign,cRLSign"])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), file.as_os_str()])
        .output()?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned().into());
    }
    let both = fs::read_to_string(file)? + &fs::read_to_string(&key)?;
    Ok(fs::write(file, both)?)
}

/// Paths that could not be read because there is no such file.
fn missing_files(said: &str) -> BTreeSet<&str> {
    fn path(line: &str) -> Option<&str> {
        let (before, _) = line.split_once(": No such file")?;
        let of_list = before.split_once("cannot read ").map(|(_, path)| path);
        let of_tls = before.strip_suffix(" cannot be read");
        let path = of_list.or_else(|| of_tls?.rsplit(' ').next())?;
        (!path.contains("/from-squid-")).then_some(path)
    }
    said.lines().filter_map(path).collect()
}

/// The directives below a line of the sum that ends so.
fn directives(said: &str, title: &str) -> BTreeSet<String> {
    let mut lines = said.lines().skip_while(|line| !line.ends_with(title));
    lines.next();
    lines
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.trim_start().split([':', ' ']).next().map(str::to_owned))
        .collect()
}

/// Plays rules and requests to both programs.
fn rules(root: &Path, program: &Path, starts: usize) -> Outcome<String> {
    let output = Command::new(workspace::cargo())
        .args(["test", "-p", "humboldt-tests", "--test", "squid_rules", "rules_decide"])
        .args(["--", "--nocapture"])
        .current_dir(root)
        .env("HUMBOLDT_BIN", program)
        .env("HUMBOLDT_RULES_STARTS", starts.to_string())
        .output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let sum = said.lines().find(|line| line.contains(" refused by Squid, ")).ok_or("no sum")?;
    let sum = sum.trim();
    Ok(prose::wrapped(&format!(
        "Rules and requests from a seed, on {}: {sum} in a way that is not meant. `cargo xtask \
         from-squid DIR --starts {starts} --write` has written this.",
        today()?
    )))
}

fn today() -> Outcome<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "warning: cannot read /a/b: No such file or directory (os error 2)\n\n\
                        error: t:1:1: /a/c cannot be read: No such file or directory (os error 2)\n\
                        6 lines work\n2 lines have no effect here:\n  memory_pools (2 lines): why\n\
                        2 lines are not supported yet:\n  https_port: why\n  ftp_port: why\n\
                        0 lines no longer exist in Squid\n";

    #[test]
    fn the_sum_of_a_file_is_taken_apart() {
        assert_eq!(missing_files(SAID), BTreeSet::from(["/a/b", "/a/c"]));
        let names = |title| directives(SAID, title).into_iter().collect::<Vec<_>>();
        assert_eq!(names(" are not supported yet:"), ["ftp_port", "https_port"]);
        assert_eq!(names(" have no effect here:"), ["memory_pools"]);
        assert!(names(" no longer exist in Squid:").is_empty());
    }

    #[test]
    fn files_are_counted_by_their_verdict() {
        let loads = |unsupported: &[&str]| Verdict::Loads {
            unsupported: unsupported.iter().map(|name| (*name).to_owned()).collect(),
            without_effect: BTreeSet::new(),
        };
        let all = [
            loads(&[]),
            loads(&["ftp_port"]),
            loads(&["https_port"]),
            Verdict::Refused,
            Verdict::Refused,
        ];
        let text = summary(&all, "2026-01-01");
        for line in [
            "all | 5",
            "start | 3",
            "of these, need TLS for something | 1",
            "of the others, do all that they say | 1 of 2 (50 %)",
            "do not start, mostly for errors of their own | 2",
            "with the number of files: `ftp_port` 1.",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
