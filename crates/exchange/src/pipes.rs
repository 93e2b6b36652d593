//! The pipes through which a core's tunnels splice.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use humboldt_sys::descriptors;
use humboldt_sys::splice::SplicePipe;
use tokio::time::Instant;

/// Most pipes of a core that hold bytes at the same time. Each has two descriptors.
const PIPES_MAX: usize = 16;

/// Most empty pipes that a core keeps for the next bytes.
const SPARE_PIPES_MAX: usize = 4;

/// The pipes of all cores have at most this share of the descriptors.
const PIPES_DESCRIPTORS_SHARE: u64 = 64;

/// Most pipes of all cores: with 64 pages each, the pages that a user without privileges may have
/// (`fs.pipe-user-pages-soft`).
const PIPES_OF_ALL_MAX: usize = 256;

/// After the system had no pipe, no other is asked for during this time.
const PIPE_PAUSE: Duration = Duration::from_secs(1);

/// Capacity of a pipe, in pages that are there only while it is full. A bare relay needs a quarter
/// less CPU for a GB than with the system's default of 64 KiB.
const PIPE_BYTES: usize = 256 * 1024;

/// The pipes of one core. A tunnel has one while bytes are on their way, and none while it is idle.
pub(crate) struct Pipes {
    spare: RefCell<Vec<SplicePipe>>,
    in_use: Cell<usize>,
    most: Cell<usize>,
    /// The system had no pipe.
    failed_at: Cell<Option<Instant>>,
    /// The system cannot splice.
    is_unable: Cell<bool>,
}

/// A pipe that a tunnel has. One that is dropped, with the bytes of a tunnel that is over, is
/// closed.
pub(crate) struct LentPipe<'a> {
    pub(crate) pipe: SplicePipe,
    place: Place<'a>,
}

/// One of the pipes that a core may have in use.
struct Place<'a>(&'a Pipes);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.in_use.set(self.0.in_use.get().saturating_sub(1));
    }
}

impl Default for Pipes {
    fn default() -> Self {
        Self::new(share(descriptors::limit(), 1))
    }
}

impl Pipes {
    fn new(most: usize) -> Self {
        Self {
            spare: RefCell::default(),
            in_use: Cell::new(0),
            most: Cell::new(most),
            failed_at: Cell::new(None),
            is_unable: Cell::new(false),
        }
    }

    /// The core is one of this many.
    pub(crate) fn share_among(&self, cores: usize) {
        self.most.set(share(descriptors::limit(), cores));
    }

    /// Closes the pipes that are kept for the next bytes. Returns their number.
    pub(crate) fn close_spare(&self) -> usize {
        std::mem::take(&mut *self.spare.borrow_mut()).len()
    }

    /// An empty pipe. `None`: the bytes are to be copied.
    pub(crate) fn take(&self) -> Option<LentPipe<'_>> {
        if self.is_unable.get() || self.in_use.get() >= self.most.get() {
            return None;
        }
        let spare = self.spare.borrow_mut().pop();
        let pipe = spare.or_else(|| self.make())?;
        self.in_use.set(self.in_use.get() + 1);
        Some(LentPipe { pipe, place: Place(self) })
    }

    fn make(&self) -> Option<SplicePipe> {
        if self.failed_at.get().is_some_and(|at| at.elapsed() < PIPE_PAUSE) {
            return None;
        }
        let pipe = SplicePipe::new(PIPE_BYTES).ok();
        self.failed_at.set(pipe.is_none().then(Instant::now));
        pipe
    }

    /// No pipe is given out any more.
    pub(crate) fn give_up(&self) {
        self.is_unable.set(true);
        self.spare.borrow_mut().clear();
    }
}

/// How many pipes one of the cores may have.
fn share(descriptors: u64, cores: usize) -> usize {
    let allowed = descriptors / PIPES_DESCRIPTORS_SHARE / 2;
    let of_all = usize::try_from(allowed).unwrap_or(usize::MAX).min(PIPES_OF_ALL_MAX);
    (of_all / cores.max(1)).min(PIPES_MAX)
}

impl LentPipe<'_> {
    /// Gives an empty pipe back.
    pub(crate) fn put_back(self) {
        let Self { pipe, place } = self;
        let pipes = place.0;
        let mut spare = pipes.spare.borrow_mut();
        let is_wanted = pipe.held_bytes() == 0 && !pipes.is_unable.get();
        if is_wanted && spare.len() < SPARE_PIPES_MAX {
            spare.push(pipe);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_given_out_as_may_be_and_few_are_kept() {
        let pipes = Pipes::new(2 * SPARE_PIPES_MAX);
        let taken: Vec<_> = std::iter::from_fn(|| pipes.take()).collect();
        assert_eq!(taken.len(), 2 * SPARE_PIPES_MAX);
        taken.into_iter().for_each(LentPipe::put_back);
        assert_eq!((pipes.spare.borrow().len(), pipes.in_use.get()), (SPARE_PIPES_MAX, 0));
        drop(pipes.take());
        assert_eq!(pipes.in_use.get(), 0, "of a tunnel that was dropped");
        let one = pipes.take();
        assert!(one.is_some() && pipes.spare.borrow().len() == SPARE_PIPES_MAX - 2);
        pipes.give_up();
        one.into_iter().for_each(LentPipe::put_back);
        assert!(pipes.take().is_none() && pipes.spare.borrow().is_empty());
    }

    #[test]
    fn cores_share_descriptors_and_pages_and_spare_pipes_can_be_closed() {
        for (descriptors, cores, most) in
            [(120, 1, 0), (4096, 1, 16), (4096, 8, 4), (u64::MAX, 64, 4), (1 << 20, 1000, 0)]
        {
            assert_eq!(share(descriptors, cores), most, "{descriptors} among {cores}");
        }
        let pipes = Pipes::new(1);
        pipes.take().into_iter().for_each(LentPipe::put_back);
        assert_eq!((pipes.close_spare(), pipes.spare.borrow().len()), (1, 0));
    }

    #[test]
    fn a_system_without_pipes_is_not_asked_all_the_time() {
        let pipes = Pipes::new(1);
        pipes.failed_at.set(Some(Instant::now()));
        assert!(pipes.take().is_none() && pipes.in_use.get() == 0);
        pipes.failed_at.set(Instant::now().checked_sub(2 * PIPE_PAUSE));
        assert!(pipes.take().is_some() && pipes.failed_at.get().is_none());
    }
}
