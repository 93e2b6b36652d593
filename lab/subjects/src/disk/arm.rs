//! The arm: serves one request after the other, the next one in its direction first.

use super::model::Model;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Most requests that wait for the arm. A loop device has 128 at most; a request beyond is refused.
const WAITING_MAX: usize = 1024;

/// What is done once the arm is there.
pub(super) enum Deed {
    /// So many bytes are read, and given away.
    Read(u32, Box<dyn FnOnce(io::Result<Vec<u8>>) + Send>),
    /// These are written.
    Write(Vec<u8>, Box<dyn FnOnce(io::Result<()>) + Send>),
}

impl Deed {
    fn bytes(&self) -> u64 {
        match self {
            Self::Read(bytes, _) => u64::from(*bytes),
            Self::Write(bytes, _) => bytes.len() as u64,
        }
    }

    fn perform(self, contents: &File, offset: u64) {
        match self {
            Self::Read(bytes, done) => {
                let mut buffer = vec![0; bytes as usize];
                done(contents.read_exact_at(&mut buffer, offset).map(|()| buffer));
            }
            Self::Write(bytes, done) => done(contents.write_all_at(&bytes, offset)),
        }
    }

    fn refuse(self, error: io::Error) {
        match self {
            Self::Read(_, done) => done(Err(error)),
            Self::Write(_, done) => done(Err(error)),
        }
    }
}

struct Request {
    offset: u64,
    arrived: Instant,
    deed: Deed,
}

#[derive(Default)]
struct Waiting {
    requests: Vec<Request>,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next request; `None` once it is over.
    fn next(&self, position: u64) -> Option<Request> {
        let mut waiting = self.lock();
        loop {
            if waiting.is_over {
                return None;
            }
            if let Some(index) = ahead(&waiting.requests, position) {
                return Some(waiting.requests.swap_remove(index));
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The nearest request at or behind this position; if there is none, the first of all. So the arm
/// sweeps over the disk in one direction, and no request waits longer than two sweeps.
fn ahead(requests: &[Request], position: u64) -> Option<usize> {
    let place = |request: &Request| (request.offset < position, request.offset, request.arrived);
    (0..requests.len()).min_by_key(|&index| place(&requests[index]))
}

/// The arm's own thread. Dropping it refuses what still waits.
pub(super) struct Arm {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Arm {
    pub(super) fn start(contents: File, model: Model) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("disk".to_owned())
            .spawn(move || serve(&served, &contents, model))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(super) fn ask(&self, offset: u64, deed: Deed) {
        let mut waiting = self.shared.lock();
        if waiting.is_over || waiting.requests.len() >= WAITING_MAX {
            drop(waiting);
            return deed.refuse(io::ErrorKind::WouldBlock.into());
        }
        waiting.requests.push(Request { offset, arrived: Instant::now(), deed });
        drop(waiting);
        self.shared.changed.notify_one();
    }
}

impl Drop for Arm {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.is_over = true;
        let left = std::mem::take(&mut waiting.requests);
        drop(waiting);
        self.shared.changed.notify_one();
        for request in left {
            request.deed.refuse(io::ErrorKind::BrokenPipe.into());
        }
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared, contents: &File, mut model: Model) {
    // By this clock and not by that of the machine the arm is free: what a sleep takes too long is
    // not added up.
    let mut is_free = Instant::now();
    while let Some(Request { offset, arrived, deed }) = shared.next(model.position()) {
        let is_there = is_free.max(arrived) + model.service(offset, deed.bytes());
        thread::sleep(is_there.saturating_duration_since(Instant::now()));
        deed.perform(contents, offset);
        is_free = is_there;
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::DiskSpeed;
    use super::*;
    use std::sync::mpsc;

    const BYTES: u64 = 1 << 20;

    fn arm(factor: f64) -> Arm {
        let contents = tempfile::tempfile().expect("a file");
        contents.set_len(BYTES).expect("a length");
        let speed = DiskSpeed::times(factor).expect("a factor");
        Arm::start(contents, Model::new(BYTES, speed)).expect("a thread")
    }

    fn request(offset: u64) -> Request {
        Request { offset, arrived: Instant::now(), deed: Deed::Write(Vec::new(), Box::new(|_| ())) }
    }

    #[test]
    fn the_arm_sweeps_in_one_direction() {
        let requests: Vec<Request> = [500, 100, 300, 900].map(request).into();
        let at = |position| ahead(&requests, position).map(|index| requests[index].offset);
        assert_eq!(at(0), Some(100));
        assert_eq!(at(300), Some(300));
        assert_eq!(at(301), Some(500));
        assert_eq!(at(901), Some(100));
        assert_eq!(ahead(&[], 0), None);
    }

    #[test]
    fn what_was_written_is_read() {
        let arm = arm(10_000.0);
        let (done, result) = mpsc::channel();
        let written = done.clone();
        let told = move |result: io::Result<()>| written.send(result.map(|()| Vec::new())).unwrap();
        arm.ask(4096, Deed::Write(b"contents".to_vec(), Box::new(told)));
        assert_eq!(result.recv().expect("an answer").expect("written"), b"");
        arm.ask(4096, Deed::Read(8, Box::new(move |result| done.send(result).unwrap())));
        assert_eq!(result.recv().expect("an answer").expect("read"), b"contents");
    }

    #[test]
    fn what_still_waits_at_the_end_is_refused_and_so_is_too_much() {
        // A request takes minutes: it is over before the second is served.
        let arm = arm(0.1);
        let (done, result) = mpsc::channel();
        for _ in 0..WAITING_MAX + 2 {
            let done = done.clone();
            let told =
                move |result: io::Result<()>| done.send(result.map_err(|e| e.kind())).unwrap();
            arm.ask(BYTES / 2, Deed::Write(vec![0], Box::new(told)));
        }
        assert_eq!(result.recv().expect("an answer"), Err(io::ErrorKind::WouldBlock));
        drop(arm);
        drop(done);
        let rest: Vec<_> = result.iter().collect();
        assert!(rest.iter().filter(|end| **end == Err(io::ErrorKind::BrokenPipe)).count() > 1000);
    }
}
