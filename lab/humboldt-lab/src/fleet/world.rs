//! The workload of an experiment: built in, a file, or a log to replay, with the changes of the
//! command line.

use super::protocol::WorldOrder;
use crate::Failure;
use crate::cli::WorldArgs;
use humboldt_lab_workload::{Link, Replay, Workload};
use std::io::BufReader;
use std::path::{Path, PathBuf};

/// A workload file is read by people: larger is a mistake.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The time scale of a run, unless it is quick or told otherwise.
pub(crate) const TIME_SCALE: f64 = 0.1;

/// The workload, from the command line.
pub(crate) fn order(arguments: &WorldArgs, time_scale: f64) -> Result<WorldOrder, Failure> {
    let (name, text, replay) = find(&arguments.workload)?;
    let delay_us = |seconds: Option<f64>| seconds.map(|seconds| (seconds * 1e6).round() as u64);
    Ok(WorldOrder {
        name,
        text,
        replay,
        server_link: (delay_us(arguments.server_delay), arguments.server_loss),
        client_link: (delay_us(arguments.client_delay), arguments.client_loss),
        seed: arguments.seed,
        time_scale: arguments.time_scale.unwrap_or(time_scale),
    })
}

/// A plain world, for the parts of the laboratory that are run by themselves.
pub(crate) fn plain_order(
    workload: &str,
    seed: u64,
    time_scale: f64,
) -> Result<WorldOrder, Failure> {
    let (name, text, replay) = find(workload)?;
    let unchanged = (None, None);
    Ok(WorldOrder {
        name,
        text,
        replay,
        server_link: unchanged,
        client_link: unchanged,
        seed,
        time_scale,
    })
}

/// Name, text, and log to replay.
fn find(workload: &str) -> Result<(String, String, Option<PathBuf>), Failure> {
    if let Some(path) = workload.strip_prefix("log:") {
        let path = std::path::absolute(path)
            .map_err(|error| Failure::usage(format!("{path}: {error}")))?;
        return Ok(("replay".to_owned(), String::new(), Some(path)));
    }
    if let Some(text) = Workload::builtin_text(workload) {
        return Ok((workload.to_owned(), text.to_owned(), None));
    }
    let path = Path::new(workload);
    if !path.exists() {
        let names = Workload::builtin_names().join(", ");
        return Err(Failure::usage(format!(
            "there is no workload `{workload}` and no such file; built in are: {names}"
        )));
    }
    let is_too_long = path.metadata().is_ok_and(|meta| meta.len() > FILE_BYTES_MAX);
    if is_too_long {
        return Err(Failure::usage(format!(
            "{workload}: longer than 1 MB, this is no workload file"
        )));
    }
    let text = std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("{workload}: {error}")))?;
    Ok((workload.to_owned(), text, None))
}

/// Parses it, and makes the changes.
pub(crate) fn load(order: &WorldOrder) -> Result<Workload, String> {
    let workload = match &order.replay {
        Some(path) => replay(path)?,
        None => Workload::parse(&order.text, &order.name).map_err(|error| error.to_string())?,
    };
    let server = changed(workload.server_link(), order.server_link);
    let client = changed(workload.client_link(), order.client_link);
    Ok(workload.with_links(server, client))
}

/// The log must be on every host that has robots or origins.
fn replay(path: &Path) -> Result<Workload, String> {
    let name = path.display().to_string();
    let file = std::fs::File::open(path).map_err(|error| format!("{name}: {error}"))?;
    let replay =
        Replay::from_squid_log(BufReader::new(file), &name).map_err(|error| error.to_string())?;
    replay.into_workload().map_err(|error| error.to_string())
}

fn changed(link: Link, (one_way_us, loss): (Option<u64>, Option<f64>)) -> Link {
    Link { one_way_us: one_way_us.unwrap_or(link.one_way_us), loss: loss.unwrap_or(link.loss) }
}
