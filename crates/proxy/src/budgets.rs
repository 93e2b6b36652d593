//! What each client has used of its budgets (`client_budget`): one table for all cores.
//!
//! A bucket is one number, the time at which it will be full again (GCRA): it needs no timer, and
//! survives a reconfiguration, also of its size.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use humboldt_base::rng;
use humboldt_base::xxh3::xxh3_128_with_seed;
use humboldt_conf::{BudgetLimits, Rate};
use parking_lot::Mutex;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 16;

/// Most clients whose use is kept, over all lines. For a further one, the client that was idle for
/// longest leaves, and the new one takes over what that one owed.
pub const ACCOUNTS_MAX: usize = 65_536;

/// Most clients that are looked at for one that may leave. If all of them have tunnels, the new one
/// is refused.
const LEAVERS_LOOKED_AT_MAX: usize = 64;

/// Retry-After for a client that has all its tunnels open, or for which there is no place: nobody
/// knows when that ends.
const RETRY_UNKNOWN: Duration = Duration::from_secs(10);

/// No account.
const NONE: u32 = u32::MAX;

/// The account of a client under one line.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AccountKey(u128);

impl AccountKey {
    fn shard(self) -> usize {
        (self.0 >> 64) as usize % SHARDS
    }
}

/// A request and the budget that it takes from. A copy of the request has its own.
#[derive(Copy, Clone, Debug, Default)]
pub(crate) struct Spending {
    /// It has been asked which line holds.
    pub(crate) is_asked: bool,
    /// The account, and the index of the line.
    pub(crate) account: Option<(AccountKey, usize)>,
    /// Bytes that have been taken.
    pub(crate) taken_bytes: u64,
    /// Bytes of its body that have come.
    pub(crate) uploaded_bytes: u64,
}

/// The limit that a request meets.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// `requests=`.
    Requests,
    /// `bytes=`.
    Bytes,
    /// `tunnels=`.
    Tunnels,
    /// There is no place for another client.
    Accounts,
}

/// A request that is over budget.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Over {
    /// The limit.
    pub(crate) limit: Exhausted,
    /// When to try again.
    pub(crate) retry_after: Duration,
}

impl Exhausted {
    /// In words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Requests => "the budget of requests is used up",
            Self::Bytes => "the budget of bytes is used up",
            Self::Tunnels => "as many tunnels as the budget allows are open",
            Self::Accounts => "there is no place for the budget of another client",
        }
    }
}

/// All accounts.
pub struct Budgets {
    shards: [Mutex<Shard>; SHARDS],
    accounts_per_shard: usize,
    seed: u64,
    began: Instant,
    /// Clients that left for others.
    evicted: AtomicU64,
}

impl Default for Budgets {
    fn default() -> Self {
        Self::with_room(ACCOUNTS_MAX)
    }
}

#[derive(Default)]
struct Shard {
    places: HashMap<AccountKey, u32>,
    accounts: Vec<Account>,
    /// Places of the accounts that were used last, and not for longest.
    newest: u32,
    oldest: u32,
}

struct Account {
    key: AccountKey,
    /// The line.
    line: u64,
    /// The client, for people.
    client: Box<str>,
    /// When the buckets are full again, in ns.
    requests_full_ns: u64,
    bytes_full_ns: u64,
    /// Open tunnels.
    tunnels: u32,
    /// Requests that were refused.
    refused: u64,
    /// Neighbours in the order of use.
    newer: u32,
    older: u32,
}

/// The use of one client, for a page.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountReport {
    /// The line.
    pub line: u64,
    /// The client.
    pub client: String,
    /// For how long it owes requests and bytes.
    pub requests_owed: Duration,
    /// The same of bytes.
    pub bytes_owed: Duration,
    /// Open tunnels.
    pub tunnels: u32,
    /// Requests that were refused.
    pub refused: u64,
    /// The order on pages: larger ones come first.
    pub weight: (u64, u32, u64),
}

impl Budgets {
    fn with_room(accounts: usize) -> Self {
        let empty = || Mutex::new(Shard { newest: NONE, oldest: NONE, ..Shard::default() });
        Self {
            shards: std::array::from_fn(|_| empty()),
            accounts_per_shard: accounts / SHARDS,
            seed: rng::secret(),
            began: Instant::now(),
            evicted: AtomicU64::new(0),
        }
    }

    /// The account of a client (`kind` tells addresses from names) under a line.
    pub(crate) fn key(&self, line: u64, kind: u8, client: &[u8]) -> AccountKey {
        let seed = self.seed ^ line.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(kind);
        AccountKey(xxh3_128_with_seed(client, seed))
    }

    /// Takes a request from the budget.
    pub(crate) fn take_request(
        &self,
        (key, line): (AccountKey, u64),
        limits: &BudgetLimits,
        name: impl FnOnce() -> Box<str>,
    ) -> Result<(), Over> {
        let now_ns = self.now_ns();
        self.with(key, line, name, |account| account.take_request(limits, now_ns))
    }

    /// Takes a place for a tunnel. It is given back with [`Budgets::end_tunnel`].
    pub(crate) fn begin_tunnel(
        &self,
        (key, line): (AccountKey, u64),
        limits: &BudgetLimits,
        name: impl FnOnce() -> Box<str>,
    ) -> Result<(), Over> {
        self.with(key, line, name, |account| account.begin_tunnel(limits))
    }

    /// A tunnel has ended. Its account is there: with a tunnel it does not leave.
    pub(crate) fn end_tunnel(&self, key: AccountKey) {
        let mut shard = self.shard(key);
        if let Some(account) = shard.find(key) {
            account.tunnels = account.tunnels.saturating_sub(1);
        }
    }

    /// Takes bytes that have moved. `false`: the budget is used up.
    pub(crate) fn take_bytes(
        &self,
        (key, line): (AccountKey, u64),
        limits: &BudgetLimits,
        bytes: u64,
        name: impl FnOnce() -> Box<str>,
    ) -> bool {
        let Some(rate) = &limits.bytes else { return true };
        let now_ns = self.now_ns();
        let taken = self.with(key, line, name, |account| {
            let full_ns = account.bytes_full_ns.max(now_ns);
            account.bytes_full_ns = full_ns.saturating_add(cost_ns(rate, bytes));
            Ok(account.bytes_full_ns - now_ns < period_ns(rate))
        });
        taken.unwrap_or(false)
    }

    /// Uses the account, or a new one, and counts a refusal.
    fn with<T>(
        &self,
        key: AccountKey,
        line: u64,
        name: impl FnOnce() -> Box<str>,
        work: impl FnOnce(&mut Account) -> Result<T, Over>,
    ) -> Result<T, Over> {
        let mut shard = self.shard(key);
        if shard.find(key).is_none() {
            let over = Over { limit: Exhausted::Accounts, retry_after: RETRY_UNKNOWN };
            let has_evicted = shard.add(key, line, name(), self.accounts_per_shard).ok_or(over)?;
            self.evicted.fetch_add(u64::from(has_evicted), Relaxed);
        }
        shard.touch(key);
        let over = Over { limit: Exhausted::Accounts, retry_after: RETRY_UNKNOWN };
        let account = shard.find(key).ok_or(over)?;
        let result = work(account);
        account.refused += u64::from(result.is_err());
        result
    }

    /// Forgets the accounts of other lines than these, but for those with tunnels, which end later.
    pub(crate) fn keep(&self, lines: &[u64]) {
        for shard in &self.shards {
            shard.lock().retain(|account| lines.contains(&account.line) || account.tunnels > 0);
        }
    }

    /// Number of accounts.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().accounts.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Clients that left for others.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Relaxed)
    }

    /// The accounts that were refused most often or owe most, at most `most` of them.
    pub fn report(&self, most: usize) -> Vec<AccountReport> {
        let now_ns = self.now_ns();
        let mut all: Vec<AccountReport> = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let mut part: Vec<&Account> = shard.accounts.iter().collect();
            part.sort_unstable_by_key(|account| std::cmp::Reverse(account.weight()));
            all.extend(part.into_iter().take(most).map(|account| account.report(now_ns)));
        }
        all.sort_by_key(|account| std::cmp::Reverse(account.weight));
        all.truncate(most);
        all
    }

    fn shard(&self, key: AccountKey) -> parking_lot::MutexGuard<'_, Shard> {
        self.shards[key.shard()].lock()
    }

    fn now_ns(&self) -> u64 {
        // 584 years.
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl Account {
    fn take_request(&mut self, limits: &BudgetLimits, now_ns: u64) -> Result<(), Over> {
        let wait = |limit, ns| Over { limit, retry_after: Duration::from_nanos(ns) };
        if let Some(rate) = &limits.bytes {
            let owed_ns = self.bytes_full_ns.saturating_sub(now_ns);
            if owed_ns >= period_ns(rate) {
                return Err(wait(Exhausted::Bytes, owed_ns - period_ns(rate) + 1));
            }
        }
        if let Some(rate) = &limits.requests {
            let full_ns = self.requests_full_ns.max(now_ns);
            let most_ns = cost_ns(rate, limits.burst.saturating_sub(1));
            let owed_ns = full_ns - now_ns;
            if owed_ns > most_ns {
                return Err(wait(Exhausted::Requests, owed_ns - most_ns));
            }
            self.requests_full_ns = full_ns.saturating_add(cost_ns(rate, 1));
        }
        Ok(())
    }

    fn begin_tunnel(&mut self, limits: &BudgetLimits) -> Result<(), Over> {
        if limits.tunnels.is_some_and(|most| self.tunnels >= most) {
            return Err(Over { limit: Exhausted::Tunnels, retry_after: RETRY_UNKNOWN });
        }
        self.tunnels += 1;
        Ok(())
    }

    fn weight(&self) -> (u64, u32, u64) {
        (self.refused, self.tunnels, self.requests_full_ns.max(self.bytes_full_ns))
    }

    fn report(&self, now_ns: u64) -> AccountReport {
        let owed = |full_ns: u64| Duration::from_nanos(full_ns.saturating_sub(now_ns));
        AccountReport {
            line: self.line,
            client: self.client.to_string(),
            requests_owed: owed(self.requests_full_ns),
            bytes_owed: owed(self.bytes_full_ns),
            tunnels: self.tunnels,
            refused: self.refused,
            weight: self.weight(),
        }
    }
}

/// The time in which a bucket gets this much, in ns.
fn cost_ns(rate: &Rate, amount: u64) -> u64 {
    let ns = u128::from(amount) * rate.period.as_nanos() / u128::from(rate.amount.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX).min(u64::MAX / 4)
}

/// The time in which an empty bucket is full.
fn period_ns(rate: &Rate) -> u64 {
    u64::try_from(rate.period.as_nanos()).unwrap_or(u64::MAX)
}

impl Shard {
    fn find(&mut self, key: AccountKey) -> Option<&mut Account> {
        let place = *self.places.get(&key)?;
        self.accounts.get_mut(place as usize)
    }

    /// Adds an account. `Some(true)`: another one has left for it; `None`: there is no place.
    fn add(&mut self, key: AccountKey, line: u64, client: Box<str>, room: usize) -> Option<bool> {
        let mut account = Account {
            key,
            line,
            client,
            requests_full_ns: 0,
            bytes_full_ns: 0,
            tunnels: 0,
            refused: 0,
            newer: NONE,
            older: NONE,
        };
        let is_full = self.accounts.len() >= room;
        let place = match is_full {
            false => {
                let place = u32::try_from(self.accounts.len()).ok().filter(|at| *at != NONE)?;
                self.accounts.push(account);
                place
            }
            true => {
                let place = self.leaver()?;
                self.unlink(place);
                let leaver = self.accounts.get_mut(place as usize)?;
                // Nobody gets rid of what it owes by coming from elsewhere.
                account.requests_full_ns = leaver.requests_full_ns;
                account.bytes_full_ns = leaver.bytes_full_ns;
                self.places.remove(&leaver.key);
                *leaver = account;
                place
            }
        };
        self.places.insert(key, place);
        self.link(place);
        Some(is_full)
    }

    /// The place of the account that was idle for longest, and has no tunnel.
    fn leaver(&self) -> Option<u32> {
        let mut place = self.oldest;
        for _ in 0..LEAVERS_LOOKED_AT_MAX {
            let account = self.accounts.get(place as usize)?;
            if account.tunnels == 0 {
                return Some(place);
            }
            place = account.newer;
        }
        None
    }

    /// The account is the one that was used last.
    fn touch(&mut self, key: AccountKey) {
        if let Some(&place) = self.places.get(&key)
            && place != self.newest
        {
            self.unlink(place);
            self.link(place);
        }
    }

    fn unlink(&mut self, place: u32) {
        let Some(account) = self.accounts.get_mut(place as usize) else { return };
        let (newer, older) = (account.newer, account.older);
        (account.newer, account.older) = (NONE, NONE);
        match self.accounts.get_mut(newer as usize) {
            Some(neighbour) => neighbour.older = older,
            None => self.newest = older,
        }
        match self.accounts.get_mut(older as usize) {
            Some(neighbour) => neighbour.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, place: u32) {
        let before = std::mem::replace(&mut self.newest, place);
        match self.accounts.get_mut(before as usize) {
            Some(neighbour) => neighbour.newer = place,
            None => self.oldest = place,
        }
        if let Some(account) = self.accounts.get_mut(place as usize) {
            (account.newer, account.older) = (NONE, before);
        }
    }

    /// Keeps some accounts, in their order.
    fn retain(&mut self, is_kept: impl Fn(&Account) -> bool) {
        if self.accounts.iter().all(&is_kept) {
            return;
        }
        let mut order = Vec::with_capacity(self.accounts.len());
        let mut place = self.oldest;
        while let Some(account) = self.accounts.get(place as usize) {
            order.push(place);
            place = account.newer;
        }
        let mut old: Vec<Option<Account>> =
            std::mem::take(&mut self.accounts).into_iter().map(Some).collect();
        (self.newest, self.oldest) = (NONE, NONE);
        self.places.clear();
        for place in order {
            let Some(account) = old.get_mut(place as usize).and_then(Option::take) else {
                continue;
            };
            if is_kept(&account) {
                let at = u32::try_from(self.accounts.len()).unwrap_or(NONE);
                self.places.insert(account.key, at);
                self.accounts.push(account);
                self.link(at);
            }
        }
    }
}

/// A tunnel of a client, until this is dropped.
pub(crate) struct TunnelPlace {
    budgets: Arc<Budgets>,
    key: AccountKey,
}

impl TunnelPlace {
    /// For a tunnel that has begun.
    pub(crate) fn new(budgets: &Arc<Budgets>, key: AccountKey) -> Self {
        Self { budgets: Arc::clone(budgets), key }
    }
}

impl Drop for TunnelPlace {
    fn drop(&mut self) {
        self.budgets.end_tunnel(self.key);
    }
}

#[cfg(test)]
mod tests {
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
        let mut shard = Shard { newest: NONE, oldest: NONE, ..Shard::default() };
        shard.add(AccountKey(1), LINE, "c".into(), 8);
        shard.accounts.remove(0)
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

    #[test]
    fn at_the_bound_the_longest_idle_leaves_and_its_debt_stays() {
        let budgets = Budgets::with_room(2 * SHARDS);
        let limits = limits_in(Duration::from_secs(3600), 1, 1, 1000);
        // All in one part of the table.
        let key = |n: u64| AccountKey(u128::from(n));
        let take = |n| budgets.take_request((key(n), LINE), &limits, name);
        assert!(take(1).is_ok() && take(2).is_ok() && take(1).is_err());
        // 2 was idle for longer than 1, and owes one request.
        assert!(take(3).is_err(), "the newcomer takes over what it owes");
        assert_eq!((budgets.len(), budgets.evicted()), (2, 1));
        assert!(take(1).is_err(), "it is still there");
        assert!(budgets.begin_tunnel((key(1), LINE), &limits, name).is_ok());
        assert!(budgets.begin_tunnel((key(3), LINE), &limits, name).is_ok());
        let over = take(4).expect_err("nobody may leave");
        assert_eq!((over.limit, budgets.len()), (Exhausted::Accounts, 2));
        budgets.end_tunnel(key(1));
        assert!(take(4).is_err() && budgets.evicted() == 2);
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
}
