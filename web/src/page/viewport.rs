//! Virtual scrolling: determines the visible lines, since only those are in the document.

use std::rc::Rc;

use web_sys::Element;
use yew::prelude::*;

use crate::page::hooks::{ByAddress, use_size, use_window_event};

/// Pixels of lines rendered beyond both edges, so that a quick scroll shows no gap.
const OVERSCAN: f64 = 240.0;
/// Assumed visible height in pixels until the real one is known.
const MIN_HEIGHT: f64 = 200.0;

/// Positions of lines.
#[derive(Debug, Clone, PartialEq)]
pub enum LineLayout {
    /// Lines of equal height.
    Even {
        /// Number of lines.
        count: usize,
        /// Height of a line in pixels.
        each: f64,
    },
    /// The top of each line and the bottom of the last one, in pixels.
    Tops(Rc<Vec<f64>>),
}

impl LineLayout {
    /// Creates lines of different heights.
    pub fn of_heights(heights: impl Iterator<Item = f64>) -> Self {
        let mut tops = Vec::with_capacity(heights.size_hint().0 + 1);
        let mut at = 0.0;
        tops.push(at);
        for height in heights {
            at += height;
            tops.push(at);
        }
        Self::Tops(Rc::new(tops))
    }

    /// Returns the number of lines.
    pub fn count(&self) -> usize {
        match self {
            Self::Even { count, .. } => *count,
            Self::Tops(tops) => tops.len().saturating_sub(1),
        }
    }

    /// Returns the top of a line in pixels; for the index after the last one, the bottom of all
    /// lines.
    pub fn top(&self, at: usize) -> f64 {
        match self {
            Self::Even { each, .. } => at as f64 * each,
            Self::Tops(tops) => tops.get(at).copied().unwrap_or_default(),
        }
    }

    /// Returns the total height in pixels.
    pub fn total(&self) -> f64 {
        self.top(self.count())
    }

    /// Returns the index of the line at a height in pixels.
    pub fn at(&self, y: f64) -> usize {
        let at = match self {
            Self::Even { each, .. } => (y / each) as usize,
            Self::Tops(tops) => tops.partition_point(|&top| top <= y).saturating_sub(1),
        };
        at.min(self.count().saturating_sub(1))
    }
}

/// The visible part of a scrolling element.
pub struct Viewport {
    /// Scroll offset in pixels.
    pub top: f64,
    /// Visible height in pixels; 0 until it is known.
    pub height: f64,
    /// The first line to render.
    pub first: usize,
    /// The line after the last one to render.
    pub end: usize,
    /// Must be called when the element is scrolled.
    pub onscroll: Callback<Event>,
}

/// Tracks which lines of a scrolling element are visible.
#[hook]
pub fn use_viewport(node: &NodeRef, lines: &LineLayout) -> Viewport {
    let (_, height) = use_size(node);
    let top = use_state_eq(|| 0.0);
    let onscroll = {
        let (top, node) = (top.clone(), node.clone());
        Callback::from(move |_: Event| {
            if let Some(element) = node.cast::<Element>() {
                top.set(f64::from(element.scroll_top()));
            }
        })
    };
    let (first, end) = visible_lines(lines, *top, height);
    Viewport { top: *top, height, first, end, onscroll }
}

/// Returns whether the page is being printed. Then all lines are in the document.
#[hook]
pub fn use_printing() -> bool {
    let printing = use_state_eq(|| false);
    let (begins, ends) = (printing.clone(), printing.clone());
    use_window_event("beforeprint", Callback::from(move |_: Event| begins.set(true)));
    use_window_event("afterprint", Callback::from(move |_: Event| ends.set(false)));
    *printing
}

/// Keeps the lines of a scrolling element in view when their heights change. They are the same lines
/// as long as `of` is equal; `top` is the scroll offset in pixels.
#[hook]
pub fn use_steady_lines<T: Clone + PartialEq + 'static>(
    node: &NodeRef,
    top: f64,
    lines: &Rc<LineLayout>,
    of: T,
) {
    let last = use_mut_ref(|| None);
    let node = node.clone();
    use_effect_with((of, ByAddress(lines.clone())), move |(of, ByAddress(lines))| {
        let last = last.replace(Some((of.clone(), lines.clone())));
        if let (Some((before, was)), Some(element)) = (last, node.cast::<Element>())
            && before == *of
        {
            element.set_scroll_top(same_place(&was, lines, top).round() as i32);
        }
    });
}

/// Returns the scroll offset that shows the same line at the top, in pixels.
fn same_place(was: &LineLayout, lines: &LineLayout, top: f64) -> f64 {
    let at = was.at(top);
    lines.top(at) + (top - was.top(at)).min(lines.top(at + 1) - lines.top(at))
}

fn visible_lines(lines: &LineLayout, top: f64, height: f64) -> (usize, usize) {
    if lines.count() == 0 {
        return (0, 0);
    }
    // The number of lines may have decreased since the last scroll.
    let top = top.min((lines.total() - height).max(0.0));
    let first = lines.at((top - OVERSCAN).max(0.0));
    (first, lines.at(top + height.max(MIN_HEIGHT) + OVERSCAN) + 1)
}

/// Returns whether a line is fully visible if the element has this height.
pub fn is_visible(element: &Element, lines: &LineLayout, at: usize, height: f64) -> bool {
    let from = f64::from(element.scroll_top());
    lines.top(at) >= from && lines.top(at + 1) <= from + height
}

/// Scrolls the least that makes a line visible, with the given pixels free above and below it.
pub fn reveal(element: &Element, lines: &LineLayout, at: usize, above: f64, below: f64) {
    let (top, bottom) = (lines.top(at), lines.top(at + 1));
    let from = f64::from(element.scroll_top());
    let height = f64::from(element.client_height());
    if top - above < from {
        element.set_scroll_top((top - above).max(0.0) as i32);
    } else if bottom + below > from + height {
        element.set_scroll_top((bottom + below - height).ceil() as i32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_lines_by_position() {
        let even = LineLayout::Even { count: 1000, each: 24.0 };
        let tops = LineLayout::of_heights((0..1000).map(|_| 24.0));
        for lines in [&even, &tops] {
            assert_eq!((lines.count(), lines.total()), (1000, 24_000.0));
            assert_eq!([0.0, 23.9, 24.0, 1e9].map(|y| lines.at(y)), [0, 0, 1, 999]);
        }
        let mixed = LineLayout::of_heights([30.0, 48.0, 48.0].into_iter());
        assert_eq!(
            (mixed.top(1), mixed.total(), mixed.at(77.0), mixed.at(78.0)),
            (30.0, 126.0, 1, 2)
        );
    }

    #[test]
    fn keeps_the_top_line_when_heights_change() {
        let even = LineLayout::Even { count: 1000, each: 24.0 };
        let taller = LineLayout::of_heights((0..1000).map(|_| 40.0));
        assert_eq!(same_place(&even, &taller, 0.0), 0.0);
        assert_eq!(same_place(&even, &taller, 2405.0), 4005.0);
        assert_eq!(same_place(&taller, &even, 4035.0), 2424.0);
    }

    #[test]
    fn viewport_holds_one_screen_of_any_number_of_lines() {
        let lines = LineLayout::Even { count: 1_000_000, each: 24.0 };
        assert_eq!(visible_lines(&lines, 0.0, 0.0), (0, 19));
        assert_eq!(visible_lines(&lines, 2_400_000.0, 720.0), (99_990, 100_041));
        assert_eq!(visible_lines(&lines, 24_000_000.0, 720.0).1, 1_000_000);
        // Scrolled far down before most of the lines were removed.
        let few = LineLayout::Even { count: 3, each: 24.0 };
        assert_eq!(visible_lines(&few, 2_400_000.0, 720.0), (0, 3));
        assert_eq!(visible_lines(&LineLayout::Even { count: 0, each: 24.0 }, 10.0, 720.0), (0, 0));
    }
}
