//! The pages of a world: their types, their embedded objects, and their repeats. All of it follows
//! from the number of a page, so a page is the same at every request, and nothing is remembered.

use std::sync::Arc;

use crate::mix::{below, luck, mix, unit};
use crate::name::ObjectName;
use crate::plan::{EMBEDDED_MAX, Embedding, HotSet, Pick, Plan};

/// Pages that are looked at, backwards, for an object to share; then the new page has one of its
/// own.
const SHARE_STEPS_MAX: u64 = 64;

const PURPOSE_KIND: u64 = 41;
const PURPOSE_COUNT: u64 = 42;
const PURPOSE_SLOT: u64 = 43;
const PURPOSE_HOT: u64 = 44;
const PURPOSE_BLOCK: u64 = 45;
const PURPOSE_PLACE: u64 = 46;

/// The directly requested objects of one world, numbered as they are first asked for.
pub(crate) struct Pages {
    plan: Arc<Plan>,
    world: u32,
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
        Self { plan, world, root, window: window.max(1), pick }
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
        Some((embedding, count))
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
