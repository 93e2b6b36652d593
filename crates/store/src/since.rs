//! When a stored answer was found, for one that is not served at once.

use crate::flow::Epoch;
use crate::versions::Reading;

/// When a stored answer was found.
#[derive(Debug)]
pub struct Since {
    pub(crate) epoch: Epoch,
    pub(crate) reading: Reading,
}
