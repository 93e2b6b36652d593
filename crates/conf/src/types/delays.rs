//! Delay pools.

use super::AccessRule;

/// A line of `delay_class`.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DelayClass {
    /// Number of the pool, from 1.
    pub pool: u16,
    /// 1 to 5.
    pub class: u8,
}

/// The rate and the size of a bucket.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct DelayRate {
    /// Bytes that come in each second.
    pub rate: u64,
    /// Most bytes that it holds.
    pub size: u64,
}

/// A line of `delay_parameters` or `client_delay_parameters`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayParameters {
    /// Number of the pool, from 1.
    pub pool: u16,
    /// One for each kind of bucket that the class has; `None` is no limit.
    pub rates: Vec<Option<DelayRate>>,
}

/// A line of `delay_access` or `client_delay_access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DelayAccess {
    /// Number of the pool, from 1.
    pub pool: u16,
    /// The rule.
    pub rule: AccessRule,
}

/// A line of `response_delay_pool`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponsePool {
    /// Its name.
    pub name: String,
    /// The bucket that each answer has for itself.
    pub individual: Option<DelayRate>,
    /// The bucket of all answers together.
    pub aggregate: Option<DelayRate>,
    /// How full a bucket is at its beginning, in percent.
    pub level_percent: u32,
}

/// A line of `response_delay_pool_access`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponsePoolAccess {
    /// Name of the pool.
    pub pool: String,
    /// The rule.
    pub rule: AccessRule,
}
