//! Computes a line diff.

/// The number of context lines around a change.
const AROUND: usize = 3;

/// Returns the lines of a diff: ` ` unchanged, `-` removed, `+` added, `@@` lines omitted.
pub(super) fn diff_lines(before: &str, after: &str) -> Vec<String> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let all = compare(&old, &new);
    let is_near = |at: usize| {
        let from = at.saturating_sub(AROUND);
        all[from..(at + AROUND + 1).min(all.len())].iter().any(|(sign, _)| *sign != ' ')
    };
    let mut shown = Vec::new();
    let mut was_omitted = false;
    for (at, (sign, line)) in all.iter().enumerate() {
        if is_near(at) {
            if was_omitted {
                shown.push("@@".to_owned());
            }
            shown.push(format!("{sign}{line}"));
        }
        was_omitted = !is_near(at);
    }
    if before.ends_with('\n') != after.ends_with('\n') && !before.is_empty() {
        shown.push(
            if after.ends_with('\n') {
                "+(newline at end of file)"
            } else {
                "-(newline at end of file)"
            }
            .to_owned(),
        );
    }
    shown
}

/// Computes the longest common subsequence with the O(n·m) table; settings files are short.
fn compare<'a>(old: &[&'a str], new: &[&'a str]) -> Vec<(char, &'a str)> {
    let width = new.len() + 1;
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            let at = i * width + j;
            common[at] = if old[i] == new[j] {
                common[at + width + 1] + 1
            } else {
                common[at + width].max(common[at + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut all = Vec::new();
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            all.push((' ', old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= new.len()
            || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1])
        {
            all.push(('-', old[i]));
            i += 1;
        } else {
            all.push(('+', new[j]));
            j += 1;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str, expect: &[&str]) {
        assert_eq!(diff_lines(before, after), expect);
    }

    #[test]
    fn added_and_removed_lines_are_shown() {
        check("", "a\nb\n", &["+a", "+b"]);
        check("a\n", "a\n", &[]);
        check("a\nb\nc\n", "a\nx\nc\n", &[" a", "-b", "+x", " c"]);
        check("1\n2\n3\n4\n5\n6\n", "1\n2\n3\n4\n5\n6\n7\n", &["@@", " 4", " 5", " 6", "+7"]);
        check("a", "a\n", &["+(newline at end of file)"]);
    }
}
