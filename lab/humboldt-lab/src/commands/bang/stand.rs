//! The surroundings of a bang: the laboratory's own origins, and a cache that is started for it.

use crate::Failure;
use crate::cli::BangArgs;
use crate::cores::Shares;
use crate::experiment::{
    CACHE_BYTES, Choice, Ground, SITE, Size, check_stores, provenance, subject_file,
};
use crate::fleet::protocol::WorldOrder;
use crate::fleet::{Fleet, world};
use crate::tls::{Place, RunTls, Servers};
use crate::version::VERSION;
use humboldt_lab_record::Manifest;
use humboldt_lab_robots::{BangWorld, Route, UserTls};
use humboldt_lab_subjects::{Host, Mode, SubjectFile, machine, machine_facts};
use humboldt_lab_wire::raise_descriptor_limit;
use humboldt_lab_workload::Workload;
use rustix::thread::CpuSet;
use std::sync::Arc;

/// The workload that URLs are generated from.
pub(super) struct World {
    order: WorldOrder,
    pub(super) workload: Arc<Workload>,
    pub(super) working_set_objects: u64,
}

impl World {
    pub(super) fn new(arguments: &BangArgs) -> Result<Self, Failure> {
        let order = world::plain_order(&arguments.workload, arguments.seed, arguments.time_scale)?;
        let workload = Arc::new(world::load(&order).map_err(Failure::usage)?);
        let cache_bytes = arguments.ground.cache_size.unwrap_or(CACHE_BYTES);
        let working_set_objects = workload.working_set_objects(cache_bytes);
        Ok(Self { order, workload, working_set_objects })
    }
}

/// Origins and subject, running. Dropping it stops and removes both.
pub(super) struct Stand {
    /// The cache, if it is started for this.
    pub(super) ground: Option<Ground>,
    /// The way from requests to their servers.
    pub(super) route: Route,
    /// The objects whose answers can be verified.
    pub(super) world: Option<BangWorld>,
    /// TLS; `None`: plain HTTP.
    pub(super) tls: Option<UserTls>,
    /// The subject's name in tables.
    pub(super) subject: String,
    fleet: Option<Fleet>,
    shares: Shares,
    tls_fact: Option<(String, String)>,
}

impl Stand {
    /// Starts the origins if URLs are generated, and then the subject if there is one.
    pub(super) fn prepare(arguments: &BangArgs, world: Option<&World>) -> Result<Self, Failure> {
        // With few connections the limit does not matter; with many, the system reports it when it
        // is reached.
        let _ = raise_descriptor_limit();
        let file = |name| subject_file(name, &arguments.ground);
        let choice = arguments.subject.as_deref().map(file).transpose()?;
        if let Some(file) = &choice
            && file.mode() == Mode::Accelerator
            && world.is_none()
        {
            let name = file.name();
            return Err(Failure::usage(format!(
                "{name} is an accelerator and has only the laboratory's servers behind it: use --generate"
            )));
        }
        let servers = if world.is_some() { Servers::Own } else { Servers::Foreign };
        let tls = RunTls::new(&arguments.tls, place(arguments, choice.as_ref()), servers)?;
        tls.as_ref().map_or(Ok(()), RunTls::keep)?;
        let cache_bytes = arguments.ground.cache_size.unwrap_or(CACHE_BYTES);
        if choice.is_some() {
            check_stores(&arguments.ground, 1, cache_bytes)?;
        }
        let shares = shares(arguments)?;
        let (fleet, bang_world) = match world {
            None => (None, None),
            Some(world) => start_origins(arguments, world, &shares, tls.as_ref())
                .map(|(fleet, own)| (Some(fleet), Some(own)))?,
        };
        let (ground, route, subject) = match choice {
            Some(file) => {
                let origins = bang_world.as_ref().map_or(&[][..], |world| &world.origins);
                let choice = Choice::Started(Box::new(file));
                let tls = tls.as_ref().map_or(Ok(None), RunTls::subject)?;
                let size = Size { cache_bytes, instances: 1, origins, tls };
                let ground = Ground::prepare(&choice, &arguments.ground, &size, &shares)?;
                let route = route_to(&ground);
                (Some(ground), route, choice.name())
            }
            None => match arguments.proxy {
                Some(proxy) => (None, Route::Forward { proxies: vec![proxy] }, proxy.to_string()),
                None => (None, Route::Direct, "no cache".to_owned()),
            },
        };
        let tls_fact = tls.as_ref().map(RunTls::fact);
        let tls = tls.as_ref().map(RunTls::user_tls).transpose()?;
        Ok(Self { ground, route, world: bang_world, tls, subject, fleet, shares, tls_fact })
    }

    /// Keeps this thread on the laboratory's processors, if it has some of its own.
    pub(super) fn pin_this_thread(&self) -> Result<(), Failure> {
        if self.shares.lab.is_empty() {
            return Ok(());
        }
        let mut set = CpuSet::new();
        self.shares.lab.iter().for_each(|core| set.set(*core));
        rustix::thread::sched_setaffinity(None, &set).map_err(|error| {
            Failure::run(format!("cannot use processors {:?}: {error}", self.shares.lab))
        })
    }

    /// The machine and its software.
    pub(super) fn manifest(&self, as_command: Option<&str>) -> Manifest {
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let mut manifest = Manifest { lab_version: VERSION.clone(), ..Manifest::default() };
        let workload = self.world.as_ref().map(|world| world.workload.text());
        manifest.provenance = provenance(workload, as_command);
        manifest.provenance.machine = machine(&Host::current());
        manifest
            .facts
            .push(("command".to_owned(), format!("humboldt-lab {}", arguments.join(" "))));
        for (name, cores) in [("laboratory", &self.shares.lab), ("subject", &self.shares.subject)] {
            if !cores.is_empty() {
                manifest.facts.push((format!("processors of the {name}"), format!("{cores:?}")));
            }
        }
        manifest.facts.extend(self.tls_fact.clone());
        match &self.ground {
            Some(ground) => ground.describe(&mut manifest),
            None => manifest.facts.extend(machine_facts(&Host::current())),
        }
        manifest
    }

    /// Stops the subject and the origins, and clears everything away.
    pub(super) fn clear(self) -> Result<(), Failure> {
        let cleared = self.ground.map_or(Ok(()), Ground::clear);
        let stopped = self.fleet.map_or(Ok(()), |mut fleet| fleet.stop().map_err(Failure::run));
        cleared.and(stopped)
    }
}

/// The place that the requests go to.
pub(super) fn place<'a>(arguments: &BangArgs, choice: Option<&'a SubjectFile>) -> Place<'a> {
    match choice {
        Some(file) => Place::Started(file),
        None if arguments.proxy.is_some() => Place::Running(Mode::Forward),
        None => Place::Origins,
    }
}

/// Processors are shared out only where a cache is started that needs some for itself.
fn shares(arguments: &BangArgs) -> Result<Shares, Failure> {
    let lab = arguments.lab_cores.as_deref();
    if arguments.subject.is_some() {
        return Shares::new(arguments.ground.subject_cores.as_deref(), lab);
    }
    // Requested in any case, so that processors that do not exist are refused.
    Shares::new(None, lab)?;
    Ok(Shares { subject: Vec::new(), lab: lab.unwrap_or_default().to_vec() })
}

fn start_origins(
    arguments: &BangArgs,
    world: &World,
    shares: &Shares,
    tls: Option<&RunTls>,
) -> Result<(Fleet, BangWorld), Failure> {
    let mut fleet = Fleet::local(shares.lab.clone()).map_err(Failure::run)?;
    let has_cache = arguments.subject.is_some() || arguments.proxy.is_some();
    let authority = tls.and_then(|tls| match has_cache {
        true => tls.behind_cache(),
        false => Some(tls.authority()),
    });
    let origins = fleet
        .start_origins(&world.order, &arguments.origin, true, authority)
        .map_err(Failure::usage)?;
    let workload = Arc::clone(&world.workload);
    Ok((fleet, BangWorld { workload, seed: arguments.seed, origins }))
}

fn route_to(ground: &Ground) -> Route {
    let addresses = ground.addresses();
    match ground.mode() {
        Mode::Forward => Route::Forward { proxies: addresses },
        Mode::Accelerator => Route::Accelerator { addresses, host: SITE.to_owned() },
    }
}
