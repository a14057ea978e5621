//! Large payloads, made smaller before they are stored.
//!
//! One rule for every producer, in any language: `content_encoding = 'zstd'` on a row means that its body is compressed.
//! A destination gets it decompressed, unless its configuration asks for the stored form. Any other encoding belongs to
//! the producer: it passes through untouched, with its name.
//!
//! A compressed payload is no longer `jsonb`: its bytes are in `body`, and SQL cannot look into them. So a payload is
//! compressed only if it is larger than a [threshold](THRESHOLD) and shrinks by a tenth at least.
//!
//! The size in a frame's header is the producer's claim. [`decompress`] accepts none above its limit.
//!
//! Without the cargo feature `zstd` nothing is compressed, and compressed payloads cannot be read.
//!
//! **If we die here** nothing was written or sent: both directions only touch memory.

use bytes::Bytes;

use crate::event::Event;

/// The encoding's name in `content_encoding`, as in HTTP.
pub const ZSTD: &str = "zstd";

/// The largest decompressed payload, by default.
pub const MAX_DECOMPRESSED: usize = 64 * 1024 * 1024;

/// Payloads up to this many bytes stay as they are, by default.
pub const THRESHOLD: usize = 1024 * 1024;

/// Why a body could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// The content is larger than the limit.
    #[error("the payload is larger than {limit} bytes when it is decompressed")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The body is no zstd frame.
    #[error("the payload is not valid zstd: {0}")]
    Corrupt(String),
    /// The program was built without zstd.
    #[error("the payload is compressed with zstd; this program was built without the feature `zstd`")]
    NotBuilt,
}

/// Is the event's payload compressed?
pub fn is_compressed(event: &Event) -> bool {
    (event.content_encoding.as_deref()).is_some_and(|encoding| encoding.eq_ignore_ascii_case(ZSTD))
}

/// The event with its payload compressed, if that is worth it: longer than the threshold, not encoded yet,
/// and smaller by a tenth at least. The media type stays what it was, so that JSON is still known as JSON.
#[cfg(feature = "zstd")]
pub fn compress(event: &Event, threshold: usize) -> Option<Event> {
    let payload = event.payload.as_bytes();
    if payload.len() <= threshold || event.content_encoding.is_some() {
        return None;
    }
    // Only memory that cannot be had makes this fail; then the payload stays as it is.
    let frame = frame::write(payload).ok()?;
    if frame.len() > payload.len() / 10 * 9 {
        return None;
    }
    let mut smaller = event.clone();
    smaller.content_type = Some(event.media_type().to_owned());
    smaller.content_encoding = Some(ZSTD.to_owned());
    smaller.payload = crate::payload::Payload::Bytes(frame.into());
    Some(smaller)
}

/// Without the feature `zstd` every payload stays as it is.
#[cfg(not(feature = "zstd"))]
pub fn compress(_event: &Event, _threshold: usize) -> Option<Event> {
    None
}

/// What was compressed. Takes at most `limit` bytes for the content and [8 MiB](WINDOW) beside it, whatever the
/// frame claims.
///
/// # Errors
/// When there is more than `limit` in it, or it is no zstd.
#[cfg(feature = "zstd")]
pub fn decompress(body: &[u8], limit: usize) -> Result<Bytes, DecompressError> {
    frame::read(body, limit)
}

/// Without the feature `zstd` nothing can be decoded.
///
/// # Errors
/// Always.
#[cfg(not(feature = "zstd"))]
pub fn decompress(_body: &[u8], _limit: usize) -> Result<Bytes, DecompressError> {
    Err(DecompressError::NotBuilt)
}

/// How large the content is by the frame's own claim, if it makes one. [`decompress`] takes no more than that.
pub fn decompressed_size(body: &[u8]) -> Option<u64> {
    #[cfg(feature = "zstd")]
    return frame::claimed_size(body).ok().flatten();
    #[cfg(not(feature = "zstd"))]
    {
        let _unread = body;
        None
    }
}

/// How much a decoder may remember of what it decoded, in bytes: what RFC 8878 asks of every decoder. Frames that
/// do not say their size and want more are refused.
pub const WINDOW: usize = 1 << WINDOW_LOG;
const WINDOW_LOG: u32 = 23;

#[cfg(feature = "zstd")]
mod frame {
    use std::io::Read;

    use bytes::Bytes;
    use zstd::stream::read::Decoder;
    use zstd::zstd_safe::{find_frame_compressed_size, get_frame_content_size};

    use super::{DecompressError, WINDOW_LOG};

    /// zstd's own default: where more work stops to pay.
    const LEVEL: i32 = 3;

    /// One frame that says how large its content is.
    pub(super) fn write(content: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut frame = zstd::bulk::compress(content, LEVEL)?;
        // The buffer was made for the worst case, as large as the content.
        frame.shrink_to_fit();
        Ok(frame)
    }

    pub(super) fn read(body: &[u8], limit: usize) -> Result<Bytes, DecompressError> {
        let size = size(body, limit)?;
        let mut decoder = decoder(body)?;
        // Given room for all of it at once, the decoder writes there directly and needs no window.
        let mut content = vec![0; size];
        decoder.read_exact(&mut content).map_err(corrupt)?;
        // Also where the last frame's checksum is compared.
        match decoder.read(&mut [0]).map_err(corrupt)? {
            0 => Ok(content.into()),
            _ => Err(DecompressError::Corrupt(
                "there is more in it than it says".to_owned(),
            )),
        }
    }

    /// The size in the frame's header, if there is only one frame: the first of several covers only itself.
    pub(super) fn claimed_size(body: &[u8]) -> Result<Option<u64>, DecompressError> {
        let claim = get_frame_content_size(body)
            .map_err(|_| DecompressError::Corrupt("it does not begin with a frame".to_owned()))?;
        let is_single = find_frame_compressed_size(body).is_ok_and(|len| len == body.len());
        Ok(claim.filter(|_| is_single))
    }

    /// How much there is in it, and that it is not too much. A claim is checked while it is decoded; without one
    /// decoding twice is the price of not growing a buffer.
    fn size(body: &[u8], limit: usize) -> Result<usize, DecompressError> {
        let size = match claimed_size(body)? {
            Some(claim) => usize::try_from(claim).unwrap_or(usize::MAX),
            None => count(body, limit)?,
        };
        if size > limit {
            return Err(DecompressError::TooLarge { limit });
        }
        Ok(size)
    }

    /// Decodes without keeping anything, and stops above the limit.
    fn count(body: &[u8], limit: usize) -> Result<usize, DecompressError> {
        let mut decoder = decoder(body)?;
        let mut chunk = vec![0; 128 * 1024];
        let mut total = 0;
        while total <= limit {
            match decoder.read(&mut chunk).map_err(corrupt)? {
                0 => break,
                read => total += read,
            }
        }
        Ok(total)
    }

    fn decoder(body: &[u8]) -> Result<Decoder<'static, &[u8]>, DecompressError> {
        let mut decoder = Decoder::with_buffer(body).map_err(corrupt)?;
        decoder.window_log_max(WINDOW_LOG).map_err(corrupt)?;
        Ok(decoder)
    }

    #[allow(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
    fn corrupt(error: std::io::Error) -> DecompressError {
        DecompressError::Corrupt(error.to_string())
    }
}

#[cfg(test)]
#[cfg(feature = "zstd")]
mod tests;
