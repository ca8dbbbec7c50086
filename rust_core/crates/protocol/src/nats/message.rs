use std::fmt;

/// Message that is published or delivered; its parts borrow from where it stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The subject that it is published to.
    pub subject: &'a [u8],
    /// Subject for the reply, if one is expected.
    pub reply: Option<&'a [u8]>,
    /// The header block, from `NATS/1.0` to the empty line that ends it.
    pub headers: Option<&'a [u8]>,
    /// The content, of any bytes.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// Return the number of bytes of headers and payload.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.headers.map_or(0, <[u8]>::len) + self.payload.len()
    }

    /// Return whether the message is a status of the server, such as 503 for no responders.
    #[inline]
    #[must_use]
    pub fn is_status(&self) -> bool {
        self.headers.is_some() && self.payload.is_empty()
    }
}

impl fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("subject", &Text(self.subject))
            .field("reply", &self.reply.map(Text))
            .field("headers", &self.headers.map(Text))
            .field("payload", &Text(self.payload))
            .finish()
    }
}

/// Shows bytes as text with escapes.
pub(super) struct Text<'a>(pub(super) &'a [u8]);

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
