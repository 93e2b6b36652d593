//! Every interleaving of a core and two other threads (`humboldt-model`).

use std::pin::Pin;

use humboldt_model::{Bell, Thread, check, spawn};

use super::*;

/// More need minutes.
const PREEMPTIONS: usize = 3;

/// A core that runs its collector whenever that has been woken.
struct Core {
    collector: Collector,
    woken: Arc<Bell>,
}

impl Core {
    fn new() -> Self {
        let collector = Collector { mailbox: Arc::default(), wakers: Vec::new() };
        Self { collector, woken: Bell::new() }
    }

    fn turn(&mut self) {
        let waker = self.woken.waker();
        let poll = Pin::new(&mut self.collector).poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
    }
}

/// What a task of the core waits for.
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
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}

/// Polls a task: whether it has ended.
fn is_done(place: &Mutex<Place>, task: &Arc<Bell>, mailbox: &Arc<Mailbox>) -> bool {
    let mut place = place.lock();
    place.waiting = Some(Waiting { waker: task.waker(), mailbox: Some(Arc::clone(mailbox)) });
    place.is_done
}

#[test]
fn a_core_that_sleeps_is_woken_for_all_that_others_have_completed() {
    check(PREEMPTIONS, || {
        let mut core = Core::new();
        let mailbox = Arc::clone(&core.collector.mailbox);
        let mut tasks: Vec<(Arc<Mutex<Place>>, Arc<Bell>)> =
            (0..2).map(|_| (Arc::default(), Bell::new())).collect();
        let places: Vec<_> = tasks.iter().map(|(place, _)| Arc::clone(place)).collect();
        let others: Vec<_> =
            places.into_iter().map(|place| spawn(move || complete(&place))).collect();
        tasks.retain(|(place, task)| !is_done(place, task, &mailbox));
        core.turn();
        while !tasks.is_empty() {
            tasks.retain(|(place, task)| task.take() == 0 || !is_done(place, task, &mailbox));
            if !tasks.is_empty() {
                core.woken.wait();
                core.turn();
            }
        }
        others.into_iter().for_each(Thread::join);
    });
}

#[test]
fn whoever_is_woken_while_the_runtime_ends_is_woken_once() {
    check(PREEMPTIONS, || {
        let mut core = Core::new();
        let mailbox = Arc::clone(&core.collector.mailbox);
        let tasks = [Bell::new(), Bell::new()];
        let others = tasks.clone().map(|task| {
            let mailbox = Arc::clone(&mailbox);
            spawn(move || mailbox.wake(task.waker()))
        });
        core.turn();
        let woken = Arc::clone(&core.woken);
        drop(core);
        others.into_iter().for_each(Thread::join);
        assert_eq!(tasks.map(|task| task.take()), [1, 1]);
        assert_eq!(Arc::strong_count(&woken), 1, "nothing keeps the runtime");
    });
}
