//! Recordings and live samples of resource-tracker on a terminal, while they come.
//!
//! A [`Screen`] shows what is given to its [`ScreenSink`]: by [`follow()`], which reads a recording and goes on while it grows, or by a
//! tracker, to which the feed is a sink. It needs a terminal and no mouse.

mod clock;
mod draw;
mod feed;
mod follow;
mod growing;
mod history;
mod moment;
mod position;
mod screen;
mod view;

pub use feed::ScreenSink;
pub use follow::follow;
pub use screen::Screen;
pub use view::Source;
