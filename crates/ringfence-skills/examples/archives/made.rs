//! Valid archives with random changes.

use crate::chance::ArchiveRng;
use crate::pack::{Header, Item, Pack};

const NAMES: &[&str] = &[
    "a/x",
    "a/X",
    "a/../x",
    "../x",
    "/x",
    "a//x",
    "a/./x",
    "a\\x",
    "c:/x",
    "a/x/",
    "a/x/y",
    "a/\u{e9}",
    "a/e\u{301}",
    "b/SKILL.md",
    "b/",
    "SKILL.md",
    "x",
    "",
    "a/SKILL.md",
    "a/skill.md",
    "__MACOSX/a/x",
    "a/.DS_Store",
    "a/x\0",
    "a/..",
    "a/...",
    "a/d/d/d/d/d/d/d/d/d/d/x",
    "a b/SKILL.md",
    "a/\u{202e}x",
];
const NUMBERS: &[u32] = &[0, 1, 2, 7, 30, 46, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff];
const MODES: &[u32] =
    &[0, 0o100_644, 0o100_755, 0o040_755, 0o120_777, 0o010_644, 0o060_600, 0o104_755, 0o140_755];
const FLAGS: &[u16] = &[0, 1, 2, 8, 0x20, 0x40, 0x800, 0x808, 0x2000, 0xffff];
const SIGNS: &[&[u8]] = &[
    b"PK\x01\x02",
    b"PK\x03\x04",
    b"PK\x05\x06",
    b"PK\x06\x06",
    b"PK\x06\x07",
    b"PK\x07\x08",
    &[0, 0],
    &[255; 4],
];
const HEADS: &[&str] = &[
    "---\nname: a\ndescription: x\n---\n",
    "---\nname: a\nmetadata:\n  hosts: a.org\n---\n",
    "---\nmetadata:\n  limits: wall=1s\n  writes: out\n",
    "no head",
    "---\nmetadata:\n  hosts: http://x\n---\n",
    "",
];

pub(crate) fn archive(chance: &mut ArchiveRng) -> Vec<u8> {
    let mut pack = good(chance);
    // Some stay valid, so that accepted archives are checked too.
    for _ in 0..chance.below(3) {
        change_field(&mut pack, chance);
    }
    let mut bytes = pack.bytes();
    for _ in 0..chance.below(6).saturating_sub(3) {
        change_bytes(&mut bytes, chance);
    }
    bytes
}

fn good(chance: &mut ArchiveRng) -> Pack {
    let mut items = vec![Item::file("a/SKILL.md", chance.pick(HEADS))];
    if chance.below(2) == 0 {
        items.push(Item::directory("a/d/"));
    }
    for i in 0..chance.below(5) {
        let bytes: Vec<u8> = match chance.below(3) {
            0 => vec![b'x'; chance.below(200_000)],
            1 => (0..chance.below(3000)).map(|_| chance.next() as u8).collect(),
            _ => Vec::new(),
        };
        let item = Item::file(format!("a/d/f{i}"), bytes).attributes(0o100_755 << 16);
        let item = if chance.below(2) == 0 { item.deflated() } else { item };
        items.push(if chance.below(3) == 0 { item.described() } else { item });
    }
    if chance.below(3) == 0 {
        items.insert(chance.below(items.len()), Item::file("b/SKILL.md", "x").deflated());
    }
    Pack::new(items)
}

/// Changes one field of an archive.
fn change_field(pack: &mut Pack, chance: &mut ArchiveRng) {
    let at = chance.below(pack.items.len());
    let other = pack.items[chance.below(pack.items.len())].clone();
    let item = &mut pack.items[at];
    match chance.below(14) {
        0 => *item = item.clone().both(header(chance)),
        1 => *item = item.clone().local(header(chance)),
        2 => *item = item.clone().central(header(chance)),
        3 => {
            let name = chance.pick(NAMES).as_bytes().to_vec();
            *item = item.clone().both(|header| header.name.clone_from(&name));
        }
        4 => item.attributes = chance.pick(MODES) << 16 | chance.pick(&[0u32, 0, 0x10, 0x20]),
        5 => item.at = Some(chance.below(400) as u32),
        6 => item.behind = (0..chance.below(30)).map(|_| chance.next() as u8).collect(),
        7 => {
            let end = item.data.len();
            if let Some(byte) = item.data.get_mut(chance.below(end)) {
                *byte ^= 1 << chance.below(8);
            }
        }
        8 => pack.items.push(other),
        9 => pack.before = vec![b'#'; chance.below(40)],
        10 => pack.between = chance.pick(SIGNS).to_vec(),
        11 => pack.comment = chance.pick(SIGNS).repeat(chance.below(8)),
        12 => pack.count = Some(chance.below(8) as u16),
        _ => pack.trailing = Pack::new([other]).bytes(),
    }
}

fn header(chance: &mut ArchiveRng) -> impl Fn(&mut Header) + use<> {
    let (which, number, flags) = (chance.below(7), *chance.pick(NUMBERS), *chance.pick(FLAGS));
    let method = *chance.pick(&[0u16, 8, 9, 12, 99]);
    let id = *chance.pick(&[1u16, 0x0d, 0x17, 0x756e, 0x7075, 0x9901, 0x5455]);
    let extra =
        [&id.to_le_bytes()[..], &(number as u16 % 20).to_le_bytes(), &vec![7; chance.below(20)]]
            .concat();
    move |header| match which {
        0 => header.flags = flags,
        1 => header.method = method,
        2 => header.checksum = number,
        3 => header.length = number,
        4 => header.size = number,
        5 => header.extra.clone_from(&extra),
        _ => (header.length, header.size) = (number, number),
    }
}

/// Changes random bytes.
fn change_bytes(bytes: &mut Vec<u8>, chance: &mut ArchiveRng) {
    let at = chance.below(bytes.len());
    match chance.below(6) {
        0 if !bytes.is_empty() => bytes[at] ^= 1 << chance.below(8),
        1 if !bytes.is_empty() => bytes[at] = chance.next() as u8,
        2 => bytes.truncate(at),
        3 => {
            let end = (at + chance.below(60)).min(bytes.len());
            let piece = bytes[at..end].to_vec();
            let to = chance.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        4 => {
            let end = (at + chance.below(60)).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            let sign = chance.pick(SIGNS);
            bytes.splice(at..at, sign.iter().copied());
        }
    }
}
