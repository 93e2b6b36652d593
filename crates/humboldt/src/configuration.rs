//! Finding, reading and compiling the configuration.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use humboldt_conf::{Config, Diagnostics, Severity};
use humboldt_logs::cache_log::DebugLevel;
use humboldt_proxy::snapshot::Snapshot;

use crate::cli::Cli;
use crate::error::StartError;

/// The source of a configuration.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A file named on the command line.
    File(PathBuf),
    /// The built-in one, with everything below this directory.
    BuiltIn(PathBuf),
}

impl Source {
    /// The source on the command line.
    pub(crate) fn of(cli: &Cli) -> Result<Self, StartError> {
        match &cli.config {
            // The working directory changes when going into the background.
            Some(path) => {
                Ok(Self::File(std::path::absolute(path).unwrap_or_else(|_| path.clone())))
            }
            None => user_cache_dir().map(Self::BuiltIn),
        }
    }

    /// Whether it is the built-in one.
    pub(crate) fn is_built_in(&self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }

    fn read(&self) -> (Config, Diagnostics) {
        match self {
            Self::File(path) => humboldt_conf::load(path),
            Self::BuiltIn(dir) => Config::builtin(dir),
        }
    }

    /// Reads. Messages about the file are returned as text for a person.
    ///
    /// # Errors
    /// The configuration has errors, which the text names.
    pub(crate) fn parse(&self, cli: &Cli, least: Severity) -> Result<(Config, String), StartError> {
        let (mut config, diagnostics) = self.read();
        let mut report = diagnostics.render_from(colored(), least);
        if cli.explain {
            report.push_str(&diagnostics.summary());
        }
        if diagnostics.has_errors() {
            return Err(StartError::Configuration(report));
        }
        if let Some(port) = cli.port {
            for http_port in &mut config.http_port {
                http_port.port = port;
            }
        }
        Ok((config, report))
    }

    /// Reads and compiles. In a reconfiguration it comes after an `earlier` one.
    ///
    /// # Errors
    /// As [`Source::parse`], or a file that it names cannot be used.
    pub(crate) fn load(
        &self,
        cli: &Cli,
        least: Severity,
        earlier: Option<&Snapshot>,
    ) -> Result<Loaded, StartError> {
        let (config, report) = self.parse(cli, least)?;
        let snapshot = Snapshot::compile_after(config, earlier).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            StartError::Configuration(format!("{report}error: {}\n", lines.join("\nerror: ")))
        })?;
        Ok(Loaded { snapshot, report })
    }
}

/// A configuration that can be used.
pub(crate) struct Loaded {
    /// The configuration.
    pub snapshot: Arc<Snapshot>,
    /// Warnings, rendered.
    pub report: String,
}

/// Whether messages to standard error may have colours.
fn colored() -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !refused && std::io::stderr().is_terminal()
}

/// `$XDG_CACHE_HOME/humboldt`, or `~/.cache/humboldt`.
fn user_cache_dir() -> Result<PathBuf, StartError> {
    let absolute = |name| {
        std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute())
    };
    let base =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    base.map(|base| base.join("humboldt")).ok_or(StartError::NoHome)
}

/// Makes a directory that only its owner can look into.
pub(crate) fn create_private_dir(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o750).create(path)
}

/// The level of messages in cache.log: that of `debug_options`, or more if the command line asks
/// for it.
pub(crate) fn debug_level(cli: &Cli, config: &Config) -> DebugLevel {
    let configured =
        DebugLevel::from_debug_options(&config.debug_options.join(" ")).unwrap_or_default();
    let asked_for = if cli.debug_all { 9 } else { cli.debug_stderr.unwrap_or(0) };
    configured.max(DebugLevel::new(asked_for))
}
