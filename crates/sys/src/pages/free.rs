//! Free pages: a magazine for each thread, and a common list behind them.
//!
//! **The order of the locks**: a magazine, then the common list. Nobody takes a magazine while he
//! holds the common list or another magazine. The locks are a parameter, so that a test can go
//! through all interleavings of this very code.

use std::ops::DerefMut;

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

impl<T> Lock<T> for parking_lot::Mutex<T> {
    type Guard<'a>
        = parking_lot::MutexGuard<'a, T>
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

    /// Moves free pages to the common list, and hands that to `use_all`. A page that is freed
    /// meanwhile stays in its magazine.
    pub(super) fn gather<P, C, R>(&self, use_all: impl FnOnce(&mut Vec<P>) -> R) -> R
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
        use_all(common.free())
    }
}

#[cfg(test)]
mod tests {
    //! Every interleaving of two threads that use pages and one that gathers them, as far as `loom`
    //! is asked to go.

    use std::sync::Arc;

    use super::*;

    /// More than this many preemptions in one course are not tried: two are enough for an order of
    /// locks that is not one.
    const PREEMPTIONS_MAX: usize = 3;

    impl<T> Lock<T> for loom::sync::Mutex<T> {
        type Guard<'a>
            = loom::sync::MutexGuard<'a, T>
        where
            Self: 'a;

        fn new(value: T) -> Self {
            Self::new(value)
        }

        fn lock(&self) -> Self::Guard<'_> {
            self.lock().expect("no panic under the lock")
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

    type Modelled = FreePages<loom::sync::Mutex<Vec<u32>>, loom::sync::Mutex<Numbers>>;

    fn explore(course: impl Fn(Arc<Modelled>) + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(PREEMPTIONS_MAX);
        model.check(move || {
            course(Arc::new(Modelled::new::<u32, Numbers>(
                2,
                Numbers { free: Vec::new(), left: 1000 },
            )));
        });
    }

    #[test]
    fn taking_and_gathering_never_wait_for_each_other_in_a_circle() {
        explore(|pages| {
            let gathering = Arc::clone(&pages);
            let gathering = loom::thread::spawn(move || gathering.gather(|all| all.len()));
            let other = Arc::clone(&pages);
            let other = loom::thread::spawn(move || {
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
            gathering.join().expect("no panic");
            other.join().expect("no panic");
        });
    }

    #[test]
    fn a_magazine_that_overflows_and_gathering_never_wait_for_each_other_in_a_circle() {
        explore(|pages| {
            (0..super::super::MAGAZINE_PAGES_MAX as u32).for_each(|page| pages.put(0, page));
            let gathering = Arc::clone(&pages);
            let gathering = loom::thread::spawn(move || gathering.gather(|all| all.len()));
            pages.put(0, 2000);
            gathering.join().expect("no panic");
            let mut all = pages.gather(std::mem::take);
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
