//! `humboldt-lab simulate`: the hits of a replacement policy on a trace.
//!
//! The policies are those of the proxy, the same code (`humboldt-policy`): the only thing that the
//! laboratory has from it. Nothing is sent or stored: a cache is names and sizes.
//!
//! If sizes are in bytes and no optimum is wanted, requests pass by once. Otherwise they are kept
//! in a file (`spool`).

mod args;
mod course;
mod csv;
mod generate;
mod optimum;
mod oracle;
mod size;
mod spool;
mod squid;
mod table;
mod trace;

use humboldt_policy::Policy;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::say;
use crate::{Failure, Interrupt};
pub(crate) use args::SimulateArgs;
use course::{Chooser, Contestant};
use generate::Generated;
use size::Size;
use spool::{BATCH, Kept, Spool};
use table::{Results, deliver};
use trace::{Counts, Request, Traces};

/// The source of requests.
enum Source {
    Traces(Box<Traces>),
    Generated(Box<Generated>),
}

impl Source {
    fn new(arguments: &SimulateArgs) -> Result<Self, Failure> {
        Ok(match &arguments.generate {
            Some(recipe) => Self::Generated(Box::new(
                Generated::new(recipe, arguments.seed).map_err(Failure::usage)?,
            )),
            None => Self::Traces(Box::new(Traces::new(
                &arguments.traces,
                arguments.format,
                arguments.skip_bad,
            ))),
        })
    }

    fn next(&mut self) -> Result<Option<Request>, Failure> {
        match self {
            Self::Traces(traces) => traces.next().map_err(Failure::usage),
            Self::Generated(generated) => Ok(generated.next()),
        }
    }

    fn counts(&self) -> Counts {
        match self {
            Self::Traces(traces) => traces.counts,
            Self::Generated(_) => Counts::default(),
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &SimulateArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let mut source = Source::new(arguments)?;
    let needs_all =
        !arguments.no_optimum || arguments.size.iter().any(|size| matches!(size, Size::Share(_)));
    let (contestants, distinct) = if needs_all {
        let kept = keep(&mut source, arguments, interrupt)?;
        (
            replay(&kept, arguments, interrupt)?,
            Some((kept.facts.objects, kept.facts.distinct_bytes)),
        )
    } else {
        (stream(&mut source, arguments, interrupt)?, None)
    };
    let trace = trace_name(arguments);
    if contestants.first().is_none_or(|first| first.requests() == 0) {
        let Counts { left_out, bad } = source.counts();
        return Err(Failure::usage(format_args!(
            "{trace}: no requests in it ({left_out} lines were left out, {bad} not understood)"
        )));
    }
    report(arguments, &Results { trace, distinct, contestants: &contestants }, source.counts())
}

fn trace_name(arguments: &SimulateArgs) -> String {
    match &arguments.generate {
        Some(recipe) => format!("{}, seed {}", recipe.text(), arguments.seed),
        None => {
            let names: Vec<String> =
                arguments.traces.iter().map(|path| path.display().to_string()).collect();
            names.join(", ")
        }
    }
}

fn policies(arguments: &SimulateArgs) -> Vec<Policy> {
    if !arguments.policy.is_empty() {
        return arguments.policy.clone();
    }
    // Another name for the same order would only fill the table.
    Policy::ALL.into_iter().filter(|policy| *policy != Policy::HeapLru).collect()
}

/// Calls `see` for each request, up to the number that is wanted.
fn for_each_request(
    source: &mut Source,
    arguments: &SimulateArgs,
    interrupt: &Interrupt,
    mut see: impl FnMut(Request) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    let bar = progress_bar(None, "reading");
    let mut seen = 0;
    while seen < arguments.requests_max.unwrap_or(u64::MAX) {
        let Some(request) = source.next()? else { break };
        see(request)?;
        seen += 1;
        if seen % BATCH as u64 == 0 {
            bar.set_position(seen);
            if interrupt.is_set() {
                return Err(Failure::interrupted());
            }
        }
    }
    bar.finish_and_clear();
    Ok(seen)
}

/// Serves requests as they come, and keeps none.
fn stream(
    source: &mut Source,
    arguments: &SimulateArgs,
    interrupt: &Interrupt,
) -> Result<Vec<Contestant>, Failure> {
    let mut contestants = Vec::new();
    for size in &arguments.size {
        let bytes = size.bytes(0);
        for policy in policies(arguments) {
            contestants.push(Contestant::new(Chooser::Policy(policy), size.label(bytes), bytes, 0));
        }
    }
    let mut batch = Vec::with_capacity(BATCH);
    for_each_request(source, arguments, interrupt, |request| {
        batch.push((request.id, request.bytes));
        if batch.len() == BATCH {
            contestants.iter_mut().for_each(|contestant| contestant.serve(&batch));
            batch.clear();
        }
        Ok(())
    })?;
    contestants.iter_mut().for_each(|contestant| contestant.serve(&batch));
    Ok(contestants)
}

fn keep(
    source: &mut Source,
    arguments: &SimulateArgs,
    interrupt: &Interrupt,
) -> Result<Kept, Failure> {
    let mut spool = Spool::new().map_err(Failure::run)?;
    for_each_request(source, arguments, interrupt, |request| {
        spool.push(request).map_err(Failure::run)
    })?;
    spool.finish().map_err(Failure::run)
}

/// Serves the requests that were kept.
fn replay(
    kept: &Kept,
    arguments: &SimulateArgs,
    interrupt: &Interrupt,
) -> Result<Vec<Contestant>, Failure> {
    let facts = kept.facts;
    let mut choosers: Vec<Chooser> = policies(arguments).into_iter().map(Chooser::Policy).collect();
    if !arguments.no_optimum {
        choosers.push(Chooser::Optimum { exact: facts.same_sizes });
    }
    let mut contestants = Vec::new();
    for size in &arguments.size {
        let bytes = size.bytes(facts.distinct_bytes);
        for chooser in &choosers {
            contestants.push(Contestant::new(*chooser, size.label(bytes), bytes, facts.objects));
        }
    }
    let bar = progress_bar(Some(facts.requests), "simulating");
    let served = kept.for_each(|start, steps| {
        bar.set_position(start);
        contestants.iter_mut().for_each(|contestant| contestant.serve_steps(steps));
        !interrupt.is_set()
    });
    bar.finish_and_clear();
    served.map_err(Failure::run)?;
    if interrupt.is_set() { Err(Failure::interrupted()) } else { Ok(contestants) }
}

fn report(arguments: &SimulateArgs, results: &Results<'_>, counts: Counts) -> Result<(), Failure> {
    let files = [&arguments.json, &arguments.csv];
    if !files.into_iter().flatten().any(|path| path.as_os_str() == "-") {
        say!("{}", results.text().trim_end());
        if counts != Counts::default() {
            say!("\n{} lines were left out, {} were not understood.", counts.left_out, counts.bad);
        }
    }
    if let Some(path) = &arguments.json {
        deliver(path, &results.json().map_err(Failure::run)?)?;
    }
    if let Some(path) = &arguments.csv {
        deliver(path, &results.csv())?;
    }
    Ok(())
}

/// Only on a terminal.
fn progress_bar(length: Option<u64>, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(length, crate::output::bars());
    let template = if length.is_some() {
        "{msg} {wide_bar} {percent} %  {eta}"
    } else {
        "{msg} {pos} requests"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar
}
