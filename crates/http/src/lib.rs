//! HTTP messages and the sans-I/O HTTP/1 codec: all message framing lives here and nowhere else, so
//! that request smuggling has one place to be prevented, tested and reviewed.
//!
//! Bytes in, events out: nothing in this crate touches a socket or a clock. A head owns its bytes
//! in one reusable buffer; everything else is spans into it.

pub mod conditional;
pub mod date;
pub mod escape;
pub mod etag;
mod fields;
pub mod h1;
mod head;
mod list;
mod method;
mod name;
pub mod range;
mod sink;
mod syntax;
pub mod text;
pub mod uri;
pub mod websocket;

pub use fields::{FIELDS_BYTES_MAX, Field, Fields, Span};
pub use h1::HopByHop;
pub use head::{HeadLimits, RequestHead, ResponseHead, Target, TargetWhitespace};
pub use list::{ListItems, split_list};
pub use method::{METHOD_BYTES_MAX, Method, Version};
pub use name::FieldName;
pub use sink::FieldSink;
pub use uri::{Url, UrlParts};
