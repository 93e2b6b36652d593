//! `cargo xtask bench`: Humboldt beside a bare server and the caches that are installed, in one
//! interleaved run.
//!
//! The server under test is pinned to the first core, load and origin to the second; everything is
//! on loopback, in temporary directories, and bounded in time.

mod acl;
mod awake;
mod beside_old;
mod bump;
mod client;
mod counts;
mod delay;
pub(crate) mod drive;
pub(crate) mod files;
pub(crate) mod floor;
mod full;
mod hit;
mod idle;
mod index;
mod instructions;
mod lab;
mod load;
mod manager;
mod memory;
mod memory_limit;
mod memory_mode;
mod miss;
mod page_cache;
pub(crate) mod peers;
mod programs;
pub(crate) mod relay;
mod report;
mod reserve;
mod rest;
mod restart;
mod store;
mod subjects;
pub(crate) mod table;
pub(crate) mod tls;
pub(crate) mod tunnel;

use crate::{Outcome, packages, processes};
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The measurement
    #[arg(value_enum)]
    what: What,
    /// For `store`, `restart`, `full` and `files`: storage schemes, all if there are none. For
    /// `instructions`: `tls` counts hits with and without TLS, beside a bare server with the same
    /// library
    schemes: Vec<String>,
    /// A tenth of the time: enough to see that everything runs, too little for a figure to quote
    #[arg(long)]
    quick: bool,
    /// Subjects, separated by commas; the floor is always there:
    /// humboldt,nginx,squid,varnish,trafficserver; for `tunnel` humboldt,squid,haproxy; for `bump`
    /// humboldt,squid
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// For `hit`, `miss`, `memory`, `idle`, `instructions`, `store`, `files`, `tunnel`, `tls` and
    /// `bump`: an older humboldt, built for release, that has its turns as `old` in the same run,
    /// behind those of the newer one. `store` prints the ratio of both for each scheme, taken round
    /// by round
    #[arg(long, value_name = "PROGRAM", conflicts_with = "write")]
    old: Option<PathBuf>,
    /// For `store`, `page-cache`, `memory-mode`, `full`, `files`, `tunnel` and `bump`: how often
    /// every subject has its turn
    #[arg(long)]
    rounds: Option<usize>,
    /// For `restart`: objects of `ring`; the other schemes have fewer
    #[arg(long, default_value_t = restart::RING_OBJECTS)]
    objects: u64,
    /// For `store`, `index`, `restart`, `page-cache`, `memory-mode`, `full` and `files`: put the
    /// tables into docs/storage.md as well
    #[arg(long)]
    write: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Memory hits of 1 KiB, 13 KiB and 100 KiB
    Hit,
    /// Misses of 13 KiB that are stored in memory
    Miss,
    /// User-space instructions for each hit and each miss in memory, on a busy machine too
    Instructions,
    /// Resident memory after a churn of twenty times `cache_mem`
    Memory,
    /// Resident memory of the idle process, for each of 10,000 idle connections, and for each of
    /// 5,000 requests that wait for their server
    Idle,
    /// The cost of a request of the laboratory's users, beside wrk
    Lab,
    /// Misses that are stored on disk, and hits from there, for every storage scheme, beside
    /// Squid's
    Store,
    /// Long lists of ACLs: seconds to load, memory, and time of a question, beside Squid's
    Acl,
    /// Accuracy of delay pools beside Squid's: bytes in ten seconds; two minutes
    Delay,
    /// Memory of the indexes with ten million objects
    Index,
    /// Time to the first hit after a clean stop and after kill -9
    Restart,
    /// `ring` past the page cache and through it, with much memory and with little
    PageCache,
    /// All fetched and hit objects in memory, or only those with a second request
    MemoryMode,
    /// Throughput of a full store beside that of an empty one
    Full,
    /// TLS: hits of 1, 13 and 100 KiB beside nginx's and a bare server's, handshakes, resumed ones,
    /// and memory of idle connections
    Tls,
    /// Tunnels (CONNECT): CPU of bytes beside a bare splice relay, CPU of making one beside HAProxy
    /// in TCP mode, and memory
    Tunnel,
    /// Connections that `ssl_bump` decrypts beside Squid's: CPU of one with a certificate that is
    /// there, and with a new one. Squid must be built with OpenSSL, and Debian's package conflicts
    /// with `squid`; unpack it and name the folder: `apt-get download squid-openssl && dpkg -x
    /// squid-openssl_*.deb DIR`, then HUMBOLDT_SQUID_OPENSSL=DIR. Its libraries are those of the
    /// packages `squid` and `libssl3`
    Bump,
    /// The schemes with a file for each object beside a bare loop of the same file operations, on a
    /// slow device, while the tree fills and when it is full; needs root
    Files,
}

impl What {
    /// Whether an older humboldt can take part.
    fn has_old(self) -> bool {
        matches!(
            self,
            Self::Hit
                | Self::Miss
                | Self::Memory
                | Self::Idle
                | Self::Instructions
                | Self::Store
                | Self::Files
                | Self::Tunnel
                | Self::Tls
                | Self::Bump
        )
    }
}

/// The common settings of all benchmarks.
struct Plan {
    quick: bool,
    only: Vec<String>,
    /// This program, built for release.
    xtask: PathBuf,
    /// Humboldt, built for release; `None` if it is not wanted or does not build.
    humboldt: Option<PathBuf>,
    /// An older humboldt to compare with.
    old: Option<PathBuf>,
    server_core: usize,
    load_core: usize,
    /// Schemes asked for; all if there are none.
    schemes: Vec<String>,
    rounds_wanted: Option<usize>,
    /// Whether the tables are written to docs/storage.md.
    write: bool,
    /// A file with the authority that loads with TLS trust.
    authority: Option<PathBuf>,
}

impl Plan {
    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    /// Number of turns of every subject.
    fn rounds(&self) -> usize {
        if self.quick { 2 } else { 7 }
    }

    fn turn(&self) -> Duration {
        if self.quick { Duration::from_secs(1) } else { Duration::from_secs(3) }
    }
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if arguments.old.is_some() && !arguments.what.has_old() {
        let all = "hit, miss, memory, idle, instructions, store, files, tunnel, tls and bump";
        return Err(format!("--old is for {all}").into());
    }
    packages::install_for_benchmarks()?;
    match arguments.what {
        What::Acl => return acl::run(arguments.quick),
        What::Index => return index::run(arguments.write),
        _ => {}
    }
    let with_humboldt = !matches!(arguments.what, What::Lab)
        && (arguments.only.is_empty() || arguments.only.iter().any(|name| name == "humboldt"));
    let xtask = programs::program("xtask")?.ok_or("the floor does not build")?;
    let humboldt = if with_humboldt { programs::humboldt()? } else { None };
    if with_humboldt && humboldt.is_none() {
        println!("note: humboldt does not build, it is left out");
    }
    let (server_core, load_core) = processes::two_cores()?;
    let plan = Plan {
        quick: arguments.quick,
        only: arguments.only.clone(),
        xtask,
        humboldt,
        old: arguments.old.as_ref().map(std::path::absolute).transpose()?,
        server_core,
        load_core,
        schemes: arguments.schemes.clone(),
        rounds_wanted: arguments.rounds,
        write: arguments.write,
        authority: None,
    };
    match arguments.what {
        What::Hit => hit::run(&plan),
        What::Miss => miss::run(&plan),
        What::Instructions => instructions::run(plan),
        What::Memory => memory::run(&plan),
        What::Idle => idle::run(&plan),
        What::Lab => lab::run(&plan),
        What::Store => store::run(&plan),
        What::Acl | What::Index => Ok(()),
        What::Delay => delay::run(&plan),
        What::Restart => restart::run(&plan, arguments.objects),
        What::PageCache => page_cache::run(&plan),
        What::MemoryMode => memory_mode::run(&plan),
        What::Full => full::run(&plan),
        What::Tls => tls::run(plan),
        What::Tunnel => tunnel::run(&plan),
        What::Bump => bump::run(plan),
        What::Files => files::run(&plan),
    }
}
