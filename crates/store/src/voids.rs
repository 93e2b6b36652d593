//! Answers that an unsafe method makes void: out of memory, flights and every index at once; off
//! the disks behind the answer (RFC 9111 4.4 asks for no more). Only a PURGE is answered when a
//! crash brings nothing back.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;

use crate::cache::Cache;
use crate::dirs::{Counted, Dir, Purged, Table, VOIDS_MAX};
use crate::flow::FlowWriter;
use crate::key::Key;
use crate::together;
use crate::versions::{Identity, Voiding, identity_of};

impl Cache {
    /// An answer has made all earlier ones of this URL void, and may be stored itself, as one to
    /// POST: the flow is for it. Nobody gets an earlier one from memory, or joins its fetch;
    /// [`Cache::remove_void`] is for the directories. `purge_number` is that of the newest purge by
    /// tag or prefix when it was asked for.
    pub fn void_for(&self, primary: Key, purge_number: u64) -> (FlowWriter, Voiding) {
        let voiding = Voiding::new(self.in_flight().versions(), primary);
        let writer = self.in_flight().purge_for(primary, purge_number);
        self.remove_from_memory(&primary);
        (writer, voiding)
    }

    /// The same for another URL that the answer names.
    pub fn void(&self, primary: Key) -> Voiding {
        let voiding = Voiding::new(self.in_flight().versions(), primary);
        self.in_flight().purge(primary);
        self.remove_from_memory(&primary);
        voiding
    }

    /// Removes void records from all directories. After the first poll of the future, no index has
    /// them; the rest waits for disks, and no request needs to wait for that. The future must be
    /// polled to its end; the number of waiting ones is bounded ([`VOIDS_MAX`]).
    pub async fn remove_void(&self, mut voiding: Voiding) {
        let (table, primary) = (self.table(), voiding.primary());
        table.purge_absent(primary);
        // A record that is under way to a directory may take a while to arrive there.
        let is_nothing_on_its_way = self.commits.is_clear(&primary);
        if is_nothing_on_its_way {
            together::all_then(begin_behind(&table, &primary), || voiding.show()).await;
            return;
        }
        let mut parts = begin_behind(&table, &primary);
        parts.push(Box::pin(self.remove_when_passed(&table, &primary, voiding)));
        together::all(parts).await;
    }

    async fn remove_when_passed(&self, table: &Table, primary: &Key, mut voiding: Voiding) {
        let Some(_place) = Counted::take(&self.voids, VOIDS_MAX) else {
            // Nobody knows to which of them it is on its way. None is used before that is over.
            return table.dirs.iter().for_each(|dir| dir.owe(*primary));
        };
        self.commits.let_pass(primary).await;
        let newer = voiding.newer();
        if newer.is_empty() {
            together::all_then(begin_behind(table, primary), || voiding.show()).await;
        } else {
            together::all(table.dirs.iter().map(|dir| remove_but(dir, primary, &newer)).collect())
                .await;
        }
    }
}

/// Removes a key unless the directory has one of these answers under it. Until that is done,
/// nothing is read there.
fn remove_but<'a>(dir: &'a Arc<Dir>, key: &'a Key, newer: &'a [Identity]) -> Removal<'a> {
    Box::pin(async move {
        let found = dir.scheme.open(key).await;
        let is_newer = matches!(&found, Ok(Some(open))
            if identity_of(&open.record.times).is_some_and(|identity| newer.contains(&identity)));
        drop(found);
        if !is_newer {
            dir.remove_behind(key).await;
        }
    })
}

type Removal<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// From all directories at the same time, each with its own bound: one that hangs keeps no other
/// from anything.
fn begin_behind<'a>(table: &'a Table, key: &'a Key) -> Vec<Removal<'a>> {
    let begin = |dir: &'a Arc<Dir>| -> Removal<'a> { Box::pin(dir.remove_behind(key)) };
    table.dirs.iter().map(begin).collect()
}

/// All directories at the same time: one whose disk hangs does not delay the others. `then` is
/// called whenever all have been asked. Returns the worst result.
pub(crate) async fn remove_from_all(table: &Table, key: &Key, then: impl FnMut()) -> Purged {
    let purged = Cell::new(Purged::Absent);
    let begin = |dir: &'_ Arc<Dir>| -> Pin<Box<dyn Future<Output = ()> + '_>> {
        let (dir, purged) = (Arc::clone(dir), &purged);
        Box::pin(async move { purged.set(dir.remove(key).await.max(purged.get())) })
    };
    together::all_then(table.dirs.iter().map(begin).collect(), then).await;
    purged.get()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;
    use std::task::{Context, Poll};

    use super::*;
    use crate::dirs::DirConfig;
    use crate::events::NoEvents;
    use crate::flow::FlowInfo;
    use crate::scheme::{Record, RecordKind, Scheme};
    use crate::settings::{CacheSettings, DirSelect, InTransit, MemoryMode};
    use crate::testing::{TestScheme, block_on, info, key, some_head, some_times};
    use crate::versions::Standing;
    use humboldt_freshness::Times;

    const SETTINGS: CacheSettings = CacheSettings {
        cache_mem_bytes: 1 << 20,
        memory_policy: humboldt_policy::Policy::Lru,
        memory_object_bytes_max: 1 << 16,
        disk_object_bytes_max: 1 << 20,
        read_ahead_bytes: 16 * 1024,
        dir_select: DirSelect::LeastLoad,
        memory_mode: MemoryMode::Auto,
        in_transit: InTransit::Auto,
    };

    fn cache_over(schemes: &[Arc<TestScheme>]) -> Arc<Cache> {
        let dirs = schemes.iter().enumerate().map(|(index, scheme)| DirConfig {
            index,
            scheme: scheme.clone(),
            object_bytes_max: u64::MAX,
            read_only: false,
        });
        Cache::new(SETTINGS, 1, dirs.collect(), Arc::new(NoEvents))
    }

    fn put(scheme: &TestScheme, n: u64) {
        let (url, head) = (b"http://a.example/".as_slice().into(), some_head().bytes().into());
        scheme.place(
            Record { key: key(n), kind: RecordKind::Object, url, head, times: some_times() },
            b"old",
        );
    }

    fn poll_once(future: Pin<&mut impl Future<Output = ()>>) -> Poll<()> {
        future.poll(&mut Context::from_waker(std::task::Waker::noop()))
    }

    #[test]
    fn what_is_void_is_found_nowhere_while_a_disk_hangs() {
        let schemes = [TestScheme::new("/hangs"), TestScheme::new("/works")];
        let cache = cache_over(&schemes);
        schemes.iter().for_each(|scheme| put(scheme, 1));
        assert!(cache.on_disk(&key(1)));
        schemes[0].faults.removal_hangs.store(true, SeqCst);
        let (_, voiding) = cache.void_for(key(1), 0);
        let mut rest = std::pin::pin!(cache.remove_void(voiding));
        assert!(poll_once(rest.as_mut()).is_pending(), "the disk hangs");
        assert!(!cache.on_disk(&key(1)), "and no index has it");
        schemes[0].faults.removal_hangs.store(false, SeqCst);
        assert!(poll_once(rest).is_ready());
        assert!(!schemes[0].contains(&key(1)));
    }

    #[test]
    fn a_commit_that_hangs_hides_nothing_that_is_void() {
        let schemes = [TestScheme::new("/a")];
        let cache = cache_over(&schemes);
        put(&schemes[0], 1);
        let commit = cache.commits.enter(&key(1));
        let mut rest = std::pin::pin!(cache.remove_void(cache.void(key(1))));
        assert!(poll_once(rest.as_mut()).is_pending());
        assert!(!cache.on_disk(&key(1)), "removed at once");
        put(&schemes[0], 1); // the commit ends after all
        drop(commit);
        block_on(rest);
        assert!(!cache.on_disk(&key(1)), "and what the commit brought too");
    }

    #[test]
    fn what_was_stored_since_is_not_void() {
        let schemes = [TestScheme::new("/a"), TestScheme::new("/b")];
        schemes.iter().for_each(|scheme| scheme.faults.at_once.store(true, SeqCst));
        let cache = cache_over(&schemes);
        let commit = cache.commits.enter(&key(1));
        let (mut writer, voiding) = cache.void_for(key(1), 0);
        let mut rest = std::pin::pin!(cache.remove_void(voiding));
        assert!(poll_once(rest.as_mut()).is_pending());
        // The answer to POST itself goes into one directory, the void ones into the other.
        writer.answer(2000, None);
        assert_eq!(writer.announce(&[(key(1), 0)]), Standing::Newest);
        let times = Some(Times { serial: 7, ..some_times() });
        writer.publish_head(Arc::new(some_head()), FlowInfo { times, ..info(key(1), 1 << 20) });
        block_on(writer.append(b"new")).expect("received");
        writer.finish(None);
        let stored =
            cache.store(writer, b"http://a.example/", Some(&cache.dirs()[0])).expect("stored");
        assert!(stored.on_disk);
        put(&schemes[1], 1);
        drop(commit);
        block_on(rest);
        assert!(schemes[0].contains(&key(1)), "newer than what made void");
        assert!(!schemes[1].contains(&key(1)));
    }

    #[test]
    fn a_directory_that_hangs_leaves_nothing_void_in_another() {
        let schemes = [TestScheme::new("/hangs"), TestScheme::new("/works")];
        let cache = cache_over(&schemes);
        put(&schemes[0], 1);
        schemes[0].faults.removal_hangs.store(true, SeqCst);
        let commit = cache.commits.enter(&key(1));
        let mut rest = std::pin::pin!(cache.remove_void(cache.void(key(1))));
        assert!(poll_once(rest.as_mut()).is_pending());
        put(&schemes[1], 1); // the commit ends
        drop(commit);
        assert!(poll_once(rest.as_mut()).is_pending());
        assert!(!cache.on_disk(&key(1)));
        schemes[0].faults.removal_hangs.store(false, SeqCst);
        block_on(rest);
    }

    #[test]
    fn a_directory_owes_what_is_too_much_to_wait() {
        let schemes = [TestScheme::new("/hangs"), TestScheme::new("/works")];
        let cache = cache_over(&schemes);
        schemes[0].faults.removal_hangs.store(true, SeqCst);
        let mut waiting: Vec<_> = (0..VOIDS_MAX as u64)
            .map(|n| Box::pin(cache.remove_void(cache.void(key(n)))))
            .collect();
        assert!(waiting.iter_mut().all(|rest| poll_once(rest.as_mut()).is_pending()));
        let in_service = || cache.dirs().iter().map(|dir| dir.is_in_service()).collect::<Vec<_>>();
        assert_eq!(in_service(), [true, true]);
        schemes.iter().for_each(|scheme| put(scheme, u64::MAX));
        block_on(cache.remove_void(cache.void(key(u64::MAX))));
        assert_eq!(in_service(), [false, true], "the one that hangs owes one");
        assert!(!schemes.iter().any(|scheme| scheme.contains(&key(u64::MAX))), "no index has it");
        schemes[0].faults.removal_hangs.store(false, SeqCst);
        waiting.into_iter().for_each(block_on);
        block_on(cache.maintain());
        assert_eq!(in_service(), [true, true], "it has paid");
    }

    /// One more than may wait: the directory stays out of use until the record under way has
    /// arrived.
    #[test]
    fn what_is_void_does_not_come_back_where_too_many_wait_for_what_is_on_its_way() {
        let schemes = [TestScheme::new("/a")];
        let cache = cache_over(&schemes);
        let hanging = cache.commits.enter(&key(1));
        let mut waiting: Vec<_> =
            (0..VOIDS_MAX).map(|_| Box::pin(cache.remove_void(cache.void(key(1))))).collect();
        assert!(waiting.iter_mut().all(|rest| poll_once(rest.as_mut()).is_pending()));
        let is_in_service = || cache.dirs().iter().all(|dir| dir.is_in_service());
        block_on(cache.maintain());
        assert!(is_in_service());
        let commit = cache.commits.enter(&key(2));
        block_on(cache.remove_void(cache.void(key(2))));
        block_on(cache.maintain());
        assert!(!is_in_service(), "what is void is still on its way");
        put(&schemes[0], 2); // there it is
        assert!(!cache.on_disk(&key(2)));
        drop(commit);
        assert!(!cache.on_disk(&key(2)));
        block_on(cache.maintain());
        assert!(is_in_service());
        assert!(!schemes[0].contains(&key(2)));
        drop(hanging);
        waiting.into_iter().for_each(block_on);
    }
}
