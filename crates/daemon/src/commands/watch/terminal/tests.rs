//! The drawing on an emulated terminal, as a user sees it, cell by cell.

use super::*;

/// A terminal of this size after these drawings.
fn shown(size: Size, drawings: &[Vec<ScreenLine>]) -> Vec<String> {
    let mut terminal = avt::Terminal::new(size.width, size.height).unwrap();
    terminal.feed(ENTER);
    drawings.iter().for_each(|lines| terminal.feed(drawing(lines).as_str()));
    terminal.screen().visible_lines().map(|line| line.text()).collect()
}

/// Lines that fill the screen, each as wide as the terminal, in every look.
fn full(size: Size) -> Vec<ScreenLine> {
    let looks = [Look::Plain, Look::Reverse, Look::Bold].into_iter().cycle();
    let line = |(row, look): (usize, Look)| {
        let text = (0..size.width).map(|column| ["1", "2", "3"][(row + column) % 3]);
        ScreenLine { text: text.collect(), look }
    };
    (0..size.height).zip(looks).map(line).collect()
}

const SIZES: [Size; 3] = [USUAL, Size { width: 60, height: 20 }, Size { width: 120, height: 40 }];

#[test]
fn the_last_column_of_a_full_line_is_not_erased() {
    for size in SIZES {
        let lines = full(size);
        let expected: Vec<String> = lines.iter().map(|line| line.text.clone()).collect();
        assert_eq!(shown(size, &[lines]), expected, "{size:?}");
    }
}

#[test]
fn nothing_is_left_of_a_longer_drawing() {
    for size in SIZES {
        let short = vec![ScreenLine { text: "no reading".to_owned(), look: Look::Bold }];
        let screen = shown(size, &[full(size), short]);
        assert_eq!(
            screen.iter().map(|line| line.trim_end()).collect::<String>(),
            "no reading",
            "{size:?}"
        );
    }
}
