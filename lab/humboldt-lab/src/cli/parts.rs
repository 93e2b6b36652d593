//! The command line of the laboratory's parts, each by itself.

use super::{ControllerKind, CoreList, TlsArgs};
use crate::units;
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The secret of load machines.
#[derive(Clone, Debug, Args)]
pub(crate) struct SecretArgs {
    /// Secret that the agents and their laboratory share; required unless the agents listen on
    /// loopback addresses
    #[arg(
        long,
        value_name = "SECRET",
        env = "HUMBOLDT_LAB_TOKEN",
        hide_env_values = true,
        default_value = ""
    )]
    pub(crate) token: String,
}

/// A load machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct AgentArgs {
    /// Address to listen on for the laboratory; everybody who reaches it can make this machine send
    /// load
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7070")]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) secret: SecretArgs,
    /// Address of this machine's servers, as the cache reaches it
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1:0")]
    pub(crate) origin: Vec<SocketAddr>,
    /// Processors for users and servers [default: all]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) lab_cores: Option<CoreList>,
    /// End after one experiment
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct OriginArgs {
    /// A name from `humboldt-lab workloads`, or a workload file
    #[arg(long, value_name = "NAME", default_value = "polymix-4")]
    pub(crate) workload: String,
    /// Addresses to listen on, separated by commas; port 0 takes any
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', default_value = "127.0.0.1:0")]
    pub(crate) listen: Vec<SocketAddr>,
    /// Seed of all sizes, types and bytes
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Multiplies think times
    #[arg(long, value_name = "FACTOR", value_parser = units::positive, default_value = "1")]
    pub(crate) time_scale: f64,
    /// Answer at once
    #[arg(long)]
    pub(crate) no_think: bool,
    /// Speak TLS, with certificates of the authority of this file (PEM), which those who ask must
    /// trust; made if there is none, with its key in FILE.key
    #[arg(long, value_name = "FILE")]
    pub(crate) origin_authority: Option<PathBuf>,
    /// Processors [default: all]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) lab_cores: Option<CoreList>,
    /// End after this time
    #[arg(long, value_name = "TIME", value_parser = units::seconds)]
    pub(crate) time_max: Option<f64>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LoadArgs {
    /// Requests per second
    #[arg(value_parser = units::positive)]
    pub(crate) per_second: f64,
    /// A proxy to send requests to [default: none, directly to the servers]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) proxy: Option<SocketAddr>,
    /// Addresses that `humboldt-lab origin` prints, separated by commas [default: a server is
    /// started]
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    pub(crate) origins: Vec<SocketAddr>,
    /// A name from `humboldt-lab workloads`, or a workload file
    #[arg(long, value_name = "NAME", default_value = "polymix-4")]
    pub(crate) workload: String,
    /// All choices of users and servers follow from it
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Multiplies think times and gaps of users
    #[arg(long, value_name = "FACTOR", value_parser = units::positive, default_value = "1")]
    pub(crate) time_scale: f64,
    /// Duration
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "10s")]
    pub(crate) time: f64,
    /// Leave out this time at the beginning
    #[arg(long, value_name = "TIME", value_parser = units::seconds, default_value = "1s")]
    pub(crate) warm_up: f64,
    /// Processors [default: all]
    #[arg(long, value_name = "LIST", value_parser = units::cores)]
    pub(crate) lab_cores: Option<CoreList>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Known answers.
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Each capacity is searched for by each controller, from below and from above: about \
        6 minutes for a capacity of 10,000 requests a second, 11 for 1,000 and 16 for 100. The exit code is 1 if a \
        result is more than 3 % off, or missing. With --burn, an honest laboratory says that it could not measure."
)]
pub(crate) struct VerifyArgs {
    /// Capacities of the servers, in requests per second, separated by commas
    #[arg(
        long,
        value_name = "PER_SECOND",
        value_delimiter = ',',
        value_parser = units::positive,
        default_value = "100,1000,10000"
    )]
    pub(crate) capacity: Vec<f64>,
    /// Controllers, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_value = "robust,classic")]
    pub(crate) controller: Vec<ControllerKind>,
    /// Keep this many processors busy meanwhile: there should be no result
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) burn: usize,
}

/// A server of known capacity.
#[derive(Clone, Debug, Args)]
pub(crate) struct KnownServerArgs {
    /// Its capacity in requests per second
    #[arg(value_parser = units::positive)]
    pub(crate) capacity_per_s: f64,
}
