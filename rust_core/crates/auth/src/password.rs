//! Passwords and tokens of the configuration, plain or as hashes.

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash};
use ring::digest;
use std::error::Error;
use std::fmt;
use subtle::ConstantTimeEq;

/// A secret of the configuration that clients present.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Kind);

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    /// The SHA-256 of a plain secret: digests have one length, so that a comparison tells none.
    Plain([u8; digest::SHA256_OUTPUT_LEN]),
    /// A PHC string of Argon2.
    Argon2(Box<str>),
    /// A string in the Modular Crypt Format, as nats-server's configuration has it.
    Bcrypt(Box<str>),
}

/// A hash of a password that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidHash(String);

impl fmt::Display for InvalidHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for InvalidHash {}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

impl Password {
    /// Read a hash, of Argon2 or bcrypt, or take the text itself as the secret.
    ///
    /// # Errors
    /// The text begins as a hash does, and is not one.
    pub fn new(text: &str) -> Result<Self, InvalidHash> {
        if text.starts_with("$argon2") {
            let hash = PasswordHash::new(text)
                .map_err(|error| InvalidHash(format!("Argon2 hash: {error}")))?;
            if hash.hash.is_none() || hash.salt.is_none() {
                return Err(InvalidHash("Argon2 hash: salt or hash is missing".into()));
            }
            return Ok(Self(Kind::Argon2(text.into())));
        }
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|prefix| text.starts_with(prefix))
        {
            let parts: Result<bcrypt::HashParts, _> = text.parse();
            return match parts {
                Ok(_) => Ok(Self(Kind::Bcrypt(text.into()))),
                Err(error) => Err(InvalidHash(format!("bcrypt hash: {error}"))),
            };
        }
        Ok(Self(Kind::Plain(sha256(text.as_bytes()))))
    }

    /// Hash a password by Argon2id with the parameters of RFC 9106's second recommendation as this crate
    /// has them (19 MiB, 2 passes), and a random salt.
    ///
    /// # Errors
    /// The system has no random numbers, or no memory.
    pub fn hash(password: &str) -> Result<String, InvalidHash> {
        let hashed = Argon2::default().hash_password(password.as_bytes());
        hashed
            .map(|hash| hash.to_string())
            .map_err(|error| InvalidHash(error.to_string()))
    }

    /// Return whether [`verify`](Self::verify) takes milliseconds, on purpose.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        !matches!(self.0, Kind::Plain(_))
    }

    /// Return a measure of the time that [`verify`](Self::verify) takes, to compare hashes of one kind.
    #[must_use]
    pub(crate) fn cost(&self) -> u64 {
        match &self.0 {
            Kind::Plain(_) => 0,
            Kind::Argon2(text) => {
                let hash = PasswordHash::new(text).ok();
                let number = |name| {
                    hash.as_ref()
                        .and_then(|hash| hash.params.get_decimal(name))
                        .unwrap_or(1)
                };
                u64::from(number("m")) * u64::from(number("t"))
            }
            Kind::Bcrypt(text) => {
                let cost = text.get(4..6).and_then(|cost| cost.parse::<u32>().ok());
                cost.map_or(0, |cost| 1 << cost.min(31))
            }
        }
    }

    /// Return whether `given` is the secret, in a time that does not depend on how they differ.
    #[must_use]
    pub fn verify(&self, given: &[u8]) -> bool {
        match &self.0 {
            Kind::Plain(digest) => digest.ct_eq(&sha256(given)).into(),
            Kind::Argon2(text) => PasswordHash::new(text)
                .is_ok_and(|hash| Argon2::default().verify_password(given, &hash).is_ok()),
            Kind::Bcrypt(text) => bcrypt::verify(given, text).unwrap_or(false),
        }
    }
}

fn sha256(text: &[u8]) -> [u8; digest::SHA256_OUTPUT_LEN] {
    let mut bytes = [0; digest::SHA256_OUTPUT_LEN];
    bytes.copy_from_slice(digest::digest(&digest::SHA256, text).as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_secrets_are_themselves() {
        for text in ["", "s3cret", "$", "$2", "$argon", "ä"] {
            let password = Password::new(text).expect("plain");
            assert!(!password.is_slow());
            assert!(password.verify(text.as_bytes()));
            assert!(!password.verify(format!("{text}x").as_bytes()));
            assert!(!format!("{password:?}").contains("s3cret"));
        }
    }

    #[test]
    fn hashes_are_verified() {
        let hash = Password::hash("s3cret").expect("hash");
        assert!(hash.starts_with("$argon2id$v=19$"));
        assert_ne!(
            hash,
            Password::hash("s3cret").expect("hash"),
            "each has a salt of its own"
        );
        // Made by libxcrypt.
        let bcrypt = "$2b$06$DCq7YPn5Rq63x1Lad4cll.1Wh33I6D7MXnWW9RzcJ..gK4OchvyTG";
        for hash in [&*hash, bcrypt] {
            let password = Password::new(hash).expect(hash);
            assert!(password.is_slow());
            assert!(password.verify(b"s3cret"), "{hash}");
            assert!(!password.verify(b"other"));
            assert!(
                !password.verify(hash.as_bytes()),
                "the hash is not the password"
            );
        }
    }

    #[test]
    fn broken_hashes_are_errors_and_not_passwords() {
        for text in [
            "$argon2id$",
            "$argon2id$v=19$m=8,t=1,p=1",
            "$2a$",
            "$2b$12$short",
            "$2y$xx$DCq7YPn5",
        ] {
            assert!(Password::new(text).is_err(), "{text}");
        }
    }
}
