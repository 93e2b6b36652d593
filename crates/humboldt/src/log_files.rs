//! Opening the logs that a configuration asks for. A log that cannot be opened is reported, and the
//! service goes on.

use std::borrow::Cow;
use std::sync::Arc;

use humboldt_acl::RuleList;
use humboldt_base::clock::UnixMillis;
use humboldt_conf::{AccessRule, Config};
use humboldt_logs::access::{AccessFormat, LogFormat};
use humboldt_logs::store_log::{StoreAction, StoreRecord, StoredAnswer};
use humboldt_logs::{Destination, LineSink, LogService, SinkOptions};
use humboldt_proxy::AccessLog;
use humboldt_proxy::snapshot::Snapshot;
use humboldt_store::events::{StoreEvent, StoreEventKind, StoreEvents};
use parking_lot::RwLock;

/// Opens the `access_log`s. Lines that are lost are counted by the sinks.
pub(crate) fn open_access_logs(
    service: &LogService,
    snapshot: &Snapshot,
    cores: usize,
) -> Vec<AccessLog> {
    let config = &snapshot.config;
    let mut logs = Vec::new();
    for line in &config.access_log {
        let place = line.place.as_deref().unwrap_or("none");
        let Some(format) = access_format(config, &line.format) else { continue };
        let sink = match &line.place {
            None => None,
            Some(place) => match open(service, place, config, cores) {
                None => continue,
                sink => sink,
            },
        };
        let rule = AccessRule { allow: true, terms: line.terms.clone() };
        let condition = match line.terms.is_empty() {
            true => None,
            false => match RuleList::compile(&snapshot.acls, &[rule], false) {
                Ok(list) => Some(list),
                Err(errors) => {
                    errors.iter().for_each(|error| tracing::warn!("access_log {place}: {error}"));
                    continue;
                }
            },
        };
        logs.push(AccessLog {
            sink,
            format,
            condition,
            strip_query_terms: config.strip_query_terms,
        });
    }
    logs
}

fn access_format(config: &Config, name: &str) -> Option<AccessFormat> {
    if let Some(own) = config.logformat.iter().find(|format| format.name == name) {
        return match LogFormat::compile(&own.format) {
            Ok(format) => Some(AccessFormat::Template(format)),
            Err(error) => {
                tracing::warn!("logformat {name}: {error}; the log is not written");
                None
            }
        };
    }
    let format = AccessFormat::predefined(name);
    if format.is_none() {
        tracing::warn!("access_log: there is no logformat called {name}; the log is not written");
    }
    format
}

/// A relative path is below `coredump_dir`, where Squid runs.
fn absolute<'a>(place: &'a str, config: &Config) -> Cow<'a, str> {
    match &config.coredump_dir {
        Some(dir) if place != "none" && !place.starts_with('/') => format!("{dir}/{place}").into(),
        _ => place.into(),
    }
}

/// Opens one log; reports an error if it cannot be opened.
pub(crate) fn open(
    service: &LogService,
    place: &str,
    config: &Config,
    cores: usize,
) -> Option<Arc<LineSink>> {
    let destination = match Destination::parse(&absolute(place, config)) {
        Ok(Destination::None) => return None,
        Ok(destination) => destination,
        Err(error) => {
            tracing::warn!("{error}; the log is not written");
            return None;
        }
    };
    match service.open(destination, SinkOptions { cores, on_dropped: None }) {
        Ok(sink) => Some(sink),
        Err(error) => {
            tracing::warn!("cannot open log {place}: {error}; it is not written");
            None
        }
    }
}

/// Writes store.log, if there is one.
#[derive(Default)]
pub(crate) struct StoreLog {
    sink: RwLock<Option<Arc<LineSink>>>,
}

impl StoreLog {
    /// Opens the log of a configuration in place of the one before.
    pub(crate) fn reopen(&self, service: &LogService, config: &Config, cores: usize) {
        let place = config.cache_store_log.as_deref().unwrap_or("none");
        *self.sink.write() = open(service, place, config, cores);
    }
}

impl StoreEvents for StoreLog {
    fn event(&self, event: &StoreEvent<'_>) {
        let sink = self.sink.read();
        let Some(sink) = &*sink else { return };
        let times = event.times;
        let record = StoreRecord {
            at: UnixMillis::now(),
            action: match event.kind {
                StoreEventKind::SwapOut => StoreAction::SwapOut,
                StoreEventKind::SwapIn => StoreAction::SwapIn,
                StoreEventKind::Release => StoreAction::Release,
                StoreEventKind::SwapFail => StoreAction::SwapOutFail,
            },
            place: event.dir.map(|dir| (u16::try_from(dir).unwrap_or(u16::MAX), 0)),
            key: event.key.0,
            answer: Some(StoredAnswer {
                status: event.status,
                date: times.map_or(-1, |times| times.date),
                last_modified: times.and_then(|times| times.last_modified()).unwrap_or(-1),
                expires: times.map_or(-1, |times| times.date + i64::from(times.lifetime_s)),
                content_type: Some(event.content_type),
                content_length: Some(event.body_bytes),
                body_bytes: event.body_bytes,
                method: b"GET",
                url: event.url,
            }),
        };
        sink.append_shared(|line| record.write(line));
    }
}
