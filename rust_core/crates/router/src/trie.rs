//! Wildcard patterns: a trie of tokens.
//!
//! A node stands for the tokens that lead to it. It holds the subscribers of three patterns: its
//! own tokens, its tokens and `*`, its tokens and `>`; so `_INBOX.<id>.*` needs the one node of
//! `<id>`. Edges of literal tokens are not kept in the nodes but in one index by parent and
//! token. A `*` edge leads to a node only where a pattern goes on after the `*`.
//!
//! A match visits each node at most once, and none that the subject's tokens do not lead to. It
//! keeps its own stack, no deeper than the subject has tokens: the longest control line cannot
//! exhaust the thread's.

use crate::index::Index;
use crate::matches::Matches;
use crate::name::Name;
use crate::rng::Rng;
use crate::set::{Removal, Set};
use crate::slab::{NONE, Slab};
use crate::subject::{self, SEPARATOR, STAR, TAIL};
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};
use std::ops::ControlFlow;

/// Subscribers by wildcard pattern.
///
/// A node is 48 bytes for a token of up to 22 bytes and a set of one 16-byte subscriber 24; the
/// index adds about 8 per literal token.
pub struct Trie<S> {
    hasher: DefaultHashBuilder,
    nodes: Slab<Node>,
    /// The nodes that a literal token leads to, by parent and token.
    edges: Index,
    sets: Slab<Set<S>>,
    len: usize,
}

struct Node {
    /// The token of the edge that leads here; empty for the root and behind a `*`.
    token: Name,
    /// [`NONE`] for the root alone.
    parent: u32,
    /// Number of literal edges that leave this node.
    edges: u32,
    /// The node behind `*`, or [`NONE`].
    star: u32,
    /// The sets of the patterns that end here, by [`End`], or [`NONE`].
    ends: [u32; 3],
}

/// How a pattern ends at its last node.
#[derive(Clone, Copy)]
enum End {
    /// The node's token is the pattern's last.
    Exact,
    /// `*` follows as the last token.
    Star,
    /// `>` follows as the last token.
    Tail,
}

const ROOT: u32 = 0;

impl Node {
    fn new(token: &[u8], parent: u32) -> Self {
        Self {
            token: Name::new(token),
            parent,
            edges: 0,
            star: NONE,
            ends: [NONE; 3],
        }
    }

    fn is_leaf(&self) -> bool {
        self.edges == 0 && self.star == NONE && self.ends == [NONE; 3]
    }

    #[inline]
    fn end(&self, end: End) -> u32 {
        self.ends[end as usize]
    }
}

impl<S: Copy + Eq + Hash> Trie<S> {
    /// An empty trie with a random hash seed.
    #[must_use]
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    pub(crate) fn with_hasher(hasher: DefaultHashBuilder) -> Self {
        let mut nodes = Slab::new();
        nodes.insert(Node::new(b"", NONE));
        Self {
            hasher,
            nodes,
            edges: Index::default(),
            sets: Slab::new(),
            len: 0,
        }
    }

    /// Number of subscriptions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Number of different patterns.
    #[must_use]
    pub fn patterns(&self) -> usize {
        self.sets.len()
    }

    /// Bytes allocated, but for long tokens and for the further subscribers of one pattern.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.nodes.bytes() + self.sets.bytes() + self.edges.bytes()
    }

    /// Whether there are no subscriptions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of nodes, the root included.
    #[must_use]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a subscription to a pattern; false if it is there already. The caller has validated
    /// the pattern.
    pub fn insert(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: S) -> bool {
        let (path, end) = split_end(pattern);
        let mut id = ROOT;
        for token in path.into_iter().flat_map(subject::tokens) {
            id = match self.child(id, token) {
                Some(child) => child,
                None => self.grow(id, token),
            };
        }
        let Some(node) = self.nodes.get_mut(id) else {
            return false;
        };
        let place = &mut node.ends[end as usize];
        let inserted = match self.sets.get_mut(*place) {
            Some(set) => set.insert(queue, subscriber),
            None => {
                *place = self.sets.insert(Set::new(queue, subscriber));
                true
            }
        };
        self.len += usize::from(inserted);
        inserted
    }

    /// Removes a subscription; false if it is not there.
    pub fn remove(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: &S) -> bool {
        let (path, end) = split_end(pattern);
        let mut tokens = path.into_iter().flat_map(subject::tokens);
        let Some(id) = tokens.try_fold(ROOT, |id, token| self.child(id, token)) else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(id) else {
            return false;
        };
        let place = &mut node.ends[end as usize];
        let Some(set) = self.sets.get_mut(*place) else {
            return false;
        };
        match set.remove(queue, subscriber) {
            Removal::Absent => return false,
            Removal::Removed => {}
            Removal::Emptied => {
                self.sets.remove(*place);
                *place = NONE;
                self.prune(id);
            }
        }
        self.len -= 1;
        if self.len == 0 && self.nodes.is_large() {
            *self = Self::with_hasher(self.hasher.clone());
        }
        true
    }

    /// Adds the subscribers of every pattern that matches `subject` to `matches`. Wildcard
    /// tokens in `subject` are literal text; a subject with an empty token matches nothing.
    pub fn match_into(
        &self,
        subject: &[u8],
        matches: &mut Matches<S>,
        rng: &mut Rng,
        mut accept: impl FnMut(&S) -> bool,
    ) {
        let mut stack = std::mem::take(&mut matches.stack);
        let _ = self.walk(subject, &mut stack, |set| {
            set.collect(matches, rng, &mut accept);
            ControlFlow::Continue(())
        });
        matches.stack = stack;
    }

    /// Whether any pattern matches `subject`.
    #[must_use]
    pub fn has_interest(&self, subject: &[u8]) -> bool {
        self.walk(subject, &mut Vec::new(), |_| ControlFlow::Break(()))
            .is_break()
    }

    /// Visits the set of every pattern that matches `subject`, until `visit` breaks.
    #[inline]
    fn walk(
        &self,
        subject: &[u8],
        stack: &mut Vec<(u32, usize)>,
        mut visit: impl FnMut(&Set<S>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if subject::has_empty_token(subject) {
            return ControlFlow::Continue(());
        }
        stack.clear();
        stack.push((ROOT, 0));
        while let Some((id, start)) = stack.pop() {
            let (Some(node), Some(rest)) = (self.nodes.get(id), subject.get(start..)) else {
                continue;
            };
            self.visit_end(node, End::Tail, &mut visit)?;
            let (token, after) = rest.split_at(subject::token_len(rest));
            let child = self.literal_child(id, node, token);
            if after.is_empty() {
                self.visit_end(node, End::Star, &mut visit)?;
                if let Some(child) = child.and_then(|child| self.nodes.get(child)) {
                    self.visit_end(child, End::Exact, &mut visit)?;
                }
                continue;
            }
            let next = start + token.len() + 1;
            if node.star != NONE {
                stack.push((node.star, next));
            }
            if let Some(child) = child {
                stack.push((child, next));
            }
        }
        ControlFlow::Continue(())
    }

    #[inline]
    fn visit_end(
        &self,
        node: &Node,
        end: End,
        visit: &mut impl FnMut(&Set<S>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        match self.sets.get(node.end(end)) {
            Some(set) => visit(set),
            None => ControlFlow::Continue(()),
        }
    }

    /// The node that `token` of a pattern leads to.
    fn child(&self, parent: u32, token: &[u8]) -> Option<u32> {
        let node = self.nodes.get(parent)?;
        if token == STAR {
            return Some(node.star).filter(|&star| star != NONE);
        }
        self.literal_child(parent, node, token)
    }

    /// The node that literal text leads to; `node` is the one under `parent`.
    #[inline]
    fn literal_child(&self, parent: u32, node: &Node, token: &[u8]) -> Option<u32> {
        if node.edges == 0 {
            return None;
        }
        let hash = self.hasher.hash_one((parent, token));
        self.edges.find(hash, |id| {
            self.nodes
                .get(id)
                .is_some_and(|child| child.parent == parent && child.token.as_bytes() == token)
        })
    }

    /// Adds the missing node that `token` of a pattern leads to.
    fn grow(&mut self, parent: u32, token: &[u8]) -> u32 {
        let is_star = token == STAR;
        let id = self
            .nodes
            .insert(Node::new(if is_star { b"" } else { token }, parent));
        if let Some(node) = self.nodes.get_mut(parent) {
            if is_star {
                node.star = id;
            } else {
                node.edges += 1;
            }
        }
        if !is_star {
            let hash_of = |id: u32| hash_at(&self.hasher, &self.nodes, id);
            self.edges.insert(hash_of(id), id, hash_of);
        }
        id
    }

    /// Removes the node and its ancestors as far as nothing depends on them.
    fn prune(&mut self, mut id: u32) {
        while let Some(node) = self.nodes.get(id)
            && node.is_leaf()
            && node.parent != NONE
        {
            let parent = node.parent;
            let is_star = self.nodes.get(parent).is_some_and(|node| node.star == id);
            if !is_star {
                let hash_of = |id: u32| hash_at(&self.hasher, &self.nodes, id);
                self.edges.remove(hash_of(id), id, hash_of);
            }
            if let Some(node) = self.nodes.get_mut(parent) {
                if is_star {
                    node.star = NONE;
                } else {
                    node.edges -= 1;
                }
            }
            self.nodes.remove(id);
            id = parent;
        }
    }

    /// Fails if an inner count or reference is wrong: for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        let (mut ends, mut stars, mut edges) = (0, 0, 0);
        for (id, node) in self.nodes.iter() {
            assert_eq!(id == ROOT, node.parent == NONE, "one root");
            assert!(id == ROOT || !node.is_leaf(), "no empty branch");
            edges += node.edges as usize;
            for end in node.ends.into_iter().filter(|&end| end != NONE) {
                assert!(self.sets.get(end).is_some_and(|set| set.len() > 0));
                ends += 1;
            }
            if let Some(star) = self.nodes.get(node.star) {
                assert_eq!(star.parent, id);
                stars += 1;
            }
            if let Some(parent) = self.nodes.get(node.parent)
                && parent.star != id
            {
                let token = node.token.as_bytes();
                assert_eq!(
                    self.child(node.parent, token),
                    Some(id),
                    "every node is reached"
                );
            }
        }
        assert_eq!(ends, self.sets.len());
        assert_eq!(edges, self.edges.len());
        assert_eq!(1 + stars + edges, self.nodes.len());
        let sets = self.sets.iter().map(|(_, set)| set.len());
        assert_eq!(self.len, sets.sum::<usize>());
    }
}

impl<S: Copy + Eq + Hash> Default for Trie<S> {
    fn default() -> Self {
        Self::new()
    }
}

/// The tokens that lead to the pattern's last node, and how it ends there.
fn split_end(pattern: &[u8]) -> (Option<&[u8]>, End) {
    let dot = pattern.iter().rposition(|&byte| byte == SEPARATOR);
    let last = dot.map_or(0, |dot| dot + 1);
    let end = match pattern.get(last..) {
        Some(STAR) => End::Star,
        Some(TAIL) => End::Tail,
        _ => return (Some(pattern), End::Exact),
    };
    (dot.and_then(|dot| pattern.get(..dot)), end)
}

fn hash_at(hasher: &DefaultHashBuilder, nodes: &Slab<Node>, id: u32) -> u64 {
    nodes.get(id).map_or(0, |node| {
        hasher.hash_one((node.parent, node.token.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_48_bytes() {
        assert_eq!(size_of::<Node>(), 48);
        assert_eq!(size_of::<Option<Node>>(), 48);
    }

    #[test]
    fn an_inbox_needs_one_node() {
        let mut trie = Trie::new();
        trie.insert(b"_INBOX.a.*", None, 1);
        assert_eq!(trie.node_count(), 3);
        trie.insert(b"_INBOX.b.*", None, 2);
        assert_eq!(trie.node_count(), 4);
        trie.check_invariants();
        assert!(trie.remove(b"_INBOX.a.*", None, &1));
        assert!(trie.remove(b"_INBOX.b.*", None, &2));
        assert_eq!(trie.node_count(), 1);
    }
}
