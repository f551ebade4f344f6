//! The bytes that Carbon reads: length-prefixed pickles, or lines of text.
//!
//! Values are always sent as floats, because go-carbon reads pickle's small integers as unsigned.
//! The pickle is protocol 2, which Python 2 and 3, go-carbon, carbon-clickhouse and carbon-relay-ng
//! can read. A frame is made once, as a pickle, whatever its destinations read. It has the same
//! form on disk.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::{Serialize, Serializer};
use serde_pickle::{DeOptions, SerOptions};

use crate::point::{Batch, Point};

/// The most points in a frame.
pub const MAX_FRAME_POINTS: usize = 500;
/// The most bytes in a frame; timestamps from 2038 on add at most 1 %. Carbon silently closes the
/// connection over a frame of more than 1 MiB.
pub const MAX_FRAME_BYTES: usize = 256 * 1024;

/// The most bytes of lines that are written at once: as many as a TLS record holds, and far fewer
/// than our kernel has room for when it asks for more.
const MAX_LINES: usize = 16 * 1024;

/// The format that a destination reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Carbon's pickle receiver, port 2004.
    #[default]
    Pickle,
    /// `path value timestamp` lines, port 2003, as carbon-c-relay, `VictoriaMetrics` and others
    /// read them.
    Plaintext,
}

impl Protocol {
    /// A warning for a `port` that usually reads the other protocol: not every receiver closes the
    /// connection over the wrong one.
    #[must_use]
    pub fn unusual_port(self, port: u16) -> Option<&'static str> {
        match (self, port) {
            (Self::Pickle, 2003) => {
                Some("port 2003 usually reads plaintext, and `protocol` is pickle")
            }
            (Self::Plaintext, 2004) => {
                Some("port 2004 usually reads pickle, and `protocol` is plaintext")
            }
            (Self::Pickle | Self::Plaintext, _) => None,
        }
    }

    /// The beginning of `bytes` that is written at once: all of a pickle, or whole lines. After a
    /// pickle that was cut short, its length tells the receiver so; lines have no length, so they
    /// are written whole.
    #[must_use]
    pub fn piece(self, bytes: &[u8]) -> &[u8] {
        let most = match self {
            Self::Pickle => None,
            Self::Plaintext => bytes.get(..MAX_LINES),
        };
        let last = most.and_then(|most| most.iter().rposition(|byte| *byte == b'\n'));
        last.and_then(|last| bytes.get(..=last)).unwrap_or(bytes)
    }
}

/// The names that a destination gives to points.
#[derive(Clone, Copy, Debug, Default)]
pub enum MetricNames {
    /// Calls points by their paths.
    #[default]
    Paths,
    /// Calls points by names with tags, `name;tag=value`, which this function makes from paths.
    Tagged(fn(&str) -> String),
}

impl PartialEq for MetricNames {
    fn eq(&self, other: &Self) -> bool {
        // A program has only one function for this.
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Eq for MetricNames {}

/// A frame that could not be made, or not be read back.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct WireError(#[from] serde_pickle::Error);

/// Some points of a batch, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The number of points.
    pub points: u32,
    /// The pickle, behind its length as four big-endian bytes.
    pub body: Vec<u8>,
}

/// The number of a pickle's bytes for one point, in addition to its path. A timestamp from 2038 on
/// takes five more.
const POINT_OVERHEAD: usize = 23;
/// The number of a pickle's bytes for the list around the points, and for the length in front.
const LIST_OVERHEAD: usize = 10;

/// Encodes `batch` as frames, each within [`MAX_FRAME_POINTS`] and [`MAX_FRAME_BYTES`].
///
/// # Errors
/// The pickle encoder failed, which no [`Batch`] should cause.
pub fn frames(batch: &Batch) -> Result<Vec<Frame>, WireError> {
    let mut points = batch.points();
    let frame = || {
        let count = fitting(points.clone());
        let items = points.clone().map(|point| (point.path(), (batch.timestamp(), point.value())));
        points.nth(count.checked_sub(1)?)?;
        Some(Frame::pickle(items.take(count)))
    };
    std::iter::from_fn(frame).collect()
}

/// The number of points in all frames together.
#[must_use]
pub fn points(frames: &[Frame]) -> u64 {
    frames.iter().map(|frame| u64::from(frame.points)).sum()
}

/// `batch` as lines of text.
#[must_use]
pub fn lines(batch: &Batch) -> String {
    batch.points().fold(String::new(), |mut lines, point| {
        push_line(&mut lines, point.path(), point.value(), batch.timestamp());
        lines
    })
}

type Item<P> = (P, (i64, f64));

/// Points that are serialized as they come: a list of them would be as much memory again.
struct Items<I>(I);

impl<'a, I: Iterator<Item = Item<&'a str>> + Clone> Serialize for Items<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.clone())
    }
}

impl Frame {
    fn pickle<'a>(
        items: impl ExactSizeIterator<Item = Item<&'a str>> + Clone,
    ) -> Result<Self, WireError> {
        let points = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let size: usize = items.clone().map(|(path, _)| path.len() + POINT_OVERHEAD).sum();
        let mut body = Vec::with_capacity(size + LIST_OVERHEAD);
        body.extend([0; 4]);
        serde_pickle::to_writer(&mut body, &Items(items), SerOptions::new().proto_v2())?;
        // A frame is at most 256 KiB and 500 points, far below the limits of these types.
        let length = u32::try_from(body.len() - 4).unwrap_or(u32::MAX);
        if let Some(field) = body.first_chunk_mut() {
            *field = length.to_be_bytes();
        }
        Ok(Self { points, body })
    }

    fn items(&self) -> Result<Vec<Item<String>>, WireError> {
        Ok(serde_pickle::from_slice(self.body.get(4..).unwrap_or_default(), DeOptions::new())?)
    }

    /// The bytes for a destination that reads `protocol` and uses `names`. Because tagged names are
    /// longer, a pickle may exceed [`MAX_FRAME_BYTES`]; Carbon's own bound is four times that.
    ///
    /// # Errors
    /// The frame cannot be read back, because [`frames`] did not make it.
    pub fn bytes(
        &self,
        protocol: Protocol,
        names: MetricNames,
    ) -> Result<Cow<'_, [u8]>, WireError> {
        if (protocol, names) == (Protocol::Pickle, MetricNames::Paths) {
            return Ok(Cow::Borrowed(&self.body));
        }
        let mut items = self.items()?;
        if let MetricNames::Tagged(tagged) = names {
            items.iter_mut().for_each(|(path, _)| *path = tagged(path));
        }
        let bytes = match protocol {
            Protocol::Pickle => {
                Self::pickle(items.iter().map(|(path, rest)| (path.as_str(), *rest)))?.body
            }
            Protocol::Plaintext => {
                let mut lines = String::new();
                for (path, (timestamp, value)) in items {
                    push_line(&mut lines, &path, value, timestamp);
                }
                lines.into_bytes()
            }
        };
        Ok(Cow::Owned(bytes))
    }
}

fn push_line(lines: &mut String, path: &str, value: f64, timestamp: i64) {
    // Writing to a String cannot fail.
    let _ = writeln!(lines, "{path} {value} {timestamp}");
}

/// The number of the next points that fit into a frame.
fn fitting<'a>(points: impl Iterator<Item = Point<'a>>) -> usize {
    let mut bytes = LIST_OVERHEAD;
    points
        .take(MAX_FRAME_POINTS)
        .take_while(|point| {
            bytes += point.path().len() + POINT_OVERHEAD;
            bytes <= MAX_FRAME_BYTES
        })
        .count()
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
        let frames = frames(&batch(&[("a.b", -1.0)])).unwrap();
        let golden = [
            &[0, 0, 0, 32][..], // length, big-endian
            b"\x80\x02]((X\x03\0\0\0a.b(J\0\xf1\x53\x65G\xbf\xf0\0\0\0\0\0\0tte.",
            // protocol 2, a list
        ];
        assert_eq!(frames, [Frame { points: 1, body: golden.concat() }]);
    }

    #[test]
    fn plaintext_is_one_line_a_point() {
        let batch = batch(&[("a", 0.1), ("b", 1e21)]);
        let expected = "a 0.1 1700000000\nb 1000000000000000000000 1700000000\n";
        assert_eq!(lines(&batch), expected);
        let frames = frames(&batch).unwrap();
        assert_eq!(
            *frames[0].bytes(Protocol::Plaintext, MetricNames::Paths).unwrap(),
            *expected.as_bytes(),
            "from the pickle too"
        );
    }

    #[test]
    fn a_destination_with_tags_has_its_names_in_both_protocols_and_no_other_has() {
        let frames = frames(&batch(&[("a.b", 1.5)])).unwrap();
        let tagged = MetricNames::Tagged(|path| format!("{path};x=y"));
        let bytes = |protocol, names| frames[0].bytes(protocol, names).unwrap();
        assert_eq!(*bytes(Protocol::Plaintext, tagged), *b"a.b;x=y 1.5 1700000000\n");
        assert!(
            matches!(bytes(Protocol::Pickle, MetricNames::Paths), Cow::Borrowed(_)),
            "not encoded again"
        );
        let pickled = bytes(Protocol::Pickle, tagged);
        let length = u32::from_be_bytes(*pickled.first_chunk().unwrap()) as usize;
        assert_eq!(length, pickled.len() - 4);
        let list: Vec<(String, (i64, f64))> =
            serde_pickle::from_slice(&pickled[4..], DeOptions::new()).unwrap();
        assert_eq!(list, [("a.b;x=y".to_owned(), (1_700_000_000, 1.5))]);
    }

    #[test]
    fn the_pieces_of_a_frame_are_whole_lines_or_the_whole_pickle() {
        let batch = batch(&[("a.path.of.some.length", 0.1); 500]);
        let frame = frames(&batch).unwrap().remove(0);
        for protocol in [Protocol::Pickle, Protocol::Plaintext] {
            let bytes = frame.bytes(protocol, MetricNames::Paths).unwrap();
            let (mut rest, mut pieces) = (&*bytes, Vec::new());
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(protocol.piece(rest).len());
                assert!(protocol == Protocol::Pickle || piece.ends_with(b"\n"));
                pieces.push(piece);
                rest = after;
            }
            assert_eq!(pieces.concat(), *bytes);
            assert_eq!(pieces.len(), if protocol == Protocol::Pickle { 1 } else { 2 });
        }
        let endless = [b'1'; 2 * MAX_LINES];
        assert_eq!(Protocol::Plaintext.piece(&endless), endless);
    }

    #[test]
    fn an_empty_batch_is_no_frame() {
        assert!(frames(&batch(&[])).unwrap().is_empty());
    }

    #[test]
    fn frames_keep_both_limits_and_every_point() {
        let long = format!("{}.{}", ["a".repeat(200).as_str(); 5].join("."), "b".repeat(19));
        assert_eq!(long.len(), crate::path::MAX_PATH);
        let batch = batch(&[(long.as_str(), 1.0); 1201]);
        let frames = frames(&batch).unwrap();
        assert!(frames.iter().all(|frame| frame.body.len() <= MAX_FRAME_BYTES));
        let paths: usize =
            frames.iter().map(|f| f.body.windows(19).filter(|w| *w == [b'b'; 19]).count()).sum();
        assert_eq!(paths, 1201);
    }

    proptest! {
        #[test]
        fn frames_hold_all_points_in_order_also_after_2038(
            values in proptest::collection::vec(-1e18..1e18, 0..1600),
            timestamp in prop_oneof![Just(60), (0..=i64::from(u32::MAX))],
        ) {
            let mut batch = Batch::new(timestamp);
            for value in &values {
                batch.push("cluster.x".into(), *value);
            }
            let mut read = Vec::new();
            for frame in frames(&batch).unwrap() {
                let (length, body) = frame.body.split_at(4);
                prop_assert_eq!(u32::from_be_bytes(length.try_into().unwrap()) as usize,
                    body.len());
                let list: Vec<(String, (i64, f64))> =
                    serde_pickle::from_slice(body, serde_pickle::DeOptions::new()).unwrap();
                prop_assert!(list.len() <= MAX_FRAME_POINTS);
                read.extend(list);
            }
            prop_assert_eq!(read, values.into_iter().map(|v| ("cluster.x".to_owned(), (timestamp,
                v))).collect::<Vec<_>>());
        }
    }
}
