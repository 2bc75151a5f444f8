//! The identity of the extension that runs: the linker's hash over all of it, LLVM included.
//!
//! In: the file as it is mapped, not as it lies on the disk, where another one may be by now. Out: the build ID, or
//! nothing where the linker made none.

/// The build ID of the file that this function is in.
pub(crate) fn build_id() -> Option<Vec<u8>> {
    system::own_notes().iter().find_map(|(notes, align)| find(notes, *align))
}

/// Type of the note, and who it is from.
const NT_GNU_BUILD_ID: u32 = 3;
const GNU: &[u8] = b"GNU\0";

/// Looks through notes: three numbers (length of the name, length of the contents, type), name, contents, each padded.
fn find(mut notes: &[u8], align: usize) -> Option<Vec<u8>> {
    let number = |at: usize, notes: &[u8]| {
        let bytes = notes.get(at..)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    };
    loop {
        let name_len = number(0, notes)? as usize;
        let len = number(4, notes)? as usize;
        let kind = number(8, notes)?;
        let name = notes.get(12..12usize.checked_add(name_len)?)?;
        let start = (12 + name_len).next_multiple_of(align);
        let end = start.checked_add(len)?;
        let contents = notes.get(start..end)?;
        if kind == NT_GNU_BUILD_ID && name == GNU && !contents.is_empty() {
            return Some(contents.to_vec());
        }
        notes = notes.get(end.next_multiple_of(align)..)?;
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{c_int, c_void};

    /// Notes of the file that this function is in, and what they are padded to.
    pub(super) fn own_notes() -> Vec<(Vec<u8>, usize)> {
        let mut notes = Vec::new();
        // SAFETY: the callback gets the pointer to the vector back, during this call only.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut notes).cast()) };
        notes
    }

    /// Called for each mapped file; 1 ends it.
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, notes: *mut c_void) -> c_int {
        // SAFETY: the system's description of a mapped file, whose segments stay mapped while it is called; the pointer
        // is that of `own_notes`.
        unsafe {
            let (info, notes) = (&*info, &mut *notes.cast::<Vec<(Vec<u8>, usize)>>());
            let headers = match info.dlpi_phnum {
                0 => &[],
                n => std::slice::from_raw_parts(info.dlpi_phdr, usize::from(n)),
            };
            let start = |header: &libc::Elf64_Phdr| (info.dlpi_addr + header.p_vaddr) as usize;
            let len = |header: &libc::Elf64_Phdr| header.p_memsz as usize;
            let own = own_notes as *const () as usize;
            let is_ours = |h: &libc::Elf64_Phdr| {
                h.p_type == libc::PT_LOAD && (start(h)..start(h) + len(h)).contains(&own)
            };
            if !headers.iter().any(is_ours) {
                return 0;
            }
            for header in headers.iter().filter(|h| h.p_type == libc::PT_NOTE) {
                let bytes = std::slice::from_raw_parts(start(header) as *const u8, len(header));
                notes.push((bytes.to_vec(), if header.p_align == 8 { 8 } else { 4 }));
            }
            1
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// Untried: no cache there.
    pub(super) fn own_notes() -> Vec<(Vec<u8>, usize)> {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(kind: u32, name: &[u8], contents: &[u8], align: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for n in [name.len() as u32, contents.len() as u32, kind] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        for part in [name, contents] {
            out.extend_from_slice(part);
            out.resize(out.len().next_multiple_of(align), 0);
        }
        out
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        for align in [4, 8] {
            let mut notes = note(5, GNU, b"properties", align);
            notes.extend(note(3, b"stap\0", b"another's", align));
            assert_eq!(find(&notes, align), None);
            notes.extend(note(3, GNU, b"0123456789", align));
            assert_eq!(find(&notes, align).as_deref(), Some(&b"0123456789"[..]));
            for len in 0..notes.len() {
                let found = find(&notes[..len], align);
                assert!(found.is_none() || found.as_deref() == Some(b"0123456789"), "cut at {len}");
            }
        }
    }
}
