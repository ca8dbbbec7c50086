//! The broker's metrics, and the conservation rule.
//!
//! | module | holds |
//! |---|---|
//! | [`table`] | the one description of every metric: its names, places, columns and help |
//! | [`shard`] | the numbers of one shard, which it alone writes |
//! | [`totals`] | sums over all shards |
//!
//! The conservation rule: every message is accounted for, so that
//! `matched = delivered + dropped + pending`. `matched` sums, over all published messages, the receivers
//! that the routing table named. `delivered` counts those whose bytes the kernel has taken. `dropped`
//! names a reason for each that will never be taken. `pending` counts where messages wait: in outputs
//! and in mail. Each of the four is counted on its own, so a message that is lost, or counted twice,
//! breaks the equation for ever.
//!
//! The equation holds whenever no shard is in the middle of a turn, whatever is pending. A reader that
//! comes while shards work may see numbers of different moments; it reads again.

pub(crate) mod shard;
pub(crate) mod table;
pub(crate) mod totals;
