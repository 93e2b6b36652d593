//! When a stored answer was found, for one that is not served at once.

use crate::flow::Epoch;
use crate::versions::Reading;

/// When a stored answer was found.
#[derive(Debug)]
pub struct Since {
    pub(crate) epoch: Epoch,
    pub(crate) reading: Reading,
}

impl Since {
    /// The same moment, for another answer that was found with it.
    pub(crate) fn again(&self) -> Self {
        Self { epoch: self.epoch, reading: self.reading.again() }
    }
}
