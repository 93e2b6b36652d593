//! Slots that are used again, each with a generation so that a late event does not reach its slot's
//! next tenant.

/// Values under small, stable numbers.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The callers' bounds are far below 2³² values.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].value = Some(value);
            return slot;
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        (self.slots.len() - 1) as u32
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let place = self.slots.get_mut(slot as usize)?;
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        Some(value)
    }

    pub(crate) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.slots.get_mut(slot as usize)?.value.as_mut()
    }

    /// Names the slot with its present tenant.
    pub(crate) fn token(&self, slot: u32) -> u64 {
        let generation = self.slots.get(slot as usize).map_or(0, |place| place.generation);
        u64::from(generation) << 32 | u64::from(slot)
    }

    /// The slot that a token names, if its tenant is still there.
    pub(crate) fn by_token(&self, token: u64) -> Option<u32> {
        let slot = (token & u64::from(u32::MAX)) as u32;
        let place = self.slots.get(slot as usize)?;
        (place.value.is_some() && u64::from(place.generation) == token >> 32).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_event_misses_the_next_tenant() {
        let mut slab = Slab::default();
        let slot = slab.insert("first");
        let token = slab.token(slot);
        assert_eq!(slab.by_token(token), Some(slot));
        assert_eq!(slab.remove(slot), Some("first"));
        assert_eq!(slab.by_token(token), None);
        assert_eq!(slab.insert("second"), slot);
        assert_eq!(slab.by_token(token), None);
        assert_eq!((slab.len(), slab.get(slot)), (1, Some(&"second")));
        assert_eq!(slab.remove(slot + 1), None);
    }
}
