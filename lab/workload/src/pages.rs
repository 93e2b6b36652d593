//! The pages of a world: their types, their embedded objects, and their repeats. All of it follows
//! from the number of a page, so a page is the same at every request, and nothing is remembered.

use std::sync::Arc;

use crate::facts;
use crate::mix::{below, luck, mix, unit};
use crate::name::ObjectName;
use crate::plan::{EMBEDDED_MAX, Embedding, HotSet, Pick, Plan, PreferSmall};

/// Pages that are looked at, backwards, for an object to share; then the new page has one of its
/// own.
const SHARE_STEPS_MAX: u64 = 64;

/// Pages that are looked at on either side for others of the same type: a rare type has fewer
/// neighbours than are wanted.
const NEIGHBOUR_STEPS_MAX: u64 = 512;

const PURPOSE_KIND: u64 = 41;
const PURPOSE_COUNT: u64 = 42;
const PURPOSE_SLOT: u64 = 43;
const PURPOSE_HOT: u64 = 44;
const PURPOSE_BLOCK: u64 = 45;
const PURPOSE_PLACE: u64 = 46;
const PURPOSE_SMALL: u64 = 47;

/// The directly requested objects of one world, numbered as they are first asked for.
pub(crate) struct Pages {
    plan: Arc<Plan>,
    world: u32,
    seed: u64,
    root: u64,
    /// Pages that repeats are chosen among.
    window: u64,
    pick: Pick,
}

/// One page.
#[derive(Clone, Copy)]
pub(crate) struct Page {
    pub(crate) number: u64,
    luck: u64,
    kind: u8,
}

impl Pages {
    pub(crate) fn new(plan: Arc<Plan>, seed: u64, world: u32, window: u64, pick: Pick) -> Self {
        let root = mix(mix(seed) ^ luck(u64::from(world), PURPOSE_KIND));
        Self { plan, world, seed, root, window: window.max(1), pick }
    }

    #[inline]
    pub(crate) fn page(&self, number: u64) -> Page {
        let page_luck = luck(self.root, number);
        Page { number, luck: page_luck, kind: self.plan.direct_kind(luck(page_luck, PURPOSE_KIND)) }
    }

    pub(crate) fn name(&self, page: &Page) -> ObjectName {
        ObjectName { world: self.world, kind: page.kind, number: page.number, size: None }
    }

    /// The page's embedded objects, and their number.
    #[inline]
    pub(crate) fn embedding(&self, page: &Page) -> Option<(Embedding, u64)> {
        let embedding = self.plan.kinds.get(usize::from(page.kind))?.embeds?;
        let count = embedding.count.whole_at(unit(luck(page.luck, PURPOSE_COUNT)), 0, EMBEDDED_MAX);
        if embedding.tag_bytes == 0 {
            return Some((embedding, count));
        }
        let room = facts::size_of(&self.plan, self.seed, &self.name(page)) / embedding.tag_bytes;
        Some((embedding, count.min(room)))
    }

    /// The embedded object in a slot of a page, and whether an earlier page has it too.
    pub(crate) fn embedded(
        &self,
        page: &Page,
        embedding: &Embedding,
        slot: u64,
    ) -> (ObjectName, bool) {
        let slot_luck = slot_luck(page, slot);
        let shared = embedding
            .shared
            .happens(slot_luck)
            .then(|| self.shared(page, embedding, mix(slot_luck)));
        match shared.flatten() {
            Some(name) => (name, true),
            None => (self.own(page, embedding, slot), false),
        }
    }

    fn own(&self, page: &Page, embedding: &Embedding, slot: u64) -> ObjectName {
        let number = (page.number << EMBEDDED_MAX.count_ones()) | slot;
        ObjectName { world: self.world, kind: embedding.kind, number, size: None }
    }

    /// An object that belongs to an earlier page, chosen like a repeated page.
    fn shared(&self, page: &Page, embedding: &Embedding, share_luck: u64) -> Option<ObjectName> {
        let from = self.pick(page.number, share_luck)?;
        let nearest = (from.saturating_sub(SHARE_STEPS_MAX)..=from).rev();
        nearest.map(|number| self.page(number)).find_map(|earlier| {
            let (other, count) =
                self.embedding(&earlier).filter(|(other, _)| other.kind == embedding.kind)?;
            let first = below(luck(share_luck, PURPOSE_SLOT), count);
            let mut slots = (first..count).chain(0..first);
            let slot = slots.find(|slot| !other.shared.happens(slot_luck(&earlier, *slot)))?;
            Some(self.own(&earlier, &other, slot))
        })
    }

    /// One of the pages before `newest`, as far as the window reaches; `None` if there are none.
    #[inline]
    pub(crate) fn pick(&self, newest: u64, pick_luck: u64) -> Option<u64> {
        let span = newest.min(self.window);
        if span == 0 {
            return None;
        }
        let place_luck = luck(pick_luck, PURPOSE_PLACE);
        let hot = self.pick.hot.filter(|hot| hot.requests.happens(luck(pick_luck, PURPOSE_HOT)));
        let hot_page = hot.and_then(|hot| self.pick_hot(&hot, newest - span, newest, place_luck));
        Some(match (hot_page, self.pick.ranks) {
            (Some(number), _) => number,
            (None, Some(ranks)) => newest - 1 - ranks.rank(span, unit(place_luck)),
            (None, None) => newest - span + below(place_luck, span),
        })
    }

    /// The page that is asked for again in place of `number`, one of those before `newest`: often a
    /// smaller one of the same type nearby, as Polygraph does it to have fewer hits in bytes than
    /// in requests. Only among cachable ones, so that as many repeats are cachable as before.
    pub(crate) fn prefer_small(&self, number: u64, newest: u64, pick_luck: u64) -> u64 {
        let wanted = |small: &PreferSmall| small.chance.happens(luck(pick_luck, PURPOSE_SMALL));
        let Some(small) = self.pick.small.filter(wanted) else { return number };
        let page = self.page(number);
        let size = |page: &Page| facts::cachable_size_of(&self.plan, self.seed, &self.name(page));
        let Some(own_bytes) = size(&page) else { return number };
        let reach = small.reach as usize;
        let of_same_kind = |other: &u64| self.page(*other).kind == page.kind;
        let first =
            number.saturating_sub(NEIGHBOUR_STEPS_MAX).max(newest - newest.min(self.window));
        let end = newest.min(number + 1 + NEIGHBOUR_STEPS_MAX);
        let before = (first..number).rev().filter(of_same_kind).take(reach);
        let after = (number + 1..end).filter(of_same_kind).take(reach);
        let sizes = before.chain(after).filter_map(|other| Some((size(&self.page(other))?, other)));
        sizes.chain([(own_bytes, number)]).min().map_or(number, |(_, smallest)| smallest)
    }

    /// A hot page of the window: every block of `stride` pages has one, so nothing has to be
    /// remembered. `None` if the block's hot page is outside the window's ends.
    fn pick_hot(&self, hot: &HotSet, first: u64, newest: u64, place_luck: u64) -> Option<u64> {
        let first_block = first / hot.stride;
        let blocks = (newest - 1) / hot.stride + 1 - first_block;
        let block = first_block + below(place_luck, blocks);
        let number = block * hot.stride
            + below(luck(self.root ^ luck(block, PURPOSE_BLOCK), PURPOSE_BLOCK), hot.stride);
        (first..newest).contains(&number).then_some(number)
    }
}

#[inline]
fn slot_luck(page: &Page, slot: u64) -> u64 {
    luck(page.luck ^ luck(slot, PURPOSE_SLOT), PURPOSE_SLOT)
}
