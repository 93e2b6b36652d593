//! `cargo xtask simulate`: the whole proxy under a seed, and proof that it would notice a mistake.

mod mistakes;

use std::process::Command;

use crate::{Outcome, workspace};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many seeds to run
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// How many processes at a time; as many as there are processors if it is not given
    #[arg(long)]
    jobs: Option<usize>,
    /// Run this seed alone
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// Show each event of that seed on standard error
    #[arg(long, requires = "seed")]
    show: bool,
    /// Put old mistakes back, one at a time, into a copy of the sources, and tell after how many
    /// seeds each is found (about a minute for each). Names select some of them
    #[arg(long, num_args = 0.., value_name = "NAME", conflicts_with = "seed")]
    mistakes: Option<Vec<String>>,
}

pub(crate) fn run(arguments: &Arguments) -> Outcome {
    if let Some(names) = &arguments.mistakes {
        return mistakes::run(names, arguments.seeds);
    }
    let root = workspace::root();
    let mut command = Command::new(workspace::cargo());
    command.args(["run", "--quiet", "--package", "humboldt-simulation", "--"]).current_dir(root);
    match arguments.seed {
        Some(seed) => command.args(["--seed", &seed.to_string()]),
        None => {
            let (seeds, from) = (arguments.seeds.to_string(), arguments.from.to_string());
            command.args(["--seeds", &seeds, "--from", &from])
        }
    };
    if arguments.show {
        command.arg("--show");
    }
    if let Some(jobs) = arguments.jobs {
        command.args(["--jobs", &jobs.to_string()]);
    }
    if command.status()?.success() { Ok(()) } else { Err("something was wrong".into()) }
}
