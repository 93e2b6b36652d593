//! `humboldt-lab`: finds the load that an HTTP cache can sustain.
//!
//! Begin reading at [`experiment::run`]: it is one run from an idle machine to a report. The crates
//! beside this one do the work: workload (requests and expected answers), origin and robots
//! (servers and users), peak (the search for the load), subjects (the caches and their
//! environment), report (pages and plots).

mod cli;
mod commands;
mod cores;
mod experiment;
mod failure;
mod fleet;
mod interrupt;
mod output;
mod require;
mod simulate;
mod tls;
mod units;
mod version;
mod wording;

use clap::Parser;
use cli::{Cli, Command};
use failure::Failure;
use interrupt::Interrupt;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| cli::with_hint(error).exit());
    // The keeper outlives signals that end the laboratory; that is its purpose.
    if matches!(cli.command, Command::Keeper) {
        return humboldt_lab_subjects::keeper_main();
    }
    match Interrupt::listen()
        .map_err(Failure::run)
        .and_then(|interrupt| run(cli.command, &interrupt))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::complain(&failure);
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: Command, interrupt: &Interrupt) -> Result<(), Failure> {
    match command {
        Command::Peak(arguments) => commands::peak(&arguments, interrupt),
        Command::Bang(arguments) => commands::bang(&arguments, interrupt),
        Command::Tunnel(arguments) => commands::tunnel(&arguments, interrupt),
        Command::Run(arguments) => commands::matrix(&arguments, interrupt),
        Command::Compare(arguments) => commands::compare(&arguments),
        Command::Recompute(arguments) => commands::recompute(&arguments),
        Command::Report(arguments) => commands::pages(&arguments),
        Command::Calibrate(arguments) => commands::calibrate(&arguments, interrupt),
        Command::Simulate(arguments) => simulate::run(&arguments, interrupt),
        Command::Subjects(arguments) => commands::subjects(&arguments),
        Command::Workloads(arguments) => commands::workloads(&arguments),
        Command::Agent(arguments) => fleet::agent::run(&arguments, interrupt),
        Command::Origin(arguments) => commands::origin(&arguments, interrupt),
        Command::Load(arguments) => commands::load(&arguments, interrupt),
        Command::Verify(arguments) => commands::verify(&arguments, interrupt),
        Command::KnownServer(arguments) => commands::known_server(&arguments, interrupt),
        Command::Keeper => Ok(()),
    }
}
