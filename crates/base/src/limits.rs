//! Bounds that more than one crate must agree on. A bound that only one module needs stays in that
//! module.

/// Size of a memory page of the cache, in bytes: the unit of `cache_mem` and of bodies in flight.
pub const PAGE_BYTES: usize = 4096;

/// Longest request or response head accepted by default, in bytes (`request_header_max_size`,
/// `reply_header_max_size`): beyond it the answer is 431 (request) or 502 (response).
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Most field lines in one head by default (`request_header_max_fields`,
/// `reply_header_max_fields`); beyond it 431 or 502.
pub const HEAD_FIELDS_MAX: usize = 1000;

/// Longest request target in bytes; beyond it 414.
pub const TARGET_BYTES_MAX: usize = 32 * 1024;

/// Most threads that serve requests, whatever the number of processors.
pub const CORES_MAX: usize = 256;
