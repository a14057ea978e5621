//! Runs the binary: once to its end, or as a daemon that is watched and told to stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything here takes, shorter than a person's patience.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The binary in a folder of its own, without the settings of whoever runs the tests.
pub(crate) fn pillarbox(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pillarbox"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PILLARBOX_") {
            command.env_remove(name);
        }
    }
    command.current_dir(folder).args(arguments).stdin(Stdio::null());
    command
}

/// What came of a command that ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).expect("UTF-8"),
            stderr: String::from_utf8(output.stderr).expect("UTF-8"),
        }
    }
}

impl Ended {
    /// It did what it was asked to: its output.
    pub(crate) fn good(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.stdout
    }

    /// It failed so: what it said.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.starts_with("error: "), "{self:?}");
        self.stderr
    }
}

/// Runs to the end.
pub(crate) fn run(folder: &Path, arguments: &[&str]) -> Ended {
    pillarbox(folder, arguments)
        .output()
        .expect("the binary runs")
        .into()
}

/// Runs to the end with something to read.
pub(crate) fn run_with_input(folder: &Path, arguments: &[&str], input: &str) -> Ended {
    let mut command = pillarbox(folder, arguments);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(input.as_bytes())
        .expect("it reads");
    child.wait_with_output().expect("it ends").into()
}

/// A running daemon. Killed when dropped.
pub(crate) struct Daemon {
    child: Child,
    said: Arc<Mutex<String>>,
    printed: Arc<Mutex<String>>,
    /// Those who read what it says and prints, until it has ended.
    readers: Vec<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let (said, of_stderr) = collect(child.stderr.take().expect("piped"));
        let (printed, of_stdout) = collect(child.stdout.take().expect("piped"));
        Self {
            child,
            said,
            printed,
            readers: vec![of_stderr, of_stdout],
        }
    }

    /// All of standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// All of standard output so far.
    pub(crate) fn printed(&self) -> String {
        self.printed.lock().unwrap().clone()
    }

    /// Waits until it has said this.
    pub(crate) fn wait_for(&self, text: &str) {
        eventually(&format!("it says {text:?}"), || {
            let said = self.said();
            if said.contains(text) { Ok(()) } else { Err(said) }
        });
    }

    /// Waits until it has printed an event, and returns the first.
    pub(crate) fn wait_for_printed(&self) -> serde_json::Value {
        let first = eventually("it prints an event", || {
            let first = self.printed().lines().next().map(str::to_owned);
            first.ok_or_else(|| self.said())
        });
        serde_json::from_str(&first).expect("one JSON object per line")
    }

    /// Where it listens, as it says itself.
    pub(crate) fn address(&self) -> String {
        self.wait_for("listening");
        let said = self.said();
        let (_, rest) = said.split_once("listening").expect("just seen");
        let (_, rest) = rest.split_once("http://").expect("an address");
        rest.chars()
            .take_while(|c| c.is_ascii_digit() || ".:".contains(*c))
            .collect()
    }

    /// Asks the API.
    pub(crate) fn get(&self, path: &str) -> Answer {
        request(&self.address(), "GET", path)
    }

    /// Waits until `/readyz` says yes.
    pub(crate) fn wait_until_ready(&self) {
        eventually("it is ready", || match self.get("/readyz") {
            Answer { status: 200, .. } => Ok(()),
            other => Err(format!("{other:?}\n{}", self.said())),
        });
    }

    /// Waits until the counts are such.
    pub(crate) fn wait_for_stats(
        &self,
        what: &str,
        wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        eventually(what, || {
            let answer = self.get("/api/v1/stats");
            let stats: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
            if wanted(&stats) {
                Ok(stats)
            } else {
                Err(format!("{answer:?}\n{}", self.said()))
            }
        })
    }

    /// Sends a signal, by its name without SIG.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .expect("sh runs")
                .success()
        );
    }

    /// Waits for its end, and until all that it said and printed has been read.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = eventually("it ends", || match child.try_wait().expect("it is our child") {
            Some(status) => Ok(status),
            None => Err("still running".to_owned()),
        });
        for reader in self.readers.drain(..) {
            reader.join().expect("it only reads");
        }
        status
    }

    /// Asks it to stop, and expects that it does so in order.
    pub(crate) fn stop(mut self) -> String {
        self.signal("TERM");
        let status = self.end();
        let said = self.said();
        assert_eq!(status.code(), Some(0), "{said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What comes of a stream, and the thread that reads it until its end.
fn collect(stream: impl Read + Send + 'static) -> (Arc<Mutex<String>>, JoinHandle<()>) {
    let text = Arc::new(Mutex::new(String::new()));
    let shared = Arc::clone(&text);
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            let mut text = shared.lock().unwrap();
            text.push_str(&line);
            text.push('\n');
        }
    });
    (text, reader)
}

/// Looks again and again until it is so; then gives what it saw. Panics with the last look.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(last) => assert!(Instant::now() < deadline, "never so: {what}\nlast seen: {last}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An HTTP answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// One request, by hand: a client would be more than is needed.
pub(crate) fn request(address: &str, method: &str, path: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"
    )
    .expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .expect("a status");
    Answer {
        status,
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}
