//! Work in the background: threads, or steps of a simulated disk.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, MutexGuard};

use super::disk::{Disk, current};

/// What follows a step.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Another one.
    Again,
    /// Nothing, until the bell rings.
    Rest,
    /// Nothing any more.
    Ended,
}

/// One step.
pub(super) type Step = Box<dyn FnMut() -> Next + Send>;

/// Work in the background that has begun.
pub(crate) enum Background {
    Thread(JoinHandle<()>),
    Simulated(Arc<Disk>, u64),
}

impl Background {
    /// Begins work that is done once.
    pub(crate) fn once(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let Some(disk) = current() else { return spawn(name, work) };
        let id = disk.new_id();
        let mut work = Some(work);
        let step = move || {
            if let Some(work) = work.take() {
                work();
            }
            Next::Ended
        };
        disk.add_chore(id, Box::new(step));
        Ok(Self::Simulated(disk, id))
    }

    /// Waits until it has ended, as it has been told to.
    pub(crate) fn join(self) -> thread::Result<()> {
        match self {
            Self::Thread(thread) => thread.join(),
            Self::Simulated(disk, id) => {
                disk.remove_chore(id);
                Ok(())
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Background> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map(Background::Thread)
}

/// Calls work in the background when there is something to do. It belongs to the disk that the
/// thread has entered when it is made.
pub(crate) struct Bell {
    rung: Condvar,
    simulated: Option<(Arc<Disk>, u64)>,
}

impl Default for Bell {
    fn default() -> Self {
        let simulated = current().map(|disk| {
            let id = disk.new_id();
            (disk, id)
        });
        Self { rung: Condvar::new(), simulated }
    }
}

impl Bell {
    /// Begins the work that listens: `all` of it on a thread, or step by step.
    pub(crate) fn start(
        &self,
        name: &str,
        all: impl FnOnce() + Send + 'static,
        step: impl FnMut() -> Next + Send + 'static,
    ) -> io::Result<Background> {
        let Some((disk, id)) = &self.simulated else { return spawn(name, all) };
        disk.add_chore(*id, Box::new(step));
        Ok(Background::Simulated(Arc::clone(disk), *id))
    }

    /// There is something to do.
    pub(crate) fn ring(&self) {
        self.rung.notify_one();
        if let Some((disk, id)) = &self.simulated {
            disk.rouse(*id);
        }
    }

    /// Waits for the bell, on a thread.
    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.rung.wait(guard);
    }

    /// The simulated disk.
    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        self.simulated.as_ref().map(|(disk, _)| disk)
    }
}
