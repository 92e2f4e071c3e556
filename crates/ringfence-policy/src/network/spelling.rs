//! Spellings of IPv4 addresses that programs accept, beyond four decimal numbers.

use std::net::Ipv4Addr;

/// True if resolvers parse the text as an address: its last label is a number, decimal or
/// hexadecimal. No top-level domain is a number.
pub(super) fn ends_in_a_number(text: &str) -> bool {
    let last = text.rsplit('.').next().unwrap_or(text);
    match last.strip_prefix("0x") {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => last.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

/// Parses like inet_aton(3): one to four numbers, decimal, octal (`0…`) or hexadecimal (`0x…`), of
/// which the last fills the remaining bytes.
pub(super) fn inet_aton(text: &str) -> Option<Ipv4Addr> {
    let numbers: Vec<u64> = text.split('.').map(number).collect::<Option<_>>()?;
    let (&last, parts) = numbers.split_last()?;
    let left = 4_usize.checked_sub(parts.len())?;
    if left == 0 || parts.iter().any(|&part| part > 255) || last >> (8 * left) != 0 {
        return None;
    }
    let head = parts.iter().zip([24, 16, 8]).fold(0, |sum, (&part, shift)| sum | part << shift);
    u32::try_from(head | last).ok().map(Ipv4Addr::from)
}

fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix('0')) {
        (Some(digits), _) => (digits, 16),
        (None, Some(digits)) if !digits.is_empty() => (digits, 8),
        _ => (text, 10),
    };
    // `from_str_radix` accepts a sign.
    digits
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric())
        .then(|| u64::from_str_radix(digits, radix).ok())?
}
