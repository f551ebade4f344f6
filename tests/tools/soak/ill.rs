//! Two more destinations that are always ill, one of them over TLS: the healthy one must not
//! notice.

use anyhow::Result;
use sandbox::{Folder, Manner, Sink, TlsProxy, destination, free_port};

/// A port that refuses, closes, hangs or talks, and stunnel in front of it.
pub(crate) struct Ill {
    port: u16,
    sink: Option<Sink>,
    /// The `[[carbon]]` tables.
    pub(crate) destinations: String,
    _stunnel: TlsProxy,
}

impl Ill {
    pub(crate) fn start(folder: &Folder) -> Result<Self> {
        let port = free_port()?;
        let stunnel = TlsProxy::with(folder, "ill", port, "localhost", "")?;
        let tls = format!("tls = true\nca_file = {:?}\n", stunnel.authority.ca);
        let plain = destination("ill", &format!("127.0.0.1:{port}"));
        let destinations =
            plain + &destination("ill-tls", &format!("localhost:{}", stunnel.port)) + &tls;
        Ok(Self { port, sink: None, destinations, _stunnel: stunnel })
    }

    /// Breaks its connections and treats new ones like this; `None` refuses them.
    pub(crate) fn behave(&mut self, manner: Option<Manner>) -> Result<()> {
        self.sink = None;
        self.sink = manner.map(|manner| Sink::on(self.port, manner)).transpose()?;
        Ok(())
    }

    /// Is ill in a random way.
    pub(crate) fn change(&mut self, random: &mut fastrand::Rng) -> Result<()> {
        let manners = [None, Some(Manner::Close), Some(Manner::Silent), Some(Manner::Talk)];
        self.behave(random.choice(manners).flatten())
    }
}
