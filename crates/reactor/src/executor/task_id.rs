//! Identifiers of tasks.

const SLOT_BITS: u32 = 28;
const GENERATION_BITS: u32 = 24;

/// Identifies a task of the process: core, slot in its table, and generation of the slot, in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TaskId(pub(super) u64);

impl TaskId {
    /// Most tasks of one core.
    pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;

    pub(super) fn new(core: u16, slot: u32, generation: u32) -> TaskId {
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        TaskId(
            u64::from(core) << (SLOT_BITS + GENERATION_BITS)
                | generation << SLOT_BITS
                | u64::from(slot),
        )
    }

    pub(super) fn core(self) -> u16 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u16
    }

    pub(super) fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }

    /// Whether the slot's current generation is that of the task.
    pub(super) fn is_generation(self, generation: u32) -> bool {
        let mask = (1 << GENERATION_BITS) - 1;
        (self.0 >> SLOT_BITS) & mask == u64::from(generation) & mask
    }
}
