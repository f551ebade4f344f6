//! An authority whose certificates the openssl command makes, and stunnel with its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::{Folder, Invocation, Process, Relay, find_program};

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

    /// Issues a certificate for a subject's name, such as `DNS:localhost`; one that is not `good`
    /// expired in 2020.
    pub fn issue(
        &self,
        folder: &Folder,
        name: &str,
        subject: &str,
        good: bool,
    ) -> Result<Identity> {
        let path = |end: &str| folder.path().join(format!("{name}.{end}"));
        let identity = Identity { certificate: path("pem"), key: path("key") };
        fs::write(path("ext"), format!("subjectAltName={subject}\n"))?;
        fs::write(path("index"), "")?;
        fs::write(
            path("cnf"),
            format!(
                "[ca]\ndefault_ca=it\n[it]\ndatabase={}\nnew_certs_dir={}\ndefault_md=sha256\n\
                 rand_serial=yes\npolicy=any\n[any]\ncommonName=supplied\n",
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
        fs::write(&path, fs::read_to_string(&self.certificate)? + &fs::read_to_string(&self.key)?)?;
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
    /// Its authority.
    pub authority: Authority,
}

impl TlsProxy {
    /// Starts stunnel; its certificate is only for `localhost`.
    pub fn start(folder: &Folder, to: u16) -> Result<Self> {
        Self::with(folder, "tls", to, "localhost", "")
    }

    /// Starts stunnel with a certificate for this host and additional lines for its service; `name`
    /// begins the names of its files.
    pub fn with(folder: &Folder, name: &str, to: u16, host: &str, more: &str) -> Result<Self> {
        let authority = Authority::new(folder, &format!("{name}-ca"))?;
        let server =
            authority.issue(folder, &format!("{name}-server"), &format!("DNS:{host}"), true)?;
        let Relay { process, port } = Relay::stunnel(folder, name, to, &server, more)?;
        Ok(Self { process, port, authority })
    }
}

fn openssl(folder: &Folder, args: &[&str], files: &[(&str, &Path)]) -> Result<()> {
    let files: Vec<String> = files
        .iter()
        .flat_map(|(flag, path)| [(*flag).to_owned(), path.display().to_string()])
        .collect();
    let args: Vec<&str> = args.iter().copied().chain(files.iter().map(String::as_str)).collect();
    Invocation::of_program(folder, &find_program("openssl")?, &args)?.succeed().map(drop)
}
