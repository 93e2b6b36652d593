//! All worlds of one process together.

use crate::counts::Counts;
use crate::plan::{RobotsError, RobotsPlan};
use crate::world::{Order, Shared, World};
use humboldt_lab_record::Tally;
use humboldt_lab_wire::{Waker, pin};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

/// Simulated users at work. Dropping them ends them.
#[derive(Debug)]
pub struct Robots {
    shared: Arc<Shared>,
    worlds: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    orders: Sender<Order>,
    waker: Waker,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// An order to a world that has ended is lost; its missing thread shows in the next sample.
    fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            self.waker.wake();
        }
    }

    fn ask(
        &self,
        order: impl FnOnce(std::sync::mpsc::SyncSender<Counts>) -> Order,
    ) -> Receiver<Counts> {
        let (to, counts) = sync_channel(1);
        self.order(order(to));
        counts
    }
}

impl Robots {
    /// Starts all threads with the plan's first load.
    ///
    /// # Errors
    ///
    /// The plan contradicts itself, or the system refuses a thread, a core or a descriptor.
    pub fn start(plan: RobotsPlan) -> Result<Self, RobotsError> {
        plan.check()?;
        let shared = Arc::new(Shared::new(plan));
        let mut robots = Self { shared: Arc::clone(&shared), worlds: Vec::new() };
        for index in 0..shared.plan.threads {
            let core = shared
                .plan
                .cores
                .get(index.checked_rem(shared.plan.cores.len()).unwrap_or(0))
                .copied();
            robots.worlds.push(start_world(&shared, index, core)?);
        }
        Ok(robots)
    }

    /// From now on there are this many requests per second, of all threads together. A value that
    /// is no number above 0 means none.
    pub fn set_load(&self, per_s: f64) {
        let per_s =
            if per_s.is_finite() && per_s > 0.0 { per_s / self.worlds.len() as f64 } else { 0.0 };
        self.worlds.iter().for_each(|world| world.order(Order::Load { per_s }));
    }

    /// From now on repeats are this many times as frequent as in the workload, as while a cache is
    /// being filled.
    pub fn set_recurrence_factor(&self, factor: f64) {
        self.worlds.iter().for_each(|world| world.order(Order::Recurrence { factor }));
    }

    /// The counts since the last sample, of all threads, which begin again. `threads` is the number
    /// of remaining ones.
    #[must_use]
    pub fn sample(&self) -> Tally {
        self.collect(|to| Order::Sample { to })
    }

    /// Ends all threads and gives the last sample. Requests without an answer are its backlog.
    #[must_use]
    pub fn stop(mut self) -> Tally {
        let tally = self.collect(|to| Order::Stop { to });
        self.join();
        tally
    }

    fn collect(&self, order: impl Fn(std::sync::mpsc::SyncSender<Counts>) -> Order) -> Tally {
        let answers: Vec<_> = self.worlds.iter().map(|world| world.ask(&order)).collect();
        let mut sum = Tally::default();
        // An ended world drops its order, and the receiver is told so.
        for counts in answers.iter().filter_map(|counts| counts.recv().ok()) {
            sum.merge_parallel(&counts.into_tally(&self.shared.plan.workload));
        }
        sum
    }

    fn join(&mut self) {
        for world in &mut self.worlds {
            if let Some(thread) = world.thread.take() {
                let _ = thread.join();
            }
        }
    }
}

impl Drop for Robots {
    fn drop(&mut self) {
        for world in &self.worlds {
            drop(world.ask(|to| Order::Stop { to }));
        }
        self.join();
    }
}

fn start_world(
    shared: &Arc<Shared>,
    index: usize,
    core: Option<usize>,
) -> Result<Running, RobotsError> {
    let system = |what| move |source| RobotsError::System { what, source };
    let (orders, inbox) = channel();
    let (to_starter, started) = sync_channel(1);
    let shared = Arc::clone(shared);
    // The world is made where it lives, so that its memory is near its core and its CPU time counts
    // from its start.
    let body = move || {
        let pinned = core.map_or(Ok(()), pin).map_err(system("pin a thread to its core"));
        // At most THREADS_MAX, so the cast is exact.
        let made = pinned.and_then(|()| {
            World::new(shared, index as u32, inbox).map_err(system("make an epoll instance"))
        });
        let world = match made {
            Ok(world) => world,
            Err(error) => return drop(to_starter.send(Err(error))),
        };
        // Nobody listens if starting another thread failed; then the orders' end is gone too, and
        // `run` returns.
        let _ = to_starter.send(Ok(world.poller.waker()));
        world.run();
    };
    let name = format!("robots-{index}");
    let thread =
        std::thread::Builder::new().name(name).spawn(body).map_err(system("start a thread"))?;
    let ended = || Err(system("start a thread")(io::Error::other("it ended at once")));
    let waker = started.recv().unwrap_or_else(|_| ended())?;
    Ok(Running { orders, waker, thread: Some(thread) })
}
