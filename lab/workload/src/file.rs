//! The workload file as it is written; its checks are in `plan`.

use serde::Deserialize;
use toml::Spanned;

use crate::error::WorkloadError;
use crate::units::{
    Amount, Bytes, Choice, Count, LifeCycle, Micros, PerSecond, Share, Spread, WorkingSet,
};
use crate::workload::Mode;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) name: Spanned<String>,
    pub(crate) description: String,
    pub(crate) mode: Mode,
    pub(crate) client: Client,
    pub(crate) server: Server,
    #[serde(default)]
    pub(crate) requests: Option<Spanned<Requests>>,
    pub(crate) popularity: Spanned<Popularity>,
    #[serde(rename = "type", default)]
    pub(crate) types: Vec<Spanned<Type>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    pub(crate) requests_per_user: Spanned<Amount<PerSecond>>,
    pub(crate) connections: Spanned<u32>,
    pub(crate) requests_per_connection: Spread<Count>,
    #[serde(default)]
    pub(crate) delay: Option<Spanned<Amount<Micros>>>,
    #[serde(default)]
    pub(crate) loss: Option<Spanned<Amount<Share>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Server {
    pub(crate) think: Spanned<Spread<Micros>>,
    pub(crate) requests_per_connection: Spread<Count>,
    pub(crate) idle: Spanned<Amount<Micros>>,
    #[serde(default)]
    pub(crate) delay: Option<Spanned<Amount<Micros>>>,
    #[serde(default)]
    pub(crate) loss: Option<Spanned<Amount<Share>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Requests {
    #[serde(default)]
    pub(crate) ims_200: Option<Amount<Share>>,
    #[serde(default)]
    pub(crate) ims_304: Option<Amount<Share>>,
    #[serde(default)]
    pub(crate) reload: Option<Amount<Share>>,
    #[serde(default)]
    pub(crate) head: Option<Amount<Share>>,
    #[serde(default)]
    pub(crate) range: Option<Amount<Share>>,
    #[serde(default)]
    pub(crate) abort: Option<Amount<Share>>,
    #[serde(default)]
    pub(crate) post: Option<Post>,
    #[serde(default)]
    pub(crate) connect: Option<Connect>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Post {
    pub(crate) share: Amount<Share>,
    pub(crate) body: Spread<Bytes>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Connect {
    pub(crate) share: Amount<Share>,
    pub(crate) allowed: Amount<Share>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Popularity {
    #[serde(default)]
    pub(crate) recurrence: Option<Spanned<Amount<Share>>>,
    #[serde(default)]
    pub(crate) working_set: Option<Spanned<WorkingSet>>,
    #[serde(default)]
    pub(crate) fixed_set: Option<Spanned<u64>>,
    #[serde(default)]
    pub(crate) choice: Option<Spanned<Choice>>,
    #[serde(default)]
    pub(crate) hot: Option<Spanned<Hot>>,
    #[serde(default)]
    pub(crate) prefer_small: Option<Spanned<PreferSmall>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hot {
    pub(crate) objects: Spanned<Amount<Share>>,
    pub(crate) requests: Amount<Share>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PreferSmall {
    pub(crate) repeats: Amount<Share>,
    pub(crate) reach: Spanned<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Type {
    pub(crate) name: Spanned<String>,
    pub(crate) mime: Spanned<String>,
    pub(crate) extension: Spanned<String>,
    pub(crate) share: Spanned<Amount<Share>>,
    #[serde(default)]
    pub(crate) asked: Asked,
    pub(crate) size: Spread<Bytes>,
    #[serde(default)]
    pub(crate) size_min: Option<Spanned<Amount<Bytes>>>,
    #[serde(default)]
    pub(crate) size_max: Option<Spanned<Amount<Bytes>>>,
    pub(crate) cachable: Amount<Share>,
    pub(crate) life_cycle: Spanned<LifeCycle>,
    #[serde(default)]
    pub(crate) compressible: bool,
    #[serde(default)]
    pub(crate) embeds: Option<Spanned<Embeds>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Asked {
    #[default]
    Directly,
    Embedded,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Embeds {
    #[serde(rename = "type")]
    pub(crate) kind: Spanned<String>,
    pub(crate) count: Spanned<Spread<Count>>,
    #[serde(default)]
    pub(crate) shared: Option<Spanned<Amount<Share>>>,
    #[serde(default)]
    pub(crate) tag: Option<Amount<Bytes>>,
    pub(crate) first_after: Spanned<Amount<Micros>>,
    pub(crate) spacing: Spanned<Amount<Micros>>,
}

/// Turns places in a file's text into errors.
pub(crate) struct Source<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl Source<'_> {
    pub(crate) fn read(&self) -> Result<File, WorkloadError> {
        toml::from_str(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().trim().replace('\n', "; ");
            match self.key_before(at) {
                Some(key) => self.error(at, format!("{key}: {message}")),
                None => self.error(at, message),
            }
        })
    }

    /// The error at a byte of the text.
    pub(crate) fn error(&self, at: usize, message: impl Into<String>) -> WorkloadError {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        WorkloadError {
            file: self.file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            message: message.into(),
        }
    }

    /// The error at a value.
    pub(crate) fn error_at<T>(
        &self,
        value: &Spanned<T>,
        message: impl Into<String>,
    ) -> WorkloadError {
        self.error(value.span().start, message)
    }

    /// The key whose value begins at a byte of the text.
    fn key_before(&self, at: usize) -> Option<&str> {
        let line = self.text.get(..at)?.rsplit('\n').next()?;
        let key = line.trim_end().strip_suffix('=')?.trim_end();
        let start =
            key.rfind(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).map_or(0, |end| end + 1);
        Some(&key[start..]).filter(|key| !key.is_empty())
    }
}
