//! The headers that robots and origins share besides HTTP.

/// Header of requests and answers: 16 hex digits that name one request. The origin echoes it, so an
/// answer that carries another id was made for an older request: it is a hit, "the server did not
/// see this very request".
pub const REQUEST_ID: &str = "Lab-Request";

/// Target of CONNECT requests that the cache must refuse.
pub const DENIED_TARGET: &str = "denied.example:443";
