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
/// longest leaves, of those who owe nothing if there is one.
pub const ACCOUNTS_MAX: usize = 65_536;

/// Most clients that are looked at for one that owes nothing. If all of them owe, the one that was
/// idle for longest leaves.
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
        let take = |account: &mut Account, now_ns| account.take_request(limits, now_ns);
        self.with((key, line), limits, name, take)
    }

    /// Takes a place for a tunnel. It is given back with [`Budgets::end_tunnel`].
    pub(crate) fn begin_tunnel(
        &self,
        (key, line): (AccountKey, u64),
        limits: &BudgetLimits,
        name: impl FnOnce() -> Box<str>,
    ) -> Result<(), Over> {
        self.with((key, line), limits, name, |account, _| account.begin_tunnel(limits))
    }

    /// A tunnel has ended. Its account is there: with a tunnel it does not leave.
    pub(crate) fn end_tunnel(&self, key: AccountKey) {
        let mut shard = self.shard(key);
        let Some(account) = shard.find(key).filter(|account| account.tunnels > 0) else { return };
        account.tunnels -= 1;
        if account.tunnels == 0 {
            shard.join_order(key);
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
        let taken = self.with((key, line), limits, name, |account, now_ns| {
            let full_ns = account.bytes_full_ns.max(now_ns);
            account.bytes_full_ns = full_ns.saturating_add(cost_ns(rate, bytes));
            Ok(account.bytes_full_ns - now_ns < period_ns(rate))
        });
        // Without a place nobody knows what it has used: the next request is refused, not this one.
        taken.unwrap_or(true)
    }

    /// Whether a client is over its budget of bytes, and until when.
    pub(crate) fn over_bytes(&self, key: AccountKey, limits: &BudgetLimits) -> Option<Over> {
        let now_ns = self.now_ns();
        let rate = limits.bytes.as_ref()?;
        self.shard(key).find(key)?.over_bytes(rate, now_ns)
    }

    /// Uses the account, or a new one, and counts a refusal.
    fn with<T>(
        &self,
        (key, line): (AccountKey, u64),
        limits: &BudgetLimits,
        name: impl FnOnce() -> Box<str>,
        work: impl FnOnce(&mut Account, u64) -> Result<T, Over>,
    ) -> Result<T, Over> {
        let mut shard = self.shard(key);
        let now_ns = self.now_ns();
        if shard.find(key).is_none() {
            let over = Over { limit: Exhausted::Accounts, retry_after: RETRY_UNKNOWN };
            let newcomer = Account::new(key, line, name());
            let room = self.accounts_per_shard;
            let has_evicted = shard.add(newcomer, limits, now_ns, room).ok_or(over)?;
            self.evicted.fetch_add(u64::from(has_evicted), Relaxed);
        }
        shard.touch(key);
        let over = Over { limit: Exhausted::Accounts, retry_after: RETRY_UNKNOWN };
        let account = shard.find(key).ok_or(over)?;
        let before = account.tunnels;
        let result = work(account, now_ns);
        account.refused += u64::from(result.is_err());
        if before == 0 && account.tunnels > 0 {
            shard.leave_order(key);
        }
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
    fn new(key: AccountKey, line: u64, client: Box<str>) -> Self {
        Self {
            key,
            line,
            client,
            requests_full_ns: 0,
            bytes_full_ns: 0,
            tunnels: 0,
            refused: 0,
            newer: NONE,
            older: NONE,
        }
    }

    fn owes(&self, now_ns: u64) -> bool {
        self.requests_full_ns.max(self.bytes_full_ns) > now_ns
    }

    /// Takes over what one who leaves owes, under the same line. Its next request passes, so that
    /// nobody is refused for what others have used.
    fn inherit(&mut self, leaver: &Self, limits: &BudgetLimits, now_ns: u64) {
        if leaver.line != self.line {
            return;
        }
        if let Some(rate) = &limits.requests {
            let most_ns = cost_ns(rate, limits.burst.saturating_sub(1));
            self.requests_full_ns = leaver.requests_full_ns.min(now_ns.saturating_add(most_ns));
        }
        if let Some(rate) = &limits.bytes {
            let most_ns = period_ns(rate) / 2;
            self.bytes_full_ns = leaver.bytes_full_ns.min(now_ns.saturating_add(most_ns));
        }
    }

    fn over_bytes(&self, rate: &Rate, now_ns: u64) -> Option<Over> {
        let owed_ns = self.bytes_full_ns.saturating_sub(now_ns);
        let wait_ns = owed_ns.checked_sub(period_ns(rate))?.saturating_add(1);
        Some(Over { limit: Exhausted::Bytes, retry_after: Duration::from_nanos(wait_ns) })
    }

    fn take_request(&mut self, limits: &BudgetLimits, now_ns: u64) -> Result<(), Over> {
        let wait = |limit, ns| Over { limit, retry_after: Duration::from_nanos(ns) };
        if let Some(over) = limits.bytes.as_ref().and_then(|rate| self.over_bytes(rate, now_ns)) {
            return Err(over);
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
    fn add(
        &mut self,
        mut account: Account,
        limits: &BudgetLimits,
        now_ns: u64,
        room: usize,
    ) -> Option<bool> {
        let key = account.key;
        let is_full = self.accounts.len() >= room;
        let place = match is_full {
            false => {
                let place = u32::try_from(self.accounts.len()).ok().filter(|at| *at != NONE)?;
                self.accounts.push(account);
                place
            }
            true => {
                let place = self.leaver(now_ns)?;
                self.unlink(place);
                let leaver = self.accounts.get_mut(place as usize)?;
                account.inherit(leaver, limits, now_ns);
                self.places.remove(&leaver.key);
                *leaver = account;
                place
            }
        };
        self.places.insert(key, place);
        self.link(place);
        Some(is_full)
    }

    /// The place of the account that was idle for longest, of those who owe nothing if there is
    /// one. Those with tunnels stay.
    fn leaver(&self, now_ns: u64) -> Option<u32> {
        let oldest = self.accounts.get(self.oldest as usize).map(|_| self.oldest)?;
        let mut place = oldest;
        for _ in 0..LEAVERS_LOOKED_AT_MAX {
            let Some(account) = self.accounts.get(place as usize) else { break };
            if !account.owes(now_ns) {
                return Some(place);
            }
            place = account.newer;
        }
        Some(oldest)
    }

    /// The account is the one that was used last. One with tunnels is in no order.
    fn touch(&mut self, key: AccountKey) {
        if let Some(&place) = self.places.get(&key)
            && place != self.newest
            && self.accounts.get(place as usize).is_some_and(|account| account.tunnels == 0)
        {
            self.unlink(place);
            self.link(place);
        }
    }

    /// The account has its first tunnel: it does not leave for others.
    fn leave_order(&mut self, key: AccountKey) {
        if let Some(&place) = self.places.get(&key) {
            self.unlink(place);
        }
    }

    /// The account has no tunnel any more.
    fn join_order(&mut self, key: AccountKey) {
        if let Some(&place) = self.places.get(&key) {
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
        let with_tunnels = self.accounts.iter().zip(0..).filter(|(account, _)| account.tunnels > 0);
        order.extend(with_tunnels.map(|(_, place): (_, u32)| place));
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
                let is_in_order = account.tunnels == 0;
                self.places.insert(account.key, at);
                self.accounts.push(account);
                if is_in_order {
                    self.link(at);
                }
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
mod tests;
