//! Tables in Markdown.

/// Prints the head of a table.
pub(crate) fn head<const N: usize>(title: &str, columns: [&str; N]) {
    println!("**{title}**\n");
    row(columns.map(str::to_owned));
    row(columns.map(|_| "---".to_owned()));
}

pub(crate) fn row<const N: usize>(cells: [String; N]) {
    println!("| {} |", cells.join(" | "));
}

/// Ends a table with a note.
pub(crate) fn note(text: &str) {
    println!("\n{text}\n");
}
