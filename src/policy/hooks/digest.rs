//! The digest of a call's arguments.
//!
//! The text that is hashed is JSON as [RFC 8785](https://www.rfc-editor.org/rfc/rfc8785) writes it. All numbers are
//! 64-bit floats there, so integers beyond 2^53 that differ only in their last digits have the same digest. It is for
//! receivers that compare or log calls. It does not prove that two calls are the same.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The lower-case hexadecimal SHA-256 of `arguments` as RFC 8785 JSON.
pub(crate) fn arguments_sha256(arguments: &Map<String, Value>) -> String {
    // Fails for raw values and numbers that are not finite only, and a parsed object has neither.
    let text = serde_json_canonicalizer::to_vec(arguments)
        .or_else(|_| serde_json::to_vec(arguments))
        .unwrap_or_default();
    protocol::ids::hex(&Sha256::digest(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::ids::hex;

    fn object(json: &str) -> Map<String, Value> {
        serde_json::from_str(json).unwrap()
    }

    fn canonical(json: &str) -> String {
        String::from_utf8(serde_json_canonicalizer::to_vec(&object(json)).unwrap()).unwrap()
    }

    fn sha256(text: &str) -> String {
        hex(&Sha256::digest(text))
    }

    /// Sections 3.2.2 to 3.2.4 of RFC 8785: the sample object, and its bytes.
    #[test]
    fn sample_object_of_the_rfc() {
        let input = r#"{
            "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
            "literals": [null, true, false]
        }"#;
        let bytes = "7b 22 6c 69 74 65 72 61 6c 73 22 3a 5b 6e 75 6c 6c 2c 74 72 75 65 2c 66 61 6c 73 65 5d 2c 22 6e \
                     75 6d 62 65 72 73 22 3a 5b 33 33 33 33 33 33 33 33 33 2e 33 33 33 33 33 33 33 2c 31 65 2b 33 30 \
                     2c 34 2e 35 2c 30 2e 30 30 32 2c 31 65 2d 32 37 5d 2c 22 73 74 72 69 6e 67 22 3a 22 e2 82 ac 24 \
                     5c 75 30 30 30 66 5c 6e 41 27 42 5c 22 5c 5c 5c 5c 5c 22 2f 22 7d";
        let bytes: Vec<u8> = bytes
            .split_whitespace()
            .map(|byte| u8::from_str_radix(byte, 16).unwrap())
            .collect();
        assert_eq!(canonical(input).as_bytes(), bytes);
        assert_eq!(
            arguments_sha256(&object(input)),
            hex(&Sha256::digest(bytes))
        );
    }

    /// Section 3.2.3 of RFC 8785: keys sort by UTF-16 code units, so the emoji (D83D) is before U+FB33.
    #[test]
    fn sorting_of_the_rfc() {
        let input = r#"{
            "\u20ac": "Euro Sign",
            "\r": "Carriage Return",
            "\ufb33": "Hebrew Letter Dalet With Dagesh",
            "1": "One",
            "\ud83d\ude00": "Emoji: Grinning Face",
            "\u0080": "Control",
            "\u00f6": "Latin Small Letter O With Diaeresis"
        }"#;
        let expected = "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\
                        \"\u{f6}\":\"Latin Small Letter O With Diaeresis\",\"\u{20ac}\":\"Euro Sign\",\
                        \"\u{1f600}\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}";
        assert_eq!(canonical(input), expected);
        assert_eq!(arguments_sha256(&object(input)), sha256(expected));
    }

    /// Appendix B of RFC 8785.
    #[test]
    fn numbers_of_the_rfc() {
        for (bits, expected) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0x41b3_de43_5555_5556, "333333333.3333334"),
            (0x41b3_de43_5555_5557, "333333333.33333343"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            let number: f64 = f64::from_bits(bits);
            let arguments = Map::from_iter([("n".to_owned(), Value::from(number))]);
            let expected = format!(r#"{{"n":{expected}}}"#);
            assert_eq!(
                canonical(&serde_json::to_string(&arguments).unwrap()),
                expected
            );
            assert_eq!(arguments_sha256(&arguments), sha256(&expected));
        }
    }

    #[test]
    fn the_way_of_writing_means_nothing() {
        let digest = arguments_sha256(&object(r#"{"a":1,"b":{"c":[1,100],"d":"\u00e9"}}"#));
        let same = r#"{ "b" : { "d" : "é", "c" : [1.0, 1e2] }, "a" : 1.00 }"#;
        assert_eq!(arguments_sha256(&object(same)), digest);
        assert_ne!(arguments_sha256(&object(r#"{"a":"1"}"#)), digest);
        assert_eq!(
            arguments_sha256(&Map::new()),
            "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        );
    }

    /// As RFC 8785 has it; see the documentation of the module.
    #[test]
    fn integers_beyond_a_float_are_rounded() {
        assert_eq!(
            arguments_sha256(&object(r#"{"n":9007199254740993}"#)),
            sha256(r#"{"n":9007199254740992}"#)
        );
    }

    #[test]
    fn arguments_as_deep_as_json_is_read_have_a_digest() {
        let deep = format!(r#"{{"a":{}{}}}"#, "[".repeat(126), "]".repeat(126));
        assert_eq!(arguments_sha256(&object(&deep)), sha256(&deep));
    }
}
