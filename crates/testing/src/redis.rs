//! A peer with the protocol of Redis, RESP, which fails as it is told to.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// How a [`RedisPeer`] answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RedisMode {
    /// As a server does.
    #[default]
    Answers,
    /// Not at all.
    IsSilent,
    /// It closes connections at their next command.
    Closes,
    /// It loses the scripts that a connection loads first.
    HasLostScripts,
    /// Its scripts give other values than they should.
    SaysNonsense,
    /// It grants more tokens than anybody wants.
    GrantsTooMuch,
}

/// The peer. Each key of the rate limits has so many tokens, and gets no more.
pub struct RedisPeer {
    /// Where it is, with a password.
    pub url: String,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    mode: RedisMode,
    connections: usize,
    tokens: i64,
    /// Tokens that were taken, by key.
    taken: HashMap<String, i64>,
}

impl RedisPeer {
    /// Starts it on a port of its own.
    #[must_use]
    pub fn start(tokens: i64) -> RedisPeer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let state = State {
            tokens,
            ..State::default()
        };
        let peer = RedisPeer {
            url: format!("redis://:secret@{address}/3"),
            state: Arc::new(Mutex::new(state)),
        };
        let state = Arc::clone(&peer.state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                lock(&state).connections += 1;
                let state = Arc::clone(&state);
                // It ends with the connection.
                thread::spawn(move || drop(answer(stream, &state)));
            }
        });
        peer
    }

    /// Answers in another way from now on.
    pub fn set(&self, mode: RedisMode) {
        lock(&self.state).mode = mode;
    }

    /// Connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        lock(&self.state).connections
    }

    /// The keys from which tokens were taken, and how many.
    #[must_use]
    pub fn taken(&self) -> HashMap<String, i64> {
        lock(&self.state).taken.clone()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers the commands of a connection.
fn answer(stream: TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let mut input = BufReader::new(stream.try_clone()?);
    let mut output = stream;
    let mut loaded = 0;
    loop {
        let command = command(&mut input)?;
        let word = |at: usize| command.get(at).map_or("", String::as_str);
        let mode = lock(state).mode;
        let lacks_scripts = mode == RedisMode::HasLostScripts && loaded < 4;
        let response = match (word(0), mode) {
            (_, RedisMode::IsSilent) => continue,
            (_, RedisMode::Closes) => return Ok(()),
            ("SCRIPT", _) => {
                // Those that a connection loads first are lost at once.
                loaded += 1;
                match word(2).contains("ZCARD") {
                    true => "$4\r\njoin\r\n".to_owned(),
                    false => "$4\r\ntake\r\n".to_owned(),
                }
            }
            ("EVALSHA", _) if lacks_scripts => "-NOSCRIPT No matching script\r\n".to_owned(),
            ("EVALSHA", RedisMode::SaysNonsense) => "*2\r\n+a\r\n$-1\r\n".to_owned(),
            ("EVALSHA", _) if word(1) == "join" => ":2\r\n".to_owned(),
            ("EVALSHA", RedisMode::GrantsTooMuch) => "*2\r\n:4000000000\r\n:0\r\n".to_owned(),
            ("EVALSHA", _) => take(&command, &mut lock(state)),
            _ => "+OK\r\n".to_owned(),
        };
        output.write_all(response.as_bytes())?;
    }
}

/// The script that takes tokens: charged ones in any case, and wanted ones as far as there are any.
fn take(command: &[String], state: &mut State) -> String {
    let number = |at: usize| command.get(at).and_then(|text| text.parse::<i64>().ok());
    let (Some(key), Some(charged), Some(wanted)) = (command.get(3), number(7), number(8)) else {
        return "-ERR arguments\r\n".to_owned();
    };
    let all = state.tokens;
    let taken = state.taken.entry(key.clone()).or_default();
    *taken += charged;
    let granted = (all - *taken).clamp(0, wanted);
    *taken += granted;
    let interval = command.get(4).and_then(|text| text.parse::<f64>().ok());
    let wait = match all - *taken {
        left if left > 0 => (1 - left) * interval.unwrap_or_default() as i64,
        _ => 60_000_000,
    };
    format!("*2\r\n:{granted}\r\n:{wait}\r\n")
}

/// The next command, a list of texts.
fn command(input: &mut impl BufRead) -> io::Result<Vec<String>> {
    let count = number(input)?;
    let mut texts = Vec::new();
    for _ in 0..count {
        let mut text = vec![0; number(input)? + 2];
        input.read_exact(&mut text)?;
        text.truncate(text.len() - 2);
        texts.push(String::from_utf8_lossy(&text).into_owned());
    }
    Ok(texts)
}

/// The number of a line behind its first character.
fn number(input: &mut impl BufRead) -> io::Result<usize> {
    let mut line = String::new();
    input.read_line(&mut line)?;
    let digits = line.trim_end().get(1..);
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
