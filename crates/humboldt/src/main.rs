//! The `humboldt` program: parse → validate → bind → drop privileges → open stores → run.
//!
//! [`start`] has its steps in order; the crates below it do the work.

mod ca;
mod cli;
mod command;
mod configuration;
mod control;
mod disks;
mod error;
mod explain;
mod log_files;
mod ports;
mod query_port;
mod reload;
mod serve;
mod start;
mod tls_files;
mod version;

use std::process::ExitCode;

use clap::Parser;

/// Many threads, much churn of small objects of all sizes, and memory that is really given back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Exit status for options that make no sense.
const BAD_OPTIONS: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        // A helper of `diskd`. Nobody but the proxy starts one, so the command line (`cli`) does
        // not know of it.
        Some(first) if first == humboldt_schemes::HELPER_COMMAND => {
            return ended(humboldt_schemes::serve_as_helper(arguments));
        }
        Some(first) if first == ca::COMMAND => return ended(ca::run(arguments)),
        _ => {}
    }
    let cli = cli::Cli::parse();
    if cli.version {
        show_version();
        return ExitCode::SUCCESS;
    }
    if cli.command == Some(cli::Command::Explain) {
        return explain::run(&cli);
    }
    if cli.asks() {
        complain(&error::StartError::NotExplained);
        return ExitCode::from(BAD_OPTIONS);
    }
    ended(start::run(&cli))
}

fn ended(result: Result<(), impl std::error::Error>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stdout)]
fn show_version() {
    println!("{}", version::line());
}

/// The one place that speaks to a person about a failed start.
#[allow(clippy::print_stderr)]
fn complain(error: &dyn std::error::Error) {
    eprintln!("humboldt: {error}");
}
