//! Numbers and words out of the kernel's text, without allocating. Most of what a tick does outside the kernel is here and in
//! writing the sample, so that this crate is built for speed, and those around it for size.

use memchr::arch::all::memchr::One;

/// The lines of a file, without their ends.
pub fn lines(bytes: &[u8]) -> Lines<'_> {
    // `memchr::memchr` asks first what the CPU can do: in a virtual machine that is 0.1 ms, and lines are short.
    Lines { rest: bytes, newline: One::new(b'\n') }
}

/// See [`lines`].
pub struct Lines<'a> {
    rest: &'a [u8],
    newline: One,
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = self.newline.find(self.rest);
            let (line, after) = match end {
                Some(end) => (&self.rest[..end], &self.rest[end + 1..]),
                None => (self.rest, &[][..]),
            };
            self.rest = after;
            if !line.is_empty() {
                return Some(line);
            }
        }
        None
    }
}

/// The words of a line.
pub fn words(line: &[u8]) -> Words<'_> {
    Words(line)
}

/// See [`words`]. Loops, because the iterators of the standard library are not small and quick at once, and most of what a tick does
/// outside the kernel is here.
pub struct Words<'a>(&'a [u8]);

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let bytes = self.0;
        let mut start = 0;
        while start < bytes.len() && bytes[start].is_ascii_whitespace() {
            start += 1;
        }
        let mut end = start;
        while end < bytes.len() && !bytes[end].is_ascii_whitespace() {
            end += 1;
        }
        self.0 = &bytes[end..];
        (end > start).then(|| &bytes[start..end])
    }
}

/// An unsigned decimal number, and nothing else.
pub fn number(word: &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for byte in word {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (!word.is_empty()).then_some(value)
}

/// A decimal number with or without a fraction, of up to 15 digits, which a division rounds as parsing would.
pub fn decimal(word: &[u8]) -> Option<f64> {
    let (mut digits, mut value, mut scale) = (0, 0u64, None);
    for byte in word {
        match byte {
            b'.' if scale.is_none() => scale = Some(1.0),
            b'0'..=b'9' if digits < 15 => {
                digits += 1;
                value = value * 10 + u64::from(byte - b'0');
                scale = scale.map(|scale: f64| scale * 10.0);
            }
            _ => return None,
        }
    }
    (digits > 0).then(|| value as f64 / scale.unwrap_or(1.0))
}

/// Where the item is that a new text names, when it is likely to be at the same place as in the one before.
pub fn find_near<T>(items: &[T], place: usize, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    if items.get(place).is_some_and(&is_it) {
        return Some(place);
    }
    items.iter().position(is_it)
}

/// The numbers of a line, as many as there are before the first word that is none.
pub fn numbers(line: &[u8]) -> impl Iterator<Item = u64> {
    words(line).map_while(number)
}

/// The number after `key` in a file of lines such as `Pss:   12 kB` or `pgmajfault 7`.
pub fn value_of(bytes: &[u8], key: &str) -> Option<u64> {
    let rest = lines(bytes).find_map(|line| line.strip_prefix(key.as_bytes()).filter(|rest| is_separator(rest)))?;
    number(words(rest.strip_prefix(b":").unwrap_or(rest)).next()?)
}

fn is_separator(rest: &[u8]) -> bool {
    rest.first().is_some_and(|byte| *byte == b':' || byte.is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_key() {
        let text = b"Pss_Dirty:  3 kB\nPss:        12 kB\nvoluntary_ctxt_switches:\t7\npgmajfault 9\n";
        assert_eq!(value_of(text, "Pss"), Some(12));
        assert_eq!(value_of(text, "voluntary_ctxt_switches"), Some(7));
        assert_eq!(value_of(text, "pgmajfault"), Some(9));
        assert_eq!(value_of(text, "P"), None);
    }

    #[test]
    fn what_is_no_decimal_number_is_refused() {
        for wrong in ["", ".", "-1", "1e3", "1.2.3", "nan", "inf", "+1", "1234567890123456"] {
            assert_eq!(decimal(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!((decimal(b"7"), decimal(b"7."), decimal(b".5")), (Some(7.0), Some(7.0), Some(0.5)));
    }

    proptest! {
        #[test]
        fn a_decimal_is_what_parsing_makes_of_it(whole in 0u64..1_000_000_000_000, hundredths in 0u32..1000) {
            let text = format!("{whole}.{hundredths:03}");
            prop_assert_eq!(decimal(text.as_bytes()), text.parse().ok());
        }

        #[test]
        fn lines_are_those_of_the_standard_library(text in "[a\n]{0,12}") {
            let found: Vec<&[u8]> = lines(text.as_bytes()).collect();
            let expected: Vec<&[u8]> = text.split('\n').filter(|line| !line.is_empty()).map(str::as_bytes).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn numbers_are_those_of_the_standard_library(text in "[0-9]{0,22}|.{0,6}") {
            let plain = !text.starts_with('+');
            prop_assert_eq!(number(text.as_bytes()), text.parse::<u64>().ok().filter(|_| plain));
        }

        #[test]
        fn any_bytes_are_scanned(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            value_of(&bytes, "a");
            for line in lines(&bytes) {
                numbers(line).count();
            }
        }
    }
}
