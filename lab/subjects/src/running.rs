//! A subject that runs.

use crate::address::HeldAddress;
use crate::control_group::Groups;
use crate::keeper::Kept;
use crate::processes::{Stat, Tree};
use crate::processor::Steady;
use crate::resources::Watch;
use crate::stored::StoredPage;
use crate::undo::Undo;
use crate::{Mode, Skipped, SubjectError};
use humboldt_lab_record::{Build, Resources};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Length of the end of each log that an error quotes, in bytes and in lines.
const QUOTED_BYTES: u64 = 4096;
const QUOTED_LINES: usize = 8;
/// Time for a subject that is dropped without [`Running::stop`] to end by itself.
const DROPPED_PATIENCE: Duration = Duration::from_secs(1);

/// The end of a stopped subject.
#[derive(Clone, Debug)]
pub struct Stopped {
    /// Its exit status in words; empty if it was not started by the laboratory.
    pub status: String,
    /// Whether it, or a helper of it, had to be killed.
    pub was_killed: bool,
}

/// The registered facts about a subject's processes, shared with the thread that watches them.
#[derive(Clone, Debug)]
pub(crate) struct Registered {
    kept: Arc<Mutex<Option<Kept>>>,
    mark: String,
    root: Option<i32>,
    patience_ms: u64,
}

impl Registered {
    /// `kept` is an [`Undo::End`] with the same mark.
    pub(crate) fn new(kept: Kept, mark: &str, patience_ms: u64) -> Self {
        Self {
            kept: Arc::new(Mutex::new(Some(kept))),
            mark: mark.to_owned(),
            root: None,
            patience_ms,
        }
    }

    /// The subject has started.
    pub(crate) fn set_root(&mut self, root: i32) -> Result<(), SubjectError> {
        self.root = Some(root);
        self.update(BTreeSet::from([root]))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These processes were seen so far.
    pub(crate) fn update(&self, pids: BTreeSet<i32>) -> Result<(), SubjectError> {
        let undo = Undo::End {
            mark: self.mark.clone(),
            root: self.root,
            pids,
            patience_ms: self.patience_ms,
        };
        self.lock().as_mut().map_or(Ok(()), |kept| kept.replace(undo))
    }

    fn undo(&self) -> Result<(), SubjectError> {
        let kept = self.lock().take();
        kept.map_or(Ok(()), Kept::undo)
    }
}

/// A subject that the laboratory has started, as opposed to attached to.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: Child,
    /// Held for as long as it runs.
    pub(crate) _address: HeldAddress,
    pub(crate) registered: Registered,
    pub(crate) patience: Duration,
    pub(crate) leftovers: Vec<Kept>,
    /// Changes a file of the groups, and so ends before them.
    pub(crate) steady: Option<Steady>,
    pub(crate) groups: Groups,
}

/// A subject that runs. Dropping it ends it.
#[derive(Debug)]
pub struct Running {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) mode: Mode,
    pub(crate) started: Option<Started>,
    /// The process that it was attached to, and when that started.
    pub(crate) attached: Option<Attached>,
    pub(crate) watch: Option<Watch>,
    /// The page on which it tells about its stores.
    pub(crate) stored: Option<StoredPage>,
    pub(crate) logs: Vec<PathBuf>,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) facts: Vec<(String, String)>,
    pub(crate) build: Option<Build>,
    pub(crate) skipped: Vec<Skipped>,
}

/// A process that is only watched.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) proc: PathBuf,
    pub(crate) process: Stat,
}

impl Running {
    /// The address on which it accepts connections.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The way from clients to it.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Number of its first process, if it is watched.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        let attached =
            self.attached.as_ref().and_then(|attached| u32::try_from(attached.process.pid).ok());
        self.started.as_ref().map(|started| started.child.id()).or(attached)
    }

    /// Resources of its processes until now; `None` if it is not watched. Waits for nothing.
    #[must_use]
    pub fn used(&self) -> Option<Resources> {
        let measured = self.watch.as_ref().and_then(|watch| watch.meter().measure())?;
        let steady = self.started.as_ref().and_then(|started| started.steady.as_ref());
        let allowance = steady.map(Steady::allowance);
        let micros = |time: Duration| u64::try_from(time.as_micros()).ok();
        Some(Resources {
            allowed_cpu_us: allowance.and_then(|allowance| micros(allowance.allowed)),
            short_cpu_us: allowance.and_then(|allowance| micros(allowance.short)),
            ..measured
        })
    }

    /// The same, and what it says about its stores. Waits half a second at most for its answer.
    #[must_use]
    pub fn resources(&self) -> Option<Resources> {
        let used = self.used()?;
        let said = self.stored.as_ref().map(|page| page.ask(self.address)).unwrap_or_default();
        Some(Resources {
            stored_bytes: said.bytes,
            stored_objects: said.objects,
            taken_bytes: said.taken_bytes,
            ..used
        })
    }

    /// Every process that it has had; `None` if it is not watched.
    #[must_use]
    pub fn processes(&self) -> Option<BTreeSet<i32>> {
        self.watch.as_ref().map(|watch| watch.meter().tree().ever().clone())
    }

    /// All that was measured once a second since the last call, at most an hour of it.
    #[must_use]
    pub fn take_history(&self) -> Vec<Resources> {
        self.watch.as_ref().map(Watch::take_history).unwrap_or_default()
    }

    /// Tells the keeper which processes there are.
    pub(crate) fn notice_helpers(&self) -> Result<(), SubjectError> {
        let Some((started, watch)) = self.started.as_ref().zip(self.watch.as_ref()) else {
            return Ok(());
        };
        let pids = {
            let mut meter = watch.meter();
            meter.measure();
            meter.tree().ever().clone()
        };
        started.registered.update(pids)
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// If it ended by itself: how, and the last lines of its logs. If its processor is not steady
    /// any more: why.
    pub fn check(&mut self) -> Result<(), SubjectError> {
        let steady = self.started.as_ref().and_then(|started| started.steady.as_ref());
        steady.map_or(Ok(()), Steady::check).map_err(SubjectError::Environment)?;
        if let Some(started) = &mut self.started {
            return match started.child.try_wait() {
                Ok(None) => Ok(()),
                Ok(Some(status)) => Err(self.failed(&format!("ended by itself ({status})"))),
                Err(error) => Err(self.failed(&format!("cannot be watched: {error}"))),
            };
        }
        let has_gone = self.attached.as_ref().is_some_and(|attached| {
            Stat::read(&attached.proc, attached.process.pid).is_none_or(|now| {
                now.is_dead || now.started_ticks != attached.process.started_ticks
            })
        });
        if has_gone { Err(self.failed("has ended")) } else { Ok(()) }
    }

    /// Configuration files it runs with: name → text.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, String> {
        &self.files
    }

    /// Facts for the manifest: version, command line, cores, quota.
    #[must_use]
    pub fn facts(&self) -> Vec<(String, String)> {
        self.facts.clone()
    }

    /// Its program; `None` if that is not known.
    #[must_use]
    pub fn build(&self) -> Option<&Build> {
        self.build.as_ref()
    }

    /// Options that were not obeyed.
    #[must_use]
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Stops it: TERM, then KILL, for all its processes; removes its objects from the kernel. A
    /// subject that the laboratory only attached to goes on running.
    ///
    /// # Errors
    /// If processes are left, or something that it left behind.
    pub fn stop(mut self) -> Result<Stopped, SubjectError> {
        match self.started.take() {
            Some(started) => self.end(started, None),
            None => Ok(Stopped { status: String::new(), was_killed: false }),
        }
    }

    fn end(
        &mut self,
        mut started: Started,
        patience: Option<Duration>,
    ) -> Result<Stopped, SubjectError> {
        let mut tree = match &self.watch {
            Some(watch) => watch.meter().tree().clone(),
            None => Tree::new(
                Path::new("/proc"),
                Some(&started.registered.mark),
                started.registered.root,
            ),
        };
        self.watch = None;
        let child = &mut started.child;
        let ended = tree.end(patience.unwrap_or(started.patience), || {
            let _ = child.try_wait();
        });
        let was_killed = ended.map_err(|what| self.failed(&format!("does not stop: {what}")))?;
        let status = started
            .child
            .wait()
            .map_or_else(|error| error.to_string(), |status| status.to_string());
        let mut result =
            started.registered.update(tree.ever().clone()).and(started.registered.undo());
        for kept in started.leftovers {
            result = result.and(kept.undo());
        }
        drop(started.steady.take());
        result.and(started.groups.undo())?;
        Ok(Stopped { status, was_killed })
    }

    /// An error with the last lines of the logs.
    pub(crate) fn failed(&self, what: &str) -> SubjectError {
        SubjectError::Subject {
            subject: self.name.clone(),
            what: what.to_owned(),
            log: last_lines(&self.logs),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            let _ = self.end(started, Some(DROPPED_PATIENCE));
        }
    }
}

/// The last lines of each log that has any, below its name.
pub(crate) fn last_lines(logs: &[PathBuf]) -> String {
    let mut out = String::new();
    for log in logs {
        let Some(text) = tail(log) else { continue };
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        if lines.is_empty() {
            continue;
        }
        let name = log.file_name().unwrap_or_default().to_string_lossy();
        let _ = write!(out, "\n  {name}:");
        for line in &lines[lines.len().saturating_sub(QUOTED_LINES)..] {
            let _ = write!(out, "\n    {line}");
        }
    }
    out
}

fn tail(path: &Path) -> Option<String> {
    let mut file = fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(QUOTED_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(QUOTED_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_quote_the_ends_of_logs() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("cache.log");
        let lines: Vec<String> = (0..2000).map(|number| format!("line {number}")).collect();
        fs::write(&log, lines.join("\n\n")).expect("a log");
        let quoted = last_lines(&[folder.path().join("none"), log]);
        assert!(quoted.starts_with("\n  cache.log:\n    line 1992\n"), "{quoted}");
        assert!(quoted.ends_with("line 1999"));
    }
}
