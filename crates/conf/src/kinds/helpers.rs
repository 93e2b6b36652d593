//! Numbers of helper processes.

use std::time::Duration;

use super::options::{self, OptionRow, rows};
use crate::diagnostics::Problem;
use crate::line::{Line, Token};
use crate::table::Status;
use crate::types::HelperChildren;

/// Options of `url_rewrite_children` and the like.
pub(super) const CHILDREN: &[OptionRow] = rows! {
    Status::Works => {
        "startup" "=NUMBER", "Processes that run from the start on.";
        "idle" "=NUMBER", "Processes that are started when all others are busy.";
        "concurrency" "=NUMBER", "Questions that a process may have at a time, each with the number of its channel in front; 0: one, without a number.";
        "queue-size" "=NUMBER", "Questions that may wait for a process; by default twice the number of processes.";
        "reservation-timeout" "=SECONDS", "How long a client may keep a process of its own (NTLM, Negotiate) while others wait.";
    }
    Status::Ignored("the proxy never ends for its helpers: when an overload lasts, further questions have no answer") => {
        "on-persistent-overload" "=ERR|die", "The result of a lasting overload.";
    }
};

/// Reads `NUMBER [OPTION …]` up to the end of the line.
pub(crate) fn read_children(line: &mut Line<'_>) -> Result<HelperChildren, Problem> {
    let token = line.expect("a number of processes")?;
    let mut children =
        HelperChildren::new(number(&token, &token.text, 1, HelperChildren::PROCESSES_MAX)?);
    let mut queue_size = None;
    while let Some(token) = line.next()? {
        if token.text == "on-persistent-overload=ERR" {
            continue;
        }
        if options::is_wanted(CHILDREN, &token, line)? {
            set_option(&mut children, &mut queue_size, &token, "")?;
            crop_channels(&mut children, &token, line);
        }
    }
    settle(&mut children, queue_size, line);
    Ok(children)
}

/// Sets one option. `prefix` stands before the names of processes (`children-` for external ACLs).
pub(super) fn set_option(
    children: &mut HelperChildren,
    queue_size: &mut Option<u32>,
    token: &Token,
    prefix: &str,
) -> Result<(), Problem> {
    let (name, value) = options::split(token);
    let value = value.unwrap_or("");
    match name.strip_prefix(prefix).unwrap_or(name) {
        "max" => children.max = number(token, value, 1, HelperChildren::PROCESSES_MAX)?,
        "startup" => children.startup = number(token, value, 0, HelperChildren::PROCESSES_MAX)?,
        "idle" => children.idle = number(token, value, 0, HelperChildren::PROCESSES_MAX)?,
        "concurrency" => {
            children.concurrency = number(token, value, 0, u32::MAX)?;
        }
        "queue-size" => *queue_size = Some(number(token, value, 0, u32::MAX)?),
        "reservation-timeout" => {
            let seconds = number(token, value, 0, u32::MAX)?;
            children.reservation_timeout = Duration::from_secs(seconds.into());
        }
        _ => return Err(token.error(format!("`{name}` is not known"))),
    }
    Ok(())
}

/// Crops the number of channels to the most that there are.
pub(super) fn crop_channels(children: &mut HelperChildren, token: &Token, line: &mut Line<'_>) {
    let most = HelperChildren::CHANNELS_MAX;
    if children.concurrency > most {
        line.warn(token, format!("`{}`: {most} are used, the most", token.text), None);
        children.concurrency = most;
    }
}

/// Makes the numbers fit each other, as Squid does.
pub(super) fn settle(children: &mut HelperChildren, queue_size: Option<u32>, line: &mut Line<'_>) {
    let name = line.name.clone();
    if children.startup > children.max {
        let message = format!("`startup` is above the number of processes: {}", children.max);
        line.warn(&name, message, None);
    }
    children.startup = children.startup.min(children.max);
    children.idle = children.idle.clamp(1, children.max);
    children.queue_size = queue_size.unwrap_or(children.max.saturating_mul(2));
}

pub(super) fn number(token: &Token, text: &str, least: u32, most: u32) -> Result<u32, Problem> {
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(token.error(format!("`{text}` is not a whole number from {least} to {most}"))),
    }
}
