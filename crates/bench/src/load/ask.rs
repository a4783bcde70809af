//! Single requests whose responses are looked at, for checks before a measurement.

use std::time::Duration;

use blitz_http::{
    Address, ClientConnection, ClientOptions, ClientTls, ClientTlsSlot, Config, ConnectOptions,
    Part, Pinning, Protocol, UpstreamTls, block_on, timeout,
};

use super::exchange::Upload;
use super::request::{RequestContent, RequestSpec};
use super::target::OriginUrl;
use super::template::Values;

/// The longest time of one response.
const WITHIN: Duration = Duration::from_secs(10);
/// More than any response that is checked.
const CONTENT_BYTES_MAX: usize = 16 << 20;

/// A request to `base`, a URL without a path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ask {
    /// A GET if it is `None`, otherwise a POST with this content.
    pub(crate) content: Option<Vec<u8>>,
    pub(crate) path: String,
    pub(crate) fields: Vec<(String, String)>,
}

/// Its response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) content_encoding: String,
    pub(crate) content: Vec<u8>,
}

/// Sends the requests one after the other on a connection of this protocol, and accepts any certificate.
///
/// # Errors
/// The request that has no response, and why.
pub(crate) fn ask_all(
    base: &str,
    protocol: Protocol,
    requests: &[Ask],
) -> Result<Vec<Answer>, String> {
    let config = Config {
        cores: 1,
        pin: Pinning::Off,
        ..Config::default()
    };
    let answers = block_on(&config, async {
        let (address, options) = target(base, protocol)?;
        let mut connection = connect(&address, &options).await?;
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            // A server may have closed the connection after the last response.
            if !matches!(timeout(WITHIN, connection.ready()).await, Ok(Ok(()))) {
                connection = connect(&address, &options).await?;
            }
            let answer = timeout(WITHIN, ask(&connection, base, request)).await;
            let answer = answer.unwrap_or_else(|_| Err("no response in time".to_owned()));
            answers.push(answer.map_err(|error| format!("{}: {error}", request.path))?);
        }
        connection.close();
        Ok(answers)
    });
    answers.map_err(|error| format!("the I/O driver cannot be opened: {error}"))?
}

fn target(base: &str, protocol: Protocol) -> Result<(Address, ConnectOptions), String> {
    let origin = OriginUrl::parse(base)?;
    let (_, address) = base.split_once("://").unwrap_or_default();
    let address = address
        .parse()
        .map_err(|_| format!("{base}: no address and port"))?;
    let tls = match origin.is_https {
        true => {
            let tls = ClientTls::builder().danger_accept_any_certificate().build();
            let tls = ClientTlsSlot::from(tls.map_err(|error| error.to_string())?);
            let tls = UpstreamTls::new(&tls, origin.name());
            Some(tls.map_err(|error| error.to_string())?)
        }
        false => None,
    };
    let options = ConnectOptions {
        protocol,
        tls,
        resume: true,
        own_socket: true,
        client: std::rc::Rc::new(ClientOptions::default()),
    };
    Ok((Address::Tcp(address), options))
}

async fn connect(address: &Address, options: &ConnectOptions) -> Result<ClientConnection, String> {
    let connection = timeout(WITHIN, ClientConnection::connect(address, options)).await;
    let connection = connection.map_err(|_| "no connection in time".to_owned())?;
    connection.map_err(|error| error.to_string())
}

async fn ask(connection: &ClientConnection, base: &str, request: &Ask) -> Result<Answer, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let spec = RequestSpec {
        method: if request.content.is_some() {
            "POST"
        } else {
            "GET"
        }
        .to_owned(),
        has_placeholders: false,
        literal_fields: request.fields.clone(),
        content: match &request.content {
            Some(content) => RequestContent::Bytes(content.clone()),
            None => RequestContent::None,
        },
        ..RequestSpec::get(&format!("{base}{}", request.path))
    };
    let mut prepared = spec.prepare()?;
    let [values, _] = Values::examples();
    let (head, content) = prepared.next(&values);
    let (body, mut response) = connection
        .request(head, content.length())
        .map_err(|error| failed(&error))?;
    let mut upload = Upload::new(body, content);
    let mut response = upload
        .response(&mut response)
        .await
        .map_err(|error| failed(&error))?;
    let field = |name: &str| {
        let value = response.head.fields.get_str(name);
        value.unwrap_or_default().to_owned()
    };
    let (content_type, content_encoding) = (field("content-type"), field("content-encoding"));
    let mut content = Vec::new();
    while let Some(part) = upload
        .next(&mut response.body)
        .await
        .map_err(|error| failed(&error))?
    {
        let Part::Data(slice) = part else { continue };
        if content.len() + slice.len() > CONTENT_BYTES_MAX {
            return Err("the content is too long".to_owned());
        }
        content.extend_from_slice(&slice);
    }
    Ok(Answer {
        status: response.head.status.code(),
        content_type,
        content_encoding,
        content,
    })
}
