//! The bytes that Carbon reads: length-prefixed pickles, or lines of text.
//!
//! Values always go out as floats: go-carbon reads pickle's small integers as unsigned. The pickle is protocol 2,
//! which Python 2 and 3, go-carbon, carbon-clickhouse and carbon-relay-ng all read.

use std::fmt::Write as _;

use serde_pickle::SerOptions;

use crate::point::{Batch, Point};

/// Most points in a frame.
pub const MAX_FRAME_POINTS: usize = 500;
/// Most bytes in a frame; Carbon closes the connection in silence over 1 MiB.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// How a destination is spoken to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Carbon's pickle receiver, port 2004.
    #[default]
    Pickle,
    /// `path value timestamp` lines, port 2003; what carbon-c-relay, `VictoriaMetrics` and others take.
    Plaintext,
}

/// A frame that could not be made.
#[derive(Debug, thiserror::Error)]
#[error("encoding a frame of {points} points: {source}")]
pub struct WireError {
    points: usize,
    source: serde_pickle::Error,
}

/// Pickle's bytes for one point besides its path, and for the list around them with the length before it.
const POINT_OVERHEAD: usize = 23;
const LIST_OVERHEAD: usize = 10;

/// `batch` as whole frames, each within [`MAX_FRAME_POINTS`] and [`MAX_FRAME_BYTES`].
///
/// # Errors
/// The pickle encoder failed, which a [`Batch`] gives no reason for.
pub fn frames(batch: &Batch, protocol: Protocol) -> Result<Vec<Vec<u8>>, WireError> {
    split(batch.points())
        .map(|points| match protocol {
            Protocol::Pickle => pickle(points, batch.timestamp()),
            Protocol::Plaintext => Ok(plaintext(points, batch.timestamp())),
        })
        .collect()
}

fn split(points: &[Point]) -> impl Iterator<Item = &[Point]> {
    let mut rest = points;
    std::iter::from_fn(move || {
        let mut bytes = LIST_OVERHEAD;
        let fits = rest
            .iter()
            .take(MAX_FRAME_POINTS)
            .take_while(|point| {
                bytes += point.path().len() + POINT_OVERHEAD;
                bytes <= MAX_FRAME_BYTES
            })
            .count();
        let (frame, tail) = rest.split_at_checked(fits)?;
        rest = tail;
        (!frame.is_empty()).then_some(frame)
    })
}

fn pickle(points: &[Point], timestamp: i64) -> Result<Vec<u8>, WireError> {
    let list: Vec<(&str, (i64, f64))> =
        points.iter().map(|point| (point.path(), (timestamp, point.value()))).collect();
    let body = serde_pickle::to_vec(&list, SerOptions::new().proto_v2())
        .map_err(|source| WireError { points: points.len(), source })?;
    // A frame is at most 256 KiB, far below what the length can say.
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    Ok([&length.to_be_bytes()[..], &body].concat())
}

fn plaintext(points: &[Point], timestamp: i64) -> Vec<u8> {
    let mut lines = String::new();
    for point in points {
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "{} {} {timestamp}", point.path(), point.value());
    }
    lines.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn batch(points: &[(&str, f64)]) -> Batch {
        let mut batch = Batch::new(1_700_000_000);
        for &(path, value) in points {
            batch.push(path.into(), value);
        }
        batch
    }

    #[test]
    fn one_point_is_byte_for_byte_what_carbon_expects() {
        let frames = frames(&batch(&[("a.b", -1.0)]), Protocol::Pickle).unwrap();
        let golden = [
            &[0, 0, 0, 32][..],                                                    // length, big-endian
            b"\x80\x02]((X\x03\0\0\0a.b(J\0\xf1\x53\x65G\xbf\xf0\0\0\0\0\0\0tte.", // protocol 2, a list
        ];
        assert_eq!(frames, [golden.concat()]);
    }

    #[test]
    fn plaintext_is_one_line_a_point() {
        let frames = frames(&batch(&[("a", 0.1), ("b", 1e21)]), Protocol::Plaintext).unwrap();
        assert_eq!(frames, [b"a 0.1 1700000000\nb 1000000000000000000000 1700000000\n"]);
    }

    #[test]
    fn an_empty_batch_is_no_frame() {
        assert!(frames(&batch(&[]), Protocol::Pickle).unwrap().is_empty());
    }

    #[test]
    fn frames_keep_both_limits_and_every_point() {
        let long = format!("{}.{}", ["a".repeat(200).as_str(); 5].join("."), "b".repeat(19));
        assert_eq!(long.len(), crate::path::MAX_PATH);
        let batch = batch(&[(long.as_str(), 1.0); 1201]);
        let frames = frames(&batch, Protocol::Pickle).unwrap();
        assert!(frames.iter().all(|frame| frame.len() <= MAX_FRAME_BYTES));
        let paths: usize = frames.iter().map(|f| f.windows(19).filter(|w| *w == [b'b'; 19]).count()).sum();
        assert_eq!(paths, 1201);
    }

    proptest! {
        #[test]
        fn frames_hold_all_points_in_order(values in proptest::collection::vec(-1e18..1e18, 0..1600)) {
            let mut batch = Batch::new(60);
            for value in &values {
                batch.push("cluster.x".into(), *value);
            }
            let mut read = Vec::new();
            for frame in frames(&batch, Protocol::Pickle).unwrap() {
                let (length, body) = frame.split_at(4);
                prop_assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize, body.len());
                let list: Vec<(String, (i64, f64))> =
                    serde_pickle::from_slice(body, serde_pickle::DeOptions::new()).unwrap();
                prop_assert!(list.len() <= MAX_FRAME_POINTS);
                read.extend(list);
            }
            prop_assert_eq!(read, values.into_iter().map(|v| ("cluster.x".to_owned(), (60, v))).collect::<Vec<_>>());
        }
    }
}
