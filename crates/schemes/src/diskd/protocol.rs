//! The messages between proxy and helper, of [`MESSAGE_BYTES`] bytes, and slots in shared memory.
//!
//! The other side is not trusted: decoded messages are well-formed, and their user checks whether
//! they make sense.

/// Length of a message.
pub(super) const MESSAGE_BYTES: usize = 40;

/// Says that two programs mean the same: changes with the protocol.
const MAGIC: u16 = 0x4801;

/// Most slots in shared memory, and so most messages under way that carry bytes.
pub(super) const SLOTS_MAX: u32 = 4096;

/// The operation.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Op {
    /// The helper is ready; said once, by the helper.
    Hello = 1,
    /// Open file `number`, read `length` bytes from its start into the slot, close it.
    ReadFile = 2,
    /// Create file `number`, write `length` bytes from the slot, close it.
    WriteFile = 3,
    /// Open file `number` to be read, as `handle`.
    OpenToRead = 4,
    /// Open file `number` to be read and written, as `handle`.
    OpenToUpdate = 5,
    /// Create file `number` to be written, as `handle`.
    Create = 6,
    /// Read `length` bytes at `offset` of `handle` into the slot.
    Read = 7,
    /// Write `length` bytes from the slot at `offset` of `handle`.
    Write = 8,
    /// Close `handle`.
    Close = 9,
    /// Unlink file `number`, which may be missing.
    Unlink = 10,
}

impl Op {
    fn from_number(number: u8) -> Option<Self> {
        use Op::*;
        let all = [
            Hello,
            ReadFile,
            WriteFile,
            OpenToRead,
            OpenToUpdate,
            Create,
            Read,
            Write,
            Close,
            Unlink,
        ];
        all.into_iter().find(|op| *op as u8 == number)
    }

    /// Whether it takes bytes from a slot or puts them there.
    pub(super) fn needs_slot(self) -> bool {
        matches!(self, Self::ReadFile | Self::WriteFile | Self::Read | Self::Write)
    }
}

/// A request, or the reply to it: the same fields come back, with `status` and the `length` that
/// was read.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Chosen by the proxy, never twice among those under way.
    pub(super) id: u64,
    /// Offset in the file.
    pub(super) offset: u64,
    /// Number of the file.
    pub(super) number: u32,
    /// Number of an open file, chosen by the proxy.
    pub(super) handle: u32,
    /// Slot in shared memory.
    pub(super) slot: u32,
    /// Bytes in the slot.
    pub(super) length: u32,
    /// 0, or the system's error number.
    pub(super) status: i32,
    pub(super) op: Op,
}

impl Message {
    /// A request with nothing but an operation.
    pub(super) fn new(op: Op) -> Self {
        Self { id: 0, offset: 0, number: 0, handle: 0, slot: 0, length: 0, status: 0, op }
    }

    pub(super) fn encode(&self) -> [u8; MESSAGE_BYTES] {
        let mut bytes = [0; MESSAGE_BYTES];
        bytes[0..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.offset.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.number.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.handle.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.slot.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.length.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.status.to_le_bytes());
        bytes[36] = self.op as u8;
        bytes[38..40].copy_from_slice(&MAGIC.to_le_bytes());
        bytes
    }

    /// `None` if it is not a message of this protocol.
    pub(super) fn decode(bytes: &[u8; MESSAGE_BYTES]) -> Option<Self> {
        let u32_at = |at: usize| {
            bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let op = Op::from_number(bytes[36])?;
        let is_ours = bytes[37] == 0 && u16::from_le_bytes([bytes[38], bytes[39]]) == MAGIC;
        is_ours.then(|| Self {
            id: u64_at(0),
            offset: u64_at(8),
            number: u32_at(16),
            handle: u32_at(20),
            slot: u32_at(24),
            length: u32_at(28),
            status: u32_at(32).cast_signed(),
            op,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_way_and_others_are_refused() {
        let message = Message {
            id: 0x0102_0304_0506_0708,
            offset: u64::MAX - 1,
            number: 7,
            handle: u32::MAX,
            slot: 93,
            length: 81_920,
            status: -5,
            op: Op::Unlink,
        };
        let bytes = message.encode();
        assert_eq!(Message::decode(&bytes), Some(message));
        for (at, value) in [(36, 0), (36, 11), (37, 1), (38, 2), (39, 0)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(Message::decode(&other), None, "byte {at}");
        }
        assert_eq!(Message::decode(&[0; MESSAGE_BYTES]), None);
        let all = (0..=255).filter_map(Op::from_number);
        assert_eq!(all.filter(|op| op.needs_slot()).count(), 4);
    }
}
