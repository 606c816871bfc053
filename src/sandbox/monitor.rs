use std::os::fd::BorrowedFd;
pub(super) struct MemoryUse {
    pub(super) over: bool,
    pub(super) processes: u64,
}
pub(super) fn memory(_root: u32, _dirs: &[BorrowedFd<'_>], _limit: u64) -> MemoryUse {
    MemoryUse {
        over: false,
        processes: 0,
    }
}
