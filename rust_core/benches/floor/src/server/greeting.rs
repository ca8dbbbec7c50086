//! Each client's greeting, then the pattern.

use crate::driver::output::Output;
use crate::driver::{Pattern, Role};
use crate::greeting::{EXCHANGES, Progress};

pub(super) struct Greeting<P> {
    progress: Progress,
    then: P,
}

impl<P: Pattern> Greeting<P> {
    pub(super) fn before(then: P) -> Self {
        Self {
            progress: Progress::new(Role::Server),
            then,
        }
    }
}

impl<P: Pattern> Pattern for Greeting<P> {
    fn start(&mut self, out: &mut Output) {
        self.then.start(out);
    }

    fn on_client(&mut self, client: u32, bytes: &[u8], out: &mut Output) {
        let rest = self.progress.receive(client, bytes, |index| {
            out.send_client(client, EXCHANGES[index].answer);
        });
        if !rest.is_empty() {
            self.then.on_client(client, rest, out);
        }
    }

    fn on_trunk(&mut self, trunk: usize, bytes: &[u8], out: &mut Output) {
        self.then.on_trunk(trunk, bytes, out);
    }

    fn on_mail(&mut self, mail: &[u8], out: &mut Output) {
        self.then.on_mail(mail, out);
    }

    fn on_closed(&mut self, client: u32) {
        self.progress.forget(client);
        self.then.on_closed(client);
    }

    fn drain(&mut self) {
        self.then.drain();
    }

    fn end_turn(&mut self, out: &mut Output) {
        self.then.end_turn(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::output::Turn;

    /// Notes what reaches it.
    #[derive(Default)]
    struct Then(Vec<Vec<u8>>);

    impl Pattern for Then {
        fn on_client(&mut self, _: u32, bytes: &[u8], _: &mut Output) {
            self.0.push(bytes.to_vec());
        }
        fn on_trunk(&mut self, _: usize, _: &[u8], _: &mut Output) {}
    }

    #[test]
    fn answers_then_passes_on() {
        let (mut greeting, mut out) = (Greeting::before(Then::default()), Output::new(1));
        let [first, second] = EXCHANGES;
        let mut sent = |greeting: &mut Greeting<Then>, bytes: &[u8]| {
            greeting.on_client(2, bytes, &mut out);
            let turn = out.take_turn(Turn::default());
            let sends = turn.sends.iter();
            sends
                .map(|send| turn.bytes(send).to_vec())
                .collect::<Vec<_>>()
        };
        assert!(sent(&mut greeting, &first.request[1..]).is_empty());
        assert_eq!(sent(&mut greeting, &first.request[..1]), [first.answer]);
        let more = [second.request, b"more"].concat();
        assert_eq!(sent(&mut greeting, &more), [second.answer]);
        assert!(sent(&mut greeting, b"and more").is_empty());
        assert_eq!(greeting.then.0, [&b"more"[..], b"and more"]);

        greeting.on_closed(2);
        assert_eq!(sent(&mut greeting, first.request), [first.answer]);
    }
}
