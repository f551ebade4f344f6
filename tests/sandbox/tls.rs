//! An authority whose certificates the openssl command makes, and stunnel in front of a port.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{Folder, Invocation, Process, find_program, free_port, proc};

const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/// A certificate authority.
#[derive(Debug, Clone)]
pub struct Authority {
    /// Its certificate.
    pub ca: PathBuf,
    key: PathBuf,
}

/// A certificate and its private key.
#[derive(Debug, Clone)]
pub struct Identity {
    /// A PEM file.
    pub certificate: PathBuf,
    /// A PEM file.
    pub key: PathBuf,
}

impl Authority {
    /// Creates an authority; `name` names its files.
    pub fn new(folder: &Folder, name: &str) -> Result<Self> {
        let path = |end: &str| folder.path().join(format!("{name}.{end}"));
        let args = [&["req", "-x509", "-days", "30", "-subj", "/CN=sandbox"], &KEY[..]].concat();
        openssl(folder, &args, &[("-keyout", &path("key")), ("-out", &path("pem"))])?;
        Ok(Self { ca: path("pem"), key: path("key") })
    }

    /// Issues a certificate for a subject's name, such as `DNS:localhost`; one that is not `good` expired in 2020.
    pub fn issue(&self, folder: &Folder, name: &str, subject: &str, good: bool) -> Result<Identity> {
        let path = |end: &str| folder.path().join(format!("{name}.{end}"));
        let identity = Identity { certificate: path("pem"), key: path("key") };
        fs::write(path("ext"), format!("subjectAltName={subject}\n"))?;
        fs::write(path("index"), "")?;
        fs::write(
            path("cnf"),
            format!(
                "[ca]\ndefault_ca=it\n[it]\ndatabase={}\nnew_certs_dir={}\ndefault_md=sha256\nrand_serial=yes\npolicy=any\n\
                 [any]\ncommonName=supplied\n",
                path("index").display(),
                folder.path().display()
            ),
        )?;
        let subject = format!("/CN={name}");
        let args = [&["req", "-subj", &subject], &KEY[..]].concat();
        openssl(folder, &args, &[("-keyout", &identity.key), ("-out", &path("csr"))])?;
        let time: &[&str] = if good {
            &["-days", "30"]
        } else {
            &["-startdate", "20200101000000Z", "-enddate", "20200201000000Z"]
        };
        openssl(
            folder,
            &[&["ca", "-batch", "-notext"], time].concat(),
            &[
                ("-config", &path("cnf")),
                ("-in", &path("csr")),
                ("-cert", &self.ca),
                ("-keyfile", &self.key),
                ("-extfile", &path("ext")),
                ("-out", &identity.certificate),
            ],
        )?;
        Ok(identity)
    }
}

impl Identity {
    /// Both in one file, as some servers need it.
    pub fn in_one_file(&self) -> Result<PathBuf> {
        let path = self.certificate.with_extension("both");
        let text = [&self.certificate, &self.key].map(fs::read_to_string);
        let [certificate, key] = text;
        fs::write(&path, certificate? + &key?)?;
        Ok(path)
    }
}

/// stunnel, TLS in front of a port, with its own authority.
#[derive(Debug)]
pub struct TlsProxy {
    /// The program.
    pub process: Process,
    /// Its port.
    pub port: u16,
    /// The certificate of the authority.
    pub ca: PathBuf,
    /// The certificate of another authority.
    pub other_ca: PathBuf,
}

impl TlsProxy {
    /// stunnel, not started yet; its certificate is only for `localhost`.
    pub fn new(folder: &Folder, to: u16) -> Result<Self> {
        Self::of(folder, to, "localhost")
    }

    /// The same with a certificate for this host.
    pub fn of(folder: &Folder, to: u16, host: &str) -> Result<Self> {
        let (authority, other) = (Authority::new(folder, "ca")?, Authority::new(folder, "other")?);
        let server = authority.issue(folder, "server", &format!("DNS:{host}"), true)?;
        let (process, port) = stunnel(folder, "stunnel", to, &server, "")?;
        Ok(Self { process, port, ca: authority.ca, other_ca: other.ca })
    }
}

/// stunnel in front of the port `to`, not started yet, and its port; `more` are additional lines for its service.
pub fn stunnel(
    folder: &Folder,
    name: &str,
    to: u16,
    server: &Identity,
    more: &str,
) -> Result<(Process, u16)> {
    let port = free_port()?;
    let conf = folder.path().join(format!("{name}.conf"));
    let text = format!(
        "foreground = yes\npid =\n[tls]\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{to}\ncert = {}\nkey = {}\n{more}",
        server.certificate.display(),
        server.key.display()
    );
    fs::write(&conf, text)?;
    let process = Process::new(folder, name, find_program("stunnel")?)
        .args([conf])
        .ready(move || proc::listening(port));
    Ok((process, port))
}

fn openssl(folder: &Folder, args: &[&str], files: &[(&str, &Path)]) -> Result<()> {
    let files: Vec<String> =
        files.iter().flat_map(|(flag, path)| [(*flag).to_owned(), path.display().to_string()]).collect();
    let args: Vec<&str> = args.iter().copied().chain(files.iter().map(String::as_str)).collect();
    Invocation::of(folder, &find_program("openssl")?, &args)?.succeed().map(drop)
}
