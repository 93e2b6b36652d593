//! The threads that check passwords: a check is meant to take long, so no core makes one.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Context;
use std::thread;

use hashbrown::HashMap;
use humboldt_runtime::mailbox;
use humboldt_sys::cpu;
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::basic::{Credentials, as_text};
use crate::hash::{self, Unsupported};
use crate::password_file::{PasswordFile, Passwords};
use crate::remembered::Fingerprint;

/// Most threads that check passwords, whatever `children` says.
pub(crate) const CHECK_THREADS_MAX: u32 = 8;

/// Most different credentials that wait for a check or are being checked; a client with further
/// ones is refused. Those with the same credentials wait together, each on its connection.
pub(crate) const CHECKS_MAX: usize = 256;

/// The result of a check.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The password is the user's.
    Right,
    /// There is no such user, or the password is another.
    Wrong,
    /// The file cannot be read.
    Unknown,
}

/// The queue is full.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// Answers questions on the threads.
pub(crate) trait Judge: Send + Sync + 'static {
    /// The question.
    type Question: Send;
    /// Its answer.
    type Answer: Clone + Send;

    /// Answers. May block.
    fn judge(&self, question: &Self::Question) -> Self::Answer;

    /// The answer where a check has failed.
    fn unknown() -> Self::Answer;
}

/// Checks that are made on threads. When this is dropped, the threads end.
pub(crate) struct Checker<J: Judge> {
    shared: Arc<Shared<J>>,
    threads_max: usize,
}

struct Shared<J: Judge> {
    judge: J,
    queue: Mutex<Queue<J>>,
    work: Condvar,
}

struct Queue<J: Judge> {
    waiting: VecDeque<Fingerprint>,
    checks: HashMap<Fingerprint, Check<J>>,
    running: usize,
    idle: usize,
    is_closed: bool,
}

impl<J: Judge> Default for Queue<J> {
    fn default() -> Self {
        Self {
            waiting: VecDeque::new(),
            checks: HashMap::new(),
            running: 0,
            idle: 0,
            is_closed: false,
        }
    }
}

/// One check, and everybody who wants its result.
struct Check<J: Judge> {
    /// Taken by the thread that checks.
    question: Option<J::Question>,
    results: Vec<oneshot::Sender<J::Answer>>,
}

impl<J: Judge> Checker<J> {
    /// No thread is started yet.
    pub(crate) fn new(judge: J, checks_at_once: u32) -> Self {
        let shared = Shared { judge, queue: Mutex::default(), work: Condvar::new() };
        let threads_max = checks_at_once.clamp(1, CHECK_THREADS_MAX) as usize;
        Self { shared: Arc::new(shared), threads_max }
    }

    /// Checks credentials. A check that nobody waits for any more is not begun.
    pub(crate) async fn check(
        &self,
        of: Fingerprint,
        question: J::Question,
    ) -> Result<J::Answer, QueueFull> {
        let mut result = self.push(of, question)?;
        let verdict = poll_fn(|context| {
            let waker = mailbox::waker(context);
            Pin::new(&mut result).poll(&mut Context::from_waker(&waker))
        });
        // A thread that panicked has told the log.
        Ok(verdict.await.unwrap_or_else(|_| J::unknown()))
    }

    fn push(
        &self,
        of: Fingerprint,
        question: J::Question,
    ) -> Result<oneshot::Receiver<J::Answer>, QueueFull> {
        let (sender, result) = oneshot::channel();
        let mut queue = self.shared.queue.lock();
        if let Some(check) = queue.checks.get_mut(&of) {
            check.results.retain(|other| !other.is_closed());
            check.results.push(sender);
            return Ok(result);
        }
        if queue.checks.len() >= CHECKS_MAX {
            return Err(QueueFull);
        }
        if queue.idle <= queue.waiting.len() && queue.running < self.threads_max {
            match self.start() {
                Ok(()) => queue.running += 1,
                Err(error) if queue.running == 0 => {
                    tracing::error!("logins cannot be checked: no thread can be started: {error}");
                    return Err(QueueFull);
                }
                Err(_) => {}
            }
        }
        let check = Check { question: Some(question), results: vec![sender] };
        queue.checks.insert(of, check);
        queue.waiting.push_back(of);
        drop(queue);
        self.shared.work.notify_one();
        Ok(result)
    }

    fn start(&self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let work = move || {
            // Nothing depends on it.
            _ = cpu::work_in_batches();
            shared.run();
        };
        thread::Builder::new().name("logins".to_owned()).spawn(work).map(drop)
    }
}

impl<J: Judge> Drop for Checker<J> {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.work.notify_all();
    }
}

/// Removes a thread from the count when it ends, also by a panic.
struct Running<'a, J: Judge>(&'a Shared<J>);

impl<J: Judge> Drop for Running<'_, J> {
    fn drop(&mut self) {
        self.0.queue.lock().running -= 1;
    }
}

/// Gives a check up when it is dropped before its end, by a panic: it may be asked for again.
struct Begun<'a, J: Judge> {
    shared: &'a Shared<J>,
    of: Fingerprint,
}

impl<J: Judge> Drop for Begun<'_, J> {
    fn drop(&mut self) {
        self.shared.queue.lock().checks.remove(&self.of);
    }
}

impl<J: Judge> Shared<J> {
    fn run(&self) {
        let _running = Running(self);
        loop {
            let mut queue = self.queue.lock();
            let of = loop {
                if let Some(of) = queue.waiting.pop_front() {
                    break of;
                }
                if queue.is_closed {
                    return;
                }
                queue.idle += 1;
                self.work.wait(&mut queue);
                queue.idle -= 1;
            };
            let Some(check) = queue.checks.get_mut(&of) else { continue };
            let is_wanted = check.results.iter().any(|result| !result.is_closed());
            let question = check.question.take().filter(|_| is_wanted);
            let Some(question) = question else {
                queue.checks.remove(&of);
                continue;
            };
            drop(queue);
            let begun = Begun { shared: self, of };
            let verdict = self.judge.judge(&question);
            drop(question);
            let check = self.queue.lock().checks.remove(&of);
            drop(begun);
            for result in check.into_iter().flat_map(|check| check.results) {
                // Nobody there any more: somebody else may be.
                let _ = result.send(verdict.clone());
            }
        }
    }
}

/// Checks names and passwords against a file.
impl Judge for PasswordFile<Passwords> {
    type Question = Credentials;
    type Answer = Verdict;

    fn unknown() -> Verdict {
        Verdict::Unknown
    }

    fn judge(&self, credentials: &Credentials) -> Verdict {
        let Some((passwords, is_new)) = self.passwords_or_complain() else {
            return Verdict::Unknown;
        };
        if is_new {
            warn_of_unsupported(self, &passwords);
        }
        let Some(stored) = passwords.get(&credentials.user) else {
            // As much work as for a user that there is, so that the time does not tell which names
            // exist.
            if let Some((_, other)) = passwords.iter().next() {
                _ = hash::is_password(&credentials.password, other);
            }
            return Verdict::Wrong;
        };
        match hash::is_password(&credentials.password, stored) {
            Ok(true) => Verdict::Right,
            // The log has told of unknown forms when the file was read.
            Ok(false) | Err(Unsupported) => Verdict::Wrong,
        }
    }
}

fn warn_of_unsupported(file: &PasswordFile<Passwords>, passwords: &Passwords) {
    let odd: Vec<_> = passwords.iter().filter(|(_, stored)| !hash::is_supported(stored)).collect();
    let Some((user, _)) = odd.iter().min() else { return };
    let (path, count, user) = (file.path().display(), odd.len(), as_text(user));
    tracing::warn!(
        "{path}: {count} passwords are in a form that cannot be checked, such as that of {user:?}: \
         set them again with `htpasswd -B`"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remembered::Remembered;

    fn credentials(user: &str, password: &str) -> Credentials {
        Credentials {
            user: user.as_bytes().to_vec(),
            password: zeroize::Zeroizing::new(password.as_bytes().to_vec()),
        }
    }

    /// The password is `secret`.
    const FILE: &str = "anna:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";

    fn checker(text: &str, threads: u32) -> (tempfile::TempDir, Checker<PasswordFile<Passwords>>) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("passwd");
        std::fs::write(&path, text).expect("written");
        (dir, Checker::new(PasswordFile::new(path), threads))
    }

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    #[test]
    fn passwords_are_right_or_wrong_and_without_the_file_neither() {
        let (dir, checker) = checker(FILE, 2);
        let hashes = Remembered::default();
        let verdict = |user: &str, password: &str| {
            let of = hashes.fingerprint(&[user.as_bytes(), password.as_bytes()]);
            runtime().block_on(checker.check(of, credentials(user, password)))
        };
        assert_eq!(verdict("anna", "secret"), Ok(Verdict::Right));
        assert_eq!(verdict("anna", "Secret"), Ok(Verdict::Wrong));
        assert_eq!(verdict("bo", "secret"), Ok(Verdict::Wrong));
        std::fs::write(dir.path().join("passwd"), "anna:*\n").expect("written");
        assert_eq!(verdict("anna", "secret"), Ok(Verdict::Wrong));
        std::fs::remove_file(dir.path().join("passwd")).expect("removed");
        assert_eq!(verdict("anna", "secret"), Ok(Verdict::Unknown));
    }

    /// No thread takes anything from the queue while this test holds the file.
    #[test]
    fn one_check_serves_all_with_the_same_credentials_and_the_queue_is_bounded() {
        let (_dir, checker) = checker(FILE, 1);
        let hashes = Remembered::default();
        let busy = checker.shared.judge.hold();
        let push = |number: usize| {
            let of = hashes.fingerprint(&[&number.to_ne_bytes()]);
            checker.push(of, credentials("anna", "secret"))
        };
        let same: Vec<_> = (0..10).map(|_| push(0).expect("joins")).collect();
        assert_eq!(checker.shared.queue.lock().checks.len(), 1);
        let others: Vec<_> = (1..CHECKS_MAX).map(|number| push(number).expect("room")).collect();
        assert!(push(CHECKS_MAX).is_err());
        assert!(push(1).is_ok(), "those that are known can be waited for");
        drop(others);
        drop(busy);
        for result in same {
            assert_eq!(result.blocking_recv(), Ok(Verdict::Right));
        }
    }

    #[test]
    fn the_threads_end_with_their_owner() {
        let (_dir, checker) = checker(FILE, 2);
        let of = Remembered::default().fingerprint(&[b"x"]);
        let verdict = runtime().block_on(checker.check(of, credentials("anna", "secret")));
        assert_eq!(verdict, Ok(Verdict::Right));
        let shared = Arc::downgrade(&checker.shared);
        drop(checker);
        let start = std::time::Instant::now();
        while shared.strong_count() > 0 {
            assert!(start.elapsed().as_secs() < 20, "a thread goes on");
            thread::yield_now();
        }
    }
}
