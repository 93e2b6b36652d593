//! Delay pools.

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Delay pools" {
    /// Number of pools, for the directives that follow. A pool holds back what a server sends: the
    /// bytes of answers that do not come from the cache, with their heads, and those that a server
    /// sends through a tunnel. A client gets such bytes when its buckets have as many. The pace of
    /// clients is limited, and not the link to the server: a fetch goes at the pace of the fastest
    /// client that shares it, and some MB ahead of it. A client that holds up others leaves the
    /// fetch; if it cannot, since the server answers differently each time, it is cut off after 15
    /// seconds.
    delay_pools: u16 = PoolCount("0"), "delay_pools NUMBER";
    /// Class of a pool. 1: one bucket for all. 2: also one for each last byte of the client's IPv4
    /// address. 3: also one for each third byte (network), and one for each third and last byte
    /// (individual). 4: also one for each user who has logged in. 5: one for each `tag=` that a
    /// helper of `external_acl_type` has told. A client without the property, as one with an IPv6
    /// address, has no such bucket.
    delay_class: Vec<DelayClass> = DelayClasses(""), "delay_class POOL CLASS";
    /// Which requests a pool slows down: the first pool whose rules allow the request, in the order
    /// of their numbers. Without a rule for it, a pool slows nothing down. The rules are asked when
    /// the answer comes.
    delay_access: Vec<DelayAccess> = DelayRules(""), "delay_access POOL allow|deny [!]ACL ...";
    /// Rates of a pool: for each kind of bucket of its class, in the order aggregate, network,
    /// individual, user, the bytes that come in each second and the most bytes that a bucket holds.
    /// `none` is no limit, and so is `-1/-1`. Tokens come in evenly, not once in a second, so a
    /// bucket may be smaller than its rate.
    delay_parameters: Vec<DelayParameters> = DelayRates(""), "delay_parameters POOL RATE/SIZE|none ...";
    /// How full a bucket is at the start of the program, after a reconfiguration that has changed
    /// its pool, or when a client first needs it.
    delay_initial_bucket_level: u8 = Percent("50"), "delay_initial_bucket_level PERCENT";
    /// Whether pools go by the address that `follow_x_forwarded_for` has found.
    delay_pool_uses_indirect_client: bool = OnOff("on"), "delay_pool_uses_indirect_client on|off";
    /// Number of pools of clients, for the directives that follow. Such a pool holds back all that
    /// a client is sent, also hits, error pages and bytes through tunnels. Each client address has
    /// a bucket of its own, and with IPv6 each network of 64 bits. A connection keeps the pool that
    /// it had at its beginning.
    client_delay_pools: u16 = ClientPoolCount("0"), "client_delay_pools NUMBER";
    /// How full a bucket of a client is at first; more than 100 is allowed, and is not filled up
    /// again.
    client_delay_initial_bucket_level: u32 = Count("50"), "client_delay_initial_bucket_level PERCENT";
    /// Bytes that come into a bucket of a client each second, and the most bytes that it holds.
    client_delay_parameters: Vec<DelayParameters> = ClientDelayRates(""), "client_delay_parameters POOL RATE SIZE";
    /// Which clients such a pool slows down: the first pool whose rules allow the connection. Only
    /// its addresses are known then, and nothing about requests.
    client_delay_access: Vec<DelayAccess> = ClientDelayRules(""), "client_delay_access POOL allow|deny [!]ACL ...";
    /// A named pool for answers, also hits: a bucket for all of them together, and one for each
    /// answer. Without a level their buckets are half full at first.
    response_delay_pool: Vec<ResponsePool> = ResponsePools(""), "response_delay_pool NAME [OPTION=VALUE ...]";
    /// Which answers it slows down: the first line that matches decides, and names the pool.
    response_delay_pool_access: Vec<ResponsePoolAccess> = ResponsePoolRules(""), "response_delay_pool_access NAME allow|deny [!]ACL ...";
        }] }
    };
}
pub(super) use working;
