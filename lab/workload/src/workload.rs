//! A workload: the requests, and the expected answers.

use std::sync::Arc;

use serde::Deserialize;

use crate::builtin;
use crate::check;
use crate::error::WorkloadError;
use crate::facts::{self, Facts};
use crate::ideal::{Ideal, simulate};
use crate::link::Link;
use crate::mix::{luck, mix, unit};
use crate::name::ObjectName;
use crate::plan::{Names, Plan};
use crate::replay::Replay;
use crate::stream::Stream;
use crate::units::WorkingSet;

/// How the cache is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Clients ask the cache as their proxy (absolute URLs).
    Forward,
    /// Clients take the cache for the server.
    Accelerator,
}

/// A content type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType {
    /// Name in the file and in reports.
    pub name: String,
    /// `Content-Type` of its answers.
    pub mime: String,
    /// File name extension, without a dot.
    pub extension: String,
}

/// A parsed and validated workload file. Clones share the large parts.
#[derive(Clone, Debug)]
pub struct Workload {
    name: String,
    description: String,
    text: Arc<str>,
    mode: Mode,
    types: Arc<[ContentType]>,
    pub(crate) plan: Arc<Plan>,
    pub(crate) replay: Option<Arc<Replay>>,
}

/// Longest think time, in µs: one hour.
const THINK_US_MAX: u64 = 3_600_000_000;

const PURPOSE_THINK: u64 = 31;
const PURPOSE_SERVER_USES: u64 = 32;
const PURPOSE_CLIENT_USES: u64 = 33;

impl Workload {
    /// Names of the workloads that come with the program.
    #[must_use]
    pub fn builtin_names() -> &'static [&'static str] {
        &builtin::NAMES
    }

    /// A workload that comes with the program; `None` if no such name.
    #[must_use]
    pub fn builtin(name: &str) -> Option<Result<Self, WorkloadError>> {
        Self::builtin_text(name).map(|text| Self::parse(text, &format!("{name}.toml")))
    }

    /// The file of a workload that comes with the program: a start for a file of one's own.
    #[must_use]
    pub fn builtin_text(name: &str) -> Option<&'static str> {
        builtin::text(name)
    }

    /// Reads and checks a workload file. `source_name` is for messages only.
    ///
    /// # Errors
    /// The first thing that is wrong or contradictory, with its place in the file.
    pub fn parse(text: &str, source_name: &str) -> Result<Self, WorkloadError> {
        check::build(text, source_name)
    }

    pub(crate) fn assemble(
        name: String,
        description: String,
        text: String,
        mode: Mode,
        types: Vec<ContentType>,
        plan: Arc<Plan>,
    ) -> Self {
        Self { name, description, text: text.into(), mode, types: types.into(), plan, replay: None }
    }

    pub(crate) fn with_replay(self, replay: Replay) -> Self {
        Self { replay: Some(Arc::new(replay)), ..self }
    }

    /// The same workload with other links between users, cache and servers.
    #[must_use]
    pub fn with_links(mut self, server: Link, client: Link) -> Self {
        let plan = Arc::make_mut(&mut self.plan);
        plan.server.link = server;
        plan.client.link = client;
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sentence about it.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The text of its file.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How a cache is used in this workload, unless the user says otherwise.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The content types; an object's kind is an index of this.
    #[must_use]
    pub fn types(&self) -> &[ContentType] {
        &self.types
    }

    pub(crate) fn extension(&self, kind: u8) -> &str {
        self.types.get(usize::from(kind)).map_or("bin", |kind| kind.extension.as_str())
    }

    /// Whether the name's kind is one of this workload's types. Names from the network need this
    /// test.
    #[must_use]
    pub fn knows(&self, name: &ObjectName) -> bool {
        usize::from(name.kind) < self.types.len()
    }

    /// The facts about an object. The same for robots and origins with the same seed; a name of an
    /// unknown kind (see [`Workload::knows`]) gets the facts of an uncachable object of one byte.
    #[must_use]
    pub fn facts(&self, seed: u64, name: &ObjectName) -> Facts {
        facts::of(&self.plan, seed, name)
    }

    /// How long the server thinks before it answers, in µs (not scaled, at most an hour).
    #[must_use]
    pub fn think_us(&self, seed: u64, request_id: u64) -> u64 {
        let think_luck = luck(mix(seed) ^ request_id, PURPOSE_THINK);
        self.plan.think.whole_at(unit(think_luck), 0, THINK_US_MAX)
    }

    /// The distance between cache and origin.
    #[must_use]
    pub fn server_link(&self) -> Link {
        self.plan.server.link
    }

    /// The distance between user and cache.
    #[must_use]
    pub fn client_link(&self) -> Link {
        self.plan.client.link
    }

    /// Requests that a server answers on one connection before it closes it, at least 1.
    #[must_use]
    pub fn server_uses(&self, connection_luck: u64) -> u32 {
        self.plan.server.uses_at(unit(luck(connection_luck, PURPOSE_SERVER_USES)))
    }

    /// Requests that a user makes on one connection before closing it, at least 1.
    #[must_use]
    pub fn client_uses(&self, connection_luck: u64) -> u32 {
        self.plan.client.uses_at(unit(luck(connection_luck, PURPOSE_CLIENT_USES)))
    }

    /// How long a server keeps a connection that was used, and is idle, in s (not scaled).
    #[must_use]
    pub fn server_idle_s(&self) -> f64 {
        self.plan.idle_s
    }

    /// Most connections of one user, at least 1.
    #[must_use]
    pub fn connections_per_robot(&self) -> u32 {
        self.plan.connections
    }

    /// Requests per second of one user (not scaled), above 0.
    #[must_use]
    pub fn requests_per_s_per_robot(&self) -> f64 {
        self.plan.requests_per_s
    }

    /// Appends the entity tag of a version, quotes included: the object's key and the version's
    /// number.
    pub fn etag(facts: &Facts, version: u64, out: &mut Vec<u8>) {
        facts.write_etag(version, out);
    }

    /// Reads an entity tag, weak or strong: (key, version). `None` if no origin of the laboratory
    /// wrote it.
    #[must_use]
    pub fn parse_etag(tag: &[u8]) -> Option<(u64, u64)> {
        facts::parse_etag(tag)
    }

    /// Mean size of the requested objects, in bytes. Of a replayed log: over its lines.
    #[must_use]
    pub fn mean_object_bytes(&self) -> f64 {
        self.replay.as_ref().map_or_else(|| self.plan.mean_bytes(), |replay| replay.mean_bytes())
    }

    /// Share of requests whose object is cachable, 0 to 1. Of a replayed log: of its lines.
    #[must_use]
    pub fn cachable_share(&self) -> f64 {
        self.replay
            .as_ref()
            .map_or_else(|| self.plan.cachable_share(), |replay| replay.cachable_share())
    }

    /// The hits of the best possible cache in the first `requests` requests of one world (300,000
    /// are plenty), without a limit of space. [`Ideal`] explains the numbers.
    #[must_use]
    pub fn ideal(&self, seed: u64, requests: u64, working_set: u64) -> Ideal {
        let mut stream = Stream::new(Arc::new(self.clone()), seed, 0, 1, working_set);
        simulate(&mut stream, u64::MAX, requests)
    }

    /// Objects among which requests repeat, for all worlds together, with a cache of this size:
    /// with `"50 % of cache"` their cachable bytes fill half of the cache. `u64::MAX` if there is
    /// no limit.
    #[must_use]
    pub fn working_set_objects(&self, cache_bytes: u64) -> u64 {
        match (&self.replay, self.plan.names) {
            (Some(replay), _) => replay.objects(),
            (None, Names::Window { working_set: WorkingSet::OfCache(share), .. }) => {
                let objects = cache_bytes as f64 * share / self.plan.mean_cachable_bytes().max(1.0);
                (objects as u64).max(1)
            }
            (None, Names::Window { working_set: WorkingSet::Objects(objects), .. }) => objects,
            (None, Names::Window { working_set: WorkingSet::Unlimited, .. }) => u64::MAX,
            (None, Names::Fixed { objects, .. }) => {
                (objects as f64 * self.plan.asks_per_page).round() as u64
            }
        }
    }
}
