//! One pass after the other over the same URLs, watched while it goes on.

use super::course::Course;
use super::request_log::RequestLog;
use super::stand::Stand;
use super::urls::Urls;
use super::{Plan, results};
use crate::cli::BangArgs;
use crate::experiment::Ground;
use crate::interrupt::Interrupt;
use crate::{Failure, units};
use humboldt_lab_record::{BangRun, Manifest, RUN_FORMAT, Resources};
use humboldt_lab_robots::{Bang, BangEvent, BangOrder, BangRecord, BangReport};
use indicatif::{ProgressBar, ProgressStyle};
use std::time::{Duration, Instant};

/// The end of a pass.
#[derive(Debug)]
pub(super) enum End {
    /// Everything was requested.
    Done,
    /// The time was up.
    TimeUp,
    /// Someone stopped it.
    Interrupted,
    /// It could not go on.
    Failed(Failure),
}

/// All passes of a bang.
pub(super) struct Passes<'b> {
    arguments: &'b BangArgs,
    stand: &'b mut Stand,
    urls: Urls,
    log: Option<RequestLog>,
    interrupt: &'b Interrupt,
    deadline: Instant,
    manifest: Manifest,
    of: u32,
    number: u32,
}

impl<'b> Passes<'b> {
    /// The time limit counts from now on.
    pub(super) fn new(
        arguments: &'b BangArgs,
        plan: &Plan,
        stand: &'b mut Stand,
        urls: Urls,
        log: Option<RequestLog>,
        interrupt: &'b Interrupt,
    ) -> Self {
        let deadline = Instant::now() + Duration::from_secs_f64(arguments.time_max);
        let manifest = stand.manifest(arguments.as_command.as_deref());
        Self {
            arguments,
            stand,
            urls,
            log,
            interrupt,
            deadline,
            manifest,
            of: plan.passes,
            number: 0,
        }
    }

    /// Requests everything once. The measurements are in the run, however it ended.
    pub(super) fn next(&mut self) -> (BangRun, End) {
        self.number += 1;
        let bang = self.engine();
        let mut run = self.empty_run();
        let mut watch = Watch {
            pass: self.number,
            start_unix_us: humboldt_lab_wire::unix_us(),
            course: Course::default(),
            log: self.log.as_mut(),
            ground: self.stand.ground.as_mut(),
            interrupt: self.interrupt,
            deadline: self.deadline,
            bar: progress_bar(self.urls.count()),
            faults: 0,
            early: None,
            end: End::Done,
        };
        let result = bang.run_watched(self.urls.pass(), &mut |event| watch.on_event(event));
        let (course, early, mut end) = watch.finish();
        match result {
            Ok(report) => {
                run.seconds = course.end(report.wall_us);
                results::say_unusable(&report, self.number);
                take(&mut run, report);
            }
            Err(error) => end = End::Failed(Failure::usage(error)),
        }
        if let Some(failure) = self.urls.take_failure() {
            end = End::Failed(failure);
        }
        run.urls = self.urls.describe();
        run.resources = early.into_iter().chain(self.resources()).collect();
        run.resources.sort_by_key(|used| used.at_us);
        (run, end)
    }

    fn engine(&self) -> Bang {
        let arguments = self.arguments;
        let seed = arguments.seed.wrapping_add(u64::from(self.number - 1));
        Bang {
            order: if arguments.in_order {
                BangOrder::AsGiven
            } else {
                BangOrder::Shuffled { seed }
            },
            connections_max: arguments.connections as usize,
            timeout_s: arguments.timeout,
            keep_alive: arguments.keep_alive,
            world: self.stand.world.clone(),
            tls: self.stand.tls.clone(),
            ..Bang::new(self.stand.route.clone())
        }
    }

    fn empty_run(&self) -> BangRun {
        let arguments = self.arguments;
        let settings = [
            ("order", if arguments.in_order { "as given".to_owned() } else { "random".to_owned() }),
            ("seed", arguments.seed.to_string()),
            (
                "connections",
                if arguments.keep_alive { "used again" } else { "a new one for each request" }
                    .to_owned(),
            ),
            ("an answer is given up after", units::show_seconds(arguments.timeout)),
        ];
        BangRun {
            format: RUN_FORMAT,
            started_s: humboldt_lab_wire::unix_us() / 1_000_000,
            subject: self.stand.subject.clone(),
            variant: variant(&arguments.variant, self.number, self.of, self.stand.ground.is_some()),
            setting: arguments.variant.clone(),
            cache: store_before(self.number, self.stand.ground.is_some()).to_owned(),
            connections_max: arguments.connections,
            settings: settings.map(|(name, value)| (name.to_owned(), value)).to_vec(),
            manifest: self.manifest.clone(),
            ..BangRun::default()
        }
    }

    /// The subject's resources in this pass, and now.
    fn resources(&self) -> Vec<Resources> {
        let Some(ground) = &self.stand.ground else { return Vec::new() };
        let mut history = ground.take_history();
        history.extend(ground.resources());
        history
    }
}

/// The state of a cache before a pass, if it was started for this.
fn store_before(number: u32, is_fresh: bool) -> &'static str {
    match (is_fresh, number) {
        (false, _) => "",
        (true, 1) => "empty",
        (true, _) => "full",
    }
}

/// Text that distinguishes a pass from the others, after its owner's text.
fn variant(setting: &str, number: u32, of: u32, is_fresh: bool) -> String {
    let mut words = Vec::new();
    if !setting.is_empty() {
        words.push(setting.to_owned());
    }
    if of > 1 || is_fresh {
        words.push(format!("pass {number} of {of}"));
    }
    match store_before(number, is_fresh) {
        "" => {}
        state => words.push(format!("cache {state}")),
    }
    words.join(", ")
}

fn take(run: &mut BangRun, report: BangReport) {
    run.elapsed_us = report.wall_us;
    run.requests = report.requests;
    run.answers = report.answers;
    run.verified = report.verified;
    run.hits = report.hits;
    run.body_bytes = report.body_bytes;
    run.handshakes = report.handshakes;
    run.statuses = report.statuses;
    run.faults = report.faults;
    run.fault_samples = report.fault_samples;
    run.service = report.service;
}

/// A bar on a terminal, and nothing elsewhere.
fn progress_bar(urls: Option<u64>) -> ProgressBar {
    let bar = match urls {
        Some(urls) => ProgressBar::new(urls),
        None => ProgressBar::no_length(),
    };
    let template = if urls.is_some() {
        "[{bar:40}] {human_pos} of {human_len}, {msg}, {eta} left"
    } else {
        "{spinner} {human_pos}, {msg}"
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.set_draw_target(crate::output::bars());
    bar
}

/// Sees all events of a pass, and decides when it is over.
struct Watch<'p> {
    pass: u32,
    start_unix_us: u64,
    course: Course,
    log: Option<&'p mut RequestLog>,
    ground: Option<&'p mut Ground>,
    interrupt: &'p Interrupt,
    deadline: Instant,
    bar: ProgressBar,
    faults: u64,
    /// The subject's resources soon after the beginning: a short pass may be over before the next
    /// measurement.
    early: Option<Resources>,
    end: End,
}

impl Watch<'_> {
    /// `false` ends the pass.
    fn on_event(&mut self, event: BangEvent<'_>) -> bool {
        let end = match event {
            BangEvent::Ended(record) => self.on_record(record),
            BangEvent::Tick { at_us, open } => self.on_tick(at_us, open),
        };
        end.map(|end| self.end = end).is_none()
    }

    fn on_record(&mut self, record: &BangRecord<'_>) -> Option<End> {
        self.bar.inc(1);
        self.faults += u64::from(record.fault.is_some());
        let body_bytes = record.fault.is_none().then_some(record.body_bytes);
        self.course.add(record.begin_us + record.service_us, body_bytes);
        let logged = self.log.as_mut().map(|log| log.add(record, self.pass, self.start_unix_us));
        logged.and_then(Result::err).map(End::Failed)
    }

    fn on_tick(&mut self, at_us: u64, open: u32) -> Option<End> {
        self.course.tick(at_us, open);
        let per_s = self.bar.position() as f64 * 1e6 / at_us.max(1) as f64;
        self.bar.set_message(format!("{per_s:.0}/s, {} errors", self.faults));
        if self.interrupt.is_set() {
            return Some(End::Interrupted);
        }
        if Instant::now() >= self.deadline {
            return Some(End::TimeUp);
        }
        if self.early.is_none() {
            self.early = self.ground.as_ref().and_then(|ground| ground.resources());
        }
        let checked = self.ground.as_mut().map(|ground| ground.check());
        checked.and_then(Result::err).map(End::Failed)
    }

    fn finish(mut self) -> (Course, Option<Resources>, End) {
        self.bar.finish_and_clear();
        if let Some(Err(failure)) = self.log.as_mut().map(|log| log.flush())
            && !matches!(self.end, End::Failed(_))
        {
            self.end = End::Failed(failure);
        }
        (self.course, self.early, self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(interrupt: &Interrupt, left: Duration) -> Watch<'_> {
        Watch {
            pass: 1,
            start_unix_us: 0,
            course: Course::default(),
            log: None,
            ground: None,
            interrupt,
            deadline: Instant::now() + left,
            bar: ProgressBar::hidden(),
            faults: 0,
            early: None,
            end: End::Done,
        }
    }

    #[test]
    fn a_pass_goes_on_until_its_time_is_up() {
        let interrupt = Interrupt::default();
        let tick = BangEvent::Tick { at_us: 1, open: 1 };
        let mut long = watch(&interrupt, Duration::from_secs(3600));
        assert!(long.on_event(tick) && matches!(long.end, End::Done));
        let mut over = watch(&interrupt, Duration::ZERO);
        assert!(!over.on_event(tick) && matches!(over.end, End::TimeUp));
    }

    #[test]
    fn passes_are_told_apart_only_where_there_are_several() {
        assert_eq!(variant("", 1, 1, false), "");
        assert_eq!(variant("", 2, 3, false), "pass 2 of 3");
        assert_eq!(variant("", 1, 2, true), "pass 1 of 2, cache empty");
        assert_eq!(variant("on disk", 2, 2, true), "on disk, pass 2 of 2, cache full");
    }
}
