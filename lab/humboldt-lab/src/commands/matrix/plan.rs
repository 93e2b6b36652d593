//! `--dry-run`: the runs of an experiment and how long they take, before anything runs.

use super::cells::{Cell, Task};
use super::{START_AND_STOP_S, Session, limit_s};
use crate::cli::PeakArgs;
use crate::commands::bang;
use crate::experiment;
use crate::output::say;
use crate::units;
use std::path::Path;

/// The rate at which caches are taken to be filled where nothing is known about them.
const EXAMPLE_BYTES_PER_S: u64 = 10 << 20;

/// What an answer fills, in bytes, where the rate is that of the full cache. Measured with
/// PolyMix-4 and Squid on 0.2 processors. With `ufs` it is 3.0 KB: an answer fills 2.4 KB, and
/// there are a quarter more of them while the cache fills. Without a disk it is 3.2 KB: an answer
/// fills 5.0 KB, but the search takes a third of the time.
const FILLED_PER_ANSWER_BYTES: f64 = 3000.0;

/// A run has this many samples at least: twenty good ones in its last quarter, a tenth of them
/// spoiled or not judged.
const SAMPLES_LEAST: f64 = 88.0;

/// The time from one run to the next.
fn around_s(rest_s: f64) -> f64 {
    START_AND_STOP_S + rest_s
}

/// How long a run is expected to take, in seconds, with all that is around it.
pub(super) fn expected_s(cell: &Cell, rest_s: f64) -> Option<f64> {
    let load_s = match &cell.task {
        Task::Peak(peak) => {
            let fills_s = fills_s(peak, cell.expected_per_s?);
            let samples_s = samples_s(peak).min(fills_s * f64::from(experiment::OVERTIME_MAX));
            fills_s.max(samples_s).min(experiment::time_max_s(peak).unwrap_or(f64::MAX))
        }
        Task::Bang(bang) => (bang::requests(bang) as f64 / cell.expected_per_s?).min(bang.time_max),
    };
    Some(load_s + around_s(rest_s))
}

/// How long it takes to fill the store as planned, at this rate.
fn fills_s(peak: &PeakArgs, answers_per_s: f64) -> f64 {
    experiment::fill_bytes(peak) as f64 / (answers_per_s * FILLED_PER_ANSWER_BYTES)
}

/// How long enough samples take.
fn samples_s(peak: &PeakArgs) -> f64 {
    SAMPLES_LEAST * experiment::sample_period_s(peak)
}

/// The expected time of each piece in the order in which they are done, in seconds; `None` if it is
/// not known of a run.
pub(super) fn pieces_s(cells: &[Cell], rest_s: f64) -> Option<Vec<f64>> {
    let mut pieces: Vec<(Option<(u32, usize)>, f64)> = Vec::new();
    for cell in cells {
        let cell_s = expected_s(cell, rest_s)?;
        match pieces.iter_mut().find(|(piece, _)| *piece == cell.piece) {
            Some((_, piece_s)) => *piece_s += cell_s,
            None => pieces.push((cell.piece, cell_s)),
        }
    }
    Some(pieces.into_iter().map(|(_, piece_s)| piece_s).collect())
}

fn minutes(seconds: f64) -> String {
    format!("{:.0} min", (seconds / 60.0).ceil())
}

/// The runs, their expected and their longest duration.
pub(super) fn show(cells: &[Cell], out: &Path, rest_s: f64, session: &Session, pieces: &[String]) {
    for cell in cells {
        match expected_s(cell, rest_s) {
            Some(expected_s) => say!("{:>7}  {}", minutes(expected_s), cell.label),
            None => say!("{}", cell.label),
        }
    }
    let time = match cells.iter().map(limit_s).collect::<Option<Vec<f64>>>() {
        Some(limits) => {
            let load_s: f64 = limits.iter().sum();
            let rests_s = rest_s * cells.len().saturating_sub(1) as f64;
            format!("at most {} of load and rests", units::show_seconds(load_s + rests_s))
        }
        None => format!("no limit of time (time-max) for some; {}", filling(cells)),
    };
    say!(
        "{} runs in {}: {time}; calibration, start and stop take about {START_AND_STOP_S} s for each",
        cells.len(),
        out.display()
    );
    if let Some(limit_s) = session.limit_s {
        let limit = units::show_seconds(limit_s);
        say!("in sessions of at most {limit}: run the same command again while its exit code is 3");
    }
    let Some(pieces_s) = pieces_s(cells, rest_s) else { return };
    let all_s: f64 = pieces_s.iter().sum();
    if pieces.is_empty() {
        return say!("expected: {}", minutes(all_s));
    }
    let each: Vec<String> = pieces_s.iter().map(|piece_s| minutes(*piece_s)).collect();
    say!("expected: {}; a session does one piece: {}", minutes(all_s), each.join(", "));
}

/// The duration of filling, which the speed of the caches decides: at a rate that is easy to
/// convert.
fn filling(cells: &[Cell]) -> String {
    let bytes = |cell: &Cell| match &cell.task {
        Task::Peak(peak) => experiment::fill_bytes(peak),
        Task::Bang(_) => 0,
    };
    let bytes = cells.iter().map(bytes).fold(0, u64::saturating_add);
    let duration_s = bytes as f64 / EXAMPLE_BYTES_PER_S as f64;
    format!(
        "{} have to be filled, which takes {} at {}/s",
        units::show_bytes(bytes),
        units::show_seconds(duration_s),
        units::show_bytes(EXAMPLE_BYTES_PER_S)
    )
}

#[cfg(test)]
mod tests {
    use super::super::cells::{self, Cells};
    use super::super::file::{self, Scale};
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    /// A session on a machine that is quiet for that long.
    const PIECE_MAX_S: f64 = 90.0 * 60.0;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments")
    }

    fn cells_of(path: &Path, scale: Scale) -> (file::File, Vec<Cell>) {
        let file = file::read(path, scale).unwrap_or_else(|failure| panic!("{failure}"));
        let Cells { cells, .. } = cells::cells(&file, path, Path::new("out"))
            .unwrap_or_else(|failure| panic!("{failure}"));
        (file, cells)
    }

    /// The largest piece of an experiment, in minutes, as its file says in the first lines.
    fn stated_min(text: &str) -> Option<f64> {
        let (_, rest) = text.split_once("# Minutes of a piece: ")?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// All that are there.
    fn files() -> impl Iterator<Item = PathBuf> {
        let entries = fs::read_dir(folder()).expect("experiments");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
    }

    #[test]
    fn no_run_ends_before_it_has_its_samples() {
        let mut runs = 0;
        for path in files() {
            for cell in cells_of(&path, Scale::default()).1 {
                let (Task::Peak(peak), Some(per_s)) = (&cell.task, cell.expected_per_s) else {
                    continue;
                };
                let longest_s = fills_s(peak, per_s) * f64::from(experiment::OVERTIME_MAX);
                let samples_s = samples_s(peak);
                let name = format!("{}: {}", path.display(), cell.label);
                assert!(samples_s <= longest_s, "{name}: {samples_s:.0} s in {longest_s:.0} s");
                runs += 1;
            }
        }
        assert!(runs > 100, "{runs}");
    }

    #[test]
    fn every_piece_of_every_experiment_ends_within_90_minutes_as_its_file_says() {
        let mut pieces = 0;
        for path in files() {
            let (file, cells) = cells_of(&path, Scale::default());
            let rest_s = file.rest.as_deref().map_or(0.0, |rest| units::seconds(rest).unwrap());
            let name = path.display();
            let known = pieces_s(&cells, rest_s);
            let pieces_s = known.unwrap_or_else(|| panic!("{name}: a run without [[expected]]"));
            let piece_s = pieces_s.iter().fold(0.0, |most: f64, one| most.max(*one));
            assert!(piece_s <= PIECE_MAX_S, "{name}: {}", minutes(piece_s));
            let text = fs::read_to_string(&path).expect("a file");
            let stated = stated_min(&text).unwrap_or_else(|| panic!("{name} states no minutes"));
            assert_eq!(stated, (piece_s / 60.0).ceil(), "{name}");
            pieces += pieces_s.len();
        }
        assert!(pieces > 20, "{pieces}");
    }

    #[test]
    fn the_time_of_a_run_is_that_of_filling_or_that_of_enough_samples() {
        let text = "title = 'T'\n[common]\ncache-size = '100MB'\ntime-scale = 0.05\nsample = '80s'\n\
                    time-max = '1300s'\n[axes]\nsubject = ['squid:ufs', 'squid:null', 'squid:rock', 'squid:coss']\n\
                    [[expected]]\nsubject = 'squid:ufs'\nanswers = 100\n\
                    [[expected]]\nsubject = 'squid:null'\nanswers = 600\n\
                    [[expected]]\nsubject = 'squid:coss'\nanswers = 6000\n\
                    [[expected]]\nanswers = 10\n";
        let file = file::parse(text, Scale::default()).unwrap();
        let path = Path::new("test.toml");
        let cells = cells::cells(&file, path, Path::new("out")).expect("cells").cells;
        let loads: Vec<f64> =
            cells.iter().map(|cell| expected_s(cell, 5.0).unwrap() - 20.0).collect();
        let fills_s = f64::from(2 * 100 * 1024 * 1024) / 300_000.0;
        assert!((loads[0] - fills_s).abs() < 1.0, "{loads:?}");
        assert_eq!(loads[1..3], [88.0 * 4.0, 1300.0]);
        assert!((loads[3] - 4.0 * fills_s / 60.0).abs() < 1.0, "it ends then: {loads:?}");
        assert_eq!(pieces_s(&cells, 5.0).map(|pieces| pieces.len()), Some(1));
    }
}
