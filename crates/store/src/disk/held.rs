//! Complete answers at hand: in memory, or lent from where they were read to and verified.
//!
//! A copy in memory evicts others, and pays only if the object is requested again before it has to
//! leave itself. So the first hit on disk is lent to its client, and the second one moves the
//! object to memory ([`crate::doorkeeper`]).

use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use humboldt_freshness::Times;

use super::{DiskHit, tell_swap};
use crate::body::{Body, Borrowed, Lender};
use crate::cache::Cache;
use crate::events::StoreEventKind;
use crate::head::StoredHead;
use crate::mem::{FLOW_BYTES_GUARANTEED, LENT_BYTES_MIN, Reserved};
use crate::object::{About, Object, memory_bytes};
use crate::scheme::Reader;
use crate::since::Since;

/// A complete answer at hand.
#[derive(Debug)]
pub enum Held {
    /// In memory, where others find it too.
    Memory(Arc<Object>),
    /// As it was read from a directory, for one client.
    Lent(Lent),
}

/// A stored answer whose body is borrowed from the memory that it was read to.
#[derive(Debug)]
pub struct Lent(Box<Loan>);

#[derive(Debug)]
struct Loan {
    object: Object,
    opened: Box<Since>,
    reserved: Option<Reserved>,
}

/// An open object whose body is in memory.
struct AtHand(Box<dyn Reader>);

impl Lender for AtHand {
    fn lent(&self, part: Range<usize>) -> &[u8] {
        self.0.at_hand(part.start as u64).get(..part.len()).unwrap_or_default()
    }
}

impl DiskHit {
    /// The whole answer: in memory if it should be there, and from where it was read to otherwise.
    /// `None` as with [`DiskHit::into_object`].
    pub async fn hold(self, cache: &Cache) -> Option<Held> {
        let Some(body_bytes) = self.whole_at_hand() else {
            return self.into_object(cache).await.map(Held::Memory);
        };
        let bytes = memory_bytes(self.url.len(), self.head.bytes().len(), body_bytes);
        let may_take_pages = may_take_pages(cache, body_bytes as u64, self.reserved.as_ref());
        if cache.admit_to_memory(&self.key, bytes) && may_take_pages {
            return self.into_object(cache).await.map(Held::Memory);
        }
        self.tell(StoreEventKind::SwapIn, cache, body_bytes as u64);
        self.lend(body_bytes).map(Held::Lent)
    }

    /// Reserves memory for the whole body. Without it [`DiskHit::hold`] and
    /// [`DiskHit::into_object`] would take memory from all others. The body is in pages if it
    /// `needs_pages`, or cannot be lent. `false`: the share of bodies in flight is spent;
    /// [`DiskHit::feed`] needs little memory.
    pub fn reserve(&mut self, cache: &Cache, needs_pages: bool) -> bool {
        let least = if needs_pages || self.whole_at_hand().is_none() { 0 } else { LENT_BYTES_MIN };
        self.reserved = cache.tier().reserve(self.body_bytes().unwrap_or(0), least);
        self.reserved.is_some()
    }

    /// Length of the body, if all of it lies together in memory; `None` if it has to be read, or is
    /// empty.
    fn whole_at_hand(&self) -> Option<usize> {
        let body_bytes = usize::try_from(self.body_bytes()?).ok()?;
        (body_bytes > 0 && self.reader.at_hand(0).len() == body_bytes).then_some(body_bytes)
    }

    /// For a body that is at hand.
    fn lend(self, body_bytes: usize) -> Option<Lent> {
        let Self { key, url, head, times, opened, reader, reserved, .. } = self;
        let body = Body::Borrowed(Borrowed::new(Arc::new(AtHand(reader)), 0..body_bytes)?);
        let object = Object::new(key, url, head, times, body);
        Some(Lent(Box::new(Loan { object, opened, reserved })))
    }

    pub(super) fn tell(&self, kind: StoreEventKind, cache: &Cache, body_bytes: u64) {
        let Self { key, url, head, times, .. } = self;
        tell_swap(kind, cache, &self.dir, &About { key: *key, url, head, times, body_bytes });
    }
}

/// Whether the share of bodies in flight allows the body to be in pages.
fn may_take_pages(cache: &Cache, body_bytes: u64, reserved: Option<&Reserved>) -> bool {
    // The reserved part of it is counted already.
    let more = if reserved.is_some() { 0 } else { body_bytes };
    body_bytes <= FLOW_BYTES_GUARANTEED || cache.tier().has_in_flight_room(more)
}

impl Held {
    fn object(&self) -> &Object {
        match self {
            Self::Memory(object) => object,
            Self::Lent(Lent(loan)) => &loan.object,
        }
    }

    /// The response head.
    pub fn head(&self) -> &Arc<StoredHead> {
        &self.object().head
    }

    /// Freshness.
    pub fn times(&self) -> &Times {
        &self.object().times
    }

    /// Length of the body in bytes.
    pub fn body_bytes(&self) -> u64 {
        self.object().body_bytes()
    }

    /// Bytes `from..to` of the body (cut at its end) as parts for a vectored write, as many as fit
    /// into `out`. Returns the number of parts.
    pub fn slices<'a>(&'a self, from: u64, to: u64, out: &mut [IoSlice<'a>]) -> usize {
        self.object().slices(from, to, out)
    }

    /// For a client that does not take it at once: move it to memory, whose pages are counted and
    /// shared. If there is no more room in flight, a lent body stays where it is. A body that is
    /// not needed any more is not kept.
    ///
    /// # Errors
    /// Itself when memory is so short that a transfer that needs a page fails.
    pub fn kept(self, cache: &Cache, needs_body: bool) -> Result<Self, Self> {
        match self {
            Self::Lent(lent) if needs_body => lent.kept(cache),
            Self::Lent(Lent(loan)) => {
                let object = loan.object.with_body(Body::default());
                Ok(Self::Memory(Arc::new(object)))
            }
            in_memory @ Self::Memory(_) => Ok(in_memory),
        }
    }
}

impl Lent {
    /// In memory, where it is found unless it was purged meanwhile, or another is there.
    fn kept(self, cache: &Cache) -> Result<Held, Held> {
        let Loan { object, reserved, .. } = &*self.0;
        if !may_take_pages(cache, object.body_bytes(), reserved.as_ref()) {
            return Ok(Held::Lent(self));
        }
        // It lies together.
        let together = object.parts().next().unwrap_or_default();
        let Some(body) = Body::in_pages(cache.tier(), together) else {
            return Err(Held::Lent(self));
        };
        let Loan { object, opened, .. } = *self.0;
        let object = Arc::new(object.with_body(body));
        cache.insert_read(&opened, &object);
        Ok(Held::Memory(object))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;
    use crate::dirs::Purged;
    use crate::disk::tests::{SETTINGS, configs};
    use crate::disk::{DiskEntry, Lookup};
    use crate::events::{StoreEvent, StoreEvents};
    use crate::mem::Entry;
    use crate::scheme::{Record, RecordKind};
    use crate::settings::CacheSettings;
    use crate::testing::{TestScheme, block_on, key, object_of, pattern, some_head, some_times};

    const URL: &[u8] = b"http://a.example/x";
    const BODY_BYTES: usize = 10_000;

    fn body(number: u64) -> Vec<u8> {
        pattern(number as usize, number as usize + BODY_BYTES)
    }

    /// Counts objects that are read in.
    #[derive(Default)]
    struct SwapIns(AtomicUsize);

    impl StoreEvents for SwapIns {
        fn event(&self, event: &StoreEvent<'_>) {
            self.0.fetch_add(usize::from(event.kind == StoreEventKind::SwapIn), SeqCst);
        }
    }

    /// Objects 0 to 199 on disk, two megabytes, beside one megabyte of memory.
    fn fixture() -> (Arc<Cache>, Arc<TestScheme>) {
        fixture_with(1 << 20, Arc::default())
    }

    fn fixture_with(cache_mem_bytes: u64, events: Arc<SwapIns>) -> (Arc<Cache>, Arc<TestScheme>) {
        let scheme = TestScheme::new("/one");
        scheme.faults.at_hand.store(true, SeqCst);
        for number in 0..200 {
            let head = some_head().bytes().into();
            let record = Record {
                key: key(number),
                kind: RecordKind::Object,
                url: URL.into(),
                head,
                times: some_times(),
            };
            scheme.place(record, &body(number));
        }
        let settings = CacheSettings { cache_mem_bytes, ..SETTINGS };
        (Cache::new(settings, 1, configs(std::slice::from_ref(&scheme)), events), scheme)
    }

    fn hold(cache: &Cache, number: u64) -> Option<Held> {
        match block_on(cache.open(key(number), &key(number), URL)) {
            Lookup::Found(DiskEntry::Object(hit)) => block_on(hit.hold(cache)),
            _ => panic!("{number} is there"),
        }
    }

    fn is_lent(held: Option<&Held>) -> bool {
        matches!(held, Some(Held::Lent(_)))
    }

    /// Asks for objects until memory is full, and returns the number of the next one.
    fn fill(cache: &Cache) -> u64 {
        (0..200).find(|&number| is_lent(hold(cache, number).as_ref())).expect("memory is full") + 1
    }

    fn read(held: &Held, from: u64, to: u64) -> Vec<u8> {
        let mut parts = [IoSlice::new(&[]); 8];
        let count = held.slices(from, to, &mut parts);
        parts[..count].iter().flat_map(|part| part.iter().copied()).collect()
    }

    #[test]
    fn what_there_is_room_for_goes_to_memory_at_once_and_the_rest_when_it_comes_again() {
        let (cache, _) = fixture();
        let next = fill(&cache);
        assert!(
            next > 50 && (0..next - 1).all(|number| cache.lookup(&key(number)).is_some()),
            "{next}"
        );
        assert!(is_lent(hold(&cache, next).as_ref()) && cache.lookup(&key(next)).is_none());
        assert!(!is_lent(hold(&cache, next).as_ref()) && cache.lookup(&key(next)).is_some());
    }

    #[test]
    fn once_memory_is_full_nobody_has_to_leave_it_for_a_first_hit() {
        // With any room left over at the end.
        for cache_mem_bytes in (100_000..120_000).step_by(500) {
            let (cache, _) = fixture_with(cache_mem_bytes, Arc::default());
            let next = fill(&cache);
            let full_bytes = cache.mem().used_bytes();
            assert!(
                (next..200).all(|number| is_lent(hold(&cache, number).as_ref())),
                "{cache_mem_bytes}"
            );
            assert_eq!(cache.mem().used_bytes(), full_bytes, "{cache_mem_bytes}");
            assert!(
                (0..next - 1).all(|number| cache.lookup(&key(number)).is_some()),
                "{cache_mem_bytes}"
            );
        }
    }

    #[test]
    fn lent_and_kept_answers_say_the_same() {
        let (cache, _) = fixture();
        let next = fill(&cache);
        let content = body(next);
        let mut held = hold(&cache, next).expect("it is there");
        for is_expected_lent in [true, false] {
            assert_eq!(is_lent(Some(&held)), is_expected_lent);
            assert_eq!((held.body_bytes(), held.times()), (BODY_BYTES as u64, &some_times()));
            assert_eq!(held.head().bytes(), some_head().bytes());
            for (from, to) in
                [(0, u64::MAX), (0, 1), (4095, 4097), (9999, 10_000), (10_000, 10_001), (7, 3)]
            {
                let expected =
                    content.get(from as usize..to.min(10_000) as usize).unwrap_or_default();
                assert_eq!(read(&held, from, to), expected, "{from}..{to}");
            }
            held = held.kept(&cache, true).expect("memory is there");
        }
        assert!(cache.lookup(&key(next)).is_some(), "others find it too");
    }

    #[test]
    fn what_a_client_has_of_a_lent_body_goes_on_from_memory() {
        let (cache, _) = fixture();
        let next = fill(&cache);
        for (number, sent) in (next..).zip([1, 4095, 4096, 4097, 8192, 9999]) {
            let held = hold(&cache, number).expect("it is there");
            assert!(is_lent(Some(&held)));
            let mut got = read(&held, 0, sent);
            got.extend(read(&held.kept(&cache, true).expect("memory is there"), sent, u64::MAX));
            assert!(got == body(number), "{sent} bytes were sent before");
        }
    }

    #[test]
    fn of_a_body_that_is_not_needed_nothing_is_kept() {
        let (cache, _) = fixture();
        let next = fill(&cache);
        let held =
            hold(&cache, next).expect("it is there").kept(&cache, false).expect("it needs none");
        assert!(!is_lent(Some(&held)) && held.head().bytes() == some_head().bytes());
        assert_eq!(held.body_bytes(), 0);
        assert!(cache.lookup(&key(next)).is_none());
    }

    #[test]
    fn a_newer_answer_stays_when_an_older_one_is_kept() {
        let (cache, _) = fixture();
        let next = fill(&cache);
        let old = hold(&cache, next).expect("it is there");
        let Some(Held::Memory(newer)) = hold(&cache, next) else { panic!("the second time") };
        assert!(old.kept(&cache, true).is_ok());
        assert!(
            matches!(cache.lookup(&key(next)), Some(Entry::Object(object)) if Arc::ptr_eq(&object, &newer))
        );
    }

    #[test]
    fn a_newer_answer_stays_when_an_older_one_is_read_in() {
        let (cache, scheme) = fixture();
        scheme.faults.at_hand.store(false, SeqCst);
        let Lookup::Found(DiskEntry::Object(old)) = block_on(cache.open(key(1), &key(1), URL))
        else {
            panic!("it is there")
        };
        let newer = object_of(key(1), Body::default());
        cache.mem().insert(key(1), Entry::Object(newer.clone()));
        assert!(block_on(old.hold(&cache)).is_some());
        assert!(
            matches!(cache.lookup(&key(1)), Some(Entry::Object(object)) if Arc::ptr_eq(&object, &newer))
        );
    }

    #[test]
    fn every_hit_is_told_once() {
        let events = Arc::new(SwapIns::default());
        let (cache, _) = fixture_with(1 << 20, events.clone());
        let next = fill(&cache);
        assert_eq!(events.0.swap(0, SeqCst), next as usize);
        let held = hold(&cache, next).expect("it is there");
        assert!(held.kept(&cache, true).is_ok());
        assert_eq!(events.0.load(SeqCst), 1);
    }

    #[test]
    fn what_memory_would_never_take_is_always_lent() {
        let (cache, _) = fixture_with(0, Arc::default());
        assert!((0..3).all(|_| is_lent(hold(&cache, 1).as_ref())));
        // More than half of it.
        let (cache, _) = fixture_with(20_000, Arc::default());
        assert!((0..3).all(|_| is_lent(hold(&cache, 1).as_ref())));
    }

    #[test]
    fn without_room_in_flight_a_body_stays_lent_and_one_that_cannot_be_lent_is_to_be_streamed() {
        let (cache, scheme) = fixture();
        let (key, content) = (key(1), pattern(0, 100_000));
        let (url, head, times) = (URL.into(), some_head().bytes().into(), some_times());
        scheme.place(Record { key, kind: RecordKind::Object, url, head, times }, &content);
        let open = || match block_on(cache.open(key, &key, URL)) {
            Lookup::Found(DiskEntry::Object(hit)) => hit,
            _ => panic!("it is there"),
        };
        let share_pages = (cache.tier().in_flight_share() / 4096) as usize;
        let hog: Vec<_> =
            (0..share_pages).map(|_| cache.tier().alloc_page(0).expect("guaranteed")).collect();
        let mut hit = open();
        assert!(!hit.reserve(&cache, true), "no room for pages");
        assert!(hit.reserve(&cache, false));
        let held =
            block_on(hit.hold(&cache)).expect("it verifies").kept(&cache, true).expect("it stays");
        assert!(is_lent(Some(&held)) && read(&held, 0, u64::MAX) == content);
        assert_eq!(cache.mem().stats().reserved_bytes, 100_000, "it is counted");
        scheme.faults.at_hand.store(false, SeqCst);
        assert!(!open().reserve(&cache, false), "it would have to be read to pages");
        drop((hog, held));
        assert!(open().reserve(&cache, true) && cache.mem().stats().reserved_bytes == 0);
    }

    #[test]
    fn room_is_what_the_object_takes_in_memory_and_not_its_body() {
        let one = memory_bytes(URL.len(), some_head().bytes().len(), BODY_BYTES);
        // Room for three, and for the body of a fourth.
        let (cache, _) = fixture_with(3 * one + BODY_BYTES as u64, Arc::default());
        let lent: Vec<bool> = (0..5).map(|number| is_lent(hold(&cache, number).as_ref())).collect();
        assert_eq!(lent, [false, false, false, true, true]);
    }

    #[test]
    fn what_is_kept_after_a_purge_is_for_its_client_alone() {
        let (cache, _) = fixture();
        let next = fill(&cache);
        let held = hold(&cache, next).expect("it is there");
        assert_eq!(block_on(cache.purge(key(next))), Purged::Found);
        assert_eq!(
            read(&held.kept(&cache, true).expect("memory is there"), 0, u64::MAX),
            body(next)
        );
        assert!(cache.lookup(&key(next)).is_none());
    }

    #[test]
    fn a_body_that_has_to_be_read_goes_to_memory() {
        let (cache, scheme) = fixture();
        let next = fill(&cache);
        scheme.faults.at_hand.store(false, SeqCst);
        assert!(matches!(hold(&cache, next), Some(Held::Memory(_))));
        scheme.faults.read_from.store(0, SeqCst);
        assert!(hold(&cache, next + 1).is_none(), "it does not verify");
    }
}
