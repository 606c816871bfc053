//! The digest of a table, by which the two sides of a copy are compared.

use sha2::{Digest, Sha256};

use super::tables::CopiedValue;

/// What is compared of a table at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableDigest {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// The digest of a table while its rows are read in the order of the key.
#[derive(Debug, Default)]
pub(super) struct RunningDigest {
    rows: u64,
    bytes: u64,
    state: Sha256,
}

impl RunningDigest {
    pub(super) fn add(&mut self, row: &[CopiedValue]) {
        self.rows += 1;
        for value in row {
            match value {
                CopiedValue::Integer(None) | CopiedValue::Text(None) => self.state.update([0]),
                CopiedValue::Integer(Some(number)) => self.number(*number),
                CopiedValue::Boolean(value) => self.number((*value).into()),
                CopiedValue::Text(Some(text)) => self.bytes(text.as_bytes()),
                CopiedValue::Bytes(bytes) => self.bytes(bytes),
            }
        }
    }

    fn number(&mut self, number: i64) {
        self.state.update([1]);
        self.state.update(number.to_be_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        let length = bytes.len() as u64;
        self.bytes += length;
        self.state.update([2]);
        self.state.update(length.to_be_bytes());
        self.state.update(bytes);
    }

    pub(super) fn finish(self) -> TableDigest {
        TableDigest {
            rows: self.rows,
            bytes: self.bytes,
            sha256: self.state.finalize().into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tables::CopiedRow;
    use super::*;

    #[test]
    fn a_digest_tells_rows_apart_that_hold_the_same_bytes() {
        let text = |text: &str| CopiedValue::Text(Some(text.to_owned()));
        let digest = |rows: &[&[&str]]| {
            let mut running = RunningDigest::default();
            for row in rows {
                let values = row.iter().map(|value| text(value));
                running.add(&values.collect::<CopiedRow>());
            }
            running.finish()
        };
        let whole = digest(&[&["ab", "c"]]);
        assert_eq!(whole, digest(&[&["ab", "c"]]));
        assert_eq!((whole.rows, whole.bytes), (1, 3));
        let others: [&[&[&str]]; 3] = [&[&["a", "bc"]], &[&["ab"], &["c"]], &[&["c", "ab"]]];
        for other in others {
            assert_ne!(whole, digest(other), "{other:?}");
        }
        let mut absent = RunningDigest::default();
        absent.add(&[CopiedValue::Text(None)]);
        assert_ne!(absent.finish(), digest(&[&[""]]));
    }
}
