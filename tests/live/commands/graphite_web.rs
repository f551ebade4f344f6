//! graphite-web for a sandbox's Carbon, for `--read-back`.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use sandbox::{Process, Sandbox, free_port, proc};

/// Debian's graphite-web, run by the system's python3 with Python's own small web server.
pub(crate) struct GraphiteWeb {
    pub(crate) url: String,
    _process: Process,
}

impl GraphiteWeb {
    pub(crate) fn start(sandbox: &Sandbox) -> Result<Self> {
        let port = free_port()?;
        let home = sandbox.path("graphite-web");
        fs::create_dir(&home)?;
        let (path, whisper) = (home.display(), sandbox.path("carbon/whisper"));
        let settings = format!(
            "SECRET_KEY = 'sandbox'\nTIME_ZONE = 'UTC'\nALLOWED_HOSTS = ['*']\nLOG_DIR = '{path}'\nSTORAGE_DIR = '{path}'\n\
             STANDARD_DIRS = ['{}']\nCARBONLINK_HOSTS = ['127.0.0.1:{}:a']\n\
             DATABASES = {{'default': {{'ENGINE': 'django.db.backends.sqlite3', 'NAME': '{path}/graphite.db'}}}}\n",
            whisper.display(),
            sandbox.carbon.query_port
        );
        fs::write(home.join("sandbox_settings.py"), settings)?;
        let serve = "import sys, django\nfrom wsgiref.simple_server import make_server\ndjango.setup()\n\
                     from graphite.wsgi import application\nmake_server('127.0.0.1', int(sys.argv[1]), application).serve_forever()\n";
        // It must be the system's python3, because the package belongs to it.
        let mut process = Process::new(&sandbox.folder, "graphite-web", PathBuf::from("/usr/bin/python3"))
            .args(["-c", serve, &port.to_string()])
            .env("DJANGO_SETTINGS_MODULE", "graphite.settings")
            .env("GRAPHITE_SETTINGS_MODULE", "sandbox_settings")
            .env("PYTHONPATH", &home)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .ready(move || proc::listening(port));
        process.start()?;
        Ok(Self { url: format!("http://127.0.0.1:{port}"), _process: process })
    }
}
