//! Free pages: a magazine for each thread, and a common list behind them.
//!
//! **The order of the locks**: a magazine, then the common list. Nobody takes a magazine while he
//! holds the common list or another magazine. The locks are a parameter, so that a test can go
//! through all interleavings of this very code.

use std::ops::DerefMut;

use crate::sync::{Mutex, MutexGuard};

/// Free pages moved at once between a magazine and the common list.
const MAGAZINE_BATCH: usize = super::MAGAZINE_PAGES_MAX / 2;

/// A lock around a value.
pub(super) trait Lock<T> {
    /// Access to the value until it is dropped.
    type Guard<'a>: DerefMut<Target = T>
    where
        Self: 'a;

    fn new(value: T) -> Self;

    fn lock(&self) -> Self::Guard<'_>;
}

impl<T> Lock<T> for Mutex<T> {
    type Guard<'a>
        = MutexGuard<'a, T>
    where
        Self: 'a;

    fn new(value: T) -> Self {
        Self::new(value)
    }

    fn lock(&self) -> Self::Guard<'_> {
        self.lock()
    }
}

/// Operations of the common list that the magazines need.
pub(super) trait Common<P> {
    /// The pages that are free.
    fn free(&mut self) -> &mut Vec<P>;
}

/// A magazine on a cache line of its own.
#[repr(align(128))]
struct Magazine<M>(M);

/// Free pages of type `P`: `M` locks a magazine, `L` the common list `C`.
pub(super) struct FreePages<M, L> {
    magazines: Box<[Magazine<M>]>,
    common: L,
}

impl<M, L> FreePages<M, L> {
    /// Empty magazines before `common`.
    pub(super) fn new<P, C>(magazines: usize, common: C) -> Self
    where
        M: Lock<Vec<P>>,
        L: Lock<C>,
    {
        Self {
            magazines: (0..magazines).map(|_| Magazine(M::new(Vec::new()))).collect(),
            common: L::new(common),
        }
    }

    /// The common list.
    #[cfg(test)]
    pub(super) fn common(&self) -> &L {
        &self.common
    }

    /// A free page for a thread with this magazine. `carve` makes some that were never used free;
    /// `false` when the system gives no memory.
    pub(super) fn take<P, C>(&self, own: usize, carve: impl FnOnce(&mut C) -> bool) -> Option<P>
    where
        M: Lock<Vec<P>>,
        L: Lock<C>,
        C: Common<P>,
    {
        {
            let mut magazine = self.magazines[own].0.lock();
            if let Some(page) = magazine.pop() {
                return Some(page);
            }
            let mut common = self.common.lock();
            if !common.free().is_empty() || carve(&mut common) {
                let free = common.free();
                let keep = free.len().saturating_sub(MAGAZINE_BATCH);
                magazine.extend(free.drain(keep..));
                return magazine.pop();
            }
        }
        // The system gives no memory, but other threads may have free pages.
        self.magazines.iter().find_map(|magazine| magazine.0.lock().pop())
    }

    /// Takes a page back from a thread with this magazine.
    pub(super) fn put<P, C>(&self, own: usize, page: P)
    where
        M: Lock<Vec<P>>,
        L: Lock<C>,
        C: Common<P>,
    {
        let mut magazine = self.magazines[own].0.lock();
        magazine.push(page);
        if magazine.len() > super::MAGAZINE_PAGES_MAX {
            self.common.lock().free().extend(magazine.drain(..MAGAZINE_BATCH));
        }
    }

    /// Moves free pages to the common list, and hands it to `use_all`. A page that is freed
    /// meanwhile stays in its magazine.
    pub(super) fn gather<P, C, R>(&self, use_all: impl FnOnce(&mut C) -> R) -> R
    where
        M: Lock<Vec<P>>,
        L: Lock<C>,
        C: Common<P>,
    {
        let mut gathered = Vec::new();
        for magazine in &self.magazines {
            // One lock at a time: a thread with a magazine may be waiting for the common list.
            gathered.append(&mut magazine.0.lock());
        }
        let mut common = self.common.lock();
        common.free().append(&mut gathered);
        use_all(&mut common)
    }
}

#[cfg(all(test, not(miri)))]
mod models {
    //! Every interleaving of two threads that use pages and one that gathers them
    //! (`humboldt-model`).

    use std::sync::Arc;

    use humboldt_model::{Mutex, MutexGuard, check, spawn};

    use super::{Common, FreePages, Lock};

    /// Two are enough for an order of locks that is not one.
    const PREEMPTIONS: usize = 3;

    impl<T> Lock<T> for Mutex<T> {
        type Guard<'a>
            = MutexGuard<'a, T>
        where
            Self: 'a;

        fn new(value: T) -> Self {
            Self::new(value)
        }

        fn lock(&self) -> Self::Guard<'_> {
            self.lock()
        }
    }

    /// Pages are numbers; there are `left` that were never used.
    struct Numbers {
        free: Vec<u32>,
        left: u32,
    }

    impl Common<u32> for Numbers {
        fn free(&mut self) -> &mut Vec<u32> {
            &mut self.free
        }
    }

    impl Numbers {
        fn carve(&mut self) -> bool {
            self.left = self.left.saturating_sub(1);
            self.free.push(self.left);
            true
        }
    }

    type Modelled = FreePages<Mutex<Vec<u32>>, Mutex<Numbers>>;

    fn explore(course: impl Fn(Arc<Modelled>) + Send + Sync + 'static) {
        check(PREEMPTIONS, move || {
            let numbers = Numbers { free: Vec::new(), left: 1000 };
            course(Arc::new(Modelled::new::<u32, Numbers>(2, numbers)));
        });
    }

    #[test]
    fn taking_and_gathering_never_wait_for_each_other_in_a_circle() {
        explore(|pages| {
            let gathering = Arc::clone(&pages);
            let gathering = spawn(move || gathering.gather(|all: &mut Numbers| all.free.len()));
            let other = Arc::clone(&pages);
            let other = spawn(move || {
                let page = other.take(1, Numbers::carve).expect("there are more");
                other.put(1, page);
                page
            });
            let (one, two) = (
                pages.take(0, Numbers::carve).expect("there are more"),
                pages.take(0, Numbers::carve).expect("there are more"),
            );
            assert_ne!(one, two, "a page has one owner");
            pages.put(0, one);
            gathering.join();
            other.join();
        });
    }

    #[test]
    fn a_magazine_that_overflows_and_gathering_never_wait_for_each_other_in_a_circle() {
        explore(|pages| {
            (0..super::super::MAGAZINE_PAGES_MAX as u32).for_each(|page| pages.put(0, page));
            let gathering = Arc::clone(&pages);
            let gathering = spawn(move || gathering.gather(|all: &mut Numbers| all.free.len()));
            pages.put(0, 2000);
            gathering.join();
            let mut all = pages.gather(|all: &mut Numbers| std::mem::take(&mut all.free));
            all.sort_unstable();
            all.dedup();
            assert_eq!(
                all.len(),
                super::super::MAGAZINE_PAGES_MAX + 1,
                "none is lost, none is twice there"
            );
        });
    }
}
