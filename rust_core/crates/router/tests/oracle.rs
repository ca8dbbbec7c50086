//! Every routing structure against the naive oracle, over random sequences of operations.

use proptest::prelude::*;
use std::collections::BTreeSet;
use subjectbus_router::naive::{Expected, Naive};
use subjectbus_router::{
    Kind, Matches, Patterns, Rng, SharedRouter, Table, is_valid_publish, validate_subscription,
};

/// What the three structures have in common.
trait Router: Default {
    /// The subscriptions that this structure is made for.
    const KINDS: &'static [Kind];
    fn subscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: u16) -> bool;
    fn unsubscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, subscriber: u16) -> bool;
    fn find(
        &self,
        subject: &[u8],
        matches: &mut Matches<u16>,
        rng: &mut Rng,
        accept: &dyn Fn(&u16) -> bool,
    );
    fn len(&self) -> usize;
    fn check(&self);
}

macro_rules! single_threaded {
    ($router:ident, $kind:ident) => {
        impl Router for $router<u16> {
            const KINDS: &'static [Kind] = &[Kind::$kind];
            fn subscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, s: u16) -> bool {
                self.insert(pattern, queue, s)
            }
            fn unsubscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, s: u16) -> bool {
                self.remove(pattern, queue, &s)
            }
            fn find(
                &self,
                subject: &[u8],
                matches: &mut Matches<u16>,
                rng: &mut Rng,
                accept: &dyn Fn(&u16) -> bool,
            ) {
                self.match_into(subject, matches, rng, accept);
            }
            fn len(&self) -> usize {
                $router::len(self)
            }
            fn check(&self) {
                self.check_invariants();
            }
        }
    };
}

single_threaded!(Table, Literal);
single_threaded!(Patterns, Wildcard);

impl Router for SharedRouter<u16> {
    const KINDS: &'static [Kind] = &[Kind::Literal, Kind::Wildcard];
    fn subscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, s: u16) -> bool {
        SharedRouter::subscribe(self, pattern, queue, s) == Ok(true)
    }
    fn unsubscribe(&mut self, pattern: &[u8], queue: Option<&[u8]>, s: u16) -> bool {
        SharedRouter::unsubscribe(self, pattern, queue, &s)
    }
    fn find(
        &self,
        subject: &[u8],
        matches: &mut Matches<u16>,
        rng: &mut Rng,
        accept: &dyn Fn(&u16) -> bool,
    ) {
        self.match_into(subject, matches, rng, accept);
    }
    fn len(&self) -> usize {
        SharedRouter::len(self)
    }
    fn check(&self) {
        self.check_invariants();
    }
}

#[derive(Debug, Clone)]
enum Op {
    Subscribe(Vec<u8>, Option<Vec<u8>>, u16),
    Unsubscribe(Vec<u8>, Option<Vec<u8>>, u16),
    /// Removes the subscription at this place of the list of those that are there.
    UnsubscribeKnown(prop::sample::Index),
    /// Publishes; the subscriber named does not accept.
    Match(Vec<u8>, u16),
}

/// Too long to be kept in place.
const LONG: &str = "a-token-of-more-than-22-bytes";

fn joined(tokens: Vec<&'static str>) -> Vec<u8> {
    tokens.join(".").into_bytes()
}

fn pattern() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec!["a", "a", "b", "c*", "*", "*", LONG]);
    let last = prop::sample::select(vec!["a", "b", "*", ">"]);
    (prop::collection::vec(token, 0..5), last).prop_map(|(mut tokens, last)| {
        tokens.push(last);
        joined(tokens)
    })
}

fn subject() -> impl Strategy<Value = Vec<u8>> {
    let common = vec!["a", "a", "a", "b", "b", "c*", LONG];
    let odd = vec!["a", "b", "*", ">", "", "d"];
    let tokens = |from| prop::collection::vec(prop::sample::select(from), 1..6).prop_map(joined);
    prop_oneof![4 => tokens(common), 1 => tokens(odd)]
}

fn queue() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop::option::weighted(0.4, prop::sample::select(vec!["q", "r", "s"]))
        .prop_map(|queue| queue.map(|name| name.as_bytes().to_vec()))
}

fn op() -> impl Strategy<Value = Op> {
    let subscriber = || 0..30_u16;
    prop_oneof![
        4 => (pattern(), queue(), subscriber()).prop_map(|(p, q, s)| Op::Subscribe(p, q, s)),
        1 => (pattern(), queue(), subscriber()).prop_map(|(p, q, s)| Op::Unsubscribe(p, q, s)),
        2 => any::<prop::sample::Index>().prop_map(Op::UnsubscribeKnown),
        3 => (subject(), subscriber()).prop_map(|(subject, s)| Op::Match(subject, s)),
    ]
}

/// Compares what was found with what must be.
fn agree(found: &Matches<u16>, expected: &Expected<u16>) -> Result<(), TestCaseError> {
    let mut plain = found.plain().to_vec();
    plain.sort_unstable();
    prop_assert_eq!(&plain, &expected.plain);
    let names: Vec<&[u8]> = found.groups().map(|(name, _)| name).collect();
    let distinct: BTreeSet<&[u8]> = names.iter().copied().collect();
    prop_assert_eq!(names.len(), distinct.len());
    prop_assert!(
        distinct
            .into_iter()
            .eq(expected.groups.keys().map(Vec::as_slice))
    );
    for (name, member) in found.groups() {
        prop_assert!(expected.groups[name].contains(&member));
    }
    prop_assert_eq!(found.len(), plain.len() + names.len());
    prop_assert_eq!(found.receivers().count(), found.len());
    prop_assert_eq!(found.is_empty(), found.receivers().next().is_none());
    Ok(())
}

fn run<R: Router>(ops: Vec<Op>, seed: u64) -> Result<(), TestCaseError> {
    let mut router = R::default();
    let mut naive = Naive::default();
    let mut known: Vec<(Vec<u8>, Option<Vec<u8>>, u16)> = Vec::new();
    let mut matches = Matches::new();
    let mut rng = Rng::with_seed(seed);
    let accepted =
        |pattern: &[u8]| validate_subscription(pattern).is_ok_and(|k| R::KINDS.contains(&k));
    for op in ops {
        match op {
            Op::Subscribe(pattern, queue, s) if accepted(&pattern) => {
                let is_new = naive.subscribe(&pattern, queue.as_deref(), s);
                prop_assert_eq!(router.subscribe(&pattern, queue.as_deref(), s), is_new);
                if is_new {
                    known.push((pattern, queue, s));
                }
            }
            Op::Unsubscribe(pattern, queue, s) if accepted(&pattern) => {
                let was_there = naive.unsubscribe(&pattern, queue.as_deref(), &s);
                prop_assert_eq!(router.unsubscribe(&pattern, queue.as_deref(), s), was_there);
                known.retain(|entry| *entry != (pattern.clone(), queue.clone(), s));
            }
            Op::UnsubscribeKnown(at) if !known.is_empty() => {
                let (pattern, queue, s) = known.swap_remove(at.index(known.len()));
                prop_assert!(naive.unsubscribe(&pattern, queue.as_deref(), &s));
                prop_assert!(router.unsubscribe(&pattern, queue.as_deref(), s));
                prop_assert!(!router.unsubscribe(&pattern, queue.as_deref(), s));
            }
            Op::Match(subject, refused) => {
                let accept = |s: &u16| *s != refused;
                matches.clear();
                router.find(&subject, &mut matches, &mut rng, &accept);
                agree(&matches, &naive.matches(&subject, accept))?;
            }
            _ => {}
        }
        prop_assert_eq!(router.len(), naive.len());
    }
    router.check();
    for (pattern, queue, s) in known {
        prop_assert!(router.unsubscribe(&pattern, queue.as_deref(), s));
    }
    router.check();
    prop_assert_eq!(router.len(), 0);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn table_agrees(ops in prop::collection::vec(op(), 0..300), seed: u64) {
        run::<Table<u16>>(ops, seed)?;
    }

    #[test]
    fn patterns_agree(ops in prop::collection::vec(op(), 0..300), seed: u64) {
        run::<Patterns<u16>>(ops, seed)?;
    }

    #[test]
    fn shared_router_agrees(ops in prop::collection::vec(op(), 0..300), seed: u64) {
        run::<SharedRouter<u16>>(ops, seed)?;
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(
        subjects in prop::collection::vec(prop::collection::vec(prop::sample::select(b".*> ab\0\xff".to_vec()), 0..12), 0..40),
    ) {
        let router = SharedRouter::new();
        let mut naive = Naive::default();
        let mut matches = Matches::new();
        for (n, subject) in (0..).zip(&subjects) {
            let valid = validate_subscription(subject);
            prop_assert_eq!(router.subscribe(subject, None, n), valid.map(|_| true));
            prop_assert_eq!(is_valid_publish(subject), valid == Ok(Kind::Literal));
            if valid.is_ok() {
                naive.subscribe(subject, None, n);
            }
        }
        for subject in &subjects {
            matches.clear();
            router.match_into(subject, &mut matches, &mut Rng::with_seed(0), |_| true);
            agree(&matches, &naive.matches(subject, |_| true))?;
        }
        for (n, subject) in (0..).zip(&subjects) {
            prop_assert_eq!(router.unsubscribe(subject, None, &n), validate_subscription(subject).is_ok());
        }
        prop_assert!(router.is_empty());
    }
}
