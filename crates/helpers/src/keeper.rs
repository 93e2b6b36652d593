//! The task that starts the processes of a helper.

use std::sync::Arc;
use std::time::Instant;

use humboldt_base::vital::Vital;
use tokio::sync::Notify;

use crate::child::Process;
use crate::pool::Pool;

/// Starts processes as they are wanted, until the helper has ended.
pub(crate) async fn keep(pool: Arc<Pool>) {
    let _vital = Vital::new("a task that starts helper programs");
    loop {
        while start_wanted(&pool) {}
        let now = Instant::now();
        let (is_over, deadline) = pool.with_state(|state, definition| {
            state.expire(definition, now);
            state.kick(definition, now);
            (state.is_over(), state.next_deadline(definition, now))
        });
        if is_over {
            return;
        }
        let deadline = async {
            match deadline {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = pool.keeper.notified() => {}
            () = deadline => {}
        }
    }
}

/// Starts the processes that are wanted; returns whether there may be more.
fn start_wanted(pool: &Arc<Pool>) -> bool {
    let wanted = pool.with_state(|state, definition| {
        state.kick(definition, Instant::now());
        state.processes_wanted(definition, Instant::now())
    });
    for _ in 0..wanted {
        let process = match Process::start(&pool.definition.command) {
            Ok(process) => process,
            Err(error) => {
                pool.start_failed(&error);
                return false;
            }
        };
        let wake = Arc::new(Notify::new());
        let number =
            pool.with_state(|state, _| state.add(process.pid, Arc::clone(&wake), Instant::now()));
        tokio::spawn(process.serve(Arc::clone(pool), number, wake));
    }
    wanted > 0
}
