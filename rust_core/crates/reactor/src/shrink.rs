//! Lists and queues that are kept for their memory, and give it back after a herd.

use std::collections::VecDeque;

/// Elements that an empty list may keep room for.
const KEPT: usize = 64 * 1024;

/// Give the memory of an empty queue back unless it is little.
#[inline]
pub(crate) fn give_back<T>(queue: &mut VecDeque<T>) {
    if queue.capacity() > KEPT && queue.is_empty() {
        *queue = VecDeque::new();
    }
}

/// Give the memory of an empty list back unless it is little.
#[inline]
pub(crate) fn give_back_list<T>(list: &mut Vec<T>) {
    if list.capacity() > KEPT && list.is_empty() {
        *list = Vec::new();
    }
}
