//! Python's own pickle reads our frames, with an unpickler that accepts only plain values, as
//! Carbon's does.
#![expect(clippy::disallowed_methods, reason = "a test starts python3")]

use std::io::Write;
use std::process::{Command, Stdio};

use carbon_wire::{Batch, frames};

const READER: &str = r"
import io, pickle, struct, sys
class Plain(pickle.Unpickler):
    def find_class(self, module, name): raise pickle.UnpicklingError(module + '.' + name)
data = sys.stdin.buffer.read()
while data:
    size, = struct.unpack('!I', data[:4])
    points = Plain(io.BytesIO(data[4:4 + size])).load()
    assert type(points) is list
    for path, (timestamp, value) in points:
        assert type(path) is str and type(timestamp) is int and type(value) is float
        print(path, repr(value), timestamp)
    data = data[4 + size:]
";

#[test]
fn python_reads_every_frame() {
    let mut batch = Batch::new(1_700_000_000);
    let values = [0.0, -1.0, 0.1, 4_294_967_295.0, 1e-300, f64::MAX, 18_446_744_073_709_551_615.0];
    for n in 0..1203_usize {
        batch.push(format!("cluster.test.gauge-{n}"), values[n % values.len()]);
    }
    let bytes: Vec<u8> = frames(&batch).unwrap().into_iter().flat_map(|frame| frame.body).collect();
    let mut python = Command::new("python3")
        .args(["-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is installed (make packages)");
    python.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let read: Vec<(String, f64, i64)> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            (word().to_owned(), word().parse().unwrap(), word().parse().unwrap())
        })
        .collect();
    let sent: Vec<(String, f64, i64)> =
        batch.points().map(|p| (p.path().to_owned(), p.value(), batch.timestamp())).collect();
    assert_eq!(read, sent);
}
