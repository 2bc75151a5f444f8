//! A handle: where a shared tensor is and what it is, as a line of text.
//!
//! In: text from anybody. Out: a checked description, or why it is none. It names a format, the machine's boot and its IPC
//! namespace, so that a handle that went to another host or container says so instead of leading to nothing; a check sum
//! catches text that was cut or edited. Sizes are checked again against the segment.

use std::sync::OnceLock;

use super::file;
use crate::dtype::DType;
use crate::error::Error;
use crate::layout;

/// The first field, which counts up when the rest changes.
const FORMAT: &str = "od1";

/// What a handle says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    /// The segment.
    pub id: [u8; 16],
    /// The block in it, and which use of that block.
    pub block: u32,
    pub generation: u32,
    pub dtype: DType,
    pub shape: Vec<isize>,
    pub read_only: bool,
    /// The lease for the time in flight; 0 for none.
    pub lease: u64,
}

/// What tells this machine, boot and container from others.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    boot: String,
    ipc: String,
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let boot = file::first_line("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let link = std::fs::read_link("/proc/self/ns/ipc").unwrap_or_default();
        let digits = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).collect::<String>();
        Place { boot: digits(&boot), ipc: digits(&link.to_string_lossy()).replace("ipc", "") }
    })
}

impl Handle {
    /// The text.
    pub fn to_text(&self) -> String {
        let id: String = self.id.iter().map(|byte| format!("{byte:02x}")).collect();
        let shape: Vec<String> = self.shape.iter().map(isize::to_string).collect();
        let shape = if shape.is_empty() { "-".to_owned() } else { shape.join("x") };
        let place = place();
        let body = format!(
            "{FORMAT}:{}:{}:{id}:{}:{}:{}:{shape}:{}:{:x}",
            place.boot,
            place.ipc,
            self.block,
            self.generation,
            self.dtype.name(),
            if self.read_only { "r" } else { "w" },
            self.lease
        );
        format!("{body}:{:08x}", check_sum(&body))
    }

    /// Reads the text and checks everything that can be checked without the segment.
    ///
    /// # Errors
    /// `Handle`.
    pub fn from_text(text: &str) -> Result<Handle, Error> {
        let refuse = |reason| Error::Handle { reason };
        let malformed = refuse("this is no handle of shared memory");
        if text.len() > 4096 {
            return Err(malformed);
        }
        let format = text.split(':').next().unwrap_or_default();
        if format != FORMAT {
            let other = format.strip_prefix("od").is_some_and(|n| n.parse::<u32>().is_ok());
            return Err(if other {
                refuse("this handle was made by another version of Overdrive, with another format")
            } else {
                malformed
            });
        }
        let (body, sum) = text.rsplit_once(':').ok_or_else(|| malformed.clone())?;
        if u32::from_str_radix(sum, 16) != Ok(check_sum(body)) || sum.len() != 8 {
            return Err(refuse("this handle was cut or changed: its check sum is wrong"));
        }
        let fields: Vec<&str> = body.split(':').collect();
        let [_, boot, ipc, id, block, generation, dtype, shape, access, lease] = fields[..] else {
            return Err(malformed);
        };
        if boot != place().boot {
            return Err(refuse(
                "this handle was made on another machine, or before this one was restarted; shared memory \
                 does not leave a machine",
            ));
        }
        if ipc != place().ipc {
            return Err(refuse(
                "this handle was made in another container (IPC namespace); share that namespace, such as with \
                 --ipc=container:NAME",
            ));
        }
        let mut bytes = [0u8; 16];
        if id.len() != 32 || !id.bytes().all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase()) {
            return Err(malformed);
        }
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&id[2 * i..2 * i + 2], 16).map_err(|_| malformed.clone())?;
        }
        let shape: Vec<isize> = match shape {
            "-" => Vec::new(),
            shape => shape
                .split('x')
                .map(|length| length.parse().map_err(|_| malformed.clone()))
                .collect::<Result<_, _>>()?,
        };
        let dtype = DType::from_name(dtype).map_err(|_| malformed.clone())?;
        layout::count(&shape, dtype.size()).map_err(|_| malformed.clone())?;
        Ok(Handle {
            id: bytes,
            block: block.parse().map_err(|_| malformed.clone())?,
            generation: generation.parse().map_err(|_| malformed.clone())?,
            dtype,
            shape,
            read_only: match access {
                "r" => true,
                "w" => false,
                _ => return Err(malformed),
            },
            lease: u64::from_str_radix(lease, 16).map_err(|_| malformed.clone())?,
        })
    }

    /// Bytes of the elements.
    pub fn n_bytes(&self) -> usize {
        // Checked when the handle was made or read.
        layout::count(&self.shape, self.dtype.size()).unwrap_or(0) * self.dtype.size()
    }
}

/// CRC-32 (IEEE), bit by bit: handles are short.
fn check_sum(text: &str) -> u32 {
    !text.bytes().fold(!0u32, |sum, byte| {
        (0..8).fold(
            sum ^ u32::from(byte),
            |sum, _| if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0xedb8_8320 },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::Kind;
    use proptest::prelude::*;

    fn handle() -> Handle {
        Handle {
            id: [7; 16],
            block: 3,
            generation: 9,
            dtype: DType::ordered(Kind::F32, true),
            shape: vec![2, 0, 5],
            read_only: true,
            lease: 77,
        }
    }

    #[test]
    fn text_is_read_back() {
        assert_eq!(Handle::from_text(&handle().to_text()), Ok(handle()));
        let scalar = Handle { shape: vec![], lease: 0, ..handle() };
        assert_eq!(Handle::from_text(&scalar.to_text()), Ok(scalar));
        assert_eq!(check_sum("123456789"), 0xcbf4_3926);
    }

    #[test]
    fn other_places_are_named() {
        let text = handle().to_text();
        let (body, _) = text.rsplit_once(':').unwrap();
        let with = |from: &str, to: &str| {
            let body = body.replacen(from, to, 1);
            Handle::from_text(&format!("{body}:{:08x}", check_sum(&body))).unwrap_err().to_string()
        };
        assert!(with(&place().boot, "abc").contains("machine"));
        assert!(with(&place().ipc, "1").contains("container"));
        assert!(with("od1", "od2").contains("version"));
        assert!(with("0707", "../x").contains("no handle"));
        assert!(with("2x0x5", "-2x5").contains("no handle"));
        assert!(with("2x0x5", "4611686018427387904x4611686018427387904").contains("no handle"));
    }

    proptest! {
        #[test]
        fn changed_text_is_refused(at in 0usize..80, byte in 0x20u8..0x7f) {
            let mut bytes = handle().to_text().into_bytes();
            let at = at % bytes.len();
            prop_assume!(bytes[at] != byte);
            bytes[at] = byte;
            prop_assert!(Handle::from_text(std::str::from_utf8(&bytes).unwrap()).is_err());
        }

        #[test]
        fn any_text_is_answered(text in ".{0,200}") {
            prop_assert!(Handle::from_text(&text).is_err());
        }
    }
}
