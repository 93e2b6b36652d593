//! Opening the logs that a configuration asks for. A log that cannot be opened is reported, and the
//! service goes on.

use std::borrow::Cow;
use std::sync::Arc;

use humboldt_acl::RuleList;
use humboldt_base::clock::UnixMillis;
use humboldt_base::vital;
use humboldt_conf::{AccessRule, Config};
use humboldt_logs::access::{AccessFormat, JsonFormat, LogFormat};
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
            Some(place) => match open(service, place, config, options(config, line, cores)) {
                None => continue,
                sink => sink,
            },
        };
        let rule = AccessRule { allow: true, terms: line.terms.clone(), source: None };
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
    let find = |formats: &[humboldt_conf::LogFormat]| {
        formats.iter().find(|format| format.name == name).map(|format| format.format.clone())
    };
    let as_text =
        find(&config.logformat).map(|text| LogFormat::compile(&text).map(AccessFormat::Template));
    let as_json =
        find(&config.logformat_json).map(|text| JsonFormat::compile(&text).map(AccessFormat::Json));
    if let Some(own) = as_text.or(as_json) {
        return own
            .inspect_err(|why| tracing::warn!("logformat {name}: {why}; the log is not written"))
            .ok();
    }
    let format = AccessFormat::predefined(name);
    if format.is_none() {
        tracing::warn!("access_log: there is no logformat called {name}; the log is not written");
    }
    format
}

/// A relative path is below `coredump_dir`, where Squid runs.
fn absolute<'a>(place: &'a str, config: &Config) -> Cow<'a, str> {
    let elsewhere = ["none", "syslog", "syslog:", "udp:", "tcp:"];
    let is_elsewhere = elsewhere
        .iter()
        .any(|one| if one.ends_with(':') { place.starts_with(one) } else { place == *one });
    let (module, path) = match place.strip_prefix("daemon:") {
        // The program knows what its argument means.
        Some(_) if config.logfile_daemon.is_some() => return place.into(),
        Some(path) => ("daemon:", path),
        None => ("", place),
    };
    match &config.coredump_dir {
        Some(dir) if !is_elsewhere && !path.starts_with('/') => {
            format!("{module}{dir}/{path}").into()
        }
        _ => place.into(),
    }
}

/// The settings of a log.
fn options(config: &Config, line: &humboldt_conf::AccessLog, cores: usize) -> SinkOptions {
    SinkOptions {
        buffer_bytes: line.buffer_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        is_vital: line.dies_on_error,
        rotate: line.rotate,
        ..usual_options(config, cores)
    }
}

/// The settings of a log without options of its own.
pub(crate) fn usual_options(config: &Config, cores: usize) -> SinkOptions {
    SinkOptions { cores, is_buffered: config.buffered_logs, ..SinkOptions::default() }
}

/// Opens one log; reports an error if it cannot be opened.
pub(crate) fn open(
    service: &LogService,
    place: &str,
    config: &Config,
    options: SinkOptions,
) -> Option<Arc<LineSink>> {
    let is_vital = options.is_vital;
    let daemon = config.logfile_daemon.as_deref();
    let opened = match Destination::parse(&absolute(place, config), daemon) {
        Ok(Destination::None) => return None,
        Ok(destination) => {
            let rotate = options.rotate.or(match destination {
                // It has to be told.
                Destination::Program { .. } => Some(config.logfile_rotate),
                _ => None,
            });
            service
                .open(destination, SinkOptions { rotate, ..options })
                .map_err(|error| format!("cannot open log {place}: {error}"))
        }
        Err(error) => Err(error.to_string()),
    };
    match opened {
        Ok(sink) => Some(sink),
        Err(why) => {
            tracing::warn!("{why}; the log is not written");
            if is_vital {
                vital::fail("a log with on-error=die");
            }
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
        *self.sink.write() = open(service, place, config, usual_options(config, cores));
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
