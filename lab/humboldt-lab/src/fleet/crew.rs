//! The robots and origins of one process, and how they obey orders.

use super::protocol::{FORMAT, Order, OriginOrder, Reply, RobotOrder, RouteOrder, WorldOrder};
use super::protocol::{TlsOrder, WayOrder};
use crate::version::VERSION;
use humboldt_lab_origin::{Origin, OriginPlan};
use humboldt_lab_robots::{Robots, RobotsPlan, Route, TlsWay, UserTls};
use humboldt_lab_tls::{TlsError, Trust};
use humboldt_lab_workload::Workload;
use std::net::SocketAddr;
use std::sync::Arc;

/// The parts of an experiment that run in this process.
#[derive(Default)]
pub(crate) struct Crew {
    /// Processors for all threads; empty: the system's choice.
    cores: Vec<usize>,
    /// The addresses on which this machine's origins listen, instead of the ordered ones; empty: as
    /// ordered.
    listen: Vec<SocketAddr>,
    world: Option<World>,
    origin: Option<Origin>,
    robots: Option<Robots>,
}

/// The settings of the origins, which the robots must know too.
struct World {
    workload: Arc<Workload>,
    order: WorldOrder,
    think: bool,
    clock_offset_us: i64,
}

/// The origins in the same process take at most half of the descriptors; files and agents take a
/// few.
fn connections_max() -> usize {
    const RESERVED: u64 = 256;
    let half = humboldt_lab_wire::raise_descriptor_limit() / 2;
    usize::try_from(half.saturating_sub(RESERVED)).unwrap_or(usize::MAX).max(1)
}

/// TLS as the robots speak it.
pub(crate) fn user_tls(order: &TlsOrder) -> Result<UserTls, TlsError> {
    let way = match order.way {
        WayOrder::Hop => TlsWay::Hop,
        WayOrder::Tunnel => TlsWay::Tunnel,
        WayOrder::Intercept => TlsWay::Intercept,
    };
    Ok(UserTls { way, trust: Trust::from_pem(&order.trusted_pem, order.resume)? })
}

impl Crew {
    /// Nothing runs yet.
    pub(crate) fn new(cores: Vec<usize>, listen: Vec<SocketAddr>) -> Self {
        Self { cores, listen, ..Self::default() }
    }

    /// Obeys an order, and returns the result.
    pub(crate) fn obey(&mut self, order: Order) -> Reply {
        let done = match order {
            Order::Hello { format, .. } if format != FORMAT => Err(format!(
                "this is protocol {FORMAT}, the other side speaks {format}: use the same version"
            )),
            Order::Hello { .. } => {
                Ok(Reply::Hello { lab_version: VERSION.clone(), cores: self.threads() })
            }
            Order::Clock => Ok(Reply::Clock { unix_us: humboldt_lab_wire::unix_us() }),
            Order::Origins(order) => self.start_origins(*order),
            Order::Robots(order) => self.start_robots(*order),
            Order::Load(per_s) => self.set_load(per_s),
            Order::Sample => Ok(self.sample()),
            Order::StopRobots => {
                self.robots = None;
                Ok(Reply::Done)
            }
            Order::Stop => {
                self.robots = None;
                self.origin = None;
                Ok(Reply::Done)
            }
        };
        done.unwrap_or_else(|message| Reply::Failed { message })
    }

    /// Number of threads of robots (and of origins) in this crew: one per processor.
    fn threads(&self) -> usize {
        if self.cores.is_empty() { crate::cores::allowed().len().max(1) } else { self.cores.len() }
    }

    fn start_origins(&mut self, order: OriginOrder) -> Result<Reply, String> {
        let workload = Arc::new(super::world::load(&order.world)?);
        let listen = if self.listen.is_empty() { order.listen } else { self.listen.clone() };
        let plan = OriginPlan {
            time_scale: order.world.time_scale,
            listen,
            threads: self.threads(),
            cores: self.cores.clone(),
            think: order.think,
            clock_offset_us: order.clock_offset_us,
            tls: order.tls,
            ..OriginPlan::new(Arc::clone(&workload), order.world.seed)
        };
        self.world = Some(World {
            workload,
            order: order.world,
            think: order.think,
            clock_offset_us: order.clock_offset_us,
        });
        let origin = self.origin.insert(Origin::start(plan).map_err(|error| error.to_string())?);
        Ok(Reply::Origins { addresses: origin.addresses().to_vec() })
    }

    fn start_robots(&mut self, order: RobotOrder) -> Result<Reply, String> {
        let world = self.world.as_ref().ok_or("no workload yet")?;
        let route = match order.route {
            RouteOrder::Forward { proxies } => Route::Forward { proxies },
            RouteOrder::Accelerator { addresses, host } => Route::Accelerator { addresses, host },
            RouteOrder::Direct => Route::Direct,
        };
        let tls = order.tls.as_ref().map(user_tls).transpose();
        let plan = RobotsPlan {
            time_scale: world.order.time_scale,
            first_world: order.first_world,
            worlds: order.worlds,
            threads: order.threads,
            cores: self.cores.clone(),
            working_set_objects: order.working_set_objects,
            first_load_per_s: order.load_per_s,
            timeout_s: order.timeout_s,
            excuse_reload_hits: order.excuse_reload_hits,
            clock_offset_us: world.clock_offset_us,
            think: world.think,
            connections_max: connections_max(),
            tls: tls.map_err(|error| error.to_string())?,
            ..RobotsPlan::new(Arc::clone(&world.workload), world.order.seed, route, order.origins)
        };
        self.robots = Some(Robots::start(plan).map_err(|error| error.to_string())?);
        Ok(Reply::Done)
    }

    fn set_load(&mut self, per_s: f64) -> Result<Reply, String> {
        self.robots.as_ref().ok_or("no robots yet")?.set_load(per_s);
        Ok(Reply::Done)
    }

    fn sample(&mut self) -> Reply {
        let robots = self.robots.as_ref().map(Robots::sample).unwrap_or_default();
        let origins = self.origin.as_ref().map(Origin::sample).unwrap_or_default();
        Reply::Sample { robots: Box::new(robots), origins: Box::new(origins) }
    }
}
