//! The resources of a simulation: what servers have, and what clients may no longer get.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use crate::bodies::{Body, mix};
use crate::chance::Chance;
use crate::clock;
use crate::plan::Plan;
use crate::totals::Totals;

/// Variants of a resource that varies.
pub(crate) const VARIANTS: usize = 3;

/// Lengths of bodies: around the sizes at which the proxy treats them differently.
const LENGTHS: [u64; 12] =
    [0, 1, 700, 4_096, 13_000, 16_000, 66_000, 140_000, 300_000, 700_000, 1_300_000, 5_000_000];

/// The time by which an answer may be older than its client thinks: how long it took to come, and
/// the rounding of ages.
const FRESH_SLACK_MS: i64 = 5_000;

/// Whom an answer is for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// For all.
    Public,
    /// For all, after the server was asked.
    Confirmed,
    /// For the asker alone.
    Private,
    /// For the asker alone, and not to be kept.
    NoStore,
}

/// A thing that servers have.
pub(crate) struct Resource {
    pub(crate) number: usize,
    pub(crate) host: String,
    pub(crate) url: String,
    pub(crate) tag: String,
    pub(crate) scope: Scope,
    pub(crate) lifetime_s: u64,
    pub(crate) stale_s: u64,
    pub(crate) has_etag: bool,
    pub(crate) varies: bool,
    pub(crate) is_chunked: bool,
    pub(crate) has_ranges: bool,
    pub(crate) lengths: [u64; 3],
    /// When its server or name was last out of order, in ms since the beginning.
    trouble_ms: Cell<i64>,
    /// When a tag or prefix of it was last purged, in ms since the beginning.
    purged_ms: Cell<i64>,
    /// Purges of its tag or prefix that are under way.
    purging: Cell<u32>,
    /// When it was last said to be stored, in ms since the beginning.
    stored_ms: Cell<Option<i64>>,
    /// The version that the server has now.
    version: Cell<u32>,
    /// The oldest version that a client may get, by variant.
    floor: [Cell<Bound>; VARIANTS],
    /// The same after a crash.
    lasting: Cell<u32>,
}

/// Nothing older than this version.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) version: u32,
    /// The second in which a server made that answer, if it was an answer. Nobody can say which of
    /// two answers of one second is newer.
    pub(crate) born_s: Option<u64>,
}

impl Bound {
    /// Whether an answer that was made in this second may have this version.
    pub(crate) fn allows(self, version: u32, born_s: u64) -> bool {
        version >= self.version || self.born_s == Some(born_s)
    }

    fn raise(cell: &Cell<Self>, to: Self) {
        let before = cell.get();
        if to.version > before.version || to.version == before.version && to.born_s.is_none() {
            cell.set(to);
        }
    }
}

/// Versions must not be older than these.
pub(crate) type Floor = [Bound; VARIANTS];

impl Resource {
    fn new(number: usize, plan: &Plan, chance: &mut Chance) -> Self {
        let host = format!("h{}.sim", number % 3);
        let any_scope = chance.weighted(&[
            (20, Scope::Public),
            (3, Scope::Confirmed),
            (2, Scope::Private),
            (2, Scope::NoStore),
        ]);
        let most = chance.weighted(&[(6, 5_u64), (6, 9), (1, 12)]);
        let mut length = || LENGTHS[chance.below(most) as usize];
        let any_lengths = [length(), length(), length()];
        Self {
            number,
            url: format!("http://{host}/{}/{number}", ["news", "img"][number % 2]),
            host,
            tag: format!("t{}", number % 4),
            scope: if plan.is_plain { Scope::Public } else { any_scope },
            // In a calm world, what is stored is to be found again.
            lifetime_s: match plan.is_calm {
                true => chance.one(&[600, 86_400]),
                false => chance.one(&[0, 1, 5, 60, 600, 86_400]),
            },
            stale_s: chance.one(&[0, 0, 0, 5, 300]),
            has_etag: chance.per_mille(plan.etags_per_mille),
            varies: chance.per_mille(250) && !plan.is_plain,
            is_chunked: chance.per_mille(300),
            has_ranges: chance.per_mille(600),
            lengths: plan.lengths.unwrap_or(any_lengths),
            trouble_ms: Cell::new(-1),
            purged_ms: Cell::new(-1),
            purging: Cell::new(0),
            stored_ms: Cell::new(None),
            version: Cell::new(1),
            floor: Default::default(),
            lasting: Cell::new(0),
        }
    }

    /// Its server or name is out of order: requests that wait now may fail.
    pub(crate) fn is_in_trouble(&self) {
        self.trouble_ms.set(clock::elapsed_ms());
    }

    /// A tag or prefix of it is being purged: answers that are under way count as old.
    pub(crate) fn purge_begins(&self) {
        self.purging.set(self.purging.get() + 1);
    }

    /// It has been purged, as far as its client knows.
    pub(crate) fn purge_ends(&self) {
        self.purged_ms.set(clock::elapsed_ms());
        self.purging.set(self.purging.get().saturating_sub(1));
    }

    /// Whether that was so since then.
    pub(crate) fn was_purged_since(&self, ms: i64) -> bool {
        self.purging.get() > 0 || self.purged_ms.get() >= ms
    }

    /// Whether there was trouble since then.
    pub(crate) fn had_trouble_since(&self, ms: i64) -> bool {
        self.trouble_ms.get() >= ms
    }

    /// The version that the server has.
    pub(crate) fn version(&self) -> u32 {
        self.version.get()
    }

    /// The server has another version from now on.
    pub(crate) fn change(&self) -> u32 {
        self.version.set(self.version.get() + 1);
        self.version.get()
    }

    /// The body of a version. `asker` counts if it is private.
    pub(crate) fn body(&self, version: u32, variant: usize, asker: u64) -> Body {
        let variant = if self.varies { variant } else { 0 };
        let asker = if self.is_for_all() { 0 } else { asker };
        let parts = [self.number as u64, u64::from(version), variant as u64, asker];
        let identity = parts.into_iter().fold(1, |identity, part| mix(identity ^ mix(part)));
        Body { identity, bytes: self.lengths[version as usize % self.lengths.len()] }
    }

    /// An answer has come, and it was said to be stored, or not.
    pub(crate) fn is_said_to_be_stored(&self, is_stored: bool) {
        self.stored_ms.set(is_stored.then(clock::elapsed_ms));
    }

    /// Whether a stored answer must still be there and fresh, where nothing takes it away.
    pub(crate) fn must_be_there(&self) -> bool {
        let fresh_ms = self.lifetime_s as i64 * 1000 - FRESH_SLACK_MS;
        self.stored_ms.get().is_some_and(|at| clock::elapsed_ms() - at < fresh_ms)
    }

    /// Whether an answer to one client may go to another.
    pub(crate) fn is_for_all(&self) -> bool {
        matches!(self.scope, Scope::Public | Scope::Confirmed)
    }

    /// The oldest versions that a request may get that begins now.
    pub(crate) fn floor(&self) -> Floor {
        std::array::from_fn(|variant| self.floor[variant].get())
    }

    /// A client has this version whole: nobody gets an older one.
    pub(crate) fn is_served(&self, version: u32, variant: usize, born_s: u64) {
        let floor = &self.floor[if self.varies { variant } else { 0 }];
        Bound::raise(floor, Bound { version, born_s: Some(born_s) });
    }

    /// What is older than this version is gone: it was replaced, or purged.
    pub(crate) fn is_gone_before(&self, version: u32, is_lasting: bool) {
        let bound = Bound { version, born_s: None };
        self.floor.iter().for_each(|floor| Bound::raise(floor, bound));
        if is_lasting {
            self.lasting.set(self.lasting.get().max(version));
        }
    }

    /// After a crash, what was not purged may be back.
    pub(crate) fn crashed(&self) {
        self.purging.set(0);
        let bound = Bound { version: self.lasting.get(), born_s: None };
        self.floor.iter().for_each(|floor| floor.set(bound));
    }
}

/// All resources, and everything that has gone wrong.
pub(crate) struct Site {
    pub(crate) resources: Vec<Resource>,
    /// A loss of power has torn objects: a client learns of that when it comes to the tear.
    pub(crate) is_torn: Cell<bool>,
    faults: RefCell<Vec<String>>,
    /// What has been seen.
    pub(crate) totals: Totals,
    ids: Cell<u64>,
    /// Requests that the proxy has seen.
    begun: RefCell<BTreeSet<u64>>,
}

impl Site {
    pub(crate) fn new(plan: &Plan, chance: &mut Chance) -> Self {
        let resource = |number| Resource::new(number, plan, chance);
        Self {
            resources: (0..plan.resources).map(resource).collect(),
            is_torn: Cell::new(false),
            faults: RefCell::default(),
            totals: Totals::default(),
            ids: Cell::new(1),
            begun: RefCell::default(),
        }
    }

    /// The proxy sees a request now.
    pub(crate) fn begins(&self, id: u64) {
        self.begun.borrow_mut().insert(id);
    }

    /// The requests of a life.
    pub(crate) fn take_begun(&self) -> BTreeSet<u64> {
        self.begun.take()
    }

    /// A number for a request.
    pub(crate) fn next_id(&self) -> u64 {
        self.ids.replace(self.ids.get() + 1)
    }

    /// The resource with this URL.
    pub(crate) fn find(&self, host: &[u8], path: &[u8]) -> Option<&Resource> {
        let path = path.strip_prefix(b"http://").map_or(path, |rest| {
            rest.iter().position(|byte| *byte == b'/').map_or(rest, |at| &rest[at..])
        });
        self.resources.iter().find(|resource| {
            resource.host.as_bytes() == host
                && resource.url.as_bytes()["http://".len() + host.len()..] == *path
        })
    }

    /// Everything on a host is in trouble.
    pub(crate) fn host_is_in_trouble(&self, host: &str) {
        let there = self.resources.iter().filter(|resource| resource.host == host);
        there.for_each(Resource::is_in_trouble);
    }

    /// Notes a violation.
    pub(crate) fn wrong(&self, what: String) {
        crate::trace::line(|| format!("WRONG: {what}"));
        self.faults.borrow_mut().push(what);
    }

    /// The violations so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        self.faults.borrow().clone()
    }
}
