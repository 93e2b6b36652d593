//! `humboldt-lab bang`: requests a list of URLs as fast as a number of connections allows.
//!
//! URLs → origins and subject, if they are wanted → pass after pass → stop and clear away →
//! results.

mod course;
mod pass;
mod request_log;
mod results;
mod stand;
mod urls;

use crate::Failure;
use crate::cli::{BangArgs, GroundArgs};
use crate::experiment;
use crate::interrupt::Interrupt;
use crate::tls::{RunTls, Servers};
use humboldt_lab_record::{BangRun, FaultKind};
use humboldt_lab_report as report;
use pass::{End, Passes};
use request_log::RequestLog;
use results::Folder;
use stand::{Stand, World};
use std::path::{Path, PathBuf};
use urls::Urls;

/// URLs of the experiment with which tcp-banger2 compared caches.
const GENERATED: u64 = 10_000;

/// `humboldt-lab bang`.
pub(crate) fn bang(arguments: &BangArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    if let Some(out) = arguments.out.as_deref() {
        for folder in pass_folders(arguments, out)? {
            // One that was not begun leaves an empty report.
            if report::read_bang(&folder).is_ok_and(|old| old.answers > 0) {
                return Err(Failure::usage(report::ReportError::HasRun(folder)));
            }
        }
    }
    run(arguments, interrupt).and_then(|runs| content(&runs))
}

/// Whether a bang could be begun, as far as that can be checked quickly.
pub(crate) fn check(arguments: &BangArgs) -> Result<(), Failure> {
    let plan = Plan::new(arguments)?;
    let servers = if plan.generate.is_some() { Servers::Own } else { Servers::Foreign };
    let file = |name| experiment::subject_file(name, &arguments.ground);
    let choice = arguments.subject.as_deref().map(file).transpose()?;
    let place = stand::place(arguments, choice.as_ref());
    RunTls::new(&arguments.tls, place, servers).map(drop)
}

/// The folders of the passes below a bang's own.
pub(crate) fn pass_folders(arguments: &BangArgs, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
    let passes = Plan::new(arguments)?.passes;
    Ok((0..passes as usize).map(|index| results::folder_of_pass(folder, index, passes)).collect())
}

/// Carries out a bang; returns the result of each pass.
pub(crate) fn run(arguments: &BangArgs, interrupt: &Interrupt) -> Result<Vec<BangRun>, Failure> {
    check(arguments)?;
    let plan = Plan::new(arguments)?;
    let world = plan.generate.map(|_| World::new(arguments)).transpose()?;
    let log = arguments.log.as_deref().map(RequestLog::create).transpose()?;
    let urls = Urls::open(arguments, &plan, world.as_ref(), interrupt)?;
    let folder =
        arguments.out.as_deref().map(|path| Folder::prepare(path, plan.passes)).transpose()?;
    experiment::rest(&arguments.ground, interrupt);
    let mut stand = Stand::prepare(arguments, world.as_ref())?;
    stand.pin_this_thread()?;
    let mut passes = Passes::new(arguments, &plan, &mut stand, urls, log, interrupt);
    let mut runs = Vec::new();
    let end = loop {
        let (run, mut end) = passes.next();
        results::show(&run, &end, runs.len() + 1, plan.passes);
        if let Some(Err(failure)) = folder.as_ref().map(|folder| folder.write(runs.len(), &run)) {
            end = End::Failed(failure);
        }
        runs.push(run);
        if runs.len() >= plan.passes as usize || !matches!(end, End::Done) {
            break end;
        }
    };
    let cleared = stand.clear();
    results::say_short(&runs);
    results::compare(&mut runs);
    let written = folder.map_or(Ok(()), |folder| folder.finish(&runs));
    outcome(end, &runs).and(cleared).and(written).map(|()| runs)
}

/// The result of a whole bang.
fn outcome(end: End, runs: &[BangRun]) -> Result<(), Failure> {
    match end {
        End::Interrupted => return Err(Failure::interrupted()),
        End::Failed(failure) => return Err(failure),
        End::Done | End::TimeUp => {}
    }
    let requests: u64 = runs.iter().map(|run| run.requests).sum();
    if requests == 0 {
        return Err(Failure::usage("there is no URL that can be requested"));
    }
    if runs.iter().all(|run| run.answers == 0) {
        let first = runs.iter().find_map(|run| run.fault_samples.first());
        let why = first.map_or_else(
            || "none was answered in time".to_owned(),
            |first| format!("{}: {}, {}", first.url, first.fault.kind, first.fault.got),
        );
        return Err(Failure::run(format!(
            "not one of {requests} requests got a right answer; {why}"
        )));
    }
    Ok(())
}

/// Whether no answer had wrong content. The runs of an experiment file say that on their pages.
fn content(runs: &[BangRun]) -> Result<(), Failure> {
    let wrong = |(kind, count): (&FaultKind, &u64)| {
        (kind.is_wrong_content() && *count > 0).then(|| format!("{kind}: {count}"))
    };
    let wrong: Vec<String> = runs.iter().flat_map(|run| &run.faults).filter_map(wrong).collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::run(format!("answers had wrong content ({}); see above", wrong.join(", "))))
}

/// The settings that follow from the options together.
pub(super) struct Plan {
    /// Number of URLs to generate; `None` if they are read.
    pub(super) generate: Option<u64>,
    /// Number of passes over all URLs.
    pub(super) passes: u32,
}

impl Plan {
    fn new(arguments: &BangArgs) -> Result<Self, Failure> {
        let has_subject = arguments.subject.is_some();
        if !has_subject && let Some(option) = ground_option(&arguments.ground) {
            return Err(Failure::usage(format!(
                "{option} is about a cache that is started: give --subject"
            )));
        }
        let wants_default = has_subject && arguments.urls.is_none();
        Ok(Self {
            generate: arguments.generate.or(wants_default.then_some(GENERATED)),
            passes: arguments.passes.unwrap_or(if has_subject { 2 } else { 1 }),
        })
    }
}

/// Requests of all passes, where the list is generated; none where it is read.
pub(super) fn requests(arguments: &BangArgs) -> u64 {
    let plan = Plan::new(arguments).ok();
    plan.map_or(0, |plan| plan.generate.unwrap_or(0) * u64::from(plan.passes))
}

/// The first option that makes sense only with a subject.
pub(super) fn ground_option(ground: &GroundArgs) -> Option<&'static str> {
    let others = [
        (ground.cache_size.is_some(), "--cache-size"),
        (ground.subject_cores.is_some(), "--subject-cores"),
        (ground.rest > 0.0, "--rest"),
    ];
    let other = || others.into_iter().find_map(|(is_given, option)| is_given.then_some(option));
    experiment::start_option(ground).or_else(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;
    use humboldt_lab_record::{Fault, FaultSample};

    fn plan(words: &str) -> Result<Plan, Failure> {
        let words = ["humboldt-lab", "bang"].into_iter().chain(words.split_whitespace());
        let Command::Bang(arguments) = Cli::try_parse_from(words).unwrap().command else {
            panic!("no bang")
        };
        Plan::new(&arguments)
    }

    #[test]
    fn a_subject_alone_is_the_whole_experiment() {
        let of = |words| plan(words).map(|plan| (plan.generate, plan.passes)).unwrap();
        assert_eq!(of("--subject squid:aufs"), (Some(GENERATED), 2));
        assert_eq!(of("--subject squid:aufs --urls list --passes 3"), (None, 3));
        assert_eq!(of("--generate 7"), (Some(7), 1));
        assert_eq!(of(""), (None, 1));
    }

    #[test]
    fn options_for_a_cache_need_one() {
        let failure = plan("--generate 7 --cpu-quota 0.5").err().unwrap();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("--cpu-quota"), "{failure}");
    }

    #[test]
    fn nothing_right_is_a_failure_and_something_right_is_not() {
        let code = |end, runs: &[BangRun]| outcome(end, runs).err().map(|failure| failure.code());
        let fault = Fault {
            kind: FaultKind::Refused,
            offset: None,
            expected: String::new(),
            got: "no".into(),
        };
        let sample = FaultSample { at_us: 1, url: "http://a/".into(), fault };
        let bad = BangRun { requests: 3, fault_samples: vec![sample], ..BangRun::default() };
        let good = BangRun { requests: 3, answers: 1, ..BangRun::default() };
        assert_eq!(code(End::Done, &[]), Some(2));
        assert_eq!(code(End::Done, std::slice::from_ref(&bad)), Some(1));
        assert_eq!(code(End::TimeUp, &[bad, good.clone()]), None);
        assert_eq!(code(End::Interrupted, std::slice::from_ref(&good)), Some(130));
        assert_eq!(code(End::Failed(Failure::run("gone")), &[good]), Some(1));
        let of = |kind| {
            let run = BangRun {
                requests: 3,
                answers: 2,
                faults: [(kind, 1)].into(),
                ..BangRun::default()
            };
            content(&[run])
        };
        assert!(of(FaultKind::TimedOut).is_ok());
        let failure = of(FaultKind::WrongByte).unwrap_err();
        assert!(failure.code() == 1 && failure.to_string().contains("wrong byte: 1"), "{failure}");
    }
}
