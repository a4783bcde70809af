//! Phase `decompress`: content with a content coding is decoded on its way to the upstream.

use blitz_http::{BodyLength, Name};
use blitz_site::decompress::{Decoder, RequestCoding};
use blitz_site::{Ended, Rejection};

use crate::request::Request;
use crate::request_kind::RequestKind;
use crate::rules::client_of;
use crate::service::GatewayService;

/// Has the content decoded, if the route demands that. Calls of gRPC have codings of their own for each message.
///
/// # Errors
/// The coding is not known, or the core has no memory for a decoder of this client.
#[inline(always)]
pub(super) fn decompress<E>(
    gateway: &GatewayService<E>,
    request: &mut Request<'_>,
) -> Result<(), Ended> {
    match request.rules.and_then(|rules| rules.decompress_max) {
        None => Ok(()),
        Some(max) => decode(gateway, request, max).map_err(Ended::Rejected),
    }
}

#[inline(never)]
fn decode<E>(
    gateway: &GatewayService<E>,
    request: &mut Request<'_>,
    max: u64,
) -> Result<(), Rejection> {
    let fields = &mut request.head.fields;
    let is_plain = matches!(request.kind, RequestKind::Plain);
    let has_content = !matches!(
        request.upload.length(),
        BodyLength::Empty | BodyLength::NothingButTrailers
    );
    if !is_plain || !has_content || !fields.contains(Name::ContentEncoding) {
        return Ok(());
    }
    let Some(coding) = RequestCoding::of(fields)? else {
        fields.remove(Name::ContentEncoding);
        return Ok(());
    };
    RequestCoding::remove_from(fields);
    let own = request.rules.and_then(|rules| rules.body_bytes_max);
    let body_max = own.or(gateway.options.body_bytes_max);
    let max = body_max.map_or(max, |body_max| max.min(body_max));
    let client = client_of(
        fields,
        &request.record.client,
        &gateway.options.trusted_proxies,
    );
    let decoder = Decoder::new(coding, max, client).ok_or(Rejection::DecodersFull)?;
    request.upload.transform(Box::new(decoder));
    Ok(())
}
