//! The program as a process: started, watched, ended.

use super::LIMIT;
use super::traces::descendants;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Waits for something.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Humboldt: what `HUMBOLDT_BIN` names, or what was built beside the laboratory.
fn humboldt() -> PathBuf {
    if let Some(path) = std::env::var_os("HUMBOLDT_BIN") {
        return path.into();
    }
    let path = Path::new(env!("CARGO_BIN_EXE_humboldt-lab")).with_file_name("humboldt");
    assert!(
        path.exists(),
        "{} is missing: build it (cargo build) or set HUMBOLDT_BIN",
        path.display()
    );
    path
}

/// How a process ended, and what it wrote.
#[derive(Debug)]
pub(crate) struct Done {
    /// `None`: by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
    /// The folder that it was started in.
    home: Option<TempDir>,
}

impl Done {
    /// It must have ended with this code.
    #[track_caller]
    pub(crate) fn with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// The folder that it was started in.
    pub(crate) fn home(&self) -> &Path {
        self.home.as_ref().expect("kept until here").path()
    }

    /// What it complained about: exactly one line.
    #[track_caller]
    pub(crate) fn complaint(&self) -> &str {
        let line = self.err.trim_end();
        let is_one = line.lines().count() == 1 && !line.is_empty();
        assert!(is_one, "not one clear line: {self:#?}");
        line.strip_prefix("humboldt-lab: ").expect("it says who complains")
    }

    /// The complaint must have all of these words.
    #[track_caller]
    pub(crate) fn says(&self, words: &[&str]) {
        let complaint = self.complaint();
        for word in words {
            assert!(complaint.contains(word), "`{word}` is not in: {complaint}");
        }
    }
}

/// Runs the program to its end.
#[track_caller]
pub(crate) fn lab<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Done {
    Lab::start(words).end()
}

/// The running program. Dropping it kills it; its keeper then clears away what it started.
#[derive(Debug)]
pub(crate) struct Lab {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
    /// Its current folder, where a report goes that nobody gave a place.
    home: Option<TempDir>,
}

impl Lab {
    pub(crate) fn start<W: AsRef<OsStr>>(words: impl IntoIterator<Item = W>) -> Self {
        Self::start_with_input(words, "")
    }

    /// With this on its standard input.
    pub(crate) fn start_with_input<W: AsRef<OsStr>>(
        words: impl IntoIterator<Item = W>,
        input: &str,
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_humboldt-lab"));
        let home = tempfile::tempdir().expect("a folder");
        command.current_dir(home.path());
        command.args(words).env("HUMBOLDT_BIN", humboldt()).env_remove("HUMBOLDT_LAB_TOKEN");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program starts");
        let mut stdin = child.stdin.take().expect("piped");
        // Who does not read its input may have gone already.
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let (out, err) = (Arc::default(), Arc::default());
        let readers = vec![
            collect(child.stdout.take().expect("piped"), Arc::clone(&out)),
            collect(child.stderr.take().expect("piped"), Arc::clone(&err)),
        ];
        Self { child, out, err, readers, home: Some(home) }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What it has written so far.
    pub(crate) fn said(&self) -> String {
        self.out.lock().expect("no panic").clone()
    }

    /// Waits until it has written this; returns the line.
    #[track_caller]
    pub(crate) fn until_says(&mut self, text: &str) -> String {
        until(text, || {
            let line = self.said().lines().find(|line| line.contains(text)).map(ToOwned::to_owned);
            let has_ended = line.is_none() && self.child.try_wait().expect("a child").is_some();
            assert!(
                !has_ended,
                "it ended without saying `{text}`: {:?} {:?}",
                self.said(),
                self.err
            );
            line
        })
    }

    /// Waits for the first sample in a folder's samples.csv.
    #[track_caller]
    pub(crate) fn until_sampled(&mut self, out: &Path) {
        until("the first sample", || {
            let text = std::fs::read_to_string(out.join("samples.csv")).unwrap_or_default();
            let has_ended = self.child.try_wait().expect("a child").is_some();
            assert!(
                !has_ended,
                "it ended before its first sample: {:?} {:?}",
                self.said(),
                self.err
            );
            (text.lines().count() > 1).then_some(())
        });
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it is ours and not waited for");
    }

    /// Its processes: children, their children, and so on.
    pub(crate) fn descendants(&self) -> Vec<u32> {
        descendants(self.child.id())
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn end(mut self) -> Done {
        let status = until("the program's end", || self.child.try_wait().expect("a child"));
        for reader in self.readers.drain(..) {
            reader.join().expect("no panic");
        }
        let text = |text: &Mutex<String>| text.lock().expect("no panic").clone();
        let (out, err) = (text(&self.out), text(&self.err));
        Done { code: status.code(), out, err, home: self.home.take() }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn collect(from: impl Read + Send + 'static, into: Arc<Mutex<String>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            into.lock().expect("no panic").push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}
