//! `humboldt-lab agent`: robots and origins of one machine, led by a laboratory elsewhere.

use super::crew::Crew;
use super::protocol::{Order, Reply};
use super::remote::{read_line, write_line};
use crate::cli::AgentArgs;
use crate::interrupt::Interrupt;
use crate::{Failure, output::say};
use std::io::BufReader;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A laboratory that is silent for this long has gone: samples come far more often, and load must
/// not go on alone.
const SILENCE_LIMIT: Duration = Duration::from_secs(900);

/// How soon an interruption is noticed.
const POLL_PAUSE: Duration = Duration::from_millis(50);

/// Serves one laboratory after the other.
pub(crate) fn run(arguments: &AgentArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    if arguments.secret.token.is_empty() && !arguments.listen.ip().is_loopback() {
        return Err(Failure::usage(format!(
            "everybody who reaches {} could make this machine send load: choose a secret with --token",
            arguments.listen
        )));
    }
    let listener = TcpListener::bind(arguments.listen).map_err(|error| {
        Failure::usage(format!("cannot listen on {}: {error}", arguments.listen))
    })?;
    listener.set_nonblocking(true).map_err(|error| Failure::run(format!("agent: {error}")))?;
    let address = listener.local_addr().map_err(|error| Failure::run(format!("agent: {error}")))?;
    say!("agent: waiting for a laboratory on {address}");
    while !interrupt.is_set() {
        match listener.accept() {
            Ok((stream, peer)) => {
                say!("agent: {peer} takes over");
                match serve(stream, arguments, interrupt) {
                    Ok(()) => say!("agent: {peer} has finished"),
                    Err(error) => say!("agent: {peer}: {error}"),
                }
                if arguments.once {
                    break;
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                std::thread::sleep(POLL_PAUSE)
            }
            Err(error) => return Err(Failure::run(format!("agent: {error}"))),
        }
    }
    Ok(())
}

/// Obeys one laboratory until it goes, or until someone stops the agent. Whatever runs for it then
/// stops.
fn serve(stream: TcpStream, arguments: &AgentArgs, interrupt: &Interrupt) -> std::io::Result<()> {
    let (is_over, line) = (AtomicBool::new(false), stream.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) && !interrupt.is_set() {
                std::thread::sleep(POLL_PAUSE);
            }
            // The wait for the next order ends with it.
            let _ = line.shutdown(Shutdown::Both);
        });
        let result = obey(stream, arguments);
        is_over.store(true, Ordering::Relaxed);
        result
    })
}

fn obey(stream: TcpStream, arguments: &AgentArgs) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(SILENCE_LIMIT))?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut crew =
        Crew::new(arguments.lab_cores.clone().unwrap_or_default(), arguments.origin.clone());
    let mut is_known = false;
    while let Some(order) = read_line::<Order>(&mut reader)? {
        if let Order::Hello { token, .. } = &order {
            is_known = *token == arguments.secret.token;
        }
        if !is_known {
            let message = "wrong secret: give the agent's with --token".to_owned();
            write_line(&mut writer, &Reply::Failed { message })?;
            return Ok(());
        }
        let reply = crew.obey(order);
        write_line(&mut writer, &reply)?;
    }
    Ok(())
}
