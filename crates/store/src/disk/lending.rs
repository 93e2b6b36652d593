//! Storing an answer that has come whole, without a copy of it in memory.
//!
//! An object in memory evicts others, and most answers are never requested again. So when memory is
//! full, an answer that a directory takes at once goes to memory only with its second request, like
//! a hit on disk ([`super::held`]). The first client gets it from the buffer in which it waits for
//! the device.

use std::sync::Arc;

use crate::body::Body;
use crate::cache::Cache;
use crate::dirs::Dir;
use crate::flow::{Fate, FlowHead, FlowWriter};
use crate::mem::{Entry, LENT_BYTES_MIN};
use crate::object::Object;

impl Cache {
    /// Stores an answer, whose head has been published and whose whole body is here, in a
    /// directory, and ends the flow; returns the head, and [`Cache::finish_write`] is to follow.
    /// `None`: that is not possible, or it should be in memory, and nothing has happened.
    pub fn store_lending(
        &self,
        writer: &mut FlowWriter,
        url: &[u8],
        dir: &Dir,
        body: &[u8],
    ) -> Option<Arc<FlowHead>> {
        let head = writer.flow().published()?;
        let about = head.about(url, body.len() as u64)?;
        if body.is_empty() || head.info.fate != Fate::Lent || !writer.may_borrow() {
            return None;
        }
        // A client that does not read gets it in pages, which then are in flight.
        let reserved = self.tier().reserve(about.body_bytes, LENT_BYTES_MIN)?;
        let epoch = writer.epoch();
        let commit = self.commits.enter(&epoch.primary());
        if !self.in_flight().is_current(epoch) || self.is_purged(about.times, url, about.head) {
            return None;
        }
        if !self.begin_commit(epoch, &about.key) {
            return None;
        }
        // From here on nobody else stores anything under the key.
        let was_on_disk = self.on_disk(&about.key);
        // A request that finds it there has it: no later request gets an older one.
        writer.complete();
        let Some(borrowed) = dir.scheme.put(&about, &[body]) else {
            writer.flow().fetch().go_on();
            return None;
        };
        drop(commit);
        let belongs_to_memory = was_on_disk && about.body_bytes <= self.memory_object_bytes_max();
        if belongs_to_memory && let Some(body) = Body::in_pages(self.tier(), body) {
            // An answer that replaces another has been requested before.
            let object =
                Object::new(about.key, url.into(), Arc::clone(&head.head), *about.times, body);
            self.insert_current(epoch, about.key, Entry::Object(Arc::new(object)));
        }
        writer.flow().note_stored();
        writer.flow().reserve(reserved);
        writer.finish_borrowed(borrowed);
        Some(head)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use humboldt_policy::Policy;

    use super::*;
    use crate::cache::{Arrived, Storable};
    use crate::disk::tests::{SETTINGS, configs};
    use crate::disk::{DiskEntry, Lookup};
    use crate::events::NoEvents;
    use crate::flow::{FlowReader, ReaderKind};
    use crate::in_flight::Begin;
    use crate::key::Key;
    use crate::purges::Purge;
    use crate::scheme::{Record, RecordKind};
    use crate::settings::{CacheSettings, InTransit, MemoryMode};
    use crate::testing::{TestScheme, block_on, key, pattern, some_head, some_times};

    const URL: &[u8] = b"http://a.example/x";
    const BODY_BYTES: usize = 10_000;

    struct Fixture {
        cache: Arc<Cache>,
        scheme: Arc<TestScheme>,
    }

    /// The way in which an answer arrives.
    #[derive(Copy, Clone, Debug, PartialEq, Eq)]
    enum Comes {
        /// Whole, with its head.
        AtOnce,
        /// In pieces.
        Slowly,
    }

    /// One megabyte of memory, for a hundred objects, and a directory that takes everything at
    /// once.
    fn fixture(memory_mode: MemoryMode) -> Fixture {
        let scheme = TestScheme::new("/one");
        scheme.faults.at_once.store(true, SeqCst);
        scheme.faults.at_hand.store(true, SeqCst);
        let settings = CacheSettings { cache_mem_bytes: 1 << 20, memory_mode, ..SETTINGS };
        let dirs = configs(std::slice::from_ref(&scheme));
        Fixture { cache: Cache::new(settings, 1, dirs, Arc::new(NoEvents)), scheme }
    }

    fn body(number: u64) -> Vec<u8> {
        pattern(number as usize, number as usize + BODY_BYTES)
    }

    impl Fixture {
        fn lead(&self, key: Key) -> (FlowWriter, FlowReader) {
            let Begin::Lead(writer) = self.cache.begin_or_join(key, key, URL) else {
                panic!("somebody else leads")
            };
            let reader = writer.subscribe(ReaderKind::Client).expect("at the start");
            (writer, reader)
        }

        fn reconfigure(&self, settings: CacheSettings) {
            self.cache.reconfigure(settings, configs(std::slice::from_ref(&self.scheme)));
        }

        /// Publishes a head as for a directory that takes the body at once or as it arrives.
        fn publish(&self, writer: &mut FlowWriter, body_bytes: usize, at_once: bool) {
            let whole_bytes_max = if at_once { u64::MAX } else { 0 };
            self.scheme.whole_bytes_max.store(whole_bytes_max, SeqCst);
            let head = some_head();
            let (info, dir) = self.cache.fate(Arrived {
                url: URL,
                head: &head,
                key: writer.key(),
                body_bytes: Some(body_bytes as u64),
                vary: None,
                storable: Storable::Yes(some_times()),
            });
            assert!(dir.is_some());
            writer.publish_head(Arc::new(head), info);
        }

        /// Fetches an object; returns whether its body was lent.
        fn fetch_body(&self, number: u64, comes: Comes, body: &[u8]) -> bool {
            let (mut writer, mut reader) = self.lead(key(number));
            self.publish(&mut writer, body.len(), true);
            let dir = self.cache.dirs()[0].clone();
            let lent = comes == Comes::AtOnce
                && self.cache.store_lending(&mut writer, URL, &dir, body).is_some();
            if !lent {
                block_on(writer.append(body)).expect("memory is there");
                writer.finish(None);
                self.cache.store(writer, URL, Some(&dir)).expect("it was kept whole");
            }
            let mut slices = Vec::new();
            assert_eq!(reader.slices(&mut slices, u64::MAX), body.len() as u64);
            assert!(slices.iter().flat_map(|slice| slice.to_vec()).collect::<Vec<_>>() == body);
            reader.advance(body.len() as u64);
            assert!(self.scheme.body(&key(number)).is_some_and(|stored| stored == body));
            lent
        }

        fn fetch(&self, number: u64, comes: Comes) -> bool {
            self.fetch_body(number, comes, &body(number))
        }

        fn in_memory(&self, number: u64) -> bool {
            self.cache.mem().contains(&key(number))
        }

        /// Memory's entry of an object.
        fn memory_has(&self, number: u64, body: &[u8]) -> bool {
            matches!(self.cache.lookup(&key(number)), Some(Entry::Object(object))
                if object.parts().collect::<Vec<_>>().concat() == body)
        }

        /// Fetches until memory is full, and returns the number of the next object.
        fn fill(&self) -> u64 {
            let full = (1000..1200).find(|&number| {
                self.fetch(number, Comes::AtOnce);
                !self.in_memory(number)
            });
            full.expect("memory is full") + 1
        }

        /// Asks for an object that is not in memory.
        fn hit(&self, number: u64) {
            let key = key(number);
            let Lookup::Found(DiskEntry::Object(hit)) = block_on(self.cache.open(key, &key, URL))
            else {
                panic!("{number} is there")
            };
            assert!(block_on(hit.hold(&self.cache)).is_some());
        }
    }

    #[test]
    fn while_there_is_room_everything_goes_to_memory_and_then_what_comes_again() {
        let f = fixture(MemoryMode::Auto);
        let next = f.fill();
        assert!(next > 1050 && (1000..next - 1).all(|number| f.in_memory(number)), "{next}");
        for comes in [Comes::AtOnce, Comes::Slowly] {
            let number = next + comes as u64;
            assert_eq!(f.fetch(number, comes), comes == Comes::AtOnce);
            assert!(!f.in_memory(number), "{comes:?}");
            f.hit(number);
            assert!(f.in_memory(number), "the second request, {comes:?}");
        }
    }

    #[test]
    fn nobody_has_to_leave_a_full_memory_for_a_first_request() {
        let f = fixture(MemoryMode::Auto);
        let next = f.fill();
        let before = f.cache.mem().used_bytes();
        assert!((next..next + 100).all(|number| f.fetch(number, Comes::AtOnce)));
        assert_eq!(f.cache.mem().used_bytes(), before);
        assert!((1000..next - 1).all(|number| f.in_memory(number)));
        // A body that comes in pieces needs some pages of memory while it comes, and they stay
        // free.
        (next + 100..next + 200).for_each(|number| assert!(!f.fetch(number, Comes::Slowly)));
        let left = (1000..next - 1).filter(|&number| f.in_memory(number)).count() as u64;
        assert!(left >= next - 1000 - 4, "{left} of {}", next - 1000);
    }

    #[test]
    fn modes_say_what_memory_keeps() {
        for (mode, keeps_fetched, keeps_hit) in [
            (MemoryMode::Always, true, true),
            (MemoryMode::Disk, false, true),
            (MemoryMode::Network, true, false),
        ] {
            let f = fixture(mode);
            // More than memory holds.
            for number in 0..200 {
                let comes = if number % 2 == 0 { Comes::AtOnce } else { Comes::Slowly };
                assert_eq!(f.fetch(number, comes), !keeps_fetched && comes == Comes::AtOnce);
                assert_eq!(f.in_memory(number), keeps_fetched, "{mode:?} {number}");
            }
            f.cache.mem().remove(&key(0));
            f.hit(0);
            assert_eq!(f.in_memory(0), keeps_hit, "{mode:?}");
        }
    }

    #[test]
    fn an_object_that_was_hit_on_disk_counts_as_asked_for_twice() {
        let f = fixture(MemoryMode::Always);
        f.cache.mem().set_policy(Policy::S3Fifo);
        // Enough that the first ones are forgotten.
        (0..900).for_each(|number| assert!(!f.fetch(number, Comes::AtOnce)));
        assert!(!f.in_memory(0));
        f.hit(0);
        // Objects with one request pass by.
        (900..1100).for_each(|number| assert!(!f.fetch(number, Comes::AtOnce)));
        assert!(f.in_memory(0) && !f.in_memory(900));
    }

    #[test]
    fn a_directory_that_takes_nothing_at_once_leaves_the_answer_in_memory() {
        let f = fixture(MemoryMode::Auto);
        let next = f.fill();
        f.scheme.faults.at_once.store(false, SeqCst);
        for (number, mode) in [(next, MemoryMode::Auto), (next + 1, MemoryMode::Disk)] {
            let settings =
                CacheSettings { cache_mem_bytes: 1 << 20, memory_mode: mode, ..SETTINGS };
            f.reconfigure(settings);
            let (mut writer, _reader) = f.lead(key(number));
            f.publish(&mut writer, BODY_BYTES, true);
            let dir = f.cache.dirs()[0].clone();
            assert!(f.cache.store_lending(&mut writer, URL, &dir, &body(number)).is_none());
            block_on(writer.append(&body(number))).expect("memory is there");
            writer.finish(None);
            let stored = f.cache.store(writer, URL, Some(&dir)).expect("kept whole");
            assert_eq!(
                (stored.on_disk, stored.in_memory),
                (false, mode == MemoryMode::Auto),
                "{mode:?}"
            );
        }
    }

    #[test]
    fn what_a_directory_still_writes_comes_back_to_memory_for_those_who_ask_for_it() {
        let f = fixture(MemoryMode::Auto);
        f.scheme.faults.at_once.store(false, SeqCst);
        let dir = f.cache.dirs()[0].clone();
        let begin = |number| f.cache.begin_or_join(key(number), key(number), URL);
        let write = |number| {
            let (mut writer, _reader) = f.lead(key(number));
            f.publish(&mut writer, BODY_BYTES, true);
            block_on(writer.append(&body(number))).expect("memory is there");
            writer.finish(None);
            let until_written = writer.subscribe(ReaderKind::Disk).expect("at the start");
            assert!(!f.cache.store(writer, URL, Some(&dir)).expect("kept whole").on_disk);
            f.cache.mem().remove(&key(number));
            until_written
        };
        let until_written = write(1);
        let Begin::Wait(waiter) = begin(1) else { panic!("it is being written") };
        let newer = Entry::Object(crate::testing::object_of(key(1), Body::default()));
        f.cache.mem().insert(key(1), newer);
        assert!(!f.cache.recall(waiter.flow()) && f.memory_has(1, b""), "a newer head, perhaps");
        f.cache.mem().insert(key(1), Entry::HitForMiss { until: i64::MAX });
        assert!(!f.cache.recall(waiter.flow()) && !f.memory_has(1, &body(1)), "nor a marker");
        f.cache.mem().remove(&key(1));
        assert!(f.cache.recall(waiter.flow()) && f.memory_has(1, &body(1)));
        f.cache.mem().remove(&key(1));
        drop(until_written);
        assert!(!f.cache.recall(waiter.flow()) && !f.in_memory(1), "it is in the directory");
        drop(waiter);

        // Those who wait already when it is purged get nothing of it.
        let _until_written = write(2);
        let Begin::Wait(waiter) = begin(2) else { panic!("it is being written") };
        let prefix = Purge::prefix(URL).expect("a good prefix");
        f.cache.purges().register_now(&[prefix]).expect("in memory");
        assert!(!f.cache.recall(waiter.flow()) && !f.in_memory(2));
        let _until_written = write(3);
        let Begin::Wait(waiter) = begin(3) else { panic!("it is being written") };
        block_on(f.cache.purge(key(3)));
        assert!(!f.cache.recall(waiter.flow()) && !f.in_memory(3));
        let _until_written = write(4);
        let Begin::Wait(waiter) = begin(4) else { panic!("it is being written") };
        let settings = CacheSettings { memory_object_bytes_max: 100, ..SETTINGS };
        f.reconfigure(settings);
        assert!(!f.cache.recall(waiter.flow()) && !f.in_memory(4), "too large for memory");
    }

    #[test]
    fn a_newer_answer_takes_the_place_of_an_older_one_everywhere() {
        for comes in [Comes::AtOnce, Comes::Slowly] {
            let f = fixture(MemoryMode::Auto);
            let next = f.fill();
            // In memory and on disk; on disk alone.
            for number in [1000, next] {
                f.fetch(next, Comes::AtOnce);
                f.fetch_body(number, comes, &body(number + 5000));
                assert!(f.memory_has(number, &body(number + 5000)), "{comes:?} {number}");
            }
        }
    }

    #[test]
    fn whoever_still_reads_the_older_answer_does_not_bring_it_back() {
        for comes in [Comes::AtOnce, Comes::Slowly] {
            let f = fixture(MemoryMode::Auto);
            f.fill();
            // Stored so long ago that its request is forgotten.
            let (key, url, head, times) =
                (key(1), URL.into(), some_head().bytes().into(), some_times());
            f.scheme.place(Record { key, kind: RecordKind::Object, url, head, times }, &body(1));
            let Lookup::Found(DiskEntry::Object(older)) = block_on(f.cache.open(key, &key, URL))
            else {
                panic!("it is there")
            };
            assert_eq!(f.fetch_body(1, comes, &body(9000)), comes == Comes::AtOnce);
            assert!(block_on(older.into_object(&f.cache)).is_some());
            assert!(f.memory_has(1, &body(9000)), "{comes:?}");
        }
    }

    #[test]
    fn an_answer_too_large_for_memory_takes_the_older_one_out_of_it() {
        let f = fixture(MemoryMode::Auto);
        // What is too large is kept whole on its way, all the same.
        let (memory_object_bytes_max, in_transit) = (20_000, InTransit::Memory);
        f.reconfigure(CacheSettings { memory_object_bytes_max, in_transit, ..SETTINGS });
        for (number, comes) in [(1, Comes::AtOnce), (2, Comes::Slowly)] {
            f.fetch(number, comes);
            assert!(f.in_memory(number));
            f.fetch_body(number, comes, &pattern(0, 30_000));
            assert!(!f.in_memory(number), "{comes:?}");
        }
        // As large that it is not even kept whole on its way.
        f.fetch(3, Comes::AtOnce);
        let (mut writer, mut reader) = f.lead(key(3));
        f.publish(&mut writer, 4 << 20, false);
        for _ in 0..(4 << 20) / 30_000 {
            block_on(writer.append(&pattern(0, 30_000))).expect("memory is there");
            reader.advance(30_000);
        }
        writer.finish(None);
        assert!(f.cache.store(writer, URL, None).is_none() && !f.in_memory(3));
    }

    #[test]
    fn a_fetch_that_began_before_a_purge_leaves_what_came_after_it() {
        let f = fixture(MemoryMode::Auto);
        let (mut before, _reader) = f.lead(key(1));
        f.publish(&mut before, BODY_BYTES, true);
        block_on(f.cache.purge(key(1)));
        f.fetch_body(1, Comes::AtOnce, &body(2));
        block_on(before.append(&body(1))).expect("memory is there");
        before.finish(None);
        let dir = f.cache.dirs()[0].clone();
        let stored = f.cache.store(before, URL, Some(&dir)).expect("it was kept whole");
        assert!(!stored.in_memory && !stored.on_disk && f.memory_has(1, &body(2)));
    }

    #[test]
    fn what_was_purged_meanwhile_is_not_stored() {
        let f = fixture(MemoryMode::Disk);
        let dir = f.cache.dirs()[0].clone();
        let (mut writer, _reader) = f.lead(key(1));
        f.publish(&mut writer, BODY_BYTES, true);
        block_on(f.cache.purge(key(1)));
        assert!(f.cache.store_lending(&mut writer, URL, &dir, &body(1)).is_none());
        let (mut writer, _reader) = f.lead(key(2));
        f.publish(&mut writer, BODY_BYTES, true);
        let prefix = Purge::prefix(URL).expect("a good prefix");
        f.cache.purges().register_now(&[prefix]).expect("in memory");
        assert!(f.cache.store_lending(&mut writer, URL, &dir, &body(2)).is_none());
        let (mut writer, _reader) = f.lead(key(3));
        f.publish(&mut writer, 0, true);
        let _gate = f.cache.commits.enter(&key(3));
        assert!(f.cache.store_lending(&mut writer, URL, &dir, b"").is_none(), "an empty body");
        assert!((1..4).all(|number| f.scheme.body(&key(number)).is_none()));
    }
}
