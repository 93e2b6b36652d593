//! The command line: Squid's options, with Squid's letters.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// A web cache: forward proxy and accelerator that reads squid.conf.
///
/// Without options it runs in the foreground with a built-in configuration: a proxy on
/// 127.0.0.1:3128, for this machine only, that caches in memory and in your cache directory. Ctrl-C
/// ends it.
#[derive(Parser, Debug, Clone)]
#[command(name = "humboldt", disable_version_flag = true, after_help = EXAMPLES)]
pub(crate) struct Cli {
    /// Configuration file, in the squid.conf language. Without it: the built-in configuration.
    #[arg(short = 'f', long = "config", value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Check the configuration, or send a command to the humboldt that runs with it.
    #[arg(short = 'k', value_name = "COMMAND", value_enum)]
    pub command: Option<Command>,

    /// Create the cache directories that are missing, then exit.
    #[arg(short = 'z')]
    pub create_stores: bool,

    /// Stay in the foreground, one process, log also to standard error.
    #[arg(short = 'N', long = "foreground")]
    pub foreground: bool,

    /// Write messages up to this debug level (0 to 9) to standard error as well.
    #[arg(short = 'd', value_name = "LEVEL", value_parser = clap::value_parser!(u8).range(0..=9))]
    pub debug_stderr: Option<u8>,

    /// Full debugging, as if the configuration said `debug_options ALL,9`.
    #[arg(short = 'X')]
    pub debug_all: bool,

    /// Do not catch fatal signals: leave a core file instead of a clean end.
    #[arg(short = 'C')]
    pub no_catch: bool,

    /// Listen on this port instead of those of the configuration.
    #[arg(short = 'a', value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Do not serve until the cache directories have been read.
    #[arg(short = 'F')]
    pub wait_for_rebuild: bool,

    /// Service name, part of the names of the default pid file.
    #[arg(short = 'n', value_name = "NAME", default_value = "humboldt")]
    pub service: String,

    /// Accepted for Squid's sake and without effect: -D (no DNS test), -S (check store), -Y, -s
    /// (syslog), -R.
    #[arg(short = 'D', hide = true)]
    pub ignored_dns: bool,
    #[arg(short = 'S', hide = true)]
    #[allow(missing_docs)]
    pub ignored_check: bool,
    #[arg(short = 'Y', hide = true)]
    #[allow(missing_docs)]
    pub ignored_fast: bool,
    #[arg(short = 's', hide = true)]
    #[allow(missing_docs)]
    pub ignored_syslog: bool,
    #[arg(short = 'R', hide = true)]
    #[allow(missing_docs)]
    pub ignored_reuse: bool,

    /// For -k explain: the request.
    #[arg(value_name = "METHOD URL", num_args = 0..=2)]
    pub asked: Vec<String>,

    /// For -k explain: the address of the client.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", hide_default_value = true)]
    pub src: std::net::IpAddr,

    /// For -k explain: the user who has logged in.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,

    /// For -k explain: a field of the request, such as `User-Agent: curl`; several are possible.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,

    /// For -k explain: the port that the request comes to, by its number or name; the first one by
    /// default.
    #[arg(long = "port", value_name = "PORT")]
    pub to_port: Option<String>,

    /// For -k explain: an address of the server, instead of looking the name up.
    #[arg(long, value_name = "IP")]
    pub dst: Vec<std::net::IpAddr>,

    /// For -k explain CONNECT: the name that the client asks for in TLS, or `none`; the host by
    /// default.
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,

    /// For -k explain: replay an access log in Squid's own format, and show what this configuration
    /// would decide in another way.
    #[arg(long, value_name = "FILE")]
    pub against_log: Option<PathBuf>,

    /// For -k parse: also sum up how many lines work, and which do not and why.
    #[arg(long)]
    pub explain: bool,

    /// Show the version and the commit that it was built from.
    #[arg(short = 'v', long = "version")]
    pub version: bool,
}

impl Cli {
    /// Whether there are words or options that go with `-k explain` only.
    pub(crate) fn asks(&self) -> bool {
        !self.asked.is_empty()
            || self.user.is_some()
            || !self.headers.is_empty()
            || !self.dst.is_empty()
            || self.to_port.is_some()
            || self.sni.is_some()
            || self.against_log.is_some()
    }
}

/// A command of `-k`.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Read the configuration and report its errors; do not start.
    Parse,
    /// Is it running?
    Check,
    /// Read the configuration again, without dropping a connection.
    Reconfigure,
    /// Close and reopen the logs, keeping old ones.
    Rotate,
    /// Stop after open requests, at most `shutdown_lifetime`.
    Shutdown,
    /// Stop at once, still leaving the store clean.
    Interrupt,
    /// Stop at once (SIGKILL); the next start repairs the store.
    Kill,
    /// Switch full debugging on or off.
    Debug,
    /// Tell which rules a request would meet, which one decides and why: METHOD URL, or the lines
    /// of a log with --against-log.
    Explain,
}

impl Command {
    /// Whether no more than the settings of the file count, and not the files that it names.
    pub(crate) fn needs_settings_only(self) -> bool {
        !matches!(self, Self::Parse | Self::Reconfigure | Self::Explain)
    }
}

const EXAMPLES: &str = "\
Examples:
  humboldt                              proxy on 127.0.0.1:3128, built-in configuration
  curl -x 127.0.0.1:3128 http://…       use it
  humboldt -f squid.conf -k parse       what does it say to my squid.conf?
  humboldt -f squid.conf -N             run it in the foreground
  humboldt -f squid.conf -k explain GET http://site.example/ --src 10.0.0.7
                                        which rule lets this request in or keeps it out?
  humboldt -f new.conf -k explain --against-log access.log
                                        what would change for the requests of that log?
  humboldt -f squid.conf -k reconfigure apply changes
  humboldt ca new DIR                   make an authority for http_port … ssl-bump

Signals: HUP reconfigure, USR1 rotate, USR2 debug, TERM stop gracefully, INT stop now.
Exit status: 0 all is well, 1 the configuration or the start failed, 2 bad options; of -k explain
also 3 refused (or something would change), 4 not to be decided here.";

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn squid_habits_work() {
        let cli = Cli::parse_from(["humboldt", "-NYC", "-f", "/x.conf", "-d", "1"]);
        assert!(cli.foreground && cli.no_catch);
        assert_eq!(cli.debug_stderr, Some(1));
        let cli = Cli::parse_from(["humboldt", "-k", "reconfigure"]);
        assert_eq!(cli.command, Some(Command::Reconfigure));
    }
}
