//! One world: a thread with its own stream of URLs, users, connections and counters, and its loop.
//!
//! The load is open: visits arrive by the Poisson process, and nothing that the server does reaches
//! that process. A request that finds no connection waits, and its time runs from the moment it was
//! due.

use crate::arrivals::Arrivals;
use crate::asks::{Asks, Pending};
use crate::chain::NONE;
use crate::connection::Connection;
use crate::counts::Counts;
use crate::crowd::Crowd;
use crate::plan::{RobotsPlan, Route};
use crate::secure;
use crate::slab::Slab;
use humboldt_lab_record::{Fault, FaultKind};
use humboldt_lab_tls::Users;
use humboldt_lab_wire::{Clock, Poller, Timers, thread_cpu_us};
use humboldt_lab_workload::{Ask, AskKind, Stream};
use rustix::thread::set_current_timer_slack;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::Duration;

/// Bytes read at a time; one buffer per world.
const READ_BYTES: usize = 256 * 1024;

/// Moments handled before the sockets are looked at again, so that neither starves the other.
const MOMENTS_PER_ROUND: usize = 256;

/// From this load of one thread on, its events are taken in bundles. Below it a wake-up for each
/// costs less than 10 % of a core, and is punctual.
const NAP_FROM_PER_S: f64 = 4_000.0;

/// The state that worlds of one plan share, and never change.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) plan: RobotsPlan,
    /// Addresses of the origins, as URLs have them.
    pub(crate) origin_names: Vec<Vec<u8>>,
    /// The addresses of connections.
    pub(crate) targets: Vec<SocketAddr>,
    pub(crate) connections_max: usize,
    pub(crate) backlog_max: usize,
}

impl Shared {
    pub(crate) fn new(plan: RobotsPlan) -> Self {
        let targets = match &plan.route {
            Route::Forward { proxies: addresses } | Route::Accelerator { addresses, .. } => {
                addresses.clone()
            }
            Route::Direct => plan.origins.clone(),
        };
        let targets = secure::targets(&plan, targets);
        let origin_names =
            plan.origins.iter().map(|origin| origin.to_string().into_bytes()).collect();
        let connections_max = plan.connections_max / plan.threads;
        let backlog_max = plan.backlog_max / plan.threads;
        Self { plan, origin_names, targets, connections_max, backlog_max }
    }

    /// Time of the workload in time of the wall.
    pub(crate) fn scaled_us(&self, us: u64) -> u64 {
        (us as f64 * self.plan.time_scale) as u64
    }
}

/// Orders of a world's owner.
#[derive(Debug)]
pub(crate) enum Order {
    Load { per_s: f64 },
    Recurrence { factor: f64 },
    Sample { to: SyncSender<Counts> },
    Stop { to: SyncSender<Counts> },
}

/// A request of a visit that has begun, before its moment.
#[derive(Debug)]
struct Coming {
    ask: Ask,
    due_us: u64,
    robot: u32,
}

/// The state of one thread.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Clock,
    pub(crate) poller: Poller,
    orders: Receiver<Order>,
    arrivals: Arrivals,
    stream: Stream,
    visit: Vec<Ask>,
    timers: Timers,
    coming: Slab<Coming>,
    pub(crate) asks: Asks,
    pub(crate) crowd: Crowd,
    pub(crate) connections: Slab<Connection>,
    pub(crate) connections_made: u64,
    /// The users' memories of TLS.
    pub(crate) users: Option<Users>,
    pub(crate) counts: Counts,
    /// Bytes received.
    pub(crate) buffer: Vec<u8>,
    /// Bytes to be sent.
    pub(crate) out: Vec<u8>,
    /// How long a request takes to the cache, in µs, scaled.
    pub(crate) send_delay_us: u64,
    timeout_us: u64,
    /// Events are taken in bundles.
    naps: bool,
}

impl World {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: u32,
        orders: Receiver<Order>,
    ) -> io::Result<Self> {
        let plan = &shared.plan;
        let (workload, world) = (Arc::clone(&plan.workload), plan.first_world + index);
        let clock = Clock::start_with_offset(plan.clock_offset_us);
        let stream = Stream::new(
            Arc::clone(&workload),
            plan.seed,
            world,
            plan.worlds,
            plan.working_set_objects,
        );
        let send_delay_us = shared.scaled_us(workload.client_link().one_way_us);
        let timeout_us = (plan.timeout_s * 1e6) as u64;
        let first_load_per_s = plan.first_load_per_s / plan.threads as f64;
        let mut world = Self {
            clock,
            poller: Poller::new()?,
            orders,
            arrivals: Arrivals::new(plan.seed, world, 0.0),
            stream,
            visit: Vec::new(),
            timers: Timers::default(),
            coming: Slab::default(),
            asks: Asks::default(),
            crowd: Crowd::default(),
            connections: Slab::default(),
            connections_made: 0,
            users: plan.tls.as_ref().map(|tls| tls.trust.users()),
            counts: Counts::new(workload.types().len(), clock.now_us(), thread_cpu_us()),
            buffer: vec![0; READ_BYTES],
            out: Vec::new(),
            send_delay_us,
            timeout_us,
            naps: false,
            shared,
        };
        world.set_load(first_load_per_s);
        Ok(world)
    }

    /// Runs until it is told to stop, or its owner is gone. An epoll instance that fails ends it as
    /// well: then its thread is missing in the next sample.
    pub(crate) fn run(mut self) {
        // Without it the kernel is up to 50 µs late by intent. Being refused is no reason not to
        // run.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        let mut events = Vec::new();
        loop {
            let timeout = if self.naps { self.nap() } else { self.until_next_moment() };
            if self.poller.wait_into(&mut events, timeout).is_err() {
                return;
            }
            for ready in &events {
                if ready.token == Poller::WAKE {
                    if self.obey().is_break() {
                        return;
                    }
                } else {
                    self.on_ready(*ready);
                }
            }
            self.serve_all();
            self.handle_moments();
            self.give_up_the_oldest();
        }
    }

    /// Sleeps to the end of this bundle's time; events of that time are there at once.
    fn nap(&self) -> Option<Duration> {
        let bundle_us = self.shared.plan.bundle_us.max(1);
        let rest_us = bundle_us - self.clock.now_us() % bundle_us;
        std::thread::sleep(Duration::from_micros(rest_us));
        Some(Duration::ZERO)
    }

    fn until_next_moment(&self) -> Option<Duration> {
        let give_up_us =
            self.asks.oldest().map_or(u64::MAX, |(_, ask)| ask.due_us + self.timeout_us);
        let timer_us = self.timers.next_due().unwrap_or(u64::MAX);
        match self.arrivals.next_us().min(timer_us).min(give_up_us) {
            u64::MAX => None,
            next_us => Some(Duration::from_micros(next_us.saturating_sub(self.clock.now_us()))),
        }
    }

    fn obey(&mut self) -> std::ops::ControlFlow<()> {
        loop {
            match self.orders.try_recv() {
                Ok(Order::Load { per_s }) => self.set_load(per_s),
                Ok(Order::Recurrence { factor }) => self.stream.set_recurrence_factor(factor),
                Ok(Order::Sample { to }) => {
                    // An owner that no longer waits for the sample does not miss it.
                    let _ = to.send(self.take_counts());
                }
                Ok(Order::Stop { to }) => {
                    let _ = to.send(self.take_counts());
                    return std::ops::ControlFlow::Break(());
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => {
                    return std::ops::ControlFlow::Continue(());
                }
                Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    return std::ops::ControlFlow::Break(());
                }
            }
        }
    }

    fn set_load(&mut self, per_s: f64) {
        self.naps = per_s >= NAP_FROM_PER_S && self.shared.plan.bundle_us > 0;
        let visits_per_s = per_s / self.stream.mean_asks_per_visit().max(f64::MIN_POSITIVE);
        let now_us = self.clock.now_us();
        // A change draws the next visit anew: those that are due already would be forgotten, and
        // less would be asked for whenever this thread is late.
        while let Some(due_us) = self.arrivals.take_due(now_us) {
            self.begin_visit(due_us);
        }
        self.arrivals.set_rate(visits_per_s, now_us);
        let plan = &self.shared.plan;
        let robots = per_s * plan.time_scale / plan.workload.requests_per_s_per_robot();
        let mut surplus = Vec::new();
        self.crowd.resize(robots, &mut surplus);
        for connection in surplus {
            self.close_idle(connection);
        }
    }

    fn take_counts(&mut self) -> Counts {
        let (now_us, cpu_us) = (self.clock.now_us(), thread_cpu_us());
        let fresh = Counts::new(self.shared.plan.workload.types().len(), now_us, cpu_us);
        let mut counts = std::mem::replace(&mut self.counts, fresh);
        let tally = &mut counts.tally;
        tally.period_us = now_us - counts.since_us;
        tally.cpu_us = cpu_us - counts.cpu_at_us;
        tally.threads = 1;
        tally.backlog = self.asks.len() as u64;
        tally.waiting = self.asks.waiting() as u64;
        tally.oldest_us =
            self.asks.oldest().map_or(0, |(_, ask)| now_us.saturating_sub(ask.due_us));
        tally.connections = self.connections.len() as u64;
        counts
    }

    /// Everything whose moment has come, in order.
    fn handle_moments(&mut self) {
        for _ in 0..MOMENTS_PER_ROUND {
            let now_us = self.clock.now_us();
            let timer_us = self.timers.next_due().unwrap_or(u64::MAX);
            if self.arrivals.next_us() < timer_us {
                let Some(due_us) = self.arrivals.take_due(now_us) else { return };
                self.begin_visit(due_us);
            } else {
                let Some((_, key)) = self.timers.pop_due(now_us) else { return };
                let Some(coming) =
                    u32::try_from(key).ok().and_then(|slot| self.coming.remove(slot))
                else {
                    continue;
                };
                self.dispatch(coming.ask, coming.due_us, coming.robot);
            }
            self.serve_all();
        }
    }

    fn begin_visit(&mut self, visit_us: u64) {
        let mut visit = std::mem::take(&mut self.visit);
        visit.clear();
        self.stream.next_visit(&mut visit);
        for mut ask in visit.drain(..) {
            let robot = self.crowd.pick(ask.robot_luck);
            let due_us = visit_us + self.shared.scaled_us(ask.after_us);
            if matches!(ask.kind, AskKind::Connect { .. })
                && !matches!(self.shared.plan.route, Route::Forward { .. })
            {
                ask.kind = AskKind::Plain;
            }
            let moment_us = due_us + self.send_delay_us;
            if moment_us == visit_us || self.coming.len() >= self.shared.backlog_max {
                self.dispatch(ask, due_us, robot);
            } else {
                let slot = self.coming.insert(Coming { ask, due_us, robot });
                self.timers.push(moment_us, u64::from(slot));
            }
        }
        self.visit = visit;
    }

    /// A request's moment has come: it counts, whatever becomes of it.
    fn dispatch(&mut self, ask: Ask, due_us: u64, robot: u32) {
        self.counts.tally.due += 1;
        if self.asks.len() >= self.shared.backlog_max {
            let expected = format!("at most {} requests unanswered", self.shared.backlog_max);
            let got = "never sent: too many are waiting".into();
            self.record_fault(
                &ask,
                Fault { kind: FaultKind::TimedOut, offset: None, expected, got },
            );
            return;
        }
        let slot = self.asks.insert(Pending::new(ask, due_us, robot));
        self.crowd.wait(robot, slot);
        self.serve(robot);
        if let Some(pending) = self.asks.get_mut(slot) {
            pending.waited = pending.connection == NONE;
        }
    }

    /// Requests for which no user would wait any longer.
    fn give_up_the_oldest(&mut self) {
        let now_us = self.clock.now_us();
        while let Some((slot, pending)) = self.asks.oldest() {
            if pending.due_us + self.timeout_us > now_us {
                break;
            }
            self.give_up(slot);
        }
        self.serve_all();
    }
}
