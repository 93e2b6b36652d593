//! Tests of the table of budgets.

use super::*;

const LINE: u64 = 7;

fn limits(requests: u64, burst: u64, bytes: u64) -> BudgetLimits {
    limits_in(Duration::from_secs(1), requests, burst, bytes)
}

fn limits_in(period: Duration, requests: u64, burst: u64, bytes: u64) -> BudgetLimits {
    let rate = |amount| Rate { amount, period };
    BudgetLimits {
        requests: Some(rate(requests)),
        burst,
        bytes: Some(rate(bytes)),
        tunnels: Some(1),
        ..BudgetLimits::default()
    }
}

fn account() -> Account {
    Account::new(AccountKey(1), LINE, "c".into())
}

fn name() -> Box<str> {
    "c".into()
}

#[test]
fn a_burst_passes_and_then_the_rate_and_the_wait_is_told() {
    let (mut account, limits) = (account(), limits(10, 3, 1));
    let second = 1_000_000_000;
    let mut take = |at_ns| account.take_request(&limits, second + at_ns);
    assert!((0..3).all(|_| take(0).is_ok()));
    let over = take(0).expect_err("a fourth one");
    assert_eq!(over.limit, Exhausted::Requests);
    assert_eq!(over.retry_after, Duration::from_millis(100));
    assert!(take(over.retry_after.as_nanos() as u64).is_ok(), "at that time it passes");
    assert!(take(second / 10).is_err());
    assert!((0..3).all(|_| take(10 * second).is_ok()) && take(10 * second).is_err());
}

#[test]
fn bytes_are_owed_until_the_rate_has_brought_them() {
    let budgets = Budgets::default();
    let (limits, key) = (limits(1000, 1000, 1000), budgets.key(LINE, 0, b"a"));
    assert!(budgets.take_bytes((key, LINE), &limits, 500, name));
    assert!(budgets.take_request((key, LINE), &limits, name).is_ok());
    assert!(!budgets.take_bytes((key, LINE), &limits, 100_000, name));
    let over = budgets.take_request((key, LINE), &limits, name).expect_err("it owes");
    assert_eq!(over.limit, Exhausted::Bytes);
    let seconds = over.retry_after.as_secs_f64();
    assert!((80.0..100.0).contains(&seconds), "{seconds}");
    let other = budgets.key(LINE, 1, b"a");
    assert!(budgets.take_request((other, LINE), &limits, name).is_ok(), "of another kind");
}

#[test]
fn tunnels_are_counted_while_they_are_open() {
    let budgets = Arc::new(Budgets::default());
    let (limits, key) = (limits(1, 1, 1), budgets.key(LINE, 0, b"a"));
    assert!(budgets.begin_tunnel((key, LINE), &limits, name).is_ok());
    let place = TunnelPlace::new(&budgets, key);
    let over = budgets.begin_tunnel((key, LINE), &limits, name).expect_err("one is open");
    assert_eq!((over.limit, over.retry_after), (Exhausted::Tunnels, RETRY_UNKNOWN));
    drop(place);
    assert!(budgets.begin_tunnel((key, LINE), &limits, name).is_ok());
}

/// A client of one part of the table.
fn of(n: u64) -> AccountKey {
    AccountKey(u128::from(n))
}

#[test]
fn at_the_bound_the_longest_idle_leaves_and_nobody_with_a_tunnel() {
    let budgets = Budgets::with_room(2 * SHARDS);
    let limits = limits_in(Duration::from_secs(3600), 2, 2, 1000);
    let take = |n| budgets.take_request((of(n), LINE), &limits, name);
    assert!(take(1).is_ok() && take(2).is_ok() && take(1).is_ok() && take(1).is_err());
    // 2 was idle for longer than 1, and leaves what it owes to 3.
    assert!(take(3).is_ok() && take(3).is_err());
    assert_eq!((budgets.len(), budgets.evicted()), (2, 1));
    assert!(take(1).is_err(), "it is still there");
    assert!(budgets.begin_tunnel((of(1), LINE), &limits, name).is_ok());
    assert!(budgets.begin_tunnel((of(3), LINE), &limits, name).is_ok());
    let over = take(4).expect_err("nobody may leave");
    assert_eq!((over.limit, budgets.len()), (Exhausted::Accounts, 2));
    assert!(budgets.take_bytes((of(4), LINE), &limits, 5000, name), "it is not cut off");
    budgets.end_tunnel(of(1));
    assert!(take(4).is_ok() && budgets.evicted() == 2);
}

#[test]
fn who_owes_stays_and_nobody_is_refused_for_the_use_of_others() {
    let budgets = Budgets::with_room(2 * SHARDS);
    let slow = limits_in(Duration::from_secs(86_400), 1, 1, 1000);
    let fast = limits_in(Duration::from_secs(1), 10, 10, 1 << 20);
    let take = |n, line, limits| budgets.take_request((of(n), line), limits, name);
    // A client that owes for days is idle for longer than one that owes nothing.
    assert!(take(1, 1, &slow).is_ok());
    assert!(!budgets.take_bytes((of(1), 1), &slow, 100_000, name));
    assert!(budgets.take_bytes((of(2), 2), &fast, 0, name));
    assert!(take(3, 1, &slow).is_ok());
    assert!(take(1, 1, &slow).is_err(), "it has not got rid of its debt");
    // All of them owe: of another line nothing is taken over.
    assert!((0..10).all(|_| take(4, 2, &fast).is_ok()));
    // Of the same line so much that the next request passes.
    for n in 5..20 {
        assert!(!budgets.take_bytes((of(n), 1), &slow, 100_000, name));
        assert!(take(n + 100, 1, &slow).is_ok() && take(n + 200, 1, &slow).is_ok(), "{n}");
    }
}

#[test]
fn idle_tunnels_are_in_nobodys_way() {
    let budgets = Budgets::with_room((LEAVERS_LOOKED_AT_MAX + 2) * SHARDS);
    let limits = limits_in(Duration::from_secs(3600), 2, 2, 1000);
    let tunnels = LEAVERS_LOOKED_AT_MAX as u64 + 1;
    for n in 0..tunnels {
        assert!(budgets.begin_tunnel((of(n), LINE), &limits, name).is_ok());
    }
    let take = |n| budgets.take_request((of(n), LINE), &limits, name);
    assert!(take(1000).is_ok());
    assert!((1001..1200).all(|n| take(n).is_ok()));
    budgets.end_tunnel(of(0));
    assert!(take(1200).is_ok() && take(1201).is_ok());
    budgets.keep(&[]);
    assert_eq!(budgets.len() as u64, tunnels - 1);
    (1..tunnels).for_each(|n| budgets.end_tunnel(of(n)));
    assert!((1300..1500).all(|n| take(n).is_ok()));
    budgets.keep(&[]);
    assert!(budgets.is_empty());
}

#[test]
fn a_reconfiguration_keeps_the_accounts_of_lines_that_stay() {
    let budgets = Budgets::default();
    let limits = limits_in(Duration::from_secs(3600), 1, 1, 1000);
    for n in 0..100_u64 {
        let key = AccountKey(u128::from(n));
        assert!(budgets.take_request((key, n % 2), &limits, name).is_ok());
    }
    assert!(budgets.begin_tunnel((AccountKey(1), 1), &limits, name).is_ok());
    budgets.keep(&[0]);
    assert_eq!(budgets.len(), 51);
    for n in (0..100_u64).step_by(2) {
        assert!(budgets.take_request((AccountKey(n.into()), 0), &limits, name).is_err());
    }
    budgets.end_tunnel(AccountKey(1));
    budgets.keep(&[0]);
    assert_eq!(budgets.len(), 50);
    assert_eq!(budgets.report(3).len(), 3);
}
