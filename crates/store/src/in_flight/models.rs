//! Every interleaving of requests, answers and purges of one URL (`humboldt-model`).

use humboldt_model::{Thread, block_on, check, spawn};

use super::*;
use crate::flow::{Fate, FlowInfo, Keep, Progress};
use crate::testing::{info, key, some_head, tier};
use crate::versions::Standing;

/// More need minutes.
const PREEMPTIONS: usize = 2;

fn explore(course: impl Fn(Arc<InFlight>) + Send + Sync + 'static) {
    let tier = tier(1 << 20);
    check(PREEMPTIONS, move || course(InFlight::new(Arc::clone(&tier), 0, Arc::default())));
}

fn begin(table: &Arc<InFlight>) -> Begin {
    table.begin_or_join(key(1), key(1), b"")
}

/// The flow of a request.
fn flow(begin: &Begin) -> &Arc<Flow> {
    match begin {
        Begin::Lead(writer) => writer.flow(),
        Begin::Join(reader) | Begin::Wait(reader) => reader.flow(),
    }
}

fn lead(table: &Arc<InFlight>) -> FlowWriter {
    match begin(table) {
        Begin::Lead(writer) => writer,
        Begin::Join(_) | Begin::Wait(_) => panic!("the table is empty"),
    }
}

#[test]
fn of_three_requests_one_leads() {
    explore(|table| {
        let request = || {
            let table = Arc::clone(&table);
            spawn(move || begin(&table))
        };
        let others = [request(), request()];
        let own = begin(&table);
        let [one, two] = others.map(Thread::join);
        let all = [own, one, two];
        assert_eq!(all.iter().filter(|begin| matches!(begin, Begin::Lead(_))).count(), 1);
        assert!(all.iter().all(|begin| Arc::ptr_eq(flow(begin), flow(&all[0]))));
        drop(all);
        assert!(table.is_empty());
    });
}

#[test]
fn after_a_purge_no_request_joins_what_began_before_it() {
    explore(|table| {
        let request = {
            let table = Arc::clone(&table);
            spawn(move || begin(&table))
        };
        let purge = {
            let table = Arc::clone(&table);
            spawn(move || {
                table.purge(key(1));
                let begin = begin(&table);
                assert!(table.is_current(flow(&begin).epoch()));
                begin
            })
        };
        let own = begin(&table);
        let all = [own, request.join(), purge.join()];
        drop(all);
        assert!(table.is_empty());
    });
}

#[test]
fn a_fetch_that_ends_leaves_the_one_in_its_place() {
    explore(|table| {
        let first = lead(&table);
        let ending = spawn(move || drop(first));
        let next = {
            let table = Arc::clone(&table);
            spawn(move || {
                table.purge(key(1));
                lead(&table)
            })
        };
        let next = next.join();
        ending.join();
        assert!(Arc::ptr_eq(flow(&begin(&table)), next.flow()));
        drop(next);
        assert!(table.is_empty());
    });
}

#[test]
fn after_an_answer_is_known_no_request_joins_an_older_one() {
    explore(|table| {
        let first = lead(&table);
        first.ask();
        let asked = first.flow().fetch().asked();
        let answer = {
            let table = Arc::clone(&table);
            spawn(move || {
                let second = table.private(key(1), key(1));
                second.ask();
                second.answer(1000, None);
                let standing = second.announce(&[(key(1), 0)]);
                let next = begin(&table);
                // If the first head came later, it is not known which answer is the newer one.
                assert!(standing != Standing::Newest || flow(&next).fetch().asked() > asked);
            })
        };
        let request = {
            let table = Arc::clone(&table);
            spawn(move || drop(begin(&table)))
        };
        first.answer(1000, None);
        first.announce(&[(key(1), 0)]);
        drop(first);
        answer.join();
        request.join();
        assert!(table.is_empty());
    });
}

#[test]
fn whoever_waits_for_a_directory_hears_when_it_is_done() {
    explore(|table| {
        let mut writer = lead(&table);
        let disk = writer.subscribe(ReaderKind::Disk).expect("a start");
        let fate = Fate::AsItComes(Keep::Unread);
        writer.publish_head(Arc::new(some_head()), FlowInfo { fate, ..info(key(1), 0) });
        let written = spawn(move || drop(disk));
        let request = {
            let table = Arc::clone(&table);
            spawn(move || match begin(&table) {
                Begin::Wait(mut waiter) => {
                    let progress = block_on(waiter.data());
                    assert!(matches!(progress, Progress::Lagged { .. }), "{progress:?}");
                }
                Begin::Join(mut reader) => assert_eq!(block_on(reader.data()), Progress::End),
                Begin::Lead(_) => {}
            })
        };
        writer.finish(None);
        drop(writer);
        written.join();
        request.join();
        assert!(table.is_empty(), "nothing stays in the table");
    });
}

#[test]
fn whoever_waits_until_answers_have_reached_their_places_hears_of_it() {
    explore(|table| {
        let answers = [key(1), key(2)].map(|key| {
            let mut writer = table.private(key, key);
            writer.publish_head(Arc::new(some_head()), info(key, 1 << 20));
            spawn(move || {
                writer.finish(None);
                drop(writer);
            })
        });
        block_on(table.versions().settled());
        answers.into_iter().for_each(Thread::join);
        assert!(table.versions().is_empty(), "nothing is remembered");
    });
}
