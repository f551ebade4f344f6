//! KangarooTwelve (KT128 of RFC 9861) with 32 bytes of output: Slurm's hash of a message, which its credential contains.
//!
//! Only the permutation is a crate's: one for all of it brings seven more.

/// Bytes of a block of the sponge.
const RATE: usize = 168;

/// Bytes of a chunk of the tree.
const CHUNK: usize = 8192;

fn permute(lanes: &mut [u64; 25]) {
    keccak::Keccak::new().with_p1600::<12>(|permutation| permutation(lanes));
}

/// TurboSHAKE128 with 32 bytes of output.
fn turbo_shake(parts: &[&[u8]], domain: u8) -> [u8; 32] {
    let (mut lanes, mut position) = ([0_u64; 25], 0_usize);
    let absorb = |lanes: &mut [u64; 25], position: usize, byte: u8| {
        if let Some(lane) = lanes.get_mut(position / 8) {
            *lane ^= u64::from(byte) << (8 * (position % 8));
        }
    };
    for byte in parts.iter().copied().flatten() {
        absorb(&mut lanes, position, *byte);
        position += 1;
        if position == RATE {
            permute(&mut lanes);
            position = 0;
        }
    }
    absorb(&mut lanes, position, domain);
    absorb(&mut lanes, RATE - 1, 0x80);
    permute(&mut lanes);
    let mut output = [0; 32];
    for (bytes, lane) in output.chunks_exact_mut(8).zip(lanes) {
        bytes.copy_from_slice(&lane.to_le_bytes());
    }
    output
}

/// `length_encode`: the bytes of a number without leading zeros, and how many they are.
fn length(number: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = number.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    bytes.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    bytes
}

/// The hash of `message` with this customization string.
pub(crate) fn kangaroo_twelve(message: &[u8], customization: &[u8]) -> [u8; 32] {
    let end = length(customization.len());
    let Some((first, rest)) = message.split_at_checked(CHUNK) else {
        let size = message.len().saturating_add(customization.len()).saturating_add(end.len());
        if size <= CHUNK {
            return turbo_shake(&[message, customization, &end], 0x07);
        }
        return tree(&[message, customization, &end].concat());
    };
    tree(&[first, rest, customization, &end].concat())
}

/// The same of a string of more than one chunk, or of exactly one.
fn tree(string: &[u8]) -> [u8; 32] {
    let Some((first, rest)) = string.split_at_checked(CHUNK).filter(|(_, rest)| !rest.is_empty()) else {
        return turbo_shake(&[string], 0x07);
    };
    let mut node = [first, &[3, 0, 0, 0, 0, 0, 0, 0]].concat();
    let mut leaves = 0;
    for leaf in rest.chunks(CHUNK) {
        node.extend_from_slice(&turbo_shake(&[leaf], 0x0b));
        leaves += 1;
    }
    node.extend_from_slice(&length(leaves));
    node.extend_from_slice(&[0xff, 0xff]);
    turbo_shake(&[&node], 0x06)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The pattern of RFC 9861's vectors.
    fn pattern(length: usize) -> Vec<u8> {
        (0..0xfb).cycle().take(length).collect()
    }

    #[test]
    fn the_vectors_of_rfc_9861() {
        for (message, customization, expected) in [
            (vec![], vec![], "1ac2d450fc3b4205d19da7bfca1b37513c0803577ac7167f06fe2ce1f0ef39e5"),
            (pattern(17), vec![], "6bf75fa2239198db4772e36478f8e19b0f371205f6a9a93a273f51df37122888"),
            (pattern(289), vec![], "0c315ebcdedbf61426de7dcf8fb725d1e74675d7f5327a5067f367b108ecb67c"),
            (pattern(4913), vec![], "cb552e2ec77d9910701d578b457ddf772c12e322e4ee7fe417f92c758f0d59d0"),
            (pattern(83_521), vec![], "8701045e22205345ff4dda05555cbb5c3af1a771c2b89baef37db43d9998b9fe"),
            (vec![], pattern(1), "fab658db63e94a246188bf7af69a133045f46ee984c56e3c3328caaf1aa1a583"),
            (vec![0xff], pattern(41), "d848c5068ced736f4462159b9867fd4c20b808acc3d5bc48e0b06ba0a3762ec4"),
        ] {
            let found = hex(&kangaroo_twelve(&message, &customization));
            assert_eq!(found, expected, "{} {}", message.len(), customization.len());
        }
    }

    #[test]
    fn the_request_for_statistics_has_one_hash_for_ever() {
        let hash = kangaroo_twelve(&[0, 1], &2035_u16.to_be_bytes());
        assert_eq!(hex(&hash), "9070280e94b1fb720bbe40480dbbda5252a886f4b22d178651dc0e9472b0ae2f");
    }

    #[test]
    fn a_string_of_about_one_chunk_is_hashed_with_what_follows_it() {
        let hashes: std::collections::BTreeSet<_> =
            (8185..8200).map(|length| kangaroo_twelve(&pattern(length), &[7, 244])).collect();
        assert_eq!(hashes.len(), 15);
    }
}
