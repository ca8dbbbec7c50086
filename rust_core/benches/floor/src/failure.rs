//! Errors that end a run: what was attempted, and what the kernel said.

use std::fmt;
use std::io;

/// What could not be done, and why.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Adds what was attempted to an error of the kernel.
pub(crate) trait Context<T> {
    /// `what` completes the sentence "cannot ...".
    fn context(self, what: impl fmt::Display) -> Result<T, Failure>;
}

impl<T, E: Into<io::Error>> Context<T> for Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T, Failure> {
        self.map_err(|error| Failure(format!("cannot {what}: {}", error.into())))
    }
}
