//! What follows from the figures of a run.

mod advice;
mod bound;
mod notes;

use crate::summary::Summary;

/// The figures, with what follows from them. Advice needs to know what held the run up, and notes what is advised.
pub(crate) fn conclude(mut figures: Summary) -> Summary {
    figures.bound = bound::bound(&figures);
    figures.advice = advice::advice(&figures);
    figures.notes = notes::notes(&figures);
    figures
}
