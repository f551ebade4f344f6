//! Messages of both layouts of the header, byte by byte as slurmctld sends and expects them.

use proptest::prelude::*;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn requests_of_both_headers_and_every_plugin() {
    let munge = "00000065 00000004 616263 00 0001";
    for (number, plugin, credential, expected) in [
        (
            36,
            Plugin::Munge,
            "abc",
            format!("00000020 2400 0000 0000 07f3 00000002 0000 0000 0000 {munge}"),
        ),
        (
            38,
            Plugin::Munge,
            "abc",
            format!("0000001e 2600 0000 07f3 00000002 0000 0000 0000 {munge}"),
        ),
        (
            45,
            Plugin::Slurm,
            "x",
            "0000001c 2d00 0000 07f3 00000002 0000 0000 0000 00000067 00000002 78 00 0001".into(),
        ),
    ] {
        assert_eq!(request(number, plugin, credential.as_bytes()), bytes(&expected), "{number}");
    }
    assert_eq!(request_hash(37)[0], 1);
    assert_eq!(request_hash(37)[1..], 2035_u16.to_ne_bytes());
    assert_eq!(
        request_hash(38),
        bytes("02 9070280e94b1fb720bbe40480dbbda5252a886f4b22d178651dc0e9472b0ae2f")
    );
}

/// A reply with full tables has more than one chunk of 8,192 bytes.
#[test]
fn vectors_of_rfc_9861() {
    let pattern: Vec<u8> = (0..0xfb).cycle().take(83_521).collect();
    let expected = bytes("8701045e22205345ff4dda05555cbb5c3af1a771c2b89baef37db43d9998b9fe");
    assert_eq!(kangaroo_twelve(&pattern, &[])[..], expected);
    let expected = bytes("d848c5068ced736f4462159b9867fd4c20b808acc3d5bc48e0b06ba0a3762ec4");
    assert_eq!(kangaroo_twelve(&[0xff], &pattern[..41])[..], expected);
}

#[test]
fn replies_with_and_without_a_credential_and_with_an_origin() {
    for (hex, number, expected) in [
        (
            "2600 0000 07f4 00000003 0000 0000 0000 00000065 00000003 6162 00 010203",
            38,
            Some(&b"ab"[..]),
        ),
        (
            "2400 0000 0009 07f4 00000003 0000 0000 0000 00000065 00000003 6162 00 010203",
            36,
            Some(&b"ab"[..]),
        ),
        ("2d00 0040 07f4 00000003 0000 0000 0002 7f000001 1aa1 010203", 45, None),
        (
            "2d00 0040 07f4 00000003 0000 0000 000a 00000010 00000000000000000000000000000001 1aa1 \
                010203",
            45,
            None,
        ),
    ] {
        let bytes = bytes(hex);
        let message = Message::from_bytes(&bytes).unwrap();
        assert_eq!(message.credential, expected, "{hex}");
        assert_eq!(message.content(number), Ok(Content::Statistics(&[1, 2, 3])), "{hex}");
        assert_eq!(message.content(number - 1), Err(Short), "statistics of another number");
        for end in 0..bytes.len() {
            assert_eq!(Message::from_bytes(&bytes[..end]), Err(Short), "{hex} {end}");
        }
        assert_eq!(Message::from_bytes(&[&bytes[..], &[0]].concat()), Err(Short), "{hex}");
    }
}

#[test]
fn an_error_number_may_come_with_slurmctlds_own_number() {
    let refused = bytes("2a00 0040 1f41 00000004 0000 0000 0000 000003ef");
    assert_eq!(Message::from_bytes(&refused).unwrap().content(38), Ok(Content::Code(1007)));
    let other = bytes("2a00 0040 07d1 00000000 0000 0000 0000");
    assert_eq!(Message::from_bytes(&other).unwrap().content(42), Ok(Content::Other(2001)));
    for hex in [
        // Forwarded, with returned messages, of an unknown family, with another plugin's
        // credential.
        "2a00 0040 1f41 00000004 0001 0000 0000 000003ef",
        "2a00 0040 1f41 00000004 0000 0001 0000 000003ef",
        "2a00 0040 1f41 00000004 0000 0000 0001 000003ef",
        "2a00 0000 1f41 00000004 0000 0000 0000 00000066 00000000 000003ef",
    ] {
        assert_eq!(Message::from_bytes(&bytes(hex)), Err(Short), "{hex}");
    }
}

#[test]
fn a_credential_binds_its_own_message_alone() {
    let packed = |hex: &str| bytes(hex);
    let reply = packed("2600 0000 07f4 00000003 0000 0000 0000 00000065 00000003 6162 00 010203");
    let message = Message::from_bytes(&reply).unwrap();
    let right = [&[2][..], &kangaroo_twelve(&[1, 2, 3], &[0x07, 0xf4])].concat();
    assert!(message.is_bound_by(&right));
    let another_body = [&[2][..], &kangaroo_twelve(&[1, 2, 4], &[0x07, 0xf4])].concat();
    let another_type = [&[2][..], &kangaroo_twelve(&[1, 2, 3], &[0x1f, 0x41])].concat();
    for wrong in [
        &another_body,
        &another_type,
        &vec![],
        &packed("01 07f4"),
        &packed("02"),
        &right[1..].to_vec(),
    ] {
        assert!(!message.is_bound_by(wrong), "{wrong:?}");
    }
    let old =
        packed("2400 0000 0000 07f4 00000003 0000 0000 0000 00000065 00000003 6162 00 010203");
    let message = Message::from_bytes(&old).unwrap();
    for right in ["", "01 07f4", "01 f407"] {
        assert!(message.is_bound_by(&packed(right)), "{right}");
    }
    for wrong in ["01 1f41", "02 07f4", "01", "01 07f4 00"] {
        assert!(!message.is_bound_by(&packed(wrong)), "{wrong}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(message) = Message::from_bytes(&bytes) {
            let _ = message.content(45);
        }
    }
}
