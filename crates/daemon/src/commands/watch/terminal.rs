//! A terminal while it is drawn on: no echo, no scrollback. It is restored at the end, however the
//! program ends.
//!
//! The sequences are those of ECMA-48 and of xterm that every terminal in use knows.

use std::io::{self, IsTerminal, Read};

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios};
use waiting_threads::Job;

use super::super::write_out;
use super::screen::{Look, ScreenLine, Size, USUAL};
use crate::clock::or_never;

/// Sequences that show the terminal's other screen, hide the cursor and switch off the wrapping of
/// long lines.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Sequences that undo `ENTER`.
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// The terminal while this program draws on it. It is restored when this is dropped.
pub(super) struct Terminal {
    /// The job that waits for a key; without a thread for it, only signals end the program.
    keys: Option<Job<()>>,
    before: Termios,
}

impl Terminal {
    /// Takes over the terminal; `None` if stdin or stdout is not a terminal, or it does not support
    /// the sequences.
    pub(super) fn take() -> io::Result<Option<Self>> {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        if dumb || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Ok(None);
        }
        let before = rustix::termios::tcgetattr(io::stdin())?;
        let mut taken = before.clone();
        taken.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        // Ctrl-C still is a signal; Ctrl-Z and Ctrl-\ would leave the terminal as it is now.
        for code in [SpecialCodeIndex::VSUSP, SpecialCodeIndex::VQUIT] {
            taken.special_codes[code] = 0;
        }
        taken.special_codes[SpecialCodeIndex::VMIN] = 1;
        taken.special_codes[SpecialCodeIndex::VTIME] = 0;
        rustix::termios::tcsetattr(io::stdin(), OptionalActions::Drain, &taken)?;
        let terminal = Self { keys: waiting_threads::begin("the keyboard", end_key).ok(), before };
        write_out(ENTER)?;
        Ok(Some(terminal))
    }

    /// Waits for a key that ends the program. Safe to cancel, until it has come.
    pub(super) async fn end_key(&self) {
        or_never(self.keys.as_ref().map(Job::answer)).await;
    }

    /// The size of the terminal now.
    pub(super) fn size() -> Size {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| Size { width: size.ws_col.into(), height: size.ws_row.into() });
        size.filter(|size| size.width > 0 && size.height > 0).unwrap_or(USUAL)
    }

    /// Draws the lines over those of the drawing before.
    pub(super) fn draw(lines: &[ScreenLine]) -> io::Result<()> {
        write_out(&drawing(lines))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Nothing can be done about a terminal that is gone.
        let _ = write_out(LEAVE);
        let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Flush, &self.before);
    }
}

/// Reads until q, Ctrl-C, Ctrl-D or the end of the input.
fn end_key() {
    let mut keys = [0; 64];
    loop {
        match io::stdin().read(&mut keys) {
            Ok(count) => {
                let pressed = keys.get(..count).unwrap_or_default();
                if pressed.is_empty()
                    || pressed.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4))
                {
                    return;
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn drawing(lines: &[ScreenLine]) -> String {
    let mut text = String::from("\x1b[H");
    for (index, ScreenLine { text: line, look }) in lines.iter().enumerate() {
        // No newline behind the last: it would scroll.
        text.push_str(if index > 0 { "\r\n" } else { "" });
        let (on, off) = match look {
            Look::Plain => ("", ""),
            Look::Reverse => ("\x1b[7m", "\x1b[0m"),
            Look::Bold => ("\x1b[1m", "\x1b[0m"),
            Look::Faint => ("\x1b[2m", "\x1b[0m"),
        };
        // Erased before the text: after 80 characters of 80 the cursor is still on the last of
        // them. With the last line go those below.
        let erase = if index + 1 == lines.len() { "\x1b[J" } else { "\x1b[K" };
        for part in [erase, on, line, off] {
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests;
