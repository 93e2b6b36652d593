//! Why the program does not start, or ends.

use humboldt_net::listener::ListenError;
use humboldt_sys::pid_file::PidError;
use humboldt_sys::privileges::PrivilegeError;

use crate::ports::PortError;

/// Why the program cannot start, or a command cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Words or options of `-k explain` without it.
    #[error(
        "METHOD URL, --user, --header, --dst, --port and --against-log go with -k explain only"
    )]
    NotExplained,
    /// The configuration has errors.
    #[error("the configuration has errors\n{0}")]
    Configuration(String),
    /// There is no place for the built-in configuration's files.
    #[error("neither XDG_CACHE_HOME nor HOME is set: give a configuration with -f, or set HOME")]
    NoHome,
    /// A command needs the pid file.
    #[error("the configuration says pid_filename none: send a signal to the process yourself")]
    NoPidFile,
    /// See [`PidError`].
    #[error("{0}")]
    Pid(#[from] PidError),
    /// See [`PortError`].
    #[error("{0}")]
    Port(#[from] PortError),
    /// The port of the built-in configuration is taken.
    #[error("{0}; another port: humboldt -a 3129")]
    BuiltInPort(ListenError),
    /// All ports were left out, each with a message of its own.
    #[error("there is no port that can be opened")]
    NoPort,
    /// See [`PrivilegeError`].
    #[error("cannot become cache_effective_user: {0}")]
    Privilege(#[from] PrivilegeError),
    /// See [`humboldt_tls::make_authority`].
    #[error("the authority cannot be made: {0}")]
    Authority(String),
    /// A cache directory cannot be created.
    #[error("{0}")]
    Store(#[from] humboldt_schemes::OpenError),
    /// The system refused something else.
    #[error("cannot {what}: {source}")]
    System {
        /// The attempted operation.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// Something panicked that others wait for.
    #[error("{0} has failed: cache.log says why")]
    Vital(&'static str),
    /// The cores could not be started or ended badly.
    #[error("{0}")]
    Cores(#[from] humboldt_runtime::cores::CoreError),
}

impl StartError {
    /// For `map_err`.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::System { what, source }
    }
}
