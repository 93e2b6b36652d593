//! Runs of earlier sessions: those that need not be repeated.

use super::cells::{Cell, Task};
use super::progress::Done;
use crate::Failure;
use crate::cli::RunArgs;
use crate::commands::bang;
use humboldt_lab_record::{BangRun, Manifest, Outcome, Run};
use humboldt_lab_report as report;

/// Where the search begins is reckoned from what is expected, and says nothing about its end.
const FIRST_LOAD: &str = "--first-load=";

/// The run of an earlier session. A trial keeps none. One that was made with other options is an
/// error: whoever wants both needs two folders.
pub(super) fn finished(cell: &Cell, arguments: &RunArgs) -> Result<Option<Done>, Failure> {
    if arguments.trial {
        return Ok(None);
    }
    match &cell.task {
        Task::Peak(peak) => {
            let Ok(run) = report::read_run(&cell.folder) else { return Ok(None) };
            let difference = difference(&run.manifest, peak.as_command.as_deref());
            match (is_kept(&run, arguments.retry_failed), difference) {
                (false, _) => Ok(None),
                (true, None) => Ok(Some(Done::Peak(Box::new(run)))),
                // A failure costs nothing.
                (true, Some(_)) if matches!(run.outcome, Outcome::Failed(_)) => Ok(None),
                (true, Some(difference)) => Err(other_options(cell, &difference)),
            }
        }
        Task::Bang(bang) => {
            let Ok(folders) = bang::pass_folders(bang, &cell.folder) else { return Ok(None) };
            let passes: Option<Vec<BangRun>> =
                folders.iter().map(|folder| report::read_bang(folder).ok()).collect();
            // A pass that was not begun has the empty report with which its folder was tried.
            let passes = passes.filter(|passes| passes.iter().all(|pass| pass.answers > 0));
            let now = bang.as_command.as_deref();
            let mut each = passes.iter().flatten();
            match each.find_map(|pass| difference(&pass.manifest, now)) {
                Some(difference) => Err(other_options(cell, &difference)),
                None => Ok(passes.map(Done::Bang)),
            }
        }
    }
}

fn is_kept(run: &Run, retry_failed: bool) -> bool {
    match run.outcome {
        Outcome::Filled | Outcome::TimeUp => true,
        Outcome::Failed(_) => !retry_failed,
        Outcome::Running | Outcome::Interrupted => false,
    }
}

fn other_options(cell: &Cell, difference: &str) -> Failure {
    Failure::usage(format!(
        "{}: made with other options ({difference}): give another --out, or remove this folder",
        cell.folder.display()
    ))
}

/// What an earlier run was made with and this one would not be, and the reverse; `None` if that is
/// all the same.
fn difference(then: &Manifest, now: Option<&str>) -> Option<String> {
    let Some(then) = then.provenance.run_command.as_deref() else {
        return Some("it does not say which".to_owned());
    };
    let words = |line: &str| -> Vec<String> {
        let words = line.split(' ').filter(|word| !word.starts_with(FIRST_LOAD));
        words.map(|word| word.replace('\n', "; ")).collect()
    };
    let (then, now) = (words(then), words(now.unwrap_or_default()));
    if then == now {
        return None;
    }
    let without = |some: &[String], others: &[String]| {
        let only: Vec<&str> =
            some.iter().filter(|word| !others.contains(word)).map(String::as_str).collect();
        if only.is_empty() { "nothing more".to_owned() } else { only.join(" ") }
    };
    Some(format!("then {}, now {}", without(&then, &now), without(&now, &then)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made_with(line: Option<&str>) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.provenance.run_command = line.map(ToOwned::to_owned);
        manifest
    }

    #[test]
    fn options_of_a_run_are_compared_but_for_its_first_load() {
        let now = Some("humboldt-lab peak --first-load=50 --time-max=1300s squid:ufs");
        let of = |line: &str| difference(&made_with(Some(line)), now);
        assert_eq!(of("humboldt-lab peak --first-load=70 --time-max=1300s squid:ufs"), None);
        assert_eq!(of("humboldt-lab peak --time-max=1300s squid:ufs"), None);
        assert_eq!(
            of("humboldt-lab peak --time-max=20s --tolerate-others squid:ufs").as_deref(),
            Some("then --time-max=20s --tolerate-others, now --time-max=1300s")
        );
        assert_eq!(
            of("humboldt-lab peak squid:ufs").as_deref(),
            Some("then nothing more, now --time-max=1300s")
        );
        assert!(difference(&made_with(None), now).is_some());
    }
}
