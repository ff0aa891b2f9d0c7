//! A summary for the page of a job in CI.

use crate::rows::Rows;
use crate::summary::Summary;

/// The summary as a heading, a table and a list.
pub fn markdown(summary: &Summary) -> String {
    let rows = Rows::of(summary);
    let mut text = format!("### {}\n\n{}\n\n| | |\n| --- | --- |\n", code(&rows.title), escape(&rows.ending));
    for row in &rows.rows {
        let shown = match row.label.as_str() {
            // Anyone may have chosen these names, and sites turn plain text into links and mentions.
            "Phase" | "Busiest" => code(&row.text).replace('|', "\\|"),
            _ => escape(&row.text),
        };
        text += &format!("| **{}** | {shown} |\n", escape(&row.label));
    }
    if !rows.remarks.is_empty() {
        text.push('\n');
    }
    for (label, remark) in &rows.remarks {
        let remark = if matches!(*label, "Ask for" | "Missing") { code(remark) } else { escape(remark) };
        text += &format!("- **{label}**: {remark}\n");
    }
    text
}

/// The text as code, which nothing in it can end.
fn code(text: &str) -> String {
    let longest = text.split(|char| char != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    // A blank keeps a backtick of the text from the fence.
    let blank = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{blank}{text}{blank}{fence}")
}

/// A text without any markup.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if "\\`*_{}[]<>#|!~&".contains(char) {
            escaped.push('\\');
        }
        escaped.push(char);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escape("a_b | <img> *x*"), "a\\_b \\| \\<img\\> \\*x\\*");
        assert_eq!(code("echo `date`"), "`` echo `date` ``");
        assert_eq!(code("plain"), "`plain`");
    }
}
