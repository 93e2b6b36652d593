//! Completions by other threads for the tasks of a core. The core itself wakes these tasks, all at
//! once.
//!
//! A task that another thread wakes waits in a queue of its own, out of which the core takes one in
//! 31 polls while it has work of its own. On a busy core completed writes would pile up there
//! without end, each with its object. So other threads leave the wakers here and wake the future
//! that the core runs ([`with_mailbox`]). That one is in no queue: it has its turn after 61 polls
//! at most. It wakes the others on their own thread, where they queue like everything else.
//!
//! A core that blocks on a future, instead of awaiting it, must not wait for one that is woken this
//! way: the mailbox would not be emptied. On a runtime without `with_mailbox`, as in tests, a task
//! empties it, which is in the queue itself.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tokio::runtime::{Handle, Id, RuntimeFlavor};

use crate::sync::Mutex;

/// Wakers for the tasks of one core.
#[derive(Default)]
struct Mailbox(Mutex<State>);

#[derive(Default)]
struct State {
    /// At most one for each operation or waiting task since the collector had its turn.
    wakers: Vec<Waker>,
    /// Wakes the future that empties this; taken when that has been done.
    collector: Option<Waker>,
    /// There is no such future any more.
    has_ended: bool,
}

/// A task that waits for other threads.
pub struct Waiting {
    waker: Waker,
    mailbox: Option<Arc<Mailbox>>,
}

impl Waiting {
    /// The task that is being polled.
    pub fn of(context: &Context<'_>) -> Self {
        Self { waker: context.waker().clone(), mailbox: here() }
    }

    /// Whether this is the task that is being polled.
    pub fn is_of(&self, context: &Context<'_>) -> bool {
        self.waker.will_wake(context.waker())
    }

    /// Wakes it, from any thread.
    pub fn wake(self) {
        match self.mailbox {
            Some(mailbox) => mailbox.wake(self.waker),
            None => self.waker.wake(),
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        match &self.mailbox {
            Some(mailbox) => mailbox.wake(self.waker.clone()),
            None => self.waker.wake_by_ref(),
        }
    }
}

/// A waker of the task that is being polled, for other threads and libraries that know only wakers.
pub fn waker(context: &Context<'_>) -> Waker {
    Arc::new(Waiting::of(context)).into()
}

thread_local! {
    static HERE: RefCell<Option<(Id, Arc<Mailbox>)>> = const { RefCell::new(None) };
}

/// Runs the main future of a core, which has a mailbox from the first poll on.
pub(crate) async fn with_mailbox<F: Future>(main: F) -> F::Output {
    let mailbox = Arc::new(Mailbox::default());
    let own = (Handle::current().id(), Arc::clone(&mailbox));
    HERE.with(|place| place.borrow_mut().replace(own));
    let mut collector = Collector { mailbox, wakers: Vec::new() };
    let mut main = pin!(main);
    poll_fn(move |context| {
        collector.collect(context);
        main.as_mut().poll(context)
    })
    .await
}

/// The mailbox of this core; `None` on a thread that is no core: it has no runtime, or one of
/// several threads.
fn here() -> Option<Arc<Mailbox>> {
    let runtime = Handle::try_current().ok()?;
    if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread {
        return None;
    }
    let find = |place: &RefCell<Option<(Id, Arc<Mailbox>)>>| {
        let mut place = place.borrow_mut();
        match &*place {
            Some((id, mailbox)) if *id == runtime.id() && !mailbox.0.lock().has_ended => {
                Arc::clone(mailbox)
            }
            _ => {
                let mailbox = Arc::new(Mailbox::default());
                runtime.spawn(Collector { mailbox: Arc::clone(&mailbox), wakers: Vec::new() });
                *place = Some((runtime.id(), Arc::clone(&mailbox)));
                mailbox
            }
        }
    };
    HERE.try_with(find).ok()
}

impl Mailbox {
    /// Has a task of this core woken; for all threads.
    fn wake(&self, waker: Waker) {
        let mut state = self.0.lock();
        if state.has_ended {
            drop(state);
            return waker.wake();
        }
        state.wakers.push(waker);
        let collector = state.collector.take();
        drop(state);
        if let Some(collector) = collector {
            collector.wake();
        }
    }
}

/// Empties a mailbox. It ends with its runtime.
struct Collector {
    mailbox: Arc<Mailbox>,
    /// Kept for its capacity.
    wakers: Vec<Waker>,
}

impl Collector {
    fn collect(&mut self, context: &Context<'_>) {
        let Self { mailbox, wakers } = self;
        {
            let mut state = mailbox.0.lock();
            state.collector = Some(context.waker().clone());
            mem::swap(&mut state.wakers, wakers);
        }
        wakers.drain(..).for_each(Waker::wake);
    }
}

impl Future for Collector {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.get_mut().collect(context);
        Poll::Pending
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        let State { wakers, collector, .. } = {
            let mut state = self.mailbox.0.lock();
            mem::replace(&mut *state, State { has_ended: true, ..State::default() })
        };
        // This task's own waker would keep the runtime.
        drop(collector);
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod models;

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use tokio::runtime::{LocalOptions, LocalRuntime};

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn runtime() -> LocalRuntime {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.build_local(LocalOptions::default()).expect("a runtime")
    }

    /// A task that always has more to do, as those of a busy core.
    async fn keep_busy() {
        poll_fn(|context| {
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Turns of a busy core until all `tasks` have ended, after another thread has completed their
    /// work.
    fn turns<T>(begin: impl FnOnce(usize) -> (Vec<T>, Box<dyn FnOnce() + Send>)) -> usize
    where
        T: Future + 'static,
        T::Output: 'static,
    {
        const WAITING: usize = 500;
        const OTHERS: usize = 1000;
        let runtime = runtime();
        for _ in 0..100 {
            runtime.spawn_local(keep_busy());
        }
        runtime.block_on(with_mailbox(async {
            // Others wake many tasks without the mailbox.
            let woken = Arc::new(tokio::sync::Notify::new());
            for _ in 0..OTHERS {
                let woken = Arc::clone(&woken);
                tokio::task::spawn_local(async move { woken.notified().await });
            }
            let (waiting, complete) = begin(WAITING);
            let waiting: Vec<_> = waiting.into_iter().map(tokio::task::spawn_local).collect();
            // All of them wait now.
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            let complete = move || {
                woken.notify_waiters();
                complete();
            };
            thread::spawn(complete).join().expect("joined");
            let mut turns = 0;
            while !waiting.iter().all(tokio::task::JoinHandle::is_finished) {
                tokio::task::yield_now().await;
                turns += 1;
            }
            turns
        }))
    }

    /// A turn is at most 61 polls; of tasks that are woken one in 31 polls, some 250 of them are
    /// needed.
    const TURNS_MAX: usize = 40;

    /// The wait of one task.
    #[derive(Default)]
    struct Place {
        is_done: bool,
        waiting: Option<Waiting>,
    }

    fn complete(place: &Mutex<Place>) {
        let waiting = {
            let mut place = place.lock();
            place.is_done = true;
            place.waiting.take()
        };
        waiting.expect("it waits").wake();
    }

    #[test]
    fn a_busy_core_wakes_all_that_other_threads_have_completed() {
        let turns = turns(|count| {
            let places: Vec<Arc<Mutex<Place>>> = (0..count).map(|_| Arc::default()).collect();
            let operations = places.iter().cloned().map(|place| {
                poll_fn(move |context| {
                    let mut place = place.lock();
                    place.waiting = Some(Waiting::of(context));
                    if place.is_done { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            let operations = operations.collect();
            let complete = || places.into_iter().for_each(|place| complete(&place));
            (operations, Box::new(complete))
        });
        assert!(turns <= TURNS_MAX, "{turns} turns");
    }

    #[test]
    fn what_knows_wakers_only_is_woken_like_that_too() {
        let turns = turns(|count| {
            let (senders, receivers): (Vec<_>, Vec<_>) =
                (0..count).map(|_| tokio::sync::oneshot::channel::<()>()).unzip();
            let waiting = receivers.into_iter().map(|mut receiver| {
                poll_fn(move |context| {
                    let waker = waker(context);
                    Pin::new(&mut receiver).poll(&mut Context::from_waker(&waker))
                })
            });
            let complete =
                || senders.into_iter().for_each(|sender| sender.send(()).expect("it waits"));
            (waiting.collect(), Box::new(complete))
        });
        assert!(turns <= TURNS_MAX, "{turns} turns");
    }

    #[test]
    fn it_ends_with_its_runtime_and_forgets_nobody() {
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = || Waker::from(Arc::clone(&count));
        let runtime = runtime();
        let mailbox = runtime.block_on(async { here() }).expect("a core");
        assert!(
            Arc::ptr_eq(&mailbox, &runtime.block_on(async { here() }).expect("a core")),
            "one for a core"
        );
        mailbox.wake(waker());
        drop(runtime);
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "what was left is woken at the end");
        mailbox.wake(waker());
        assert_eq!(count.0.load(Ordering::SeqCst), 2, "and later at once");
        let next = self::runtime().block_on(async { here() }).expect("a core");
        assert!(!Arc::ptr_eq(&mailbox, &next), "another runtime of the thread has another");
        let is_core = thread::spawn(|| here().is_some()).join().expect("joined");
        assert!(!is_core, "a thread without a runtime is no core");
    }
}
