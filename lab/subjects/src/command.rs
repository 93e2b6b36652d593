//! Running small programs to their end.

use crate::SubjectError;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Length of a program's output that an error quotes, from its end.
const QUOTED_BYTES: usize = 600;
/// Time between two looks of a wait.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Standard output of a program that succeeded. `limit` bounds its duration. A program that changes
/// the machine goes through [`crate::Keeper::run`], so that it does not outlive the laboratory.
pub(crate) fn run<I, S>(
    program: &Path,
    arguments: I,
    limit: Duration,
) -> Result<String, SubjectError>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(arguments);
    run_command(command, limit).map(|(out, _)| out)
}

/// The same for a command that is already complete. Returns standard output and standard error.
pub(crate) fn run_command(
    mut command: Command,
    limit: Duration,
) -> Result<(String, String), SubjectError> {
    let line = command_line(&command);
    let failed = |status: String, output: &str| SubjectError::Command {
        command: line.clone(),
        status,
        output: one_line(output),
    };
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child =
        command.spawn().map_err(|error| failed("not started".to_owned(), &error.to_string()))?;
    // Each pipe has its own reader, so that neither can fill up and stop the program.
    let out = child.stdout.take().map(read_in_background);
    let err = child.stderr.take().map(read_in_background);
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break describe(status),
            Ok(None) if started.elapsed() < limit => std::thread::sleep(LOOK_AGAIN),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                break Err(format!("not finished after {} s", limit.as_secs()));
            }
            Err(error) => break Err(error.to_string()),
        }
    };
    let out = out.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let err = err.and_then(|reader| reader.join().ok()).unwrap_or_default();
    match status {
        Ok(()) => Ok((out, err)),
        Err(status) => Err(failed(status, &format!("{out}\n{err}"))),
    }
}

fn read_in_background(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn describe(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

pub(crate) fn command_line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for argument in command.get_args() {
        let _ = write!(line, " {}", argument.to_string_lossy());
    }
    line
}

/// The end of an output as one line: an error message is one.
fn one_line(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let text = lines.join(" | ");
    let start = text.len().saturating_sub(QUOTED_BYTES);
    let start = (start..=text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    if start == 0 { text } else { format!("… {}", &text[start..]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit_ms: u64) -> Result<String, SubjectError> {
        run(Path::new("/bin/sh"), ["-c", script], Duration::from_millis(limit_ms))
    }

    #[test]
    fn output_of_success_and_reason_of_failure() {
        assert_eq!(shell("echo good; echo noise >&2", 5000).expect("it succeeds"), "good\n");
        let error =
            shell("echo first; echo bad luck >&2; exit 3", 5000).expect_err("it fails").to_string();
        assert!(error.contains("first | bad luck") && error.contains("exit status: 3"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let started = Instant::now();
        let error = shell("exec sleep 60", 100).expect_err("it takes too long").to_string();
        assert!(error.contains("not finished"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn long_output_is_cut_between_characters() {
        let text = one_line(&"ä".repeat(QUOTED_BYTES));
        assert!(text.starts_with('…') && text.len() <= QUOTED_BYTES + 5, "{}", text.len());
    }
}
