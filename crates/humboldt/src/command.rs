//! `-k`: checking the configuration, and signals to the process that runs with it.

use std::path::PathBuf;

use humboldt_sys::pid_file::{self, Signal};

use crate::cli::Command;
use crate::error::StartError;

/// Carries out a command of `-k` on a running process. `pid_path` is `pid_filename`.
pub(crate) fn send(command: Command, pid_path: Option<&str>) -> Result<(), StartError> {
    let path = PathBuf::from(pid_path.ok_or(StartError::NoPidFile)?);
    let signal = match command {
        Command::Parse | Command::Explain => return Ok(()),
        Command::Check => return pid_file::running(&path).map(drop).map_err(StartError::from),
        Command::Reconfigure => Signal::HUP,
        Command::Rotate => Signal::USR1,
        Command::Debug => Signal::USR2,
        Command::Shutdown => Signal::TERM,
        Command::Interrupt => Signal::INT,
        Command::Kill => Signal::KILL,
    };
    pid_file::signal(&path, signal)?;
    Ok(())
}
