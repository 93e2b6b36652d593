//! A workload as it is used: numbers and probabilities, all checked before.

use crate::distribution::{Distribution, Ranks};
use crate::link::Link;
use crate::mix::Chance;
use crate::units::WorkingSet;

/// Most objects embedded in a page: their slot is the lowest byte of their number.
pub(crate) const EMBEDDED_MAX: u64 = 255;

/// Most objects of a fixed set: what has been asked for is remembered in one bit each, 12 MB.
pub(crate) const FIXED_SET_MAX: u64 = 100_000_000;

/// Most requests on one connection.
const USES_MAX: u64 = 1_000_000;

/// The parts of a workload that only this crate sees.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kinds: Vec<Kind>,
    /// Types that are asked for directly, with the upper end of their probability.
    pub(crate) direct: Vec<(Chance, u8)>,
    pub(crate) client: Party,
    pub(crate) server: Party,
    pub(crate) think: Distribution,
    pub(crate) idle_s: f64,
    pub(crate) connections: u32,
    pub(crate) requests_per_s: f64,
    pub(crate) mix: Mix,
    pub(crate) names: Names,
    /// Requests for a page with all its parts, on average.
    pub(crate) asks_per_page: f64,
    /// New names with a new page, on average.
    pub(crate) names_per_page: f64,
}

/// A content type, as facts are made from it.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) size: Distribution,
    pub(crate) size_min: u64,
    pub(crate) size_max: u64,
    pub(crate) cachable: Chance,
    /// Time between two modifications, in µs.
    pub(crate) cycle: Distribution,
    pub(crate) variance: f64,
    pub(crate) compressible: bool,
    pub(crate) embeds: Option<Embedding>,
    /// Share of requests for pages and their parts.
    pub(crate) share: f64,
    /// The same among requests for new pages and their parts.
    pub(crate) new_share: f64,
    pub(crate) cachable_share: f64,
    /// Mean size of the requested objects, in bytes: repeats may prefer small ones.
    pub(crate) mean_bytes: f64,
}

/// The embedded objects of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Embedding {
    pub(crate) kind: u8,
    pub(crate) count: Distribution,
    /// Bytes of a page that the name of one object takes: a small page has room for few. 0: all
    /// have room.
    pub(crate) tag_bytes: u64,
    /// Mean number in a requested page.
    pub(crate) mean_count: f64,
    /// Mean number in a new page.
    pub(crate) mean_new_count: f64,
    /// Share of embedded objects that are those of earlier pages.
    pub(crate) shared_share: f64,
    pub(crate) shared: Chance,
    pub(crate) first_after_us: u64,
    pub(crate) spacing_us: u64,
}

/// One end of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Party {
    uses: Distribution,
    pub(crate) link: Link,
}

impl Party {
    pub(crate) fn new(uses: Distribution, link: Link) -> Self {
        Self { uses, link }
    }

    /// Requests that one connection serves, at least 1.
    pub(crate) fn uses_at(&self, share: f64) -> u32 {
        u32::try_from(self.uses.whole_at(share, 1, USES_MAX)).unwrap_or(u32::MAX)
    }
}

/// How requests differ.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    /// Upper ends of the probabilities of ims_200, ims_304, reload, head, range among requests for
    /// objects.
    pub(crate) kinds: [Chance; 5],
    /// Among plain requests.
    pub(crate) abort: Chance,
    /// Probability that a visit is one POST, and (upper end) that it is one CONNECT.
    pub(crate) post_visit: Chance,
    pub(crate) connect_visit: Chance,
    pub(crate) post_body: Distribution,
    pub(crate) connect_allowed: Chance,
    pub(crate) asks_per_visit: f64,
}

/// Which names are asked for again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Names {
    /// New names forever, and repeats among the newest.
    Window { recurrence: f64, working_set: WorkingSet, pick: Pick },
    /// Always the same names.
    Fixed { objects: u64, order: Order },
}

/// How a repeat is chosen among the newest names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    /// Newest most popular; otherwise all alike.
    pub(crate) ranks: Option<Ranks>,
    pub(crate) hot: Option<HotSet>,
    pub(crate) small: Option<PreferSmall>,
}

/// Repeats that go to the smallest of a few neighbours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PreferSmall {
    /// Share of the repeats.
    pub(crate) share: f64,
    pub(crate) chance: Chance,
    /// Number of neighbours that are looked at on either side.
    pub(crate) reach: u32,
}

/// One of `stride` consecutive names is hot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HotSet {
    pub(crate) stride: u64,
    pub(crate) requests: Chance,
}

/// Order in a fixed set.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    InTurn,
    Uniform,
    Zipf(Ranks),
}

impl Plan {
    /// The type of a directly requested object, by its luck.
    #[inline]
    pub(crate) fn direct_kind(&self, luck: u64) -> u8 {
        let found = self.direct.iter().find(|(chance, _)| chance.happens(luck));
        found.or(self.direct.last()).map_or(0, |(_, kind)| *kind)
    }

    pub(crate) fn mean_bytes(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.share * kind.mean_bytes).sum()
    }

    pub(crate) fn cachable_share(&self) -> f64 {
        self.kinds.iter().map(|kind| kind.share * kind.cachable_share).sum()
    }

    /// Mean of the cachable bytes that a new name brings.
    pub(crate) fn mean_cachable_bytes(&self) -> f64 {
        let bytes = |kind: &Kind| kind.size.whole_mean(kind.size_min, kind.size_max);
        self.kinds.iter().map(|kind| kind.new_share * kind.cachable_share * bytes(kind)).sum()
    }
}
