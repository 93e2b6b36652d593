//! Processes that belong to one client for a while.

use super::*;

/// Counts the lines of a conversation, which `YR` begins.
const COUNTING: &str = "n=0; while read -r line; do [ \"$line\" = YR ] && n=0; n=$((n+1)); \
                        echo \"TT $n-$$\"; done";

fn said(world: &World, reservation: &crate::Reservation, line: &str) -> (String, String) {
    let reply = world.wait(reservation.ask(line.as_bytes())).expect("an answer");
    assert_eq!(reply.outcome, Outcome::Challenge);
    let token = value(&reply, "token");
    let (count, pid) = token.split_once('-').expect("both");
    (count.to_owned(), pid.to_owned())
}

#[test]
fn a_reserved_process_hears_one_client_only() {
    let world = World::new();
    let helper = world.adopt(&world.shell(COUNTING, children(2)));
    let first = world.wait(helper.reserve()).expect("a process");
    let second = world.wait(helper.reserve()).expect("another one");
    let (one, pid) = said(&world, &first, "YR");
    let (other, other_pid) = said(&world, &second, "YR");
    assert_ne!(pid, other_pid);
    assert_eq!((one.as_str(), other.as_str()), ("1", "1"));
    assert_eq!(said(&world, &first, "KK"), ("2".to_owned(), pid.clone()));
    // All are taken: a third client waits for one of them.
    let third = helper.reserve();
    let given_up = helper.reserve();
    assert_eq!(world.queue(), 2);
    drop(given_up);
    assert_eq!(world.queue(), 1);
    drop(first);
    let third = world.wait(third).expect("that of the first");
    assert_eq!(said(&world, &third, "YR"), ("1".to_owned(), pid));
    assert!(world.helpers.statistics()[0].children.iter().all(|child| child.is_reserved));
}

#[test]
fn a_reservation_that_nobody_has_taken_is_given_back() {
    let world = World::new();
    let helper = world.adopt(&world.shell(COUNTING, children(1)));
    let reserving = helper.reserve();
    world.until("it has been given", || {
        world.helpers.statistics()[0].children.iter().any(|child| child.is_reserved)
    });
    drop(reserving);
    assert!(world.wait(helper.reserve()).is_ok());
}

#[test]
fn a_reservation_that_lasts_too_long_gives_way() {
    let world = World::new();
    let limit = Duration::from_millis(300);
    let one = HelperChildren { reservation_timeout: limit, ..children(1) };
    let helper = world.adopt(&world.shell(COUNTING, one));
    let begin = Instant::now();
    let first = world.wait(helper.reserve()).expect("a process");
    said(&world, &first, "YR");
    let second = world.wait(helper.reserve()).expect("the same one");
    assert!(begin.elapsed() >= limit, "{:?}", begin.elapsed());
    assert_eq!(world.wait(first.ask(b"KK")), Err(NoAnswer::Unreserved));
    assert_eq!(said(&world, &second, "YR").0, "1");
    drop(first);
    assert_eq!(said(&world, &second, "KK").0, "2", "it still belongs to the second client");
}
