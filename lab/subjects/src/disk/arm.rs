//! The arm: serves one request after the other, the next one in its direction first.

use super::model::{Kind, Model};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

/// Most requests that wait for the arm: those that a loop device has under way, and a few more. A
/// request beyond is refused.
const WAITING_MAX: usize = 160;

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
    /// Whether the arm takes no time any more.
    is_hurried: bool,
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

    /// Takes a request in, or gives it back.
    fn take(&self, request: Request) -> Result<(), Deed> {
        let mut waiting = self.lock();
        if waiting.is_over || waiting.requests.len() >= WAITING_MAX {
            return Err(request.deed);
        }
        waiting.requests.push(request);
        drop(waiting);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits until the arm is there.
    fn wait_until(&self, is_there: Instant) {
        let mut waiting = self.lock();
        while !waiting.is_hurried && !waiting.is_over {
            let left = is_there.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let result = self.changed.wait_timeout(waiting, left);
            waiting = result.unwrap_or_else(PoisonError::into_inner).0;
        }
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
        let request = Request { offset, arrived: Instant::now(), deed };
        if let Err(deed) = self.shared.take(request) {
            deed.refuse(io::ErrorKind::WouldBlock.into());
        }
    }

    /// Ends the waiting: from now on a request takes no more time than it takes. For the end, when
    /// the file system above is unmounted.
    pub(super) fn hurry(&self) {
        self.shared.lock().is_hurried = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for Arm {
    fn drop(&mut self) {
        let mut waiting = self.shared.lock();
        waiting.is_over = true;
        let left = std::mem::take(&mut waiting.requests);
        drop(waiting);
        self.shared.changed.notify_all();
        for request in left {
            request.deed.refuse(io::ErrorKind::BrokenPipe.into());
        }
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

/// A disk whose arm is gone must not be waited for: the end of its process ends all requests.
struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::abort();
        }
    }
}

fn serve(shared: &Shared, contents: &File, mut model: Model) {
    let _abort = AbortOnPanic;
    // By this clock and not by that of the machine the arm is free: what a wait takes too long is
    // not added up.
    let mut is_free = Instant::now();
    while let Some(Request { offset, arrived, deed }) = shared.next(model.position()) {
        let kind = match &deed {
            Deed::Read(..) => Kind::Read,
            Deed::Write(..) if arrived > is_free => Kind::LateWrite,
            Deed::Write(..) => Kind::Write,
        };
        let is_there = is_free.max(arrived) + model.service(offset, deed.bytes(), kind);
        shared.wait_until(is_there);
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
    fn too_much_is_given_back() {
        let shared = Shared::default();
        for _ in 0..WAITING_MAX {
            assert!(shared.take(request(0)).is_ok());
        }
        assert!(shared.take(request(0)).is_err());
        assert!(shared.next(0).is_some());
        assert!(shared.take(request(0)).is_ok());
    }

    #[test]
    fn a_disk_that_is_hurried_takes_no_time_and_at_the_end_nothing_is_left_unanswered() {
        // Each of them takes half a second at least.
        const REQUESTS: u64 = 100;
        let arm = arm(0.1);
        let (done, result) = mpsc::channel();
        let ask = |arm: &Arm, number: u64| {
            let done = done.clone();
            let told = move |result: io::Result<()>| done.send(result.is_ok()).unwrap();
            arm.ask(BYTES - 1 - number * 4096, Deed::Write(vec![0], Box::new(told)));
        };
        let begun = Instant::now();
        (0..REQUESTS).for_each(|number| ask(&arm, number));
        arm.hurry();
        for _ in 0..REQUESTS {
            assert!(result.recv().expect("an answer"));
        }
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
        drop(arm);
        let arm = self::arm(0.1);
        (0..REQUESTS).for_each(|number| ask(&arm, number));
        drop(arm);
        drop(done);
        let left: Vec<bool> = result.iter().collect();
        assert_eq!(left.len() as u64, REQUESTS);
        assert!(left.contains(&false));
    }
}
