//! NATS's public keys of users (nkeys), and signatures of the server's nonce.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use data_encoding::BASE32_NOPAD;
use ring::signature::{ED25519, UnparsedPublicKey};
use std::error::Error;
use std::fmt;

/// The first byte of a public key by its role, which is the first letter of its text.
const ROLES: [(Role, u8); 3] = [
    (Role::Operator, 14 << 3),
    (Role::Account, 0),
    (Role::User, 20 << 3),
];
/// Bytes of a decoded key: role, Ed25519 key, CRC-16.
const LEN: usize = 1 + 32 + 2;

/// The owner of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `O...`: an operator, who signs accounts.
    Operator,
    /// `A...`: an account, which signs users.
    Account,
    /// `U...`: a user.
    User,
}

/// A public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey {
    role: Role,
    key: [u8; 32],
}

/// A text that is not a public key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidKey(&'static str);

impl fmt::Display for InvalidKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for InvalidKey {}

impl PublicKey {
    /// Read a key in its text form: 56 letters and digits of base 32.
    ///
    /// # Errors
    /// The text is not such a key, its checksum is wrong, or it is of another role, such as a seed.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let bytes = BASE32_NOPAD.decode(text.as_bytes());
        let bytes = bytes.map_err(|_| InvalidKey("not a public nkey (base 32)"))?;
        let bytes: [u8; LEN] = bytes
            .try_into()
            .map_err(|_| InvalidKey("not a public nkey (56 characters)"))?;
        let (content, sum) = bytes.split_at(LEN - 2);
        if crc16(content) != u16::from_le_bytes([sum[0], sum[1]]) {
            return Err(InvalidKey(
                "the nkey's checksum is wrong: a character differs",
            ));
        }
        let role = ROLES.iter().find(|(_, first)| *first == content[0]);
        let (role, _) = role.ok_or(InvalidKey(
            "not the public nkey of an operator, an account or a user",
        ))?;
        let mut key = [0; 32];
        key.copy_from_slice(&content[1..]);
        Ok(Self { role: *role, key })
    }

    /// Return the key of a user from its 32 bytes; `None` if there are more or fewer.
    #[must_use]
    pub fn user(key: &[u8]) -> Option<Self> {
        Some(Self {
            role: Role::User,
            key: key.try_into().ok()?,
        })
    }

    /// Return the key's owner.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Return whether `signature` is the owner's of `message`.
    ///
    /// The signature is base 64, in the URL's alphabet without padding, or in the standard one.
    #[must_use]
    pub fn verify_text(&self, message: &[u8], signature: &str) -> bool {
        let decoded = URL_SAFE_NO_PAD
            .decode(signature)
            .or_else(|_| STANDARD.decode(signature));
        decoded.is_ok_and(|signature| self.verify(message, &signature))
    }

    /// Return whether `signature` is the owner's of `message`.
    #[must_use]
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.key)
            .verify(message, signature)
            .is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = ROLES
            .iter()
            .find(|(role, _)| *role == self.role)
            .map_or(0, |(_, first)| *first);
        let mut bytes = [0; LEN];
        bytes[0] = first;
        bytes[1..LEN - 2].copy_from_slice(&self.key);
        let sum = crc16(&bytes[..LEN - 2]);
        bytes[LEN - 2..].copy_from_slice(&sum.to_le_bytes());
        f.write_str(&BASE32_NOPAD.encode(&bytes))
    }
}

/// Return the CRC-16/XMODEM of `bytes`.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| {
            crc << 1 ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{Ed25519KeyPair, KeyPair};

    fn pair() -> (Ed25519KeyPair, PublicKey) {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("seed");
        let key = PublicKey::user(pair.public_key().as_ref()).expect("32 bytes");
        (pair, key)
    }

    #[test]
    fn the_checksum_is_xmodem() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    #[test]
    fn keys_have_a_text_form() {
        let (_, key) = pair();
        for role in [Role::Operator, Role::Account, Role::User] {
            let key = PublicKey { role, ..key };
            let text = key.to_string();
            assert_eq!(text.len(), 56);
            assert_eq!(text.chars().next(), format!("{role:?}").chars().next());
            assert_eq!(PublicKey::parse(&text), Ok(key));
        }
        // From the tests of nkeys' Go library.
        let known = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4";
        assert_eq!(
            PublicKey::parse(known).map(|key| key.to_string()),
            Ok(known.to_owned())
        );
    }

    #[test]
    fn other_texts_are_refused() {
        let (_, key) = pair();
        let text = key.to_string();
        for at in 0..text.len() {
            let mut broken = text.clone().into_bytes();
            broken[at] = if broken[at] == b'A' { b'B' } else { b'A' };
            let broken = String::from_utf8(broken).expect("ASCII");
            assert!(PublicKey::parse(&broken).is_err(), "{broken}");
        }
        for text in [
            "",
            "U",
            &text[..55],
            &format!("{text}A"),
            &text.to_lowercase(),
            "ä",
        ] {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn signatures_are_verified() {
        let (pair, key) = pair();
        let signature = pair.sign(b"nonce");
        for text in [
            URL_SAFE_NO_PAD.encode(signature.as_ref()),
            STANDARD.encode(signature.as_ref()),
        ] {
            assert!(key.verify_text(b"nonce", &text));
            assert!(!key.verify_text(b"other", &text));
        }
        let mut broken = signature.as_ref().to_vec();
        broken[10] ^= 1;
        assert!(!key.verify(b"nonce", &broken));
        for text in ["", "!", "AAAA"] {
            assert!(!key.verify_text(b"nonce", text));
        }
    }
}
