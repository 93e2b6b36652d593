//! The command line. Every option is one that an experiment file may set too, under the same name.

mod parts;

use crate::require::Requirement;
use crate::simulate::SimulateArgs;
use crate::units;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand, ValueEnum};
use humboldt_lab_subjects::DiskSpeed;
use std::net::SocketAddr;
use std::path::PathBuf;

pub(crate) use parts::{AgentArgs, KnownServerArgs, LoadArgs, OriginArgs, SecretArgs, VerifyArgs};

/// Finds the load that an HTTP cache can sustain.
#[derive(Debug, Parser)]
#[command(
    name = "humboldt-lab",
    version = crate::version::VERSION.as_str(),
    about,
    long_about = "Finds the load that an HTTP cache can sustain.\n\n\
        The laboratory plays both sides: users, and the servers behind the cache. It raises the load until the cache \
        no longer keeps its response times, follows that limit while the cache's disk is filled twice, and checks \
        every byte of every answer.",
    after_help = "Begin with:\n  humboldt-lab peak squid:aufs --quick      a small but complete run of Squid, under 3 minutes\n  \
        humboldt-lab peak humboldt:ufs            Humboldt, with a store of 1 GB\n  \
        humboldt-lab peak --attach http://127.0.0.1:3128   a proxy that is running already\n  \
        humboldt-lab subjects                     the caches that can be measured\n\n\
        Exit codes: 0 done; 1 the run failed (measurements are kept); 2 a mistake in the arguments; \
        3 a session of `run` is over, and runs are left; \
        130 interrupted (measurements are kept)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Mount options that look like options of this program.
const MOUNT_OPTIONS: [&str; 8] = [
    "noatime",
    "nodiratime",
    "relatime",
    "strictatime",
    "lazytime",
    "discard",
    "nobarrier",
    "notail",
];

/// A mistake in the arguments, with a better hint than that of the nearest spelling where there is
/// one.
pub(crate) fn with_hint(mut error: clap::Error) -> clap::Error {
    let unknown = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) if error.kind() == ErrorKind::UnknownArgument => {
            name.trim_start_matches('-').to_owned()
        }
        _ => return error,
    };
    if MOUNT_OPTIONS.contains(&unknown.as_str()) {
        let hint =
            format!("a mount option belongs to a file system: --fs ext4 --mount-options {unknown}");
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
    error
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Find the load that a cache sustains while its disk fills
    Peak(Box<PeakArgs>),
    /// Request a list of URLs as fast as a number of connections allows
    Bang(Box<BangArgs>),
    /// Measure tunnels (CONNECT): set-ups per second, bytes per second, CPU time
    Tunnel(Box<TunnelArgs>),
    /// Make all runs of an experiment file; continues where it was interrupted
    Run(RunArgs),
    /// Compare runs on shared plots, with confidence intervals from repeats
    Compare(CompareArgs),
    /// Check every figure of published experiments by the files beside them
    Recompute(RecomputeArgs),
    /// Write report.html of runs again, from their summary.json
    Report(ReportArgs),
    /// Find the highest rate of the laboratory itself, without a cache
    Calibrate(CalibrateArgs),
    /// Compare replacement policies on a trace, without a cache and without load
    Simulate(Box<SimulateArgs>),
    /// List the caches that can be measured, with the installed versions, or show the file of one
    Subjects(NameArgs),
    /// List the workloads, or show the file of one
    Workloads(WorkloadsArgs),
    /// Serve as one of several load machines (see `peak --agents`)
    Agent(AgentArgs),
    /// Run only the servers of a workload, until interrupted
    Origin(OriginArgs),
    /// Run only the users of a workload, at a constant load
    Load(Box<LoadArgs>),
    /// Check the laboratory itself: have it find the capacity of servers whose capacity is known
    /// (half an hour, on a machine with nothing else to do)
    Verify(VerifyArgs),
    /// A server of known capacity (used by `verify`)
    #[command(hide = true)]
    KnownServer(KnownServerArgs),
    /// Undo the changes of a laboratory that was killed (used by the program itself)
    #[command(hide = true)]
    Keeper,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PeakArgs {
    /// The subject: a name from `humboldt-lab subjects`, or a subject file
    #[arg(required_unless_present = "attach")]
    pub(crate) subject: Option<String>,
    /// Measure the cache that is running at this URL: a proxy, or with --accelerator a site, which
    /// may be https://HOST:PORT (see --authority)
    #[arg(long, value_name = "URL", conflicts_with = "subject")]
    pub(crate) attach: Option<String>,
    /// The attached cache is an accelerator in front of the laboratory's servers (see --origin)
    #[arg(long, requires = "attach")]
    pub(crate) accelerator: bool,
    /// Process to watch with --attach
    #[arg(long, value_name = "PID", requires = "attach")]
    pub(crate) pid: Option<u32>,
    #[command(flatten)]
    pub(crate) world: WorldArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
    /// Number of cache processes, side by side; stores, memory and quota are split evenly, and a
    /// URL always goes to the same process
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=16),
        conflicts_with = "attach"
    )]
    pub(crate) instances: u32,
    /// A small but complete run: cache of 384 MB, time scale 0.03, at most 155 s
    #[arg(long)]
    pub(crate) quick: bool,
    /// Folder for the report [default: named after the subject and a number, in the current folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Serve the growing report to a browser
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) serve: Option<SocketAddr>,
    /// Do not calibrate first (the report will say so)
    #[arg(long)]
    pub(crate) no_calibration: bool,
    /// A condition that the result must meet, or the exit code is 1: sustained>3000, p99_hit<20ms,
    /// hit_ratio>50%, errors<1; may be given several times
    #[arg(long, value_name = "CONDITION")]
    pub(crate) require: Vec<Requirement>,
    /// Text that distinguishes this run from others of the same subject
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) variant: String,
    /// The same options as a command line, if they are those of an experiment file.
    #[arg(skip)]
    pub(crate) as_command: Option<String>,
}

/// Users and requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The simulated world")]
pub(crate) struct WorldArgs {
    /// A name from `humboldt-lab workloads`, a workload file, or `log:PATH` to replay a Squid
    /// access.log
    #[arg(long, value_name = "NAME", default_value = "polymix-4")]
    pub(crate) workload: String,
    /// All choices of users and servers follow from it
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Multiplies think times, thresholds and sample periods alike [default: 0.1; 1 is as
    /// published]
    #[arg(long, value_name = "FACTOR", value_parser = units::positive)]
    pub(crate) time_scale: Option<f64>,
    /// Latency between cache and servers, each way, instead of the workload's, before time scaling
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) server_delay: Option<f64>,
    /// Packet loss between cache and servers, each way, instead of the workload's
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    pub(crate) server_loss: Option<f64>,
    /// Latency between users and cache, each way, instead of the workload's, before time scaling
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) client_delay: Option<f64>,
    /// Packet loss between users and cache, each way, instead of the workload's
    #[arg(long, value_name = "SHARE", value_parser = units::share)]
    pub(crate) client_loss: Option<f64>,
    /// Load machines that run `humboldt-lab agent`, separated by commas [default: this process]
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    pub(crate) agents: Vec<String>,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// Addresses of the laboratory's servers, separated by commas; port 0 takes any
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1:0")]
    pub(crate) origin: Vec<SocketAddr>,
    /// Processors for the laboratory [default: the upper half]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) lab_cores: Option<CoreList>,
    /// Give up an answer after this time (not scaled)
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "60s")]
    pub(crate) timeout: f64,
}

/// TLS between users, cache and servers.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Users ask for https:// URLs, and speak TLS with the one that is named
    #[arg(long, value_name = "WITH", value_enum)]
    pub(crate) tls: Option<TlsKind>,
    /// File with the authorities that must have signed the certificate that users see (PEM)
    /// [default: authorities of this run; required if the cache is not started by it, and for
    /// --tls tunnel with --urls]
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(crate) authority: Option<PathBuf>,
    /// File with the authority of the laboratory's own servers, for a running proxy that must trust
    /// it (PEM); made if there is none, with its key in FILE.key [default: a new one for this run]
    #[arg(long, value_name = "FILE", requires = "tls")]
    pub(crate) origin_authority: Option<PathBuf>,
    /// Every handshake is a full one; without it users resume sessions, as browsers do
    #[arg(long, requires = "tls")]
    pub(crate) no_resumption: bool,
}

/// With whom users speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TlsKind {
    /// The server that they connect to: an accelerator, or without a cache the laboratory's server
    Accelerator,
    /// The laboratory's server, through a tunnel (CONNECT) that the proxy cannot read
    Tunnel,
    /// The proxy: it opens the tunnel (Squid's ssl_bump) with certificates of --authority
    Intercept,
}

/// A list of processors; clap would take a bare `Vec` as a repeated option.
pub(crate) type CoreList = Vec<usize>;

/// The search for the load.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The search")]
pub(crate) struct SearchArgs {
    /// The controller of the load
    #[arg(long, value_enum, default_value_t = ControllerKind::Robust)]
    pub(crate) controller: ControllerKind,
    /// Constant load in requests per second, instead of a search
    #[arg(long, value_name = "PER_SECOND", value_parser = units::positive)]
    pub(crate) load: Option<f64>,
    /// Load to begin with, in requests per second [default: 100, or more if samples are short]
    #[arg(long, value_name = "PER_SECOND", value_parser = units::positive)]
    pub(crate) first_load: Option<f64>,
    /// Never offer more than this, in requests per second
    #[arg(long, value_name = "PER_SECOND", value_parser = units::positive)]
    pub(crate) load_max: Option<f64>,
    /// Length of a sample before time scaling [default: 60s, or 20s with --quick]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) sample: Option<f64>,
    /// Stop when the fill is this many times the cache size
    #[arg(long, value_name = "RATIO", value_parser = units::positive, default_value = "2")]
    pub(crate) fill: f64,
    /// Stop after this time, whatever the fill (not scaled)
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) time_max: Option<f64>,
    /// Percentile that the robust controller judges
    #[arg(long, value_name = "PER_CENT", default_value_t = 95.0)]
    pub(crate) percentile: f64,
    /// Longest time that the cache may add to a hit at that percentile, before time scaling
    /// [default: 750ms]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) hit_limit: Option<f64>,
    /// Longest time that the cache may add to a miss at that percentile, before time scaling
    /// [default: 1.5s]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) miss_limit: Option<f64>,
    /// Classic controller: raise the load below this mean response time, before time scaling
    /// [default: 1.5s]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) rptm_min: Option<f64>,
    /// Classic controller: lower the load above this mean response time, before time scaling
    /// [default: 1.75s]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) rptm_max: Option<f64>,
    /// Classic controller: steps of 5 % only, as the book's; without it, steps grow as long as the
    /// load is far from the limit
    #[arg(long)]
    pub(crate) even_steps: bool,
    /// After the run: response times at 10 % to 110 % of the load that was sustained
    #[arg(long)]
    pub(crate) curve: bool,
    /// The load that is 100 % there, in requests per second, instead of the sustained one
    #[arg(long, value_name = "PER_SECOND", value_parser = units::positive, requires = "curve")]
    pub(crate) curve_of: Option<f64>,
    /// Judge samples although other processes, or the host of this virtual machine, were busy;
    /// without it, such samples are repeated
    #[arg(long)]
    pub(crate) tolerate_others: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ControllerKind {
    /// Percentiles of the time added to hits and to misses, errors, backlog; levels are held before
    /// they count
    Robust,
    /// Mean response time between two limits, steps of 5 % and more, as the book's runs did
    Classic,
}

/// The machine under the cache.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The machine under the cache")]
pub(crate) struct GroundArgs {
    /// Size of the cache's store; fill is measured against it [default: 1GB]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) cache_size: Option<u64>,
    /// The cache's memory for objects
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "64MB")]
    pub(crate) memory: u64,
    /// Put the store on a fresh file system: ext2, ext3, ext4, xfs or btrfs (needs root)
    #[arg(long, value_name = "NAME")]
    pub(crate) fs: Option<String>,
    /// Mount options of that file system, e.g. noatime
    #[arg(long, value_name = "OPTIONS", requires = "fs")]
    pub(crate) mount_options: Option<String>,
    /// Number of stores, each with a file system or folder of its own
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub(crate) spindles: u32,
    /// Put each store on a simulated disk, so many times as fast as a SCSI disk of 1999: an arm,
    /// 7,200 turns a minute, its contents in memory (needs --fs, root and /dev/fuse)
    #[arg(long, value_name = "FACTOR", value_parser = units::disk_speed, requires = "fs")]
    pub(crate) disk_speed: Option<DiskSpeed>,
    /// Reads per second that each store's device allows (needs --fs and root)
    #[arg(long, value_name = "PER_SECOND", requires = "fs")]
    pub(crate) read_iops: Option<u64>,
    /// Writes per second that each store's device allows (needs --fs and root)
    #[arg(long, value_name = "PER_SECOND", requires = "fs")]
    pub(crate) write_iops: Option<u64>,
    /// Bytes per second that each store's device reads (needs --fs and root)
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, requires = "fs")]
    pub(crate) read_rate: Option<u64>,
    /// Bytes per second that each store's device writes (needs --fs and root)
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, requires = "fs")]
    pub(crate) write_rate: Option<u64>,
    /// Size of each store's device [default: one and a half times the store and 64 MB, or
    /// what the file system needs] (needs --fs)
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, requires = "fs")]
    pub(crate) device_size: Option<u64>,
    /// Throttle writing processes as soon as this much written data has not reached a device; for
    /// the whole machine (needs root)
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) dirty_limit: Option<u64>,
    /// The cache's program, instead of the one that is installed: compare two builds
    #[arg(long, value_name = "PATH")]
    pub(crate) program: Option<PathBuf>,
    /// CPU time that the cache may use, in processors: 0.5 is half of one (needs root)
    #[arg(long, value_name = "PROCESSORS", value_parser = units::positive)]
    pub(crate) cpu_quota: Option<f64>,
    /// A processor of this speed for the cache, however fast the machine is at the moment: 1 is an
    /// undisturbed core of an AMD EPYC at 2.4 GHz (needs root)
    #[arg(long, value_name = "FACTOR", value_parser = units::positive)]
    #[arg(conflicts_with = "cpu_quota")]
    pub(crate) cpu_speed: Option<f64>,
    /// All memory that the cache may use, with the page cache of its files: so that the system's
    /// memory does not hide the disk (needs root)
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) memory_limit: Option<u64>,
    /// Processors for the cache [default: the lower half]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) subject_cores: Option<CoreList>,
    /// Folder for stores, images and logs of the cache [default: a temporary one, removed at the
    /// end]
    #[arg(long, value_name = "DIR")]
    pub(crate) ground: Option<PathBuf>,
    /// Keep the cache's configuration, logs and store
    #[arg(long, requires = "ground")]
    pub(crate) keep: bool,
    /// Drop the system's page cache before the run (needs root)
    #[arg(long)]
    pub(crate) drop_caches: bool,
    /// Rest before the run: file systems create files slowly soon after many were deleted
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "0s")]
    pub(crate) rest: f64,
    /// Set a variable of the subject's templates, e.g. --set threads=32
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub(crate) variables: Vec<String>,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:\n  \
        humboldt-lab bang --proxy 127.0.0.1:3128 < urls.txt\n  \
        humboldt-lab bang --subject squid:aufs    an empty Squid, 10,000 URLs twice: all misses, then all hits\n  \
        humboldt-lab bang --generate 10000        the laboratory's own server, without a cache\n\n\
        Exit codes: 0 done, also if the time was up; 1 the run failed, not one answer was right, or one had wrong \
        content (measurements are kept); 2 a mistake in the arguments; 130 interrupted (measurements are kept).")]
pub(crate) struct BangArgs {
    /// The proxy to send requests to, e.g. 127.0.0.1:3128 [default: none, directly to the servers]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Start this cache, empty, and send requests to it: a name from `humboldt-lab subjects`, or a
    /// subject file
    #[arg(long, value_name = "NAME", conflicts_with = "proxy")]
    pub(crate) subject: Option<String>,
    /// A file with URLs; - is standard input [default: -, but generated URLs with --subject]
    ///
    /// One http:// URL in a line (with --tls https://), of at most 8 KB. Empty lines and lines that
    /// begin with # are skipped. Lines that are no such URL are counted, and the first is shown.
    #[arg(long, value_name = "FILE", conflicts_with = "generate")]
    pub(crate) urls: Option<PathBuf>,
    /// Generate this many URLs, served by the laboratory's own servers, with every byte verified
    /// [default: 10000 with --subject]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    pub(crate) generate: Option<u64>,
    /// The workload to generate from
    #[arg(long, value_name = "NAME", default_value = "uniform-unique")]
    pub(crate) workload: String,
    /// Addresses of the servers of generated URLs, separated by commas; port 0 takes any
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1:0")]
    pub(crate) origin: Vec<SocketAddr>,
    /// Connections at the same time, at most
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 63, value_parser = clap::value_parser!(u32).range(1..=28_000))]
    pub(crate) connections: u32,
    /// Request the whole list this many times, each time in another order and with its own result
    /// [default: 1, or 2 with --subject]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) passes: Option<u32>,
    /// Keep the order of the list; with one pass, each URL is requested as soon as it is read
    #[arg(long)]
    pub(crate) in_order: bool,
    /// Use connections for several requests; tcp-banger2 made one for each
    #[arg(long)]
    pub(crate) keep_alive: bool,
    /// Seed of the order and of the generated URLs
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Multiplies the servers' think times
    #[arg(long, value_name = "FACTOR", value_parser = units::positive, default_value = "1")]
    pub(crate) time_scale: f64,
    /// Write one line for each request to this file
    ///
    /// Columns, separated by spaces: the time at which its connection was begun (Unix time in s,
    /// with µs); service time in ms, from then to the last byte; status, or the fault (timed_out,
    /// wrong_byte, …); bytes of the body; hit, miss, or - if that is not known; number of the pass;
    /// URL.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Folder for the report; with several passes, each has a folder in it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Give up an answer after this time
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "60s")]
    pub(crate) timeout: f64,
    /// Stop after this time
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "1h")]
    pub(crate) time_max: f64,
    /// Text that distinguishes this bang from others of the same subject
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) variant: String,
    /// The same options as a command line, if they are those of an experiment file.
    #[arg(skip)]
    pub(crate) as_command: Option<String>,
    /// Processors for the laboratory [default: all, but the upper half with --subject]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) lab_cores: Option<CoreList>,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
}

#[derive(Clone, Debug, Args)]
#[command(after_help = "Three measurements, one after the other, each of at most --seconds:\n  \
        set-ups    connect, CONNECT, a byte there and a byte back, close; again and again\n  \
        download   --bytes through --tunnels tunnels that are open at the same time\n  \
        upload     the same in the other direction\n\n\
        Every byte is checked at the other end. With a cache that is started, or with --pid, the table has the \
        cache's CPU time too.\n\n\
        Examples:\n  \
        humboldt-lab tunnel --subject humboldt:null\n  \
        humboldt-lab tunnel --attach http://127.0.0.1:3128 --pid 4711\n\n\
        Exit codes: as for bang; 1 also if wrong bytes went through.")]
pub(crate) struct TunnelArgs {
    /// Start this proxy: a name from `humboldt-lab subjects`, or a subject file
    #[arg(long, value_name = "NAME", required_unless_present = "attach")]
    pub(crate) subject: Option<String>,
    /// Measure the proxy that is running at this URL; its rules must allow CONNECT to --far
    #[arg(long, value_name = "URL", conflicts_with = "subject")]
    pub(crate) attach: Option<String>,
    /// Process to watch with --attach
    #[arg(long, value_name = "PID", requires = "attach")]
    pub(crate) pid: Option<u32>,
    /// Tunnels that are open at the same time
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4_000))]
    pub(crate) tunnels: u32,
    /// Bytes in each direction, of all tunnels together (4GB: 4.29 GB of 10⁹ bytes)
    #[arg(long, value_name = "SIZE", value_parser = units::bytes, default_value = "4GB")]
    pub(crate) bytes: u64,
    /// Longest time of each of the three measurements
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "10s")]
    pub(crate) seconds: f64,
    /// Give up a tunnel that is not open after this time
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "10s")]
    pub(crate) timeout: f64,
    /// Address of the laboratory's server at the far end; port 0 takes any
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub(crate) far: SocketAddr,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// Folder for the results: tunnel.json and tunnel.txt
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Processors for the laboratory [default: all, but the upper half with --subject]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) lab_cores: Option<CoreList>,
    #[command(flatten)]
    pub(crate) ground: GroundArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// The experiment file
    pub(crate) file: PathBuf,
    /// Folder for all runs and the matrix page [default: the file's name without .toml]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Use the sizes and times of the file's [full], those of the original experiment: this may
    /// take days
    #[arg(long)]
    pub(crate) full: bool,
    /// Run every combination of the file's [cross] once, instead of its choice
    #[arg(long)]
    pub(crate) cross: bool,
    /// Also write the page as Markdown, drawings and CSV into this folder at the end, with the
    /// samples, summary and short report of every run, of which `recompute` makes it again
    #[arg(long, value_name = "DIR")]
    pub(crate) publish: Option<PathBuf>,
    /// Begin no run that would end after this time, if it took as long as it may or a quarter more
    /// than is expected; the same command goes on later, and the exit code is 3 until all runs are
    /// done [default: that of the file's `session`]
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) session: Option<f64>,
    /// List the runs with their expected and their longest duration, and run nothing
    #[arg(long, visible_alias = "plan")]
    pub(crate) dry_run: bool,
    /// Make each run once and for 20 seconds only, to see whether it can be made here, always anew
    /// and in the folder `trial` within that of the experiment; its figures say nothing
    #[arg(long, conflicts_with_all = ["publish", "session"])]
    pub(crate) trial: bool,
    /// Repeat runs that have failed before
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// Serve the growing report of the present run to a browser
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) serve: Option<SocketAddr>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    /// Folders of runs
    #[arg(required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Folder for the comparison
    #[arg(long, value_name = "DIR", default_value = "comparison")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RecomputeArgs {
    /// Folders of experiments that were published with `run --publish`
    #[arg(required = true, value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Write the pages again before they are checked
    #[arg(long)]
    pub(crate) write: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReportArgs {
    /// Folders of runs
    #[arg(required = true)]
    pub(crate) runs: Vec<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) world: WorldArgs,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct NameArgs {
    /// Show the file of this one
    pub(crate) name: Option<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct WorkloadsArgs {
    /// Show the file of this one, or check a file of your own
    pub(crate) name: Option<String>,
    /// Print the hits of an ideal cache, from this many requests
    #[arg(long, value_name = "REQUESTS", num_args = 0..=1, default_missing_value = "300000")]
    pub(crate) ideal: Option<u64>,
}
