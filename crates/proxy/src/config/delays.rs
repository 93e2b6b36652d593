//! Delay pools: who is in which, and their buckets.
//!
//! A bucket is there once for all cores. A reconfiguration keeps the buckets of a pool whose
//! parameters are the same, so that long answers and tunnels do not get a second income.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use humboldt_acl::{AclError, AclSet, RuleList};
use humboldt_base::client_network::client_network;
use humboldt_base::token_bucket::TokenBucket;
use humboldt_conf::{AccessRule, Config, DelayAccess, DelayParameters, DelayRate};
use humboldt_exchange::now_ns;
use parking_lot::Mutex;

/// Most buckets of one kind in a pool: of users, tags or client addresses. Beyond it, full ones are
/// dropped, at most once in a second; clients without a place share [`REST_BUCKETS`].
const DELAY_BUCKETS_MAX: usize = 65_536;

/// Buckets for the clients without a place: which of them one has follows from its property, so
/// that one who takes much does not slow down all others.
const REST_BUCKETS: usize = 256;

/// Least time in ns between two looks for full buckets.
const LOOK_EVERY_NS: u64 = 1_000_000_000;

/// All pools of a configuration.
#[derive(Default)]
pub(crate) struct Delays {
    /// `delay_pools`, in the order of their numbers.
    pub(crate) pools: Vec<Pool>,
    /// `client_delay_pools`, in the same order.
    pub(crate) clients: Vec<ClientPool>,
    /// `response_delay_pool`
    pub(crate) named: Vec<NamedPool>,
    /// `response_delay_pool_access`: the pool, and whether the rule allows; and its condition.
    pub(crate) named_rules: Vec<((usize, bool), RuleList)>,
    /// Whether there is a pool for answers.
    pub(crate) concern_answers: bool,
}

/// A pool of `delay_pools` that has rules.
pub(crate) struct Pool {
    /// Its number.
    pub(crate) number: u16,
    /// `delay_access`
    pub(crate) rules: RuleList,
    plan: Plan,
    buckets: OnceLock<Arc<Buckets>>,
}

/// A pool of `client_delay_pools`.
pub(crate) struct ClientPool {
    /// `client_delay_access`
    pub(crate) rules: RuleList,
    number: u16,
    plan: TablePlan,
    buckets: OnceLock<Arc<Table<IpAddr>>>,
}

/// A pool of `response_delay_pool`.
pub(crate) struct NamedPool {
    name: String,
    individual: Option<TablePlan>,
    aggregate: Option<TablePlan>,
    bucket: OnceLock<Arc<TokenBucket>>,
}

/// Parameters that decide whether the buckets of an earlier configuration are kept.
#[derive(Clone, PartialEq, Eq)]
struct Plan {
    class: u8,
    rates: Vec<Option<DelayRate>>,
    level_percent: u32,
}

/// The parameters of each bucket of a table.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct TablePlan {
    rate: DelayRate,
    level_percent: u32,
}

impl TablePlan {
    fn bucket(self, now_ns: u64) -> Arc<TokenBucket> {
        let (rate, size) = (self.rate.rate, self.rate.size);
        let level = u128::from(size) * u128::from(self.level_percent) / 100;
        let level = u64::try_from(level).unwrap_or(u64::MAX);
        Arc::new(TokenBucket::new(rate, size, level, now_ns))
    }
}

/// Buckets by a property of clients.
struct Table<K> {
    plan: TablePlan,
    buckets: Mutex<TableBuckets<K>>,
}

struct TableBuckets<K> {
    by_key: HashMap<K, Arc<TokenBucket>>,
    /// For those who have no place; empty before there is one.
    rest: Vec<Arc<TokenBucket>>,
    looked_ns: u64,
}

impl<K: Eq + Hash + Ord + Clone> Table<K> {
    fn new(plan: TablePlan) -> Self {
        let buckets = TableBuckets { by_key: HashMap::new(), rest: Vec::new(), looked_ns: 0 };
        Self { plan, buckets: Mutex::new(buckets) }
    }

    fn get(&self, key: K, now_ns: u64) -> Arc<TokenBucket> {
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.by_key.get(&key) {
            return Arc::clone(bucket);
        }
        if buckets.by_key.len() >= DELAY_BUCKETS_MAX
            && now_ns.saturating_sub(buckets.looked_ns) >= LOOK_EVERY_NS
        {
            buckets.looked_ns = now_ns;
            // One that is not full has something to remember.
            let is_needed = |bucket: &Arc<TokenBucket>| {
                Arc::strong_count(bucket) > 1 || !bucket.is_full(now_ns)
            };
            buckets.by_key.retain(|_, bucket| is_needed(bucket));
        }
        if buckets.by_key.len() >= DELAY_BUCKETS_MAX {
            let new = || self.plan.bucket(now_ns);
            if buckets.rest.is_empty() {
                buckets.rest = std::iter::repeat_with(new).take(REST_BUCKETS).collect();
            }
            let place = buckets.by_key.hasher().hash_one(&key) % REST_BUCKETS as u64;
            return buckets.rest.get(place as usize).cloned().unwrap_or_else(new);
        }
        let bucket = self.plan.bucket(now_ns);
        buckets.by_key.insert(key, Arc::clone(&bucket));
        bucket
    }

    /// The bytes in each bucket.
    fn levels(&self, now_ns: u64) -> Vec<(K, u64)> {
        let buckets = self.buckets.lock();
        let level = |(key, bucket): (&K, &Arc<TokenBucket>)| (key.clone(), bucket.level(now_ns));
        let mut levels: Vec<_> = buckets.by_key.iter().map(level).collect();
        // Nobody waits for the sorting.
        drop(buckets);
        levels.sort();
        levels
    }
}

/// The buckets of a pool.
struct Buckets {
    plan: Plan,
    aggregate: Option<Arc<TokenBucket>>,
    network: Option<Table<u8>>,
    /// By network and host; class 2 has the host only.
    individual: Option<Table<(u8, u8)>>,
    user: Option<Table<Box<[u8]>>>,
    tag: Option<Table<Box<[u8]>>>,
}

impl Buckets {
    fn new(plan: &Plan) -> Self {
        let level_percent = plan.level_percent;
        let rate = |index: usize| {
            let rate = plan.rates.get(index).copied().flatten()?;
            Some(TablePlan { rate, level_percent })
        };
        let mut buckets = Self {
            plan: plan.clone(),
            aggregate: None,
            network: None,
            individual: None,
            user: None,
            tag: None,
        };
        if plan.class == 5 {
            buckets.tag = rate(0).map(Table::new);
            return buckets;
        }
        buckets.aggregate = rate(0).map(|plan| plan.bucket(now_ns()));
        let individual = if plan.class == 2 { 1 } else { 2 };
        if plan.class >= 2 {
            buckets.individual = rate(individual).map(Table::new);
        }
        if plan.class >= 3 {
            buckets.network = rate(1).map(Table::new);
        }
        if plan.class >= 4 {
            buckets.user = rate(3).map(Table::new);
        }
        buckets
    }
}

/// The properties by which a request has its buckets.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Client<'a> {
    /// Its address.
    pub(crate) ip: IpAddr,
    /// The user who has logged in.
    pub(crate) user: Option<&'a str>,
    /// `tag=` of a helper.
    pub(crate) tag: Option<&'a [u8]>,
}

impl Pool {
    fn buckets(&self) -> &Arc<Buckets> {
        self.buckets.get_or_init(|| Arc::new(Buckets::new(&self.plan)))
    }

    /// The buckets of a client.
    pub(crate) fn buckets_of(&self, client: Client<'_>) -> Vec<Arc<TokenBucket>> {
        let (buckets, now_ns) = (self.buckets(), now_ns());
        let mut found: Vec<Arc<TokenBucket>> = buckets.aggregate.iter().cloned().collect();
        if let IpAddr::V4(ip) = client.ip {
            let [_, _, network, host] = ip.octets();
            let prefix = if self.plan.class == 2 { 0 } else { network };
            let network = buckets.network.as_ref().map(|table| table.get(network, now_ns));
            let own = buckets.individual.as_ref().map(|table| table.get((prefix, host), now_ns));
            found.extend(network.into_iter().chain(own));
        }
        if let (Some(table), Some(user)) = (&buckets.user, client.user) {
            found.push(table.get(user.as_bytes().into(), now_ns));
        }
        if let (Some(table), Some(tag)) = (&buckets.tag, client.tag) {
            found.push(table.get(tag.into(), now_ns));
        }
        found
    }
}

impl ClientPool {
    fn buckets(&self) -> &Arc<Table<IpAddr>> {
        self.buckets.get_or_init(|| Arc::new(Table::new(self.plan)))
    }

    /// The bucket of a client. One with IPv6 has as many addresses as it likes, but one network of
    /// 64 bits.
    pub(crate) fn bucket_of(&self, ip: IpAddr) -> Arc<TokenBucket> {
        self.buckets().get(client_network(ip), now_ns())
    }
}

impl NamedPool {
    /// The buckets of an answer that begins.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = Arc<TokenBucket>> {
        let aggregate = self
            .aggregate
            .map(|plan| Arc::clone(self.bucket.get_or_init(|| plan.bucket(now_ns()))));
        aggregate.into_iter().chain(self.individual.map(|plan| plan.bucket(now_ns())))
    }
}

impl Delays {
    pub(crate) fn compile(acls: &AclSet, config: &Config) -> Result<Self, Vec<AclError>> {
        let mut delays = Self::default();
        for number in 1..=config.delay_pools {
            let Some(class) = config.delay_class.iter().find(|one| one.pool == number) else {
                continue;
            };
            let Some(rules) = rules_of(acls, &config.delay_access, number)? else { continue };
            let plan = Plan {
                class: class.class,
                rates: parameters(&config.delay_parameters, number).to_vec(),
                level_percent: config.delay_initial_bucket_level.into(),
            };
            delays.pools.push(Pool { number, rules, plan, buckets: OnceLock::new() });
        }
        for number in 1..=config.client_delay_pools {
            let Some(rules) = rules_of(acls, &config.client_delay_access, number)? else {
                continue;
            };
            let rate = parameters(&config.client_delay_parameters, number).first();
            let Some(rate) = rate.copied().flatten() else { continue };
            let level_percent = config.client_delay_initial_bucket_level;
            let plan = TablePlan { rate, level_percent };
            delays.clients.push(ClientPool { rules, number, plan, buckets: OnceLock::new() });
        }
        for pool in &config.response_delay_pool {
            let plan = |rate| TablePlan { rate, level_percent: pool.level_percent };
            delays.named.push(NamedPool {
                name: pool.name.clone(),
                individual: pool.individual.map(plan),
                aggregate: pool.aggregate.map(plan),
                bucket: OnceLock::new(),
            });
        }
        for line in &config.response_delay_pool_access {
            let index = delays.named.iter().position(|pool| pool.name == line.pool);
            let Some(index) = index else { continue };
            let rule = AccessRule { allow: true, ..line.rule.clone() };
            let list = RuleList::compile(acls, &[rule], false)?;
            delays.named_rules.push(((index, line.rule.allow), list));
        }
        delays.concern_answers = !delays.pools.is_empty() || !delays.named_rules.is_empty();
        Ok(delays)
    }

    /// Takes over the buckets of pools that are as they were in the configuration before.
    pub(crate) fn begin(&self, earlier: &Self) {
        for pool in &self.pools {
            let same = earlier.pools.iter().find(|one| one.number == pool.number);
            let buckets = same.and_then(|one| one.buckets.get());
            if let Some(buckets) = buckets.filter(|buckets| buckets.plan == pool.plan) {
                _ = pool.buckets.set(Arc::clone(buckets));
            }
        }
        for pool in &self.clients {
            let same = earlier.clients.iter().find(|one| one.number == pool.number);
            let buckets = same.and_then(|one| one.buckets.get());
            if let Some(buckets) = buckets.filter(|buckets| buckets.plan == pool.plan) {
                _ = pool.buckets.set(Arc::clone(buckets));
            }
        }
        for pool in &self.named {
            let is_same =
                |one: &&NamedPool| one.name == pool.name && one.aggregate == pool.aggregate;
            let same = earlier.named.iter().find(is_same);
            if let Some(bucket) = same.and_then(|one| one.bucket.get()) {
                _ = pool.bucket.set(Arc::clone(bucket));
            }
        }
    }

    /// The lists that are asked about answers.
    pub(crate) fn lists_about_answers(&self) -> impl Iterator<Item = &RuleList> {
        let pools = self.pools.iter().map(|pool| &pool.rules);
        pools.chain(self.named_rules.iter().map(|(_, list)| list))
    }

    /// The state of all pools of `delay_pools`, for the manager.
    pub(crate) fn figures(&self, config: &Config) -> Vec<PoolFigures> {
        let of = |number: u16| {
            let class = config.delay_class.iter().find(|one| one.pool == number)?.class;
            let rates = parameters(&config.delay_parameters, number).to_vec();
            let pool = self.pools.iter().find(|pool| pool.number == number);
            let levels = pool.map(|pool| pool.buckets().levels()).unwrap_or_default();
            Some(PoolFigures { number, class, rates, levels })
        };
        (1..=config.delay_pools).filter_map(of).collect()
    }
}

/// The state of a pool.
pub struct PoolFigures {
    /// Its number.
    pub number: u16,
    /// Its class.
    pub class: u8,
    /// Its parameters.
    pub rates: Vec<Option<DelayRate>>,
    /// The bytes in its buckets.
    pub levels: Levels,
}

/// Bytes in the buckets of a pool, by the property that each is for.
#[derive(Default)]
pub struct Levels {
    /// That of all together.
    pub aggregate: Option<u64>,
    /// By the third byte of the address.
    pub networks: Vec<(u8, u64)>,
    /// By the third and the last byte of the address.
    pub individuals: Vec<((u8, u8), u64)>,
    /// By the name of the user.
    pub users: Vec<(Box<[u8]>, u64)>,
    /// By the tag.
    pub tags: Vec<(Box<[u8]>, u64)>,
}

impl Buckets {
    fn levels(&self) -> Levels {
        let now_ns = now_ns();
        fn all<K: Eq + Hash + Ord + Clone>(table: Option<&Table<K>>, now_ns: u64) -> Vec<(K, u64)> {
            table.map(|table| table.levels(now_ns)).unwrap_or_default()
        }
        Levels {
            aggregate: self.aggregate.as_ref().map(|bucket| bucket.level(now_ns)),
            networks: all(self.network.as_ref(), now_ns),
            individuals: all(self.individual.as_ref(), now_ns),
            users: all(self.user.as_ref(), now_ns),
            tags: all(self.tag.as_ref(), now_ns),
        }
    }
}

/// The rules of a pool; `None` without any that allows, as such a pool is for nobody.
fn rules_of(
    acls: &AclSet,
    lines: &[DelayAccess],
    pool: u16,
) -> Result<Option<RuleList>, Vec<AclError>> {
    let rules = lines.iter().filter(|line| line.pool == pool).map(|line| line.rule.clone());
    let rules: Vec<AccessRule> = rules.collect();
    match rules.iter().any(|rule| rule.allow) {
        true => RuleList::compile(acls, &rules, false).map(Some),
        false => Ok(None),
    }
}

fn parameters(lines: &[DelayParameters], pool: u16) -> &[Option<DelayRate>] {
    lines.iter().find(|line| line.pool == pool).map_or(&[], |line| &line.rates)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use humboldt_base::token_bucket::CLOCK_START_NS;

    use super::*;

    fn delays(lines: &str) -> Delays {
        let text = format!("http_port 1\nhttp_access allow all\n{lines}\n");
        let (config, found) = humboldt_conf::parse_str("t", &text);
        assert!(!found.has_errors(), "{}", found.render(false));
        let acls = AclSet::compile(&config.acl).unwrap_or_else(|_| panic!("the ACLs"));
        Delays::compile(&acls, &config).unwrap_or_else(|_| panic!("the rules"))
    }

    fn client(ip: &str) -> Client<'static> {
        Client { ip: ip.parse().expect("an address"), user: None, tag: None }
    }

    /// Which of the buckets that two clients have are the same ones.
    fn shared(pool: &Pool, one: Client<'_>, other: Client<'_>) -> Vec<bool> {
        let (ones, others) = (pool.buckets_of(one), pool.buckets_of(other));
        assert_eq!(ones.len(), others.len());
        ones.iter().zip(&others).map(|(one, other)| Arc::ptr_eq(one, other)).collect()
    }

    const PARAMETERS: [&str; 5] = ["1/1", "1/1 1/1", "1/1 1/1 1/1", "1/1 1/1 1/1 1/1", "1/1"];

    fn class(class: usize) -> Delays {
        delays(&format!(
            "delay_pools 1\ndelay_class 1 {class}\ndelay_parameters 1 {}\ndelay_access 1 allow all",
            PARAMETERS[class - 1]
        ))
    }

    #[test]
    fn each_class_has_its_buckets() {
        let (a, b, c) = (client("10.1.2.3"), client("10.9.2.3"), client("10.1.4.3"));
        assert_eq!(shared(&class(1).pools[0], a, c), [true]);
        // In class 2 only the last byte counts, in class 3 the last two.
        assert_eq!(shared(&class(2).pools[0], a, c), [true, true]);
        assert_eq!(shared(&class(2).pools[0], a, client("10.1.2.4")), [true, false]);
        assert_eq!(shared(&class(3).pools[0], a, b), [true, true, true]);
        assert_eq!(shared(&class(3).pools[0], a, c), [true, false, false]);
        assert_eq!(shared(&class(3).pools[0], a, client("10.1.2.4")), [true, true, false]);
        let user = |user| Client { user: Some(user), ..a };
        assert_eq!(shared(&class(4).pools[0], user("x"), user("y")), [true, true, true, false]);
        assert_eq!(class(4).pools[0].buckets_of(a).len(), 3, "nobody has logged in");
        let tag = |tag| Client { tag: Some(tag), ..a };
        assert_eq!(shared(&class(5).pools[0], tag(b"x"), tag(b"y")), [false]);
        assert!(class(5).pools[0].buckets_of(a).is_empty(), "no helper has told a tag");
        for one in 1..=4 {
            assert_eq!(class(one).pools[0].buckets_of(client("2001:db8::1")).len(), 1, "{one}");
        }
    }

    #[test]
    fn a_reconfiguration_keeps_the_buckets_of_pools_that_are_the_same() {
        let text = |rate: &str| {
            delays(&format!(
                "delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 {rate}\ndelay_access 1 allow all"
            ))
        };
        let a = client("10.0.0.1");
        let (before, same, other) = (text("5/5"), text("5/5"), text("6/5"));
        let bucket = before.pools[0].buckets_of(a);
        same.begin(&before);
        other.begin(&before);
        assert!(Arc::ptr_eq(&bucket[0], &same.pools[0].buckets_of(a)[0]));
        assert!(!Arc::ptr_eq(&bucket[0], &other.pools[0].buckets_of(a)[0]));
    }

    #[test]
    fn a_table_is_bounded_and_those_beyond_the_bound_share_a_bucket() {
        let rate = DelayRate { rate: 10, size: 100 };
        let table = Table::new(TablePlan { rate, level_percent: 50 });
        let ip = |n: u32| IpAddr::V4(Ipv4Addr::from(n));
        let now = CLOCK_START_NS;
        for n in 0..DELAY_BUCKETS_MAX as u32 {
            let _ = table.get(ip(n), now);
        }
        let one = table.get(ip(u32::MAX), now);
        assert!(Arc::ptr_eq(&one, &table.get(ip(u32::MAX), now)));
        let others: Vec<_> = (1..1000).map(|n| table.get(ip(u32::MAX - n), now)).collect();
        let same = others.iter().filter(|other| Arc::ptr_eq(&one, other)).count();
        assert!((1..100).contains(&same), "{same} of 1000 share a bucket of {REST_BUCKETS}");
        assert_eq!(table.buckets.lock().by_key.len(), DELAY_BUCKETS_MAX);
        // Once the others are full again, they are dropped, but for one that is in use.
        let used = table.get(ip(7), now);
        let later = now + 60 * LOOK_EVERY_NS;
        assert!(!Arc::ptr_eq(&one, &table.get(ip(u32::MAX), later)));
        assert_eq!(table.buckets.lock().by_key.len(), 2);
        assert!(Arc::ptr_eq(&used, &table.get(ip(7), later)));
    }

    #[test]
    fn a_client_with_ipv6_has_one_bucket_for_its_network() {
        let delays = delays(
            "client_delay_pools 1\nclient_delay_parameters 1 1 1\nclient_delay_access 1 allow all",
        );
        let of = |ip: &str| delays.clients[0].bucket_of(ip.parse().expect("an address"));
        assert!(Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8::ffff:1:2:3")));
        assert!(!Arc::ptr_eq(&of("2001:db8::1"), &of("2001:db8:0:1::1")));
        assert!(!Arc::ptr_eq(&of("192.0.2.1"), &of("192.0.2.2")));
    }

    #[test]
    fn pools_without_rules_or_without_limits_slow_nothing_down() {
        let none = delays("delay_pools 1\ndelay_class 1 1\ndelay_parameters 1 1/1");
        assert!(none.pools.is_empty() && !none.concern_answers);
        let unlimited = delays(
            "delay_pools 1\ndelay_class 1 2\ndelay_parameters 1 none -1/-1\ndelay_access 1 allow all",
        );
        assert!(unlimited.pools[0].buckets_of(client("10.0.0.1")).is_empty());
    }
}
