//! How much memory the machine has left, and what a context takes of it.
//!
//! In: what the system says. Out: bytes; nothing where it does not say.

use overdrive_kernels::KvFormat;

use super::config::Config;

/// Bytes that new data may take without swapping.
pub(crate) fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// The context of a model for which nobody asked for one: what it was made for, but no more than half of what is available
/// can hold keys and values of.
pub(crate) fn default_n_ctx(config: &Config, kv: KvFormat) -> usize {
    let position_bytes = position_bytes(config, kv);
    let most = available().map_or(u64::MAX, |bytes| bytes / 2 / position_bytes as u64);
    config.n_ctx_train.min(usize::try_from(most).unwrap_or(usize::MAX)).max(1)
}

/// Bytes of keys and values that a position has in all layers.
pub(crate) fn position_bytes(config: &Config, kv: KvFormat) -> usize {
    let n_values = 2 * config.n_layers * config.n_kv_heads * config.head_dim;
    match kv {
        KvFormat::F16 => n_values * 2,
        KvFormat::Q8 => n_values + n_values.div_ceil(32) * 4,
    }
}
