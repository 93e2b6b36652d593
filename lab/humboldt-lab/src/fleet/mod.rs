//! The parties that play users and servers: this process, or agents on several hosts. Both obey the
//! same orders.

pub(crate) mod agent;
mod crew;
pub(crate) mod protocol;
mod remote;
pub(crate) mod world;

use crew::Crew;
pub(crate) use crew::user_tls;
use humboldt_lab_record::{OriginTally, Tally};
use humboldt_lab_tls::Authority;
use protocol::{Order, OriginOrder, Reply, RobotOrder, RouteOrder, TlsOrder, WorldOrder};
use remote::Remote;
use std::net::SocketAddr;
use thiserror::Error;

/// A clock that is further off than this cannot judge freshness, even corrected: its host is not
/// keeping time.
const CLOCK_OFFSET_MAX_US: i64 = 3_600_000_000;

/// Why users or servers cannot play.
#[derive(Debug, Error)]
pub(crate) enum FleetError {
    #[error("{party}: {message}")]
    Failed { party: String, message: String },
    #[error("agent {address}: {error}; is `humboldt-lab agent` running there?")]
    Agent { address: String, error: std::io::Error },
    #[error("agent {address} gave an unexpected answer; are both of the same version?")]
    Confused { address: String },
}

/// A party that obeys orders.
trait Party {
    fn name(&self) -> &str;
    /// Begins to carry out an order.
    fn send(&mut self, order: Order) -> Result<(), FleetError>;
    /// Waits for the result.
    fn receive(&mut self) -> Result<Reply, FleetError>;
}

/// Robots and origins of this process.
struct Local {
    crew: Crew,
    reply: Option<Reply>,
}

impl Party for Local {
    fn name(&self) -> &str {
        "laboratory"
    }

    fn send(&mut self, order: Order) -> Result<(), FleetError> {
        self.reply = Some(self.crew.obey(order));
        Ok(())
    }

    fn receive(&mut self) -> Result<Reply, FleetError> {
        self.reply.take().ok_or_else(|| FleetError::Confused { address: self.name().to_owned() })
    }
}

/// All parties of an experiment.
pub(crate) struct Fleet {
    parties: Vec<Box<dyn Party>>,
    /// Threads of robots by party.
    threads: Vec<usize>,
    /// Correction of each party's clock, in µs.
    clock_offsets_us: Vec<i64>,
}

/// The task of the fleet's users.
pub(crate) struct Mission {
    pub(crate) route: RouteOrder,
    pub(crate) origins: Vec<SocketAddr>,
    pub(crate) working_set_objects: u64,
    pub(crate) first_load_per_s: f64,
    pub(crate) timeout_s: f64,
    pub(crate) excuse_reload_hits: bool,
    pub(crate) tls: Option<TlsOrder>,
}

impl Fleet {
    /// Only this process.
    pub(crate) fn local(cores: Vec<usize>) -> Result<Self, FleetError> {
        let crew = Crew::new(cores, Vec::new());
        Self::of(vec![Box::new(Local { crew, reply: None })], "")
    }

    /// Only agents.
    pub(crate) fn remote(addresses: &[String], token: &str) -> Result<Self, FleetError> {
        let mut parties: Vec<Box<dyn Party>> = Vec::new();
        for address in addresses {
            parties.push(Box::new(Remote::connect(address)?));
        }
        Self::of(parties, token)
    }

    fn of(parties: Vec<Box<dyn Party>>, token: &str) -> Result<Self, FleetError> {
        let mut fleet = Self { parties, threads: Vec::new(), clock_offsets_us: Vec::new() };
        let hello = Order::Hello { format: protocol::FORMAT, token: token.to_owned() };
        for party in &mut fleet.parties {
            let Reply::Hello { cores, .. } = ask(party.as_mut(), hello.clone())? else {
                return Err(FleetError::Confused { address: party.name().to_owned() });
            };
            fleet.threads.push(cores.max(1));
            fleet.clock_offsets_us.push(clock_offset_us(party.as_mut())?);
        }
        Ok(fleet)
    }

    /// Threads of robots of all parties.
    pub(crate) fn threads(&self) -> usize {
        self.threads.iter().sum()
    }

    /// Starts the origins of all parties; returns where they are.
    pub(crate) fn start_origins(
        &mut self,
        world: &WorldOrder,
        listen: &[SocketAddr],
        think: bool,
        tls: Option<&Authority>,
    ) -> Result<Vec<SocketAddr>, FleetError> {
        let mut all = Vec::new();
        for (party, clock_offset_us) in self.parties.iter_mut().zip(&self.clock_offsets_us) {
            let order = OriginOrder {
                world: world.clone(),
                listen: listen.to_vec(),
                think,
                clock_offset_us: *clock_offset_us,
                tls: tls.cloned(),
            };
            match ask(party.as_mut(), Order::Origins(Box::new(order)))? {
                Reply::Origins { addresses } => all.extend(addresses),
                _ => return Err(FleetError::Confused { address: party.name().to_owned() }),
            }
        }
        Ok(all)
    }

    /// Starts the users of all parties.
    pub(crate) fn start_robots(&mut self, mission: &Mission) -> Result<(), FleetError> {
        let worlds = self.threads();
        let mut first_world = 0;
        for (party, threads) in self.parties.iter_mut().zip(&self.threads) {
            let order = RobotOrder {
                route: mission.route.clone(),
                origins: mission.origins.clone(),
                first_world: u32::try_from(first_world).unwrap_or(u32::MAX),
                worlds: u32::try_from(worlds).unwrap_or(u32::MAX),
                threads: *threads,
                working_set_objects: mission.working_set_objects,
                load_per_s: mission.first_load_per_s * *threads as f64 / worlds as f64,
                timeout_s: mission.timeout_s,
                excuse_reload_hits: mission.excuse_reload_hits,
                tls: mission.tls.clone(),
            };
            ask(party.as_mut(), Order::Robots(Box::new(order)))?;
            first_world += threads;
        }
        Ok(())
    }

    /// Splits a load over all threads.
    pub(crate) fn set_load(&mut self, per_s: f64) -> Result<(), FleetError> {
        let worlds = self.threads() as f64;
        for (party, threads) in self.parties.iter_mut().zip(&self.threads) {
            party.send(Order::Load(per_s * *threads as f64 / worlds))?;
        }
        self.parties.iter_mut().try_for_each(|party| answer(party.as_mut()).map(drop))
    }

    /// The counts of all parties since the last call.
    pub(crate) fn sample(&mut self) -> Result<(Tally, OriginTally), FleetError> {
        // All are asked before the first answer is read, so that their periods end together.
        self.parties.iter_mut().try_for_each(|party| party.send(Order::Sample))?;
        let (mut all_robots, mut all_origins) = (Tally::default(), OriginTally::default());
        for party in &mut self.parties {
            let Reply::Sample { robots, origins } = answer(party.as_mut())? else {
                return Err(FleetError::Confused { address: party.name().to_owned() });
            };
            all_robots.merge_parallel(&robots);
            all_origins.merge_parallel(&origins);
        }
        Ok((all_robots, all_origins))
    }

    /// Ends the users; the origins go on.
    pub(crate) fn stop_robots(&mut self) -> Result<(), FleetError> {
        self.parties
            .iter_mut()
            .try_for_each(|party| ask(party.as_mut(), Order::StopRobots).map(drop))
    }

    /// Ends everything. Every party is told, even if one is gone.
    pub(crate) fn stop(&mut self) -> Result<(), FleetError> {
        let results: Vec<_> = self
            .parties
            .iter_mut()
            .map(|party| ask(party.as_mut(), Order::Stop).map(drop))
            .collect();
        results.into_iter().collect()
    }
}

fn ask(party: &mut dyn Party, order: Order) -> Result<Reply, FleetError> {
    party.send(order)?;
    answer(party)
}

fn answer(party: &mut dyn Party) -> Result<Reply, FleetError> {
    match party.receive()? {
        Reply::Failed { message } => {
            Err(FleetError::Failed { party: party.name().to_owned(), message })
        }
        reply => Ok(reply),
    }
}

/// Correction of a party's clock to ours, from the fastest of several round trips.
fn clock_offset_us(party: &mut dyn Party) -> Result<i64, FleetError> {
    let mut best = (u64::MAX, 0);
    for _ in 0..8 {
        let before_us = humboldt_lab_wire::unix_us();
        let Reply::Clock { unix_us } = ask(party, Order::Clock)? else {
            return Err(FleetError::Confused { address: party.name().to_owned() });
        };
        let after_us = humboldt_lab_wire::unix_us();
        let round_trip_us = after_us.saturating_sub(before_us);
        if round_trip_us < best.0 {
            let middle_us = before_us + round_trip_us / 2;
            best = (round_trip_us, middle_us.cast_signed() - unix_us.cast_signed());
        }
    }
    if best.1.abs() > CLOCK_OFFSET_MAX_US {
        let message =
            format!("its clock is {} s away from this machine's: set it first", best.1 / 1_000_000);
        return Err(FleetError::Failed { party: party.name().to_owned(), message });
    }
    Ok(best.1)
}
