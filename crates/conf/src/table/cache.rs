//! Memory, stores, freshness and cachability.

use super::directive::{Directive, known};

macro_rules! working {
    ($next:ident $($rest:ident)* => $($done:tt)*) => {
        $next! { $($rest)* => $($done)* ["Cache" {
    /// Memory for objects, in flight and stored. It is a bound on real memory, not a hint. Objects
    /// in flight have at most half of it, so that clients that do not read take no memory from
    /// stored objects; beyond that, each transfer has 16 KiB. Data written to a socket is in the
    /// kernel's memory, within net.ipv4.tcp_wmem.
    cache_mem: u64 = Bytes("256 MB"), "cache_mem SIZE";
    /// Larger objects are not kept in memory.
    maximum_object_size_in_memory: u64 = Bytes("512 KB"), "maximum_object_size_in_memory SIZE";
    /// Objects that memory keeps although a store has them too. `always`: fetched objects, and hits
    /// on disk. `disk`: hits on disk. `network`: fetched objects. `auto`: all of them while there
    /// is room, and then those with a second request, because an object in memory evicts others. An
    /// object that a store does not take at once is in memory with `auto` too.
    memory_cache_mode: MemoryMode = MemoryModeKind("auto"), "memory_cache_mode auto|always|disk|network";
    /// Which objects leave memory first. `heap LRU` is the same as `lru`.
    /// [policies.md](policies.md) compares them.
    memory_replacement_policy: Policy = PolicyName("s3fifo"),
        "memory_replacement_policy lru|heap GDSF|heap LFUDA|heap LRU|s3fifo|sieve|tinylfu";
    /// Which objects leave the disk first, in schemes that can choose. `heap LRU` is the same as
    /// `lru`.
    cache_replacement_policy: Policy = PolicyName("s3fifo"),
        "cache_replacement_policy lru|heap GDSF|heap LFUDA|heap LRU|s3fifo|sieve|tinylfu";
    /// Smaller objects are not stored on disk.
    minimum_object_size: u64 = Bytes("0 KB"), "minimum_object_size SIZE";
    /// Larger objects are not stored.
    maximum_object_size: u64 = Bytes("4 MB"), "maximum_object_size SIZE";
    /// A store on disk: scheme (`null`, `ufs`, `aufs`, `diskd`, `coss`, `rock` or `ring`),
    /// directory, capacity in MB, for the schemes with a file per object (`ufs`, `aufs`, `diskd`)
    /// first- and second-level directories (16 and 256 when left out), options. Without any,
    /// objects are cached in memory only. A store that cannot be used is left out, with a message;
    /// a reconfiguration tries it again. An option of another scheme has no effect.
    cache_dir: Vec<CacheDir> = CacheDirs(""),
        "cache_dir SCHEME PATH MBYTES [L1 L2] [OPTION[=VALUE] ...]";
    /// The file with the purges by tag and by prefix, so that they hold after a crash. Without this
    /// line it is `humboldt.purges` in the directory of the first `cache_dir`, or beside it where
    /// that is a device or a file. While it cannot be written such purges are refused.
    /// [purging.md](purging.md) has the details.
    purge_log: String = Text(""), "purge_log PATH";
    /// Expected mean size of objects, by which the index of `ring` is sized at first. The others'
    /// size themselves.
    store_avg_object_size: u64 = Bytes("13 KB"), "store_avg_object_size SIZE";
    /// Where an arriving object is kept that goes to a store. `memory`: in memory until it is
    /// complete, then it is written in one piece; up to `maximum_object_size_in_memory` or a
    /// sixteenth of `cache_mem`, whichever is more, for each object, and as long as `cache_mem`
    /// suffices; beyond it, as `disk`. `disk`: it is written as it arrives, no faster than the
    /// store takes it, memory holds the bytes that some client has not read yet, and it is not kept
    /// in memory for the next request. `auto`: as `memory` up to `maximum_object_size_in_memory`;
    /// larger ones as `disk`, which limits them to the speed of the store. In all three objects up
    /// to `maximum_object_size` are cached.
    in_transit: InTransit = InTransitKind("auto"), "in_transit memory|disk|auto";
    /// The choice of a store for a new object: the one with the least load, then the closest
    /// `max-size`, then the most room; or in turn. Stores with a load above 1000, or out of
    /// service, are skipped.
    store_dir_select_algorithm: DirSelect = DirSelectKind("least-load"),
        "store_dir_select_algorithm least-load|round-robin";
    /// Most files of objects open at a time; beyond it objects are neither stored on nor read from
    /// disk. 0 is no limit of its own.
    max_open_disk_fds: u32 = Count("0"), "max_open_disk_fds NUMBER";
    /// Percentage of a store above which objects are evicted.
    cache_swap_low: u8 = Percent("90"), "cache_swap_low PERCENT";
    /// Percentage of a store near which eviction becomes aggressive.
    cache_swap_high: u8 = Percent("95"), "cache_swap_high PERCENT";
    /// Freshness of answers that do not say how long they are fresh: the first line whose
    /// expression matches the URL. Ages are in minutes; `max-stale` is in seconds.
    refresh_pattern: Vec<RefreshPattern> = RefreshPatterns(""),
        "refresh_pattern [-i] REGEX MIN PERCENT MAX [override-expire] [override-lastmod] [reload-into-ims] [ignore-reload] [ignore-no-store] [ignore-private] [refresh-ims] [store-stale] [max-stale=SECONDS]";
    /// Longest staleness of an object that is served because its server cannot be reached.
    max_stale: Duration = Seconds("1 week"), "max_stale TIME";
    /// Lifetime of error answers without one of their own.
    negative_ttl: Duration = Seconds("0 seconds"), "negative_ttl TIME";
    /// Answers without a validator are not stored when they expire sooner. Squid has 60 seconds
    /// here; nothing is gained by it, and much that could be cached is not.
    minimum_expiry_time: Duration = Seconds("0 seconds"), "minimum_expiry_time TIME";
    /// Serve everything that is stored as fresh and fetch nothing to validate it.
    offline_mode: bool = OnOff("off"), "offline_mode on|off";
    /// A client's reload becomes a validation.
    reload_into_ims: bool = OnOff("off"), "reload_into_ims on|off";
    /// A client's If-Modified-Since always validates with the server.
    refresh_all_ims: bool = OnOff("off"), "refresh_all_ims on|off";
    /// Ignore `Expires` of answers with Vary when it equals their Date.
    vary_ignore_expire: bool = OnOff("off"), "vary_ignore_expire on|off";
    /// Requests for an object that is being fetched wait for that fetch. Squid's default is off.
    /// Clients that share the fetch of a body too large for memory are at most 8 MB apart, or less
    /// when `cache_mem` is short. A client that makes others wait for half of the time gets the
    /// rest in another way: from the server by a range if there is a strong validator, or by a
    /// fetch of its own, if that gives the same bytes. Otherwise the others wait for it as long as
    /// it takes bytes, however slowly. A client that takes nothing at all for 15 s, while others
    /// wait for it, is cut off (`client_held_up_others`); a client that requested a range, after
    /// `write_timeout`.
    collapsed_forwarding: bool = OnOff("on"), "collapsed_forwarding on|off";
    /// Largest start of a range for which the whole object is fetched and stored, while the client
    /// gets its range of it. The first line whose ACLs all match decides; with 0, or without a
    /// line, only the range is fetched (and stored), with `none` always the whole object.
    range_offset_limit: Vec<SizeRule> = SizeRules(""), "range_offset_limit SIZE|none [[!]ACL ...]";
    /// Whether Accept-Encoding of requests is replaced by the one encoding of `br` and `gzip` that
    /// is accepted most widely, or removed. So a server that offers both makes two or three
    /// variants, and not one for every browser.
    normalize_accept_encoding: bool = OnOff("off"), "normalize_accept_encoding on|off";
    /// A fetch whose clients are gone is finished when less than this is missing; -1 always
    /// finishes. Before the answer has begun, nothing is worth finishing.
    quick_abort_min: Option<u64> = KBytes("16 KB"), "quick_abort_min SIZE|-1";
    /// Such a fetch is abandoned when more than this is missing; -1 never abandons for this reason.
    quick_abort_max: Option<u64> = KBytes("16 KB"), "quick_abort_max SIZE|-1";
    /// Such a fetch is finished when more than this percentage has arrived.
    quick_abort_pct: u8 = Percent("95"), "quick_abort_pct PERCENT";
    /// How far a fetch may run ahead of its fastest client before it waits.
    read_ahead_gap: u64 = Bytes("16 KB"), "read_ahead_gap SIZE";
        }] }
    };
}
pub(super) use working;

pub(super) const KNOWN: &[Directive] = known! { "Cache":
    Unsupported("collapsing is the same for all requests so far") {
        "collapsed_forwarding_access", "collapsed_forwarding_access allow|deny [!]ACL ...", "Which requests may share a fetch.";
    }
    Ignored("all cores share one memory cache") {
        "memory_cache_shared", "memory_cache_shared on|off", "Whether processes share their memory cache.";
        "shared_transient_entries_limit" | "collapsed_forwarding_shared_entries_limit", "shared_transient_entries_limit NUMBER", "Most fetches that processes share.";
        "shared_memory_locking", "shared_memory_locking on|off", "Whether shared memory is reserved at start.";
    }
    Ignored("memory is allocated in pages of a fixed pool, bounded by `cache_mem`") {
        "memory_pools", "memory_pools on|off", "Whether freed memory is kept.";
        "memory_pools_limit", "memory_pools_limit SIZE", "Most freed memory that is kept.";
    }
    Ignored("the index sizes itself") {
        "store_objects_per_bucket", "store_objects_per_bucket NUMBER", "Objects in each slot of the index.";
    }
    Ignored("objects read from disk are always verified") {
        "paranoid_hit_validation", "paranoid_hit_validation TIME", "Time spent on verifying objects before a hit.";
    }
    Ignored("each `cache_dir` keeps its index in its own directory") {
        "cache_swap_state" | "cache_swap_log", "cache_swap_state PATH", "Where the indexes of stores are kept.";
    }
    Ignored("`diskd` runs this program itself, and files are deleted without a helper") {
        "diskd_program", "diskd_program PATH", "Helper of the storage scheme `diskd`.";
        "unlinkd_program", "unlinkd_program PATH", "Helper that deletes files.";
    }
    Unsupported("Surrogate-Control is not implemented yet") {
        "httpd_accel_surrogate_id", "httpd_accel_surrogate_id NAME", "Name of this surrogate in Surrogate-Control.";
        "http_accel_surrogate_remote", "http_accel_surrogate_remote on|off", "Whether it acts as a remote surrogate.";
    }
};
