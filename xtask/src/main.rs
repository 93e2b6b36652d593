//! The project's own commands: `cargo xtask tidy`, `cargo xtask test`, `cargo xtask conformance`,
//! `cargo xtask simulate`, `cargo xtask bench …`.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command line program talks on its terminal"
)]

mod bench;
mod conformance;
mod first_run;
mod from_squid;
mod marks;
mod packages;
mod processes;
/// The same code as for the pages that the program's crates make; this crate depends on none of
/// them.
#[allow(unreachable_pub, reason = "it is public in the other crate")]
#[path = "../../crates/base/src/prose.rs"]
mod prose;
mod results;
mod simulate;
mod source;
mod test;
mod testssl;
mod tidy;
mod workspace;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// The result of every command of this program; the error is the line for the user.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's own commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check the rules that the compiler does not know: layers, lengths, columns, limits, unused
    /// public items and dependencies, links, licences
    Tidy,
    /// Install the packages that the tests need and run every check and every test
    Test(test::Arguments),
    /// Measure Humboldt beside a bare server and the caches installed here
    Bench(bench::Arguments),
    /// Run the public tests of HTTP caches, and compare with the expectations for Humboldt
    Conformance(conformance::Arguments),
    /// Run the whole proxy in memory under seeds, with simulated clients, servers, disks and time,
    /// and compare all answers with what is allowed; or prove that it finds old mistakes
    Simulate(simulate::Arguments),
    /// Run the commands of docs/first-run.md, and write that page with their output
    FirstRun(first_run::Arguments),
    /// Count what real files of Squid do here, compare rules with Squid, and write both into
    /// docs/from-squid.md
    FromSquid(from_squid::Arguments),
    /// Check the tables of docs/results/README.md, which put published figures beside ours, or
    /// write them, or write all pages beside it as HTML
    Results(results::Arguments),
    /// Have testssl.sh look at a port with TLS, and write what it finds into docs/tls.md
    Testssl(testssl::Arguments),
    /// Serve `/BYTES/anything` on one thread and nothing else: the floor of the benchmarks, and
    /// their origin
    #[command(hide = true)]
    Floor {
        /// Address to listen on
        listen: std::net::SocketAddr,
    },
    /// The same through TLS
    #[command(hide = true)]
    TlsFloor(bench::tls::floor::Arguments),
    /// Pass bytes between clients and an origin on one thread, and nothing else: the floor of a
    /// miss
    #[command(hide = true)]
    Relay {
        /// Address to listen on
        listen: std::net::SocketAddr,
        /// The address of the origin
        origin: std::net::SocketAddr,
    },
    /// Pass bytes between clients and a far end with splice on one thread, and nothing else: the
    /// floor of a tunnel
    #[command(hide = true)]
    SpliceRelay {
        /// Address to listen on
        listen: std::net::SocketAddr,
        /// The address of the far end
        far: std::net::SocketAddr,
        /// Capacity of a pipe
        pipe_bytes: usize,
    },
    /// Send as many bytes as connections ask for: the far end of tunnels
    #[command(hide = true)]
    TunnelFar {
        /// Address to listen on
        listen: std::net::SocketAddr,
    },
    /// Open tunnels and take what comes through them
    #[command(hide = true)]
    TunnelLoad(bench::tunnel::load::Arguments),
    /// Work through a list of requests: the load of the benchmarks
    #[command(hide = true)]
    Drive(bench::drive::Arguments),
    /// The bare loop of file operations
    #[command(hide = true)]
    BareFiles(bench::files::bare::Arguments),
    /// Undo changes of the machine when the benchmark has ended, in whatever way
    #[command(hide = true)]
    Keeper,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Tidy => tidy::run(),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Conformance(arguments) => conformance::run(&arguments),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::FirstRun(arguments) => first_run::run(&arguments),
        Command::FromSquid(arguments) => from_squid::run(&arguments),
        Command::Results(arguments) => results::run(&arguments),
        Command::Testssl(arguments) => testssl::run(&arguments),
        Command::Floor { listen } => bench::floor::run(listen),
        Command::TlsFloor(arguments) => bench::tls::floor::run(&arguments),
        Command::Relay { listen, origin } => bench::relay::run(listen, origin),
        Command::SpliceRelay { listen, far, pipe_bytes } => {
            bench::tunnel::relay::run(listen, far, pipe_bytes)
        }
        Command::TunnelFar { listen } => bench::tunnel::load::run_far(listen),
        Command::TunnelLoad(arguments) => bench::tunnel::load::run(&arguments),
        Command::Drive(arguments) => bench::drive::run(&arguments),
        Command::BareFiles(arguments) => bench::files::bare::run(&arguments),
        Command::Keeper => return humboldt_lab_subjects::keeper_main(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error}");
            ExitCode::FAILURE
        }
    }
}
